//! Limits of users in the queue.

use std::collections::BTreeMap;

use crate::common::{DONE, MODEL, Node, estimated, gib, oom, preemptible, started, verdict, with};
use radrm_need::Source;
use radrm_scheduler_core::{
    Action, Allowance, AllowedDevices, Bound, Bytes, Decision, DeviceId, DeviceQuota, Event, GroupMembers,
    Job, JobId, Memory, Millis, Need, Permille, Phase, Policy, Quiet, Reason, Settings, SmallJobs, Together,
    UserId, Verdict, Wait,
};

fn bound(most: u64) -> Option<Bound> {
    Some(Bound { most, from: "default".to_owned() })
}

fn node(gpus: u32) -> Node {
    Node::new(gpus, with(Policy::FirstFit))
}

fn limit(node: &mut Node, user: u32, allowance: Allowance) -> Vec<u64> {
    let allowance = Box::new(allowance);
    let decisions = node.step(Event::AllowanceSet { user: UserId(user), allowance });
    (1..40).filter(|id| started(&decisions, *id).is_some()).collect()
}

fn of(id: u64, user: u32, gpus: u16) -> Job {
    Job { user: UserId(user), gpus, exclusive: true, ..gib(id, 1) }
}

fn why(node: &Node, id: u64) -> String {
    node.state.history(JobId(id)).pop().unwrap().1.to_string()
}

#[test]
fn a_user_at_a_limit_waits_and_others_do_not() {
    let mut node = node(4);
    limit(&mut node, 7, Allowance { gpus: bound(2), ..Allowance::default() });
    node.run(of(1, 7, 1));
    node.run(of(2, 7, 2));
    node.run(of(3, 7, 1));
    assert_eq!((node.phase(2), node.phase(3)), (Phase::Waiting, Phase::Waiting), "in the order of the queue");
    assert!(started(&node.run(of(4, 8, 3)), 4).is_some(), "another user's job passes both");
    assert!(node.state.reserved_for().is_none(), "no device is kept for a job that may not start");
    let text = why(&node, 2);
    assert!(text.contains("may have 2 GPUs at once (gpus, default), has 1, and it needs 2"), "{text}");
    assert!(text.ends_with("it can start when jobs of that user give 1 GPU back"), "{text}");
    let behind = "job 2 of its user is before it and leaves too little of gpus (2 GPUs, default)";
    assert_eq!(why(&node, 3), behind, "with one GPU of two the limit itself is not reached");
    node.finish(4, DONE);
    assert_eq!(node.phase(2), Phase::Waiting);
    assert!(started(&node.finish(1, DONE), 2).is_some());
    assert_eq!(node.phase(3), Phase::Waiting);
    assert_eq!(limit(&mut node, 7, Allowance::default()), [3], "a limit that is lifted holds no more");
}

#[test]
fn a_job_waits_for_memory_that_its_user_has_on_a_device() {
    let quotas =
        |gib: u64| vec![DeviceQuota { device: DeviceId(0), bytes: Bytes::from_gib(gib), group: None }];
    let mut node = Node::new(1, Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) });
    limit(&mut node, 7, Allowance { quotas: quotas(20), ..Allowance::default() });
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    assert!(started(&node.run(of(1, 7, 15)), 1).is_some());
    node.run(of(2, 7, 15));
    assert_eq!(node.phase(2), Phase::Waiting, "15 GiB and 15 GiB are more than the user's 20 GiB");
    let text = why(&node, 2);
    assert!(text.contains("its user may have 20.0 GiB on a GPU"), "{text}");
    assert!(started(&node.run(of(3, 8, 15)), 3).is_some(), "the limit of a user holds for that user");
    node.finish(3, DONE);
    assert!(started(&node.finish(1, DONE), 2).is_some());
    node.finish(2, DONE);
    assert!(started(&node.run(of(4, 7, 30)), 4).is_some(), "alone it gets what the limit leaves it");
    node.run(of(5, 7, 2));
    assert_eq!(node.phase(5), Phase::Waiting);
    assert_eq!(limit(&mut node, 7, Allowance { quotas: quotas(39), ..Allowance::default() }), [5]);
}

