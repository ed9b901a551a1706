//! Jobs that wait for other jobs, and arrays with a bound.

use crate::common::{self, DONE, Node, gib, started, verdict};
use radrm_need::Need;
use radrm_scheduler_core::{
    Action, ArrayLimit, Bytes, Condition, Decision, Dependency, Event, Job, JobId, Millis, Outcome, Phase,
    Reason, Settings, State, Verdict, Wait,
    replay::events::{Again, Entry, Fed},
    replay::{Cluster, Model, Options, TraceJob, replay},
};

const FAILED: Outcome = Outcome::Exited { code: 3 };

fn after(id: u64, condition: Condition, [first, last]: [u64; 2]) -> Job {
    let after = Dependency { condition, first: JobId(first), last: JobId(last), failed: None };
    Job { after: vec![after], ..gib(id, 1) }
}

fn wait(node: &Node, id: u64) -> Option<Wait> {
    node.state.job(JobId(id)).and_then(|view| view.wait)
}

fn ended(decisions: &[Decision], id: u64) -> Option<Reason> {
    let of = |decision: &&Decision| matches!(decision.action, Action::End { job, .. } if job == JobId(id));
    decisions.iter().find(of).map(|decision| decision.reason.clone())
}

#[test]
fn a_dependent_starts_when_all_have_ended_and_names_the_one_it_waits_for() {
    let mut node = Node::new(2, Settings::default());
    node.run(gib(1, 1));
    node.run(gib(2, 1));
    assert_eq!(started(&node.submit(after(3, Condition::Any, [1, 2])), 3), None);
    assert_eq!(wait(&node, 3), Some(Wait::After { job: JobId(1), condition: Condition::Any }));
    assert_eq!(node.state.waiting(), 0, "a job that cannot start is not in the queue");
    assert!(started(&node.finish(1, FAILED), 3).is_none());
    assert_eq!(wait(&node, 3), Some(Wait::After { job: JobId(2), condition: Condition::Any }));
    let decisions = node.finish(2, DONE);
    assert!(started(&decisions, 3).is_some(), "{decisions:?}");
    assert!(decisions.iter().any(|decision| decision.action == Action::Ready { job: JobId(3) }));
}

#[test]
fn a_replayed_trace_honours_its_dependencies() {
    let job = |arrival, after: Option<(Condition, u64)>| {
        let dependency =
            |(condition, job)| Dependency { condition, first: JobId(job), last: JobId(job), failed: None };
        TraceJob {
            peak: Bytes::from_gib(1),
            after: after.map(dependency).into_iter().collect(),
            ..TraceJob::new("p", Millis::from_secs(arrival), Millis::from_secs(100))
        }
    };
    let trace = [
        job(0, None),
        job(1, Some((Condition::Any, 0))),
        TraceJob { time_limit: Some(Millis::from_secs(10)), ..job(2, None) },
        job(3, Some((Condition::Ok, 2))),
        // Its dependency failed long before it comes.
        job(500, Some((Condition::Ok, 2))),
        job(501, Some((Condition::Any, 2))),
    ];
    let options = Options { model: Model::default().plain(), ..Options::default() };
    let cluster = Cluster::uniform(4, "G", Bytes::from_gib(40));
    let jobs = replay(&trace, &cluster, &options, &mut ()).jobs;
    assert_eq!(jobs[1].start, jobs[0].end, "GPUs are free, and it waits");
    assert!(!jobs[2].success);
    for never in [3, 4] {
        assert!(jobs[never].start.is_none() && jobs[never].end.is_some() && !jobs[never].success);
    }
    assert!(jobs[5].success, "whatever became of it");
}

#[test]
fn a_failure_ends_its_whole_chain_at_once_with_the_reason() {
    const CHAIN: u64 = 20_000;
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 1));
    for id in 2..=CHAIN {
        node.submit(after(id, Condition::Ok, [id - 1, id - 1]));
    }
    let decisions = node.finish(1, FAILED);
    for id in 2..=CHAIN {
        assert_eq!(
            ended(&decisions[id as usize - 1..], id),
            Some(Reason::DependencyFailed { job: JobId(id - 1) })
        );
    }
    assert_eq!(verdict(&decisions, 2), Some(Verdict::Cancelled));
    assert_eq!(node.state.jobs().count(), 0);
}

#[test]
fn a_retried_job_has_not_failed() {
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 4));
    node.submit(after(2, Condition::Ok, [1, 1]));
    node.finish(1, common::oom(6));
    assert_eq!(node.phase(2), Phase::Held, "the first is tried again");
    node.finish(1, DONE);
    assert_ne!(node.phase(2), Phase::Held);
}

#[test]
fn waiting_for_others_is_no_waiting_for_a_turn() {
    let mut node = Node::new(1, Settings::default());
    node.run(Job { exclusive: true, ..gib(1, 1) });
    node.submit(Job { exclusive: true, ..after(2, Condition::Any, [1, 1]) });
    node.at(50).submit(Job { exclusive: true, ..gib(3, 1) });
    let decisions = node.at(100).finish(1, DONE);
    assert!(started(&decisions, 3).is_some() && started(&decisions, 2).is_none(), "{decisions:?}");
}

#[test]
fn no_device_is_reserved_for_a_job_that_cannot_start_yet() {
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 30));
    node.submit(Job { priority: 9, ..after(2, Condition::Any, [1, 1]) });
    assert_eq!(node.state.reserved_for(), None);
    assert!(started(&node.submit(gib(3, 5)), 3).is_some());
}

