//! Advance reservations: GPUs that are kept for people from one time to another.

use crate::common::{DONE, LATER, Node, gib, preemptible, signals, started, with};
use radrm_scheduler_core::{
    Action, AdvanceReservation, Allowance, Bound, Decision, DeviceId, Event, ExpectedStart, Job, JobId,
    Millis, Phase, Policy, Reason, ReservedFor, Signal, SuspendRefusal, UserId,
};

const HOUR: u64 = 3600;

/// Devices for user 7 from one hour to another.
fn kept(devices: &[u32], begins: u64, ends: u64) -> AdvanceReservation {
    AdvanceReservation {
        devices: devices.iter().copied().map(DeviceId).collect(),
        users: vec![UserId(7)],
        begins: Millis::from_secs(begins * HOUR),
        ends: Millis::from_secs(ends * HOUR),
        lead: Millis::from_secs(2 * HOUR),
        evicts: false,
        spared: Vec::new(),
        text: ReservedFor {
            gpus: devices.iter().map(u32::to_string).collect(),
            whose: "alice".to_owned(),
            from: format!("hour {begins}"),
            until: format!("hour {ends}"),
            reason: None,
        },
    }
}

fn reserve(node: &mut Node, reservations: Vec<AdvanceReservation>) -> Vec<Decision> {
    node.step(Event::AdvanceReservationsSet { reservations })
}

fn of(id: u64, user: u32, gpus: u16, hours: Option<u64>) -> Job {
    let time_limit = hours.map(|hours| Millis::from_secs(hours * HOUR));
    Job { user: UserId(user), gpus, exclusive: true, time_limit, ..gib(id, 1) }
}

fn node(gpus: u32) -> Node {
    Node::new(gpus, with(Policy::FirstFit))
}

fn why(node: &Node, id: u64) -> String {
    node.state.history(JobId(id)).pop().unwrap().1.to_string()
}

fn devices(decisions: &[Decision], id: u64) -> Option<Vec<u32>> {
    started(decisions, id).map(|(_, devices)| devices)
}

#[test]
fn while_a_reservation_holds_only_its_people_start_there() {
    let mut node = node(2);
    node.at(HOUR + 1);
    reserve(&mut node, vec![kept(&[0], 1, 3)]);
    assert_eq!(devices(&node.run(of(1, 8, 1, None)), 1), Some(vec![1]), "another GPU is free");
    node.run(of(2, 8, 1, Some(1)));
    assert_eq!(why(&node, 2), "GPU 0 is kept for alice from hour 1 until hour 3");
    assert_eq!(devices(&node.run(of(3, 7, 1, None)), 3), Some(vec![0]), "its people pass");
    assert_eq!(why(&node, 2), "GPU 0 is kept for alice from hour 1 until hour 3", "also where it is in use");
    node.finish(3, DONE);
    assert_eq!(node.phase(2), Phase::Waiting);
    let woken = node.at(3 * HOUR).step(Event::Tick);
    assert_eq!(devices(&woken, 2), Some(vec![0]), "it ends by itself");
}

#[test]
fn a_tick_is_asked_for_when_a_reservation_ends() {
    let mut node = node(1);
    node.at(HOUR + 1);
    let decisions = reserve(&mut node, vec![kept(&[0], 1, 3)]);
    let wake =
        |made: &Decision| matches!(made.action, Action::WakeAt { at } if at == Millis::from_secs(3 * HOUR));
    assert!(decisions.iter().any(wake), "{decisions:?}");
}

#[test]
fn before_a_reservation_begins_only_jobs_that_are_gone_by_then_start() {
    let mut node = node(1);
    reserve(&mut node, vec![kept(&[0], 4, 6)]);
    node.run(of(1, 8, 1, Some(4)));
    let text = why(&node, 1);
    assert!(
        text.ends_with("until hour 6, and the job could run into that by its time limit of 4 h 00 min"),
        "{text}"
    );
    assert!(devices(&node.run(of(2, 8, 1, Some(3))), 2).is_some(), "it passes, as it is gone by then");
    node.finish(2, DONE);
    assert!(devices(&node.run(of(3, 8, 1, None)), 3).is_some(), "the lead time has not begun");
    node.finish(3, DONE);
    node.at(2 * HOUR + 1).run(of(4, 8, 1, None));
    assert!(why(&node, 4).ends_with(", and the job has no time limit (--time)"), "{}", why(&node, 4));
    assert!(devices(&node.run(of(5, 8, 1, Some(1))), 5).is_some());
    node.finish(5, DONE);
    node.at(4 * HOUR).step(Event::Tick);
    assert_eq!(why(&node, 4), "GPU 0 is kept for alice from hour 4 until hour 6");
    assert!(devices(&reserve(&mut node, Vec::new()), 1).is_some(), "a reservation that is taken back");
}