#[test]
fn a_job_waits_for_memory_that_members_of_its_users_group_have_on_a_device() {
    let group = Some(GroupMembers { name: "lab".to_owned(), users: vec![UserId(7), UserId(8)] });
    let quotas = vec![DeviceQuota { device: DeviceId(0), bytes: Bytes::from_gib(20), group }];
    let mut node = Node::new(1, Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) });
    for user in [7, 8] {
        limit(&mut node, user, Allowance { quotas: quotas.clone(), ..Allowance::default() });
    }
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    assert!(started(&node.run(of(1, 7, 15)), 1).is_some());
    node.run(of(2, 8, 15));
    assert_eq!(node.phase(2), Phase::Waiting, "15 GiB and 15 GiB are more than the group's 20 GiB");
    let text = why(&node, 2);
    assert!(text.contains("members of group lab may have 20.0 GiB on a GPU together"), "{text}");
    node.run(of(3, 7, 2));
    assert_eq!(node.phase(3), Phase::Waiting, "a later job of another member does not pass it");
    assert!(
        node.state.reserved_for().is_none(),
        "what users outside of the group give back does not help it"
    );
    assert!(started(&node.run(of(4, 9, 15)), 4).is_some(), "the limit of a group holds for its members");
    let made = node.finish(1, DONE);
    assert!(started(&made, 2).is_some() && started(&made, 3).is_some(), "{made:?}");
}

#[test]
fn a_job_that_waits_for_its_own_users_memory_is_in_no_way_but_that_users() {
    let quotas = vec![DeviceQuota { device: DeviceId(0), bytes: Bytes::from_gib(20), group: None }];
    let mut node = Node::new(1, Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) });
    limit(&mut node, 7, Allowance { quotas, ..Allowance::default() });
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    node.run(of(1, 7, 15));
    node.run(of(2, 7, 15));
    assert!(node.state.reserved_for().is_none(), "what others give back does not help it");
    node.run(of(3, 7, 2));
    assert_eq!(node.phase(3), Phase::Waiting, "a later job of that user does not pass it");
    let least = Job { preemption: preemptible(Ok(())), priority: -1, ..of(4, 8, 5) };
    assert!(started(&node.run(least), 4).is_some());
    node.at(1).step(Event::Tick);
    assert_eq!(node.phase(4), Phase::Running, "a job that is not in the way stays");
    let made = node.finish(1, DONE);
    assert!(started(&made, 2).is_some() && started(&made, 3).is_some(), "{made:?}");
}

/// Limit of a group of these members; none: the user's own.
fn quota(device: u32, gib: u64, members: &[u32]) -> DeviceQuota {
    let users: Vec<UserId> = members.iter().copied().map(UserId).collect();
    let group = (!users.is_empty()).then(|| GroupMembers { name: "lab".to_owned(), users });
    DeviceQuota { device: DeviceId(device), bytes: Bytes::from_gib(gib), group }
}

#[test]
fn members_of_a_group_start_where_no_job_of_the_group_waits_under_its_limit() {
    let mut node = Node::new(2, Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) });
    let quotas = vec![quota(0, 20, &[7, 8])];
    let devices = Some(AllowedDevices { devices: vec![DeviceId(0)], from: "default".to_owned() });
    limit(&mut node, 7, Allowance { quotas: quotas.clone(), devices, ..Allowance::default() });
    limit(&mut node, 8, Allowance { quotas, ..Allowance::default() });
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    assert_eq!(started(&node.run(of(1, 8, 15)), 1), Some((1, vec![0])));
    node.run(of(2, 7, 15));
    assert_eq!(node.phase(2), Phase::Waiting);
    assert_eq!(
        started(&node.run(of(3, 8, 2)), 3),
        Some((1, vec![1])),
        "GPU 0 has room for it, and job 2 is first"
    );
    assert!(started(&node.run(Job { gpus: 0, need: None, ..of(4, 8, 0) }), 4).is_some());
    node.step(Event::DeviceDrained { device: DeviceId(1), drained: true });
    node.run(of(5, 8, 2));
    assert!(why(&node, 5).starts_with("job 2 is before it"), "{}", why(&node, 5));
    let made = node.finish(1, DONE);
    assert!(started(&made, 2).is_some() && started(&made, 5).is_some(), "{made:?}");
}

#[test]
fn a_user_at_an_own_limit_of_memory_is_in_no_other_members_way() {
    let mut node = Node::new(1, Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) });
    let lab = quota(0, 39, &[7, 8]);
    limit(&mut node, 7, Allowance { quotas: vec![quota(0, 20, &[]), lab.clone()], ..Allowance::default() });
    limit(&mut node, 8, Allowance { quotas: vec![lab], ..Allowance::default() });
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    node.run(of(1, 7, 15));
    node.run(of(2, 7, 15));
    assert_eq!(node.phase(2), Phase::Waiting);
    assert!(started(&node.run(of(3, 8, 5)), 3).is_some());
}

