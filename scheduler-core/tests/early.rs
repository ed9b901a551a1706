//! Memory that is set aside for a running job follows what its first optimizer steps show.

use crate::common::{self, Node, estimated, gib, oom, preemptible, started};
use radrm_need::Source;
use radrm_scheduler_core::early::{Course, FirstSteps, FixedBy, fixed_by};
use radrm_scheduler_core::{
    Action, Bytes, Decision, DeviceId, Event, Job, JobId, JobObservation, Millis, Need, Permille, Reason,
    Settings,
};

const USER: Option<FixedBy> = Some(FixedBy::User);

fn node(gpus: u32) -> Node {
    Node::new(gpus, Settings::default())
}

/// A need that no limit enforces.
fn guess(id: u64, bytes: u64, upper: u64) -> Job {
    let [bytes, upper] = [bytes, upper].map(Bytes::from_gib);
    let need = Need::new(bytes, upper, Some(Permille(950)), Source::UserEstimate);
    Job { need: Some(need), ..Job::new(JobId(id)) }
}

fn steps(node: &mut Node, id: u64, steps: u32, gib: u64, fixed: Option<FixedBy>) -> Vec<Decision> {
    let attempt = node.state.job(JobId(id)).unwrap().attempts;
    let first = FirstSteps { steps, held: Bytes::from_gib(gib), fixed };
    node.step(Event::StepsObserved { job: JobId(id), attempt, first })
}

fn holds(node: &mut Node, id: u64, device: u32, gib: u64) -> Vec<Decision> {
    let bytes = Bytes::from_gib(gib);
    let seen = JobObservation { used: bytes, peak: bytes, ..JobObservation::default() };
    node.step(Event::JobObserved { job: JobId(id), device: DeviceId(device), seen })
}

fn reserved(node: &Node, id: u64) -> Option<Bytes> {
    node.state.job(JobId(id)).unwrap().reserved
}

/// 1.05 times so much.
fn bound(gib: u64) -> Bytes {
    Bytes((Bytes::from_gib(gib).0 as f64 * 1.05).ceil() as u64)
}

fn reason(decisions: &[Decision]) -> Option<&Reason> {
    let aside = |decision: &&Decision| matches!(decision.action, Action::SetAside { .. });
    decisions.iter().find(aside).map(|decision| &decision.reason)
}

#[test]
fn the_third_step_makes_room_for_a_job_that_waits() {
    let mut node = node(1);
    node.run(guess(1, 20, 35));
    assert_eq!(started(&node.run(guess(2, 10, 15)), 2), None);
    for early in 0..3 {
        assert_eq!(steps(&mut node, 1, early, 20, USER), [], "step {early} is too early");
    }
    let decisions = steps(&mut node, 1, 3, 20, USER);
    assert_eq!(reserved(&node, 1), Some(bound(20)));
    assert!(started(&decisions, 2).is_some(), "{decisions:?}");
    let text = reason(&decisions).unwrap().to_string();
    assert!(text.contains("held 20.0 GiB on a GPU after 3 optimizer steps"), "{text}");
    assert!(text.contains("its user states fixed shapes") && text.contains("under 21.0 GiB"), "{text}");
}

#[test]
fn nothing_is_lowered_where_shapes_may_change() {
    let mut node = node(1);
    node.run(guess(1, 20, 35));
    for step in [3, 9, 1000] {
        assert_eq!(steps(&mut node, 1, step, 10, None), []);
    }
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(35)));
}

#[test]
fn a_bound_above_the_one_of_before_changes_nothing() {
    let mut node = node(1);
    node.run(guess(1, 20, 21));
    assert_eq!(steps(&mut node, 1, 3, 20, USER), []);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(21)));
}

