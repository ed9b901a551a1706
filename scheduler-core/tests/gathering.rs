//! Groups of jobs: how they wait, what they request, and where each of their jobs goes.

use crate::common::{self, DONE, MODEL, Node, gib, started, verdict};
use radrm_base::HostUse;
use radrm_scheduler_core::{
    Action, Bytes, Device, DeviceId, Event, HostNeed, Impossible, Job, JobId, NodeId, Outcome, Permille,
    Phase, Preconditions, Reason, Settings, Together, Verdict,
};

/// A job of the group of so many that begins with job 1.
fn member(id: u64, members: u32, site: u32, memory: u64) -> Job {
    let together = Together { first: JobId(1), members, site, begun: false };
    Job { together: Some(together), ..gib(id, memory) }
}

fn bound(node: u32, cpu_milli: u64) -> Event {
    let memory = Bytes::from_gib(64);
    Event::NodeAdded {
        node: radrm_scheduler_core::Node { id: NodeId(node), cpu_milli, memory, memory_bandwidth: None },
    }
}

fn cores(number: u64) -> HostNeed {
    HostNeed { cpu_milli: number * 1000, ..HostNeed::default() }
}

fn starts(node: &mut Node, job: Job) -> bool {
    let id = job.id.0;
    started(&node.submit(job), id).is_some()
}

#[test]
fn jobs_that_share_a_device_have_the_margin_between_them() {
    let preconditions = Preconditions { margin: Bytes::from_gib(2), ..Preconditions::default() };
    let settings = Settings { preconditions, slack: Permille::ZERO, ..Settings::default() };
    let node = Node::new(2, settings);
    let answer = |sites: &[(u32, u64)]| {
        let job = |(id, (site, memory)): (u64, &(u32, u64))| member(id, 2, *site, *memory);
        node.state.admission_together(&(1..).zip(sites).map(job).collect::<Vec<_>>())
    };
    assert_eq!(answer(&[(0, 19), (0, 19)]), Ok(()));
    assert!(matches!(answer(&[(0, 19), (0, 20)]), Err(Impossible::Memory { .. })));
    assert_eq!(answer(&[(0, 40), (1, 40)]), Ok(()), "each has its device to itself");
}