#[test]
fn jobs_behind_a_limit_of_memory_use_up_no_search_of_other_users() {
    let mut settings = Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) };
    settings.order.depth = 2;
    let mut node = Node::new(1, settings);
    limit(&mut node, 7, Allowance { quotas: vec![quota(0, 20, &[])], ..Allowance::default() });
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    node.run(of(1, 7, 15));
    // Each of another size: none is like another.
    (2..=9).for_each(|id| drop(node.run(of(id, 7, 13 + id))));
    assert!(started(&node.run(of(10, 8, 5)), 10).is_some());
    let waiting = (2..=9).all(|id| node.phase(id) == Phase::Waiting);
    assert!(waiting, "job 2 waits for memory, and all others behind it");
}

#[test]
fn a_job_of_several_gpus_that_waits_under_a_limit_on_one_is_not_passed_for_ever() {
    let mut node = Node::new(2, Settings { memory: Memory::Reserved, ..with(Policy::FirstFit) });
    for user in [7, 8] {
        let quotas = [0, 1].map(|device| quota(device, 20, &[7, 8])).to_vec();
        limit(&mut node, user, Allowance { quotas, ..Allowance::default() });
    }
    let of = |id: u64, user: u32, size: u64| Job { user: UserId(user), ..gib(id, size) };
    assert_eq!(started(&node.run(of(1, 7, 15)), 1), Some((1, vec![0])));
    node.run(Job { gpus: 2, ..of(2, 8, 15) });
    assert_eq!(node.phase(2), Phase::Waiting, "GPU 1 is free, and GPU 0 is not under the limit");
    assert!(node.state.reserved_for().is_none(), "what others give back does not help it");
    node.run(of(3, 7, 2));
    assert_eq!(node.phase(3), Phase::Waiting, "or the limit would be reached for ever");
    assert!(started(&node.run(of(4, 9, 5)), 4).is_some(), "the limit of a group holds for its members");
    let made = node.finish(1, DONE);
    assert_eq!(started(&made, 2), Some((1, vec![0, 1])), "{made:?}");
}

#[test]
fn a_gpu_on_which_the_user_may_have_too_little_is_the_last_choice() {
    let quotas =
        |gib: u64| vec![DeviceQuota { device: DeviceId(0), bytes: Bytes::from_gib(gib), group: None }];
    for policy in [Policy::FirstFit, Policy::Magm, Policy::Aware] {
        let mut node = Node::new(2, Settings { memory: Memory::Reserved, ..with(policy) });
        limit(&mut node, 7, Allowance { quotas: quotas(10), ..Allowance::default() });
        let job = |id: u64| Job { user: UserId(7), ..gib(id, 30) };
        let devices = |made: &[Decision], id| started(made, id).map(|(_, devices)| devices);
        assert_eq!(devices(&node.run(job(1)), 1), Some(vec![1]), "{policy}");
        assert_eq!(devices(&node.run(job(2)), 2), Some(vec![0]), "{policy}: it is better than none");
        node.finish(2, DONE);
        limit(&mut node, 7, Allowance { quotas: quotas(0), ..Allowance::default() });
        node.run(job(3));
        assert_eq!(node.phase(3), Phase::Waiting, "{policy}: nothing of that GPU is its user's");
        assert_eq!(devices(&node.finish(1, DONE), 3), Some(vec![1]), "{policy}");
    }
}

#[test]
fn equal_jobs_start_up_to_the_limit_and_no_later_job_passes_them() {
    let mut node = node(4);
    limit(&mut node, 7, Allowance { gpus: bound(2), ..Allowance::default() });
    for id in 1..=5 {
        node.run(of(id, 7, 1));
    }
    node.run(Job { need: None, exclusive: false, ..of(6, 7, 0) });
    let phases = [1, 2, 3, 4, 5, 6].map(|id| node.phase(id));
    let (runs, waits) = (Phase::Running, Phase::Waiting);
    assert_eq!(phases, [runs, runs, waits, waits, waits, waits]);
    for id in 4..=5 {
        assert!(why(&node, id).ends_with("job 3 of that user is before it"), "{}", why(&node, id));
    }
    let of_none = "job 3 of its user is before it and waits for more of gpus (2 GPUs, default)";
    assert_eq!(why(&node, 6), of_none);
    assert!(started(&node.run(of(7, 8, 2)), 7).is_some(), "another user's job passes all of them");
    let decisions = node.finish(1, DONE);
    assert!(started(&decisions, 3).is_some());
    assert!((4..=6).all(|id| started(&decisions, id).is_none()), "{decisions:?}");
}