#[test]
fn a_failure_before_the_submission_ends_the_job() {
    let mut node = Node::new(1, Settings::default());
    let mut job = after(7, Condition::Ok, [1, 5]);
    job.after[0].failed = Some(JobId(4));
    let decisions = node.submit(job);
    assert_eq!(ended(&decisions, 7), Some(Reason::DependencyFailed { job: JobId(4) }));
}

#[test]
fn a_held_dependent_stays_held_and_ends_with_a_failure() {
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 1));
    node.run(gib(2, 1));
    node.submit(Job { held: true, ..after(3, Condition::Ok, [1, 1]) });
    node.submit(Job { held: true, ..after(4, Condition::Ok, [2, 2]) });
    node.finish(1, DONE);
    assert_eq!(wait(&node, 3), Some(Wait::Held));
    assert!(ended(&node.finish(2, FAILED), 4).is_some());
    assert!(started(&node.step(Event::Released { job: JobId(3) }), 3).is_some());
}

#[test]
fn a_job_enters_the_queue_when_its_dry_run_is_over() {
    let mut node = Node::new(1, Settings::default());
    let over = |id| Event::DryRunOver { job: JobId(id) };
    node.submit(Job { need: None, awaits_dry_run: true, ..gib(1, 1) });
    assert_eq!(wait(&node, 1), Some(Wait::DryRun));
    node.step(Event::NeedKnown { job: JobId(1), need: Need::measured(Bytes::from_gib(1)) });
    assert_eq!(wait(&node, 1), Some(Wait::DryRun), "its need may be known in part only");
    node.step(Event::Held { job: JobId(1) });
    assert_eq!(started(&node.step(over(1)), 1), None, "its user holds it");
    assert_eq!(wait(&node, 1), Some(Wait::Held));
    assert!(started(&node.step(Event::Released { job: JobId(1) }), 1).is_some());
    assert_eq!(started(&node.step(over(1)), 1), None, "it runs");
}

#[test]
fn a_job_that_depends_on_others_awaits_its_dry_run_after_them() {
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 1));
    node.submit(Job { awaits_dry_run: true, ..after(2, Condition::Any, [1, 1]) });
    assert!(matches!(wait(&node, 2), Some(Wait::After { .. })));
    assert_eq!(started(&node.finish(1, DONE), 2), None);
    assert_eq!(wait(&node, 2), Some(Wait::DryRun));
    assert!(started(&node.step(Event::DryRunOver { job: JobId(2) }), 2).is_some());
}

fn task(id: u64) -> Job {
    Job { array: Some(ArrayLimit { array: JobId(1), at_once: 2 }), ..gib(id, 1) }
}

#[test]
fn of_an_array_no_more_jobs_run_than_its_bound() {
    let mut node = Node::new(2, Settings::default());
    for id in 1..=6 {
        assert_eq!(started(&node.run(task(id)), id).is_some(), id < 3, "{id}");
    }
    assert_eq!(wait(&node, 3), Some(Wait::Array { at_once: 2 }));
    // A place that becomes free is given on: by an end, and by one that is held.
    assert!(started(&node.finish(2, FAILED), 3).is_some());
    node.step(Event::Held { job: JobId(4) });
    assert!(started(&node.finish(1, DONE), 5).is_some());
    assert_eq!(started(&node.step(Event::Released { job: JobId(4) }), 4), None);
    node.step(Event::Cancelled { job: JobId(6) });
    assert!(started(&node.finish(3, DONE), 4).is_some());
}

#[test]
fn what_runs_when_the_caller_comes_back_counts_in_its_array() {
    let mut node = Node::new(2, Settings::default());
    for id in [2, 5] {
        node.step(Event::Adopted {
            job: Box::new(Job { attempts: 1, ..task(id) }),
            devices: Vec::new(),
            since: node.now,
            reserved: None,
            leaving: None,
        });
    }
    assert_eq!(started(&node.submit(task(3)), 3), None);
    assert!(started(&node.finish(5, DONE), 3).is_some());
}

#[test]
fn the_log_of_dependencies_and_arrays_is_read_back_and_decided_alike() {
    let settings = Settings::default();
    let mut state = State::new(settings.clone());
    let mut again = Again::default();
    again.feed(Entry::Start { version: "1".into(), settings: Box::new(settings) });
    let mut device =
        Node::new(1, Settings::default()).state.devices().map(|view| view.device).collect::<Vec<_>>();
    let submitted = |job: Job| Event::Submitted { job: Box::new(job) };
    let failed = Dependency { failed: Some(JobId(0)), ..after(6, Condition::Ok, [0, 1]).after[0] };
    let events = [
        Event::DeviceAdded { device: device.remove(0) },
        submitted(task(1)),
        submitted(task(2)),
        submitted(Job { held: true, ..task(3) }),
        submitted(after(4, Condition::Ok, [1, 3])),
        submitted(after(5, Condition::Any, [1, 3])),
        submitted(Job { after: vec![failed], ..gib(6, 1) }),
        Event::Released { job: JobId(3) },
        Event::Finished { job: JobId(1), attempt: 1, outcome: DONE },
        Event::Finished { job: JobId(2), attempt: 1, outcome: FAILED },
        Event::Finished { job: JobId(3), attempt: 1, outcome: DONE },
    ];
    let mut ends = 0;
    for (at, event) in events.into_iter().enumerate() {
        let at = Millis(at as u64);
        let decisions = state.step(at, event.clone());
        ends += decisions.iter().filter(|decision| matches!(decision.action, Action::End { .. })).count();
        let text = serde_json::to_string(&Entry::Step { at, event, decisions: decisions.clone() }).unwrap();
        assert_eq!(again.feed(serde_json::from_str(&text).unwrap()), Fed::Same(decisions), "{text}");
    }
    assert_eq!((ends, state.jobs().collect::<Vec<_>>()), (5, vec![JobId(5)]));
}