#[test]
fn an_estimate_from_other_batch_sizes_is_lowered_too() {
    let mut node = node(1);
    let other = estimated(20, 30);
    assert!(other.enforce, "its limit stays");
    node.run(Job { need: Some(other), ..Job::new(JobId(1)) });
    steps(&mut node, 1, 3, 10, Some(FixedBy::EarlierRuns { runs: 1 }));
    assert_eq!(reserved(&node, 1), Some(bound(10)));
}

#[test]
fn a_job_of_unknown_need_shares_its_gpu_after_three_steps() {
    let mut node = node(1);
    node.run(Job::new(JobId(1)));
    assert_eq!(started(&node.run(gib(2, 10)), 2), None);
    let decisions = steps(&mut node, 1, 5, 8, Some(FixedBy::EarlierRuns { runs: 2 }));
    assert!(started(&decisions, 2).is_some(), "{decisions:?}");
    assert!(reason(&decisions).unwrap().to_string().contains("2 earlier runs of its program"));
}

#[test]
fn limits_measured_needs_and_failed_attempts_keep_their_bounds() {
    let declared = Job { need: Some(Need::declared(Bytes::from_gib(30))), ..Job::new(JobId(1)) };
    let alone = Job { exclusive: true, ..guess(1, 20, 30) };
    for job in [declared, gib(1, 30), alone] {
        let mut node = node(1);
        node.run(job.clone());
        let before = reserved(&node, 1);
        assert_eq!(steps(&mut node, 1, 3, 5, USER), [], "{job:?}");
        assert_eq!(reserved(&node, 1), before);
    }
    let mut failed = node(1);
    failed.run(guess(1, 10, 12));
    let again = failed.finish(1, oom(12));
    let (attempt, _) = started(&again, 1).expect("a second attempt");
    failed.step(Event::Started { job: JobId(1), attempt });
    assert_eq!(steps(&mut failed, 1, 3, 5, USER), []);
    let mut off = Node::new(1, Settings { early_bounds: false, ..Settings::default() });
    off.run(guess(1, 20, 35));
    assert_eq!(steps(&mut off, 1, 3, 5, USER), []);
}

#[test]
fn a_job_that_takes_more_gets_its_bound_back_and_keeps_it() {
    let mut node = node(1);
    node.run(guess(1, 10, 30));
    steps(&mut node, 1, 3, 10, USER);
    assert_eq!(holds(&mut node, 1, 0, 10), []);
    let decisions = holds(&mut node, 1, 0, 12);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(30)));
    let text = reason(&decisions).unwrap().to_string();
    assert!(text.contains("holds 12.0 GiB, more than the 10.5 GiB"), "{text}");
    assert!(text.contains("30.0 GiB are reserved"), "{text}");
    // It showed that its first steps say nothing of it.
    assert_eq!(steps(&mut node, 1, 9, 12, USER), []);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(30)));
}

#[test]
fn a_bound_that_comes_back_takes_nothing_from_a_neighbour() {
    let mut node = node(1);
    node.run(guess(1, 10, 35));
    steps(&mut node, 1, 3, 10, USER);
    node.run(gib(2, 20));
    let theirs = reserved(&node, 2).unwrap();
    holds(&mut node, 1, 0, 12);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(40).minus(theirs)));
    assert_eq!(reserved(&node, 2), Some(theirs));
    // Beyond that it counts as it is seen: no job is put into memory that is in use.
    holds(&mut node, 1, 0, 25);
    assert_eq!(started(&node.run(gib(3, 1)), 3), None);
}

#[test]
fn a_first_job_waits_for_one_whose_bound_came_back() {
    let mut node = node(1);
    node.run(guess(1, 10, 30));
    steps(&mut node, 1, 3, 10, USER);
    node.run(Job { time_limit: Some(Millis::from_secs(100)), ..gib(2, 20) });
    // It could start once job 2 has left, which is gone first.
    node.run(guess(3, 25, 25));
    assert_eq!(node.state.blockers().collect::<Vec<_>>(), [JobId(2)]);
    holds(&mut node, 1, 0, 12);
    node.finish(2, common::DONE);
    assert_eq!(node.state.blockers().collect::<Vec<_>>(), [JobId(1)], "job 1 has grown into its place");
    let decisions = node.finish(1, common::DONE);
    assert!(started(&decisions, 3).is_some());
}