#[test]
fn running_jobs_are_counted_with_those_without_gpus() {
    let mut node = node(4);
    limit(&mut node, 7, Allowance { running: bound(2), ..Allowance::default() });
    node.run(of(1, 7, 1));
    node.run(Job { need: None, exclusive: false, ..of(2, 7, 0) });
    node.run(of(3, 7, 1));
    let text = why(&node, 3);
    assert!(text.contains("may run 2 jobs (running_jobs, default), and 2 run"), "{text}");
    assert!(started(&node.finish(2, DONE), 3).is_some(), "the end of a job without GPUs makes room");
}

#[test]
fn a_job_that_its_users_limits_never_let_start_is_refused_or_waits_outside_of_the_queue() {
    let mut node = node(2);
    let declared = |id: u64, gib| Job {
        user: UserId(7),
        need: Some(Need::declared(Bytes::from_gib(gib))),
        time_limit: Some(Millis::from_secs(60)),
        ..Job::new(JobId(id))
    };
    let everything = Allowance {
        gpus: bound(1),
        time: bound(3_600_000),
        memory: bound(8 << 30),
        devices: Some(AllowedDevices { devices: vec![DeviceId(1)], from: "group lab".to_owned() }),
        ..Allowance::default()
    };
    limit(&mut node, 7, everything.clone());
    let refused = |job: Job| node.state.admission(&job, 0).unwrap_err().to_string();
    assert_eq!(
        refused(Job { gpus: 2, ..declared(1, 1) }),
        "it needs 2 GPUs, and its user may have 1 at once (gpus, default)"
    );
    let text = refused(Job { time_limit: None, ..declared(1, 1) });
    assert!(text.starts_with("it has no --time") && text.contains("(max_time, default)"), "{text}");
    let text = refused(declared(1, 9));
    assert!(
        text.contains("needs 9.00 GiB on each GPU") && text.contains("8.00 GiB (memory, default)"),
        "{text}"
    );
    limit(&mut node, 7, Allowance { gpus: None, ..everything.clone() });
    let text = node.state.admission(&Job { gpus: 2, ..declared(1, 1) }, 0).unwrap_err().to_string();
    assert_eq!(
        text,
        "it needs 2 GPUs, and 1 of those that its user may use would do (allowed_gpus, group lab)"
    );
    let decisions = node.run(declared(1, 8));
    let devices = decisions.iter().find_map(|made| match &made.action {
        Action::Start { devices, limit, .. } => Some((devices.clone(), *limit)),
        _ => None,
    });
    assert_eq!(devices, Some((vec![DeviceId(1)], Some(Bytes::from_gib(8)))));
    // Lowered while one waits: it stays out of the queue until the limit is raised, and the one that runs stays.
    node.run(Job { exclusive: true, ..declared(2, 8) });
    assert!(limit(&mut node, 7, Allowance { memory: bound(4 << 30), ..Allowance::default() }).is_empty());
    assert_eq!((node.phase(1), node.phase(2)), (Phase::Running, Phase::Held));
    assert!(matches!(node.state.job(JobId(2)).unwrap().wait, Some(Wait::NotAllowed { .. })));
    assert_eq!(limit(&mut node, 7, Allowance::default()), [2]);
}

#[test]
fn a_suspended_job_beyond_a_lowered_limit_is_in_the_way_of_no_job() {
    let mut node = node(4);
    let image = |id: u64, gpus: u16| Event::AdoptedSuspended {
        job: Box::new(Job { attempts: 1, ..of(id, 7, gpus) }),
        model: MODEL.to_owned(),
        bytes: Bytes::from_gib(1),
        gpus,
        devices: Vec::new(),
        whole: true,
        ran: Millis(0),
    };
    node.step(Event::Paused { paused: true });
    limit(&mut node, 7, Allowance { gpus: bound(1), ..Allowance::default() });
    node.step(image(1, 3));
    node.run(of(2, 7, 1));
    assert!(started(&node.step(Event::Paused { paused: false }), 2).is_some(), "it fits its user's limit");
    assert_eq!(node.phase(1), Phase::Suspended);
    assert!(why(&node, 1).ends_with("it can start when that limit is raised"), "{}", why(&node, 1));
    node.step(Event::Started { job: JobId(2), attempt: 1 });
    node.finish(2, DONE);
    limit(&mut node, 7, Allowance { gpus: bound(3), ..Allowance::default() });
    assert_ne!(node.phase(1), Phase::Suspended, "it comes back under a limit that lets it");
}