#[test]
fn the_jobs_of_a_group_start_in_their_order() {
    let mut node = Node::new(2, Settings::default());
    for (id, site) in [(1, 0), (2, 1)] {
        node.submit(member(id, 3, site, 1));
    }
    let decisions = node.submit(member(3, 3, 0, 1));
    let order = decisions.iter().filter_map(|decision| match decision.action {
        Action::Start { job, .. } => Some(job.0),
        _ => None,
    });
    assert_eq!(order.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_job_without_a_gpu_takes_its_part_of_the_host_where_its_group_is() {
    let mut node = Node::new(0, Settings::default());
    let device = |id| Device {
        id: DeviceId(id),
        node: NodeId(id),
        model: MODEL.into(),
        capacity: Bytes::from_gib(40),
        parent: None,
        shared: true,
    };
    for id in 0..2 {
        node.step(Event::DeviceAdded { device: device(id) });
    }
    node.step(bound(0, 1000));
    node.step(bound(1, 4000));
    node.submit(member(1, 2, 0, 5));
    let loader = Job { gpus: 0, host: cores(2), ..member(2, 2, 1, 0) };
    let decisions = node.submit(loader);
    assert_eq!(started(&decisions, 1).map(|(_, devices)| devices), Some(vec![1]), "{decisions:?}");
    let host_only = |id, number| Job { gpus: 0, host: cores(number), ..Job::new(JobId(id)) };
    assert!(!starts(&mut node, host_only(8, 3)), "two of the four are taken");
    node.step(Event::Cancelled { job: JobId(8) });
    assert!(starts(&mut node, host_only(9, 2)));
}

#[test]
fn threads_do_not_keep_a_job_from_devices_beside_those_kept_for_a_group() {
    let mut node = Node::new(3, Settings::default());
    node.step(bound(0, 4000));
    assert!(starts(&mut node, Job { host: cores(3), ..gib(9, 5) }));
    // The group waits for the host alone, and joins no other job on a device.
    let busy = HostUse { cpu_milli: 3000, threads: 3, resident: Bytes::ZERO, ..HostUse::default() };
    let of_group = |id| Job { host: cores(1), host_use: Some(busy), ..member(id, 2, 0, 5) };
    (1..=2).for_each(|id| assert!(!starts(&mut node, of_group(id))));
    assert_eq!(node.state.reserved_for().map(|(job, _)| job), Some(JobId(1)));
    assert!(starts(&mut node, Job { host_use: Some(busy), ..gib(3, 5) }));
}

#[test]
fn a_group_whose_job_is_held_leaves_its_devices_to_others_at_once() {
    for paused in [false, true] {
        let mut node = Node::new(2, Settings::default());
        node.run(gib(9, 30));
        (1..=2).for_each(|id| drop(node.submit(member(id, 2, u32::try_from(id).unwrap(), 20))));
        assert!(!starts(&mut node, gib(20, 5)), "both devices are kept");
        node.step(Event::Paused { paused });
        let decisions = node.step(Event::Held { job: JobId(2) });
        assert_eq!(node.state.reserved_for(), None);
        assert_eq!(started(&decisions, 20).is_some(), !paused, "{decisions:?}");
    }
}

#[test]
fn a_job_that_comes_back_does_not_start_the_first_one_again() {
    let mut node = Node::new(1, Settings::default());
    (1..=2).for_each(|id| drop(node.submit(member(id, 2, 0, 1))));
    let decisions = node.finish(2, Outcome::Lost);
    assert_eq!((node.phase(1), node.phase(2)), (Phase::Launching, Phase::Held), "{decisions:?}");
    assert_eq!(node.state.waiting(), 0);
}

#[test]
fn a_group_waits_while_any_of_its_jobs_is_held() {
    let mut node = Node::new(1, Settings::default());
    node.submit(Job { held: true, ..member(1, 2, 0, 1) });
    assert_eq!(started(&node.submit(member(2, 2, 0, 1)), 2), None);
    assert_eq!((node.phase(1), node.state.waiting()), (Phase::Held, 0));
    let decisions = node.step(Event::Released { job: JobId(1) });
    assert!([1, 2].iter().all(|id| started(&decisions, *id).is_some()), "{decisions:?}");
}

#[test]
fn a_group_of_which_a_job_was_over_before_a_restart_ends() {
    let mut node = Node::new(1, Settings::default());
    node.step(Event::Paused { paused: true });
    node.submit(member(1, 3, 0, 1));
    node.submit(member(3, 3, 0, 1));
    let decisions = node.step(Event::Paused { paused: false });
    for id in [1, 3] {
        assert_eq!(verdict(&decisions, id), Some(Verdict::Cancelled), "{decisions:?}");
    }
    assert!(decisions.iter().any(|decision| decision.reason == Reason::NotTogether { job: JobId(2) }));
    assert_eq!(node.state.jobs().count(), 0);
}

#[test]
fn a_job_that_is_told_after_one_of_its_group_runs_goes_its_own_way() {
    let mut node = Node::new(1, Settings::default());
    node.step(Event::Paused { paused: true });
    // The third is over.
    let begun = |id| {
        let job = member(id, 3, 0, 1);
        Job { together: job.together.map(|group| Together { begun: true, ..group }), ..job }
    };
    node.step(common::adopted(begun(1), &[0], None));
    node.submit(member(2, 3, 0, 1));
    let decisions = node.step(Event::Paused { paused: false });
    assert_eq!(verdict(&decisions, 2), None, "{decisions:?}");
    node.finish(1, DONE);
    assert_eq!(node.phase(2), Phase::Launching);
}