#[test]
fn news_of_an_attempt_that_is_over_tightens_nothing() {
    let mut node = node(1);
    node.run(guess(1, 20, 35));
    let first = FirstSteps { steps: 3, held: Bytes::from_gib(5), fixed: USER };
    assert_eq!(node.step(Event::StepsObserved { job: JobId(1), attempt: 7, first }), []);
    assert_eq!(node.step(Event::StepsObserved { job: JobId(9), attempt: 1, first }), []);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(35)));
}

#[test]
fn all_gpus_of_a_gang_are_bounded_by_the_fullest() {
    let mut node = node(2);
    node.run(Job { gpus: 2, ..guess(1, 20, 35) });
    steps(&mut node, 1, 3, 20, USER);
    for view in node.state.devices() {
        assert_eq!(view.reserved, bound(20));
    }
}

#[test]
fn a_restarted_caller_finds_the_bound_and_its_way_back() {
    let mut node = node(1);
    let job = Box::new(Job { attempts: 1, ..guess(1, 20, 35) });
    let reserved_then = Some(bound(20));
    let devices = vec![DeviceId(0)];
    node.step(Event::Adopted { job, devices, since: Millis(0), reserved: reserved_then, leaving: None });
    // What is read of it now is later than its first steps.
    holds(&mut node, 1, 0, 20);
    assert_eq!(steps(&mut node, 1, 500, 20, USER), []);
    assert_eq!(reserved(&node, 1), reserved_then);
    holds(&mut node, 1, 0, 22);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(35)));
}

#[test]
fn a_bound_that_was_broken_while_the_caller_was_away_comes_back() {
    let mut node = node(1);
    let job = Box::new(Job { attempts: 1, ..guess(1, 20, 35) });
    let devices = vec![DeviceId(0)];
    node.step(Event::Adopted { job, devices, since: Millis(0), reserved: Some(bound(20)), leaving: None });
    holds(&mut node, 1, 0, 25);
    steps(&mut node, 1, 500, 25, USER);
    assert_eq!(reserved(&node, 1), Some(Bytes::from_gib(35)));
}

#[test]
fn a_suspended_job_comes_back_to_what_was_reserved_for_it() {
    let mut node = node(1);
    node.run(Job { preemption: preemptible(Ok(())), ..guess(1, 10, 30) });
    steps(&mut node, 1, 3, 10, USER);
    node.step(Event::SuspendKnown { job: JobId(1), suspend: Ok(()) });
    let urgent = Job { priority: 9, by_admin: true, ..gib(2, 35) };
    node.run(urgent);
    node.suspended(1, 10);
    node.finish(2, common::DONE);
    let attempt = node.state.job(JobId(1)).unwrap().attempts;
    node.step(Event::Resumed { job: JobId(1), attempt });
    assert!(reserved(&node, 1).unwrap() >= bound(10));
}

#[test]
fn earlier_runs_speak_for_later_steps_only_and_against_the_user() {
    let course = |steps, early, last| Course { steps, early, last };
    let flat = course(3, 100, 104);
    assert_eq!(fixed_by(3, false, &[]), None);
    assert_eq!(fixed_by(3, true, &[]), USER);
    assert_eq!(fixed_by(3, true, &[flat]), Some(FixedBy::EarlierRuns { runs: 1 }));
    assert_eq!(
        fixed_by(9, false, &[flat, course(9, 7, 7), course(10, 7, 7)]),
        Some(FixedBy::EarlierRuns { runs: 2 })
    );
    assert_eq!(fixed_by(9, true, &[flat, course(3, 100, 300)]), None);
}