#[test]
fn a_job_whose_allowed_gpu_is_lost_is_in_the_way_of_no_job() {
    let mut settings = with(Policy::FirstFit);
    settings.order.backfill = false;
    let mut node = Node::new(2, settings);
    node.step(Event::DeviceLost { device: DeviceId(0) });
    node.run(of(1, 9, 1));
    node.run(of(2, 7, 1));
    let devices = Some(AllowedDevices { devices: vec![DeviceId(0)], from: "default".to_owned() });
    limit(&mut node, 7, Allowance { devices, ..Allowance::default() });
    assert_eq!(node.state.job(JobId(2)).unwrap().wait, Some(Wait::Lost));
    node.run(of(3, 8, 1));
    assert!(
        started(&node.finish(1, DONE), 3).is_some(),
        "the job before it waits for a GPU that is not there"
    );
    assert_eq!(limit(&mut node, 7, Allowance::default()), [] as [u64; 0]);
    node.step(Event::Started { job: JobId(3), attempt: 1 });
    assert!(started(&node.finish(3, DONE), 2).is_some(), "it may use the other GPU now");
}

#[test]
fn a_group_that_needs_more_gpus_than_are_allowed_is_refused_and_never_first() {
    let mut node = node(4);
    let devices = vec![DeviceId(2)];
    let allowed = AllowedDevices { devices, from: "group lab".to_owned() };
    let job = |id: u64, site| Job {
        together: Some(Together { first: JobId(1), members: 2, site, begun: false }),
        ..of(id, 7, 1)
    };
    let jobs = |sites: [u32; 2]| [job(1, sites[0]), job(2, sites[1])];
    assert!(node.state.allows_together(&jobs([0, 1])).is_ok());
    for job in jobs([0, 1]) {
        node.step(Event::Paused { paused: true });
        node.submit(job);
    }
    limit(&mut node, 7, Allowance { devices: Some(allowed), ..Allowance::default() });
    let why = node.state.allows_together(&jobs([0, 1])).unwrap_err().to_string();
    assert!(why.starts_with("it needs 2 GPUs, and 1 of those that its user may use"), "{why}");
    node.step(Event::Paused { paused: false });
    assert_eq!((node.phase(1), node.state.queue().len()), (Phase::Held, 0));
    assert_eq!(limit(&mut node, 7, Allowance::default()), [1, 2]);
}

fn quiet(small: SmallJobs) -> Allowance {
    let quiet = Quiet { hours: "22:00-07:00".to_owned(), from: "user bob".to_owned(), small };
    Allowance { quiet: Some(quiet), ..Allowance::default() }
}

#[test]
fn only_small_jobs_start_in_quiet_hours_that_except_them() {
    let hour = Millis::from_secs(3600);
    let small = SmallJobs { memory: Some(4 << 30), share: None, time: Some(hour.0) };
    let mut node = node(1);
    limit(&mut node, 7, quiet(small));
    let of = |id, size, limit| Job { user: UserId(7), time_limit: limit, ..gib(id, size) };
    node.run(of(1, 8, Some(hour)));
    node.run(of(2, 4, None));
    node.run(Job { exclusive: true, ..of(3, 4, Some(hour)) });
    node.run(Job { need: None, ..of(4, 4, Some(hour)) });
    let text = "of its user's jobs only those of at most 4.00 GiB on each GPU and --time 1h start at 22:00-07:00 \
                (quiet_hours, user bob)";
    // Too much memory, no time limit, a GPU of its own, unknown: each says so, and none is in the way of a small one.
    for id in 1..=4 {
        assert_eq!((node.phase(id), why(&node, id).as_str()), (Phase::Waiting, text), "job {id}");
    }
    assert!(node.state.reserved_for().is_none(), "no device is kept for a job that may not start");
    assert!(started(&node.run(of(5, 4, Some(hour))), 5).is_some());
    node.run(Job { gpus: 0, need: None, ..of(6, 4, Some(hour)) });
    assert_eq!(node.phase(6), Phase::Running, "a job without GPUs takes nothing of them");
    // Once they are over the jobs start in the order of the queue.
    assert!(limit(&mut node, 7, Allowance::default()).contains(&1));
}