#[test]
fn the_reason_follows_the_lead_time_of_a_reservation() {
    let mut node = node(1);
    reserve(&mut node, vec![kept(&[0], 4, 6)]);
    node.run(of(1, 8, 1, None));
    node.run(of(2, 8, 1, None));
    assert_eq!(why(&node, 2), "each device that it may use has jobs");
    node.at(2 * HOUR + 1).step(Event::Tick);
    assert!(why(&node, 2).ends_with("no time limit (--time)"), "{}", why(&node, 2));
}

#[test]
fn a_job_that_still_runs_stays_unless_the_reservation_asks_it_to_leave() {
    for (evicts, allowed) in [(false, true), (true, false), (true, true)] {
        let mut node = node(1);
        let mut job = of(1, 8, 1, None);
        job.preemption = preemptible(Err(SuspendRefusal::Unsupported));
        job.preemption.allowed = allowed;
        node.run(job);
        reserve(&mut node, vec![AdvanceReservation { evicts, ..kept(&[0], 1, 3) }]);
        assert_eq!(node.phase(1), Phase::Running, "it has not begun");
        let decisions = node.at(HOUR).step(Event::Tick);
        let asked = evicts && allowed;
        let expected = if asked { vec![(1, Signal::Checkpoint(10))] } else { Vec::new() };
        assert_eq!(signals(&decisions), expected);
        if !asked {
            assert_eq!(node.phase(1), Phase::Running);
            continue;
        }
        let reason =
            |made: &Decision| matches!(&made.reason, Reason::KeptForOthers { kept } if kept.whose == "alice");
        assert!(decisions.iter().any(reason), "{decisions:?}");
        node.finish(1, LATER);
        assert_eq!(node.phase(1), Phase::Waiting, "it comes back");
        assert!(devices(&node.run(of(2, 7, 1, None)), 2).is_some());
        node.finish(2, DONE);
        assert!(devices(&node.at(3 * HOUR).step(Event::Tick), 1).is_some());
    }
}

#[test]
fn no_job_is_evicted_for_one_that_a_reservation_keeps_from_its_place() {
    for hours in [3, 9] {
        let mut node = node(1);
        node.run(Job { preemption: preemptible(Err(SuspendRefusal::Unsupported)), ..of(1, 8, 1, None) });
        reserve(&mut node, vec![kept(&[0], 4, 6)]);
        let decisions = node.run(Job { priority: 5, ..of(2, 9, 1, Some(hours)) });
        let asked = if hours < 4 { vec![(1, Signal::Checkpoint(10))] } else { Vec::new() };
        assert_eq!(signals(&decisions), asked, "{hours} hours");
    }
}

#[test]
fn a_job_that_waits_for_a_reservations_end_keeps_no_device_from_others() {
    let mut node = node(3);
    node.at(HOUR + 1);
    reserve(&mut node, vec![kept(&[0, 1], 1, 9)]);
    node.run(of(1, 8, 2, None));
    assert_eq!(why(&node, 1), "GPUs 0, 1 are kept for alice from hour 1 until hour 9");
    assert!(node.state.reserved_for().is_none());
    assert_eq!(devices(&node.run(of(2, 9, 1, None)), 2), Some(vec![2]));
    node.finish(2, DONE);
    let ended = node.at(9 * HOUR).step(Event::Tick);
    assert_eq!(devices(&ended, 1), Some(vec![0, 1]), "it is the first still");
}

#[test]
fn behind_a_job_that_a_reservation_keeps_out_the_next_one_that_waits_is_the_first() {
    let mut node = node(3);
    node.at(HOUR + 1);
    reserve(&mut node, vec![kept(&[0], 1, 9)]);
    assert_eq!(devices(&node.run(of(9, 8, 1, None)), 9), Some(vec![1]));
    node.run(of(1, 8, 3, None));
    assert!(node.state.reserved_for().is_none(), "GPU 0 is not for it");
    node.run(of(2, 8, 2, None));
    let first = Some((JobId(2), vec![DeviceId(1), DeviceId(2)]));
    assert_eq!(node.state.reserved_for(), first);
    node.run(of(3, 9, 1, None));
    assert_eq!(node.phase(3), Phase::Waiting, "it does not pass the first that waits");
    assert_eq!(node.state.reserved_for(), first);
    assert!(devices(&node.finish(9, DONE), 2).is_some());
}

#[test]
fn its_people_start_behind_a_job_that_a_reservation_keeps_out_also_without_backfill() {
    let mut settings = with(Policy::FirstFit);
    settings.order.backfill = false;
    let mut node = Node::new(3, settings);
    node.at(HOUR + 1);
    reserve(&mut node, vec![kept(&[0], 1, 9)]);
    node.run(of(1, 8, 3, None));
    assert_eq!(node.phase(1), Phase::Waiting);
    assert_eq!(devices(&node.run(of(2, 7, 1, None)), 2), Some(vec![0]));
}