#[test]
fn an_estimate_that_is_no_limit_makes_no_job_small() {
    let mut node = node(1);
    limit(&mut node, 7, quiet(SmallJobs { memory: Some(4 << 30), ..SmallJobs::default() }));
    let bytes = Bytes::from_gib(1);
    let of = |id, need| Job { user: UserId(7), need: Some(need), ..Job::new(JobId(id)) };
    node.run(of(1, Need::new(bytes, bytes, None, Source::UserEstimate)));
    node.run(of(2, Need::declared(bytes)));
    assert_eq!((node.phase(1), node.phase(2)), (Phase::Waiting, Phase::Running));
}

#[test]
fn a_share_makes_a_job_small_only_if_it_is_stated() {
    let mut node = node(1);
    limit(&mut node, 7, quiet(SmallJobs { share: Some(250), ..SmallJobs::default() }));
    let of = |id, share| Job { user: UserId(7), share, ..gib(id, 1) };
    node.run(of(1, None));
    node.run(of(2, Some(Permille(500))));
    node.run(of(3, Some(Permille(250))));
    assert_eq!([1, 2, 3].map(|id| node.phase(id)), [Phase::Waiting, Phase::Waiting, Phase::Running]);
}

#[test]
fn quiet_hours_keep_the_jobs_of_a_user_and_their_places() {
    let mut node = node(1);
    limit(&mut node, 7, quiet(SmallJobs::default()));
    node.run(of(1, 7, 1));
    assert_eq!(why(&node, 1), "jobs of its user do not start at 22:00-07:00 (quiet_hours, user bob)");
    assert!(node.state.reserved_for().is_none());
    assert!(started(&node.at(5).run(of(2, 8, 1)), 2).is_some());
    node.run(of(3, 8, 1));
    limit(&mut node, 7, Allowance::default());
    assert!(started(&node.finish(2, DONE), 1).is_some(), "its place is before that of job 3");
}

#[test]
fn jobs_of_a_group_without_numbers_are_not_counted_with_other_jobs() {
    let mut node = node(4);
    node.run(of(1, 7, 3));
    limit(&mut node, 7, Allowance { gpus: bound(2), ..Allowance::default() });
    // By its numbers job 1 would be the second of this group.
    let together = Some(Together { first: JobId(0), members: 2, site: 0, begun: false });
    let job = |gpus| Job { together, ..of(0, 7, gpus) };
    assert!(node.state.admission(&job(1), 0).is_ok());
    let why = node.state.allows_together(&[job(1), job(2)]).unwrap_err().to_string();
    assert_eq!(why, "it needs 3 GPUs, and its user may have 2 at once (gpus, default)");
}

#[test]
fn devices_are_kept_for_a_job_only_where_its_user_may_use_them() {
    let mut node = node(2);
    node.run(of(1, 8, 1));
    node.run(of(2, 8, 1));
    node.run(of(3, 7, 1));
    let (_, kept) = node.state.reserved_for().expect("a reservation");
    let other = DeviceId(1 - kept[0].0);
    let devices = Some(AllowedDevices { devices: vec![other], from: "default".to_owned() });
    limit(&mut node, 7, Allowance { devices, ..Allowance::default() });
    assert_eq!(node.state.reserved_for(), Some((JobId(3), vec![other])));
}

#[test]
fn a_job_of_estimated_need_gets_no_more_memory_than_its_user_may_have() {
    let mut node = node(1);
    limit(&mut node, 7, Allowance { memory: bound(8 << 30), ..Allowance::default() });
    let decisions = node.run(Job { user: UserId(7), ..gib(1, 20) });
    let limits = decisions.iter().find_map(|made| match made.action {
        Action::Start { limit, reserved, .. } => Some((limit, reserved)),
        _ => None,
    });
    let most = Some(Bytes::from_gib(8));
    assert_eq!(limits, Some((most, most)));
}

#[test]
fn jobs_of_a_user_whose_budget_is_spent_go_behind_others_and_are_not_refused() {
    let mut node = node(1);
    node.run(of(1, 9, 1));
    limit(&mut node, 7, Allowance { behind: true, ..Allowance::default() });
    node.run(Job { priority: 5, ..of(2, 7, 1) });
    node.at(5).run(of(3, 8, 1));
    assert_eq!(node.state.queue(), [JobId(3), JobId(2)]);
    assert!(started(&node.finish(1, DONE), 3).is_some());
    node.step(Event::Started { job: JobId(3), attempt: 1 });
    assert!(started(&node.finish(3, DONE), 2).is_some());
}

fn suspends(decisions: &[Decision]) -> Vec<u64> {
    let job = |made: &Decision| match made.action {
        Action::Suspend { job } => Some(job.0),
        _ => None,
    };
    decisions.iter().filter_map(job).collect()
}

fn set_behind(node: &mut Node, user: u32) -> Vec<Decision> {
    let allowance = Box::new(Allowance { behind: true, ..Allowance::default() });
    node.step(Event::AllowanceSet { user: UserId(user), allowance })
}

#[test]
fn a_job_behind_others_evicts_none_that_would_start_before_it_again() {
    let mut node = node(1);
    set_behind(&mut node, 7);
    node.run(Job { priority: -1, preemption: preemptible(Ok(())), ..of(1, 8, 1) });
    let made = node.run(of(2, 7, 1));
    assert_eq!(suspends(&made), [] as [u64; 0], "job 1 would be first in the queue: {made:?}");
    // Where both are behind, the more important one goes first.
    assert_eq!(suspends(&set_behind(&mut node, 8)), [1]);
    assert!(started(&node.suspended(1, 1), 2).is_some());
}

#[test]
fn a_slot_ends_for_no_job_behind_all_others() {
    let mut node = node(1);
    set_behind(&mut node, 7);
    let preemption = preemptible(Ok(()));
    node.run(Job { slot: Some(Millis::from_secs(10)), preemption, ..of(1, 8, 1) });
    node.run(of(2, 7, 1));
    assert_eq!(suspends(&node.at(11).step(Event::Tick)), [] as [u64; 0]);
    assert_eq!(suspends(&node.run(of(3, 9, 1))), [1], "for a job that would start before it");
}

#[test]
fn a_job_is_not_retried_under_a_limit_below_what_it_needs() {
    let mut node = node(2);
    limit(&mut node, 7, Allowance { memory: bound(20 << 30), ..Allowance::default() });
    let job = |id| Job { user: UserId(7), need: Some(estimated(22, 25)), ..Job::new(JobId(id)) };
    let why = node.state.below_need(&job(1)).map(|why| why.to_string());
    assert_eq!(
        why.as_deref(),
        Some("it needs 25.0 GiB on each GPU, and its user may have 20.0 GiB (memory, default)")
    );
    node.run(job(1));
    node.run(job(2));
    let made = node.finish(1, oom(25));
    assert_eq!(verdict(&made, 1), Some(Verdict::Ended(oom(25))), "{made:?}");
    assert!(made.iter().any(|made| matches!(made.reason, Reason::NotAllowed { .. })), "{made:?}");
    let made = node.finish(2, oom(18));
    assert_eq!(verdict(&made, 2), None, "the limit is more than it was seen to need: {made:?}");
}

#[test]
fn a_suspended_job_comes_back_to_no_gpu_that_its_user_may_not_use_any_more() {
    let mut node = node(2);
    node.step(Event::Paused { paused: true });
    node.step(Event::AdoptedSuspended {
        job: Box::new(Job { attempts: 1, ..of(1, 7, 1) }),
        model: MODEL.to_owned(),
        bytes: Bytes::from_gib(1),
        gpus: 1,
        devices: vec![DeviceId(0)],
        whole: true,
        ran: Millis(0),
    });
    let allowed = |devices: Vec<u32>| {
        let devices = devices.into_iter().map(DeviceId).collect();
        let devices = Some(AllowedDevices { devices, from: "default".to_owned() });
        Allowance { devices, ..Allowance::default() }
    };
    limit(&mut node, 7, allowed(vec![1]));
    node.step(Event::Paused { paused: false });
    assert_eq!((node.phase(1), node.state.queue()), (Phase::Suspended, Vec::new()), "in no job's way");
    assert!(why(&node, 1).ends_with("would do (allowed_gpus, default)"), "{}", why(&node, 1));
    limit(&mut node, 7, allowed(Vec::new()));
    assert_eq!(node.phase(1), Phase::Suspended, "no GPU is allowed, and not any");
    limit(&mut node, 7, allowed(vec![0]));
    assert_eq!(node.phase(1), Phase::Resuming);
}