#[test]
fn no_device_is_kept_for_a_job_that_would_be_too_late_there() {
    let mut node = node(2);
    reserve(&mut node, vec![kept(&[0], 5, 6)]);
    node.run(of(1, 8, 1, Some(3)));
    node.run(of(2, 8, 1, Some(9)));
    // GPU 0 is free after three hours: too late for a job of three hours.
    node.run(of(3, 9, 1, Some(3)));
    let kept_for = node.state.reserved_for().map(|(job, devices)| (job.0, devices));
    assert_eq!(kept_for, Some((3, vec![DeviceId(1)])));
}

#[test]
fn the_start_of_the_first_blocked_job_is_expected_when_its_blockers_have_left() {
    let mut node = node(1);
    node.run(of(1, 8, 1, Some(3)));
    node.run(of(2, 9, 1, None));
    node.run(of(3, 9, 1, None));
    let expected = [1, 2, 3].map(|id| node.state.expected_start(JobId(id)));
    let at = ExpectedStart::At(Millis::from_secs(3 * HOUR));
    assert_eq!(expected, [None, Some(at), Some(ExpectedStart::NoEnd { job: JobId(2) })]);
}

#[test]
fn a_reservation_that_comes_later_takes_devices_from_the_job_that_they_are_kept_for() {
    let mut node = node(2);
    node.run(of(1, 8, 1, Some(3)));
    node.run(of(2, 8, 1, Some(9)));
    node.run(of(3, 9, 1, Some(3)));
    assert_eq!(node.state.reserved_for().map(|(_, devices)| devices), Some(vec![DeviceId(0)]));
    reserve(&mut node, vec![kept(&[0], 5, 6)]);
    assert_eq!(node.state.reserved_for().map(|(_, devices)| devices), Some(vec![DeviceId(1)]));
}

#[test]
fn people_of_a_reservation_use_its_gpus_first_and_their_limits_hold() {
    for policy in [Policy::FirstFit, Policy::Magm, Policy::Aware] {
        let mut node = Node::new(3, with(policy));
        node.at(HOUR + 1);
        reserve(&mut node, vec![kept(&[2], 1, 3)]);
        let gpus = Some(Bound { most: 1, from: "default".to_owned() });
        let allowance = Box::new(Allowance { gpus, ..Allowance::default() });
        node.step(Event::AllowanceSet { user: UserId(7), allowance });
        assert_eq!(devices(&node.run(of(1, 7, 1, None)), 1), Some(vec![2]), "{policy}");
        node.run(of(2, 7, 1, None));
        assert!(why(&node, 2).contains("may have 1 GPU at once"), "{}", why(&node, 2));
    }
}

#[test]
fn a_group_that_starts_together_is_gone_when_its_longest_job_is() {
    use radrm_scheduler_core::Together;
    let mut node = node(2);
    reserve(&mut node, vec![kept(&[0, 1], 4, 6)]);
    let member = |id: u64, hours| Job {
        together: Some(Together { first: JobId(1), members: 2, site: id as u32, begun: false }),
        ..of(id, 8, 1, Some(hours))
    };
    node.run(member(1, 1));
    node.run(member(2, 4));
    assert!(![node.phase(1), node.phase(2)].contains(&Phase::Running));
    assert!(why(&node, 1).contains("by its time limit of 4 h 00 min"), "{}", why(&node, 1));
    let decisions = reserve(&mut node, vec![kept(&[0, 1], 5, 6)]);
    assert!(devices(&decisions, 1).is_some() && devices(&decisions, 2).is_some(), "{decisions:?}");
}

#[test]
fn only_jobs_of_users_who_may_be_among_its_people_are_spared() {
    let mut node = node(2);
    for (id, user) in [(1, 8), (2, 9)] {
        node.run(Job { preemption: preemptible(Err(SuspendRefusal::Unsupported)), ..of(id, user, 1, None) });
    }
    let spared = vec![UserId(8)];
    reserve(&mut node, vec![AdvanceReservation { evicts: true, spared, ..kept(&[0, 1], 1, 3) }]);
    assert_eq!(signals(&node.at(HOUR).step(Event::Tick)), [(2, Signal::Checkpoint(10))]);
    node.run(of(3, 8, 1, None));
    assert_eq!(node.phase(3), Phase::Waiting, "spared, and no one for whom they are kept");
}

#[test]
fn a_scheduler_that_is_begun_anew_keeps_to_reservations() {
    let mut node = node(1);
    node.at(HOUR + 1);
    node.step(Event::Paused { paused: true });
    reserve(&mut node, vec![AdvanceReservation { evicts: true, ..kept(&[0], 1, 3) }]);
    node.run(of(1, 8, 1, None));
    node.run(of(2, 7, 1, None));
    let decisions = node.step(Event::Paused { paused: false });
    assert_eq!((devices(&decisions, 1), devices(&decisions, 2)), (None, Some(vec![0])));
}