#[test]
fn only_devices_that_could_hold_a_job_are_named_for_it() {
    let mut node = node(2);
    let devices = Some(AllowedDevices { devices: vec![DeviceId(1)], from: "default".to_owned() });
    limit(&mut node, 7, Allowance { devices, ..Allowance::default() });
    node.run(of(1, 7, 1));
    node.run(of(2, 7, 1));
    let could = |device| node.state.could_hold(JobId(2), DeviceId(device));
    assert_eq!([could(0), could(1), could(9)], [false, true, false]);
}

/// Jobs of three users come and end at random while their limits change.
#[test]
fn no_user_exceeds_a_limit_while_limits_change_and_every_job_ends() {
    for seed in 1..40_u64 {
        let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut node = node(4);
        let mut limits: BTreeMap<u32, (Option<u64>, Option<u64>)> = BTreeMap::new();
        // User and GPUs of the jobs that run, and of those that are not over.
        let (mut running, mut open) = (BTreeMap::new(), BTreeMap::<u64, (u32, u64)>::new());
        let held = |running: &BTreeMap<u64, (u32, u64)>, user: u32| {
            let own = running.values().filter(|(whose, _)| *whose == user);
            own.fold((0, 0), |(jobs, gpus), (_, more)| (jobs + 1, gpus + more))
        };
        for step in 1..400_u64 {
            node.now = Millis(step * 1000);
            let is_last = step > 300;
            let decisions = match random(10) {
                0..4 if !is_last => {
                    let (user, gpus) = (random(3) as u32, random(4));
                    open.insert(step, (user, gpus));
                    let need = (gpus > 0).then(|| Need::measured(Bytes::from_gib(1)));
                    let gpus = u16::try_from(gpus).unwrap();
                    node.submit(Job { need, exclusive: gpus > 0, ..of(step, user, gpus) })
                }
                4..6 => {
                    let user = random(3) as u32;
                    let some = |value: u64, is_some: bool| is_some.then_some(value);
                    let new = match is_last {
                        true => (None, None),
                        false => (some(random(4), random(3) > 0), some(random(3), random(3) > 0)),
                    };
                    limits.insert(user, new);
                    let of = |most: Option<u64>| most.and_then(bound);
                    let allowance = Allowance { gpus: of(new.0), running: of(new.1), ..Allowance::default() };
                    node.step(Event::AllowanceSet { user: UserId(user), allowance: Box::new(allowance) })
                }
                _ => match running.keys().nth(random(8) as usize).copied() {
                    Some(job) => {
                        running.remove(&job);
                        open.remove(&job);
                        node.finish(job, DONE)
                    }
                    None => node.step(Event::Tick),
                },
            };
            for made in &decisions {
                if let Action::Start { job, attempt, .. } = made.action {
                    let (user, gpus) = open[&job.0];
                    running.insert(job.0, (user, gpus));
                    let (jobs, all) = held(&running, user);
                    let (most_gpus, most_jobs) = limits.get(&user).copied().unwrap_or_default();
                    assert!(
                        gpus == 0 || most_gpus.is_none_or(|most| all <= most),
                        "{step}: user {user} has {all} GPUs"
                    );
                    assert!(
                        most_jobs.is_none_or(|most| jobs <= most),
                        "{step}: user {user} runs {jobs} jobs"
                    );
                    node.step(Event::Started { job, attempt });
                }
            }
            for user in 0..3 {
                let state = node.state.holding(UserId(user));
                assert_eq!((state.jobs, state.gpus), held(&running, user), "{step}");
            }
        }
        for user in 0..3 {
            let starts = node.step(Event::AllowanceSet { user: UserId(user), allowance: Box::default() });
            take(&starts, &mut running, &open, &mut node);
        }
        while let Some(job) = running.keys().next().copied() {
            running.remove(&job);
            open.remove(&job);
            let starts = node.finish(job, DONE);
            take(&starts, &mut running, &open, &mut node);
        }
        assert!(open.is_empty(), "they wait though nothing limits them: {open:?}");
    }
}

fn take(
    decisions: &[Decision],
    running: &mut BTreeMap<u64, (u32, u64)>,
    open: &BTreeMap<u64, (u32, u64)>,
    node: &mut Node,
) {
    for made in decisions {
        if let Action::Start { job, attempt, .. } = made.action {
            running.insert(job.0, open[&job.0]);
            node.step(Event::Started { job, attempt });
        }
    }
}
