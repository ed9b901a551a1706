//! Jobs that are told to stop, and what becomes of them.

use crate::common::{DONE, LATER, Node, adopted, gib, oom, preemptible, signals, started, verdict};
use radrm_scheduler_core::{
    Action, After, Bytes, Decision, DeviceId, Event, HostNeed, Job, JobId, Leaving, Millis, NodeId, Outcome,
    Phase, Preemption, Reason, Settings, Signal, SuspendRefusal, Verdict,
    replay::{Cluster, Model, Options, TraceJob, replay},
};

#[test]
fn a_job_that_was_told_to_stop_before_a_restart_still_goes_where_it_was_to_go() {
    let leaving = |after, signal, slot_over| {
        let slot = Millis::from_secs(600);
        let reason = if slot_over { Reason::SlotEnds { slot } } else { Reason::GraceOver };
        Leaving { after, signal, reason, slot_over }
    };
    let job = Job { preemption: preemptible(Err(SuspendRefusal::Unsupported)), ..gib(1, 30) };
    for (after, signal) in [
        (After::Requeue, Signal::Checkpoint(10)),
        (After::Requeue, Signal::Terminate),
        (After::End(Verdict::TimedOut), Signal::Kill),
    ] {
        let told = leaving(after, signal, after == After::Requeue);
        let mut node = Node::new(1, Settings::default());
        let decisions = node.at(700).step(adopted(job.clone(), &[0], Some(told.clone())));
        assert_eq!(signals(&decisions), [(1, signal)], "whether it was sent is unknown");
        assert_eq!(node.state.job(JobId(1)).unwrap().leaving, Some(told), "and so for the next daemon");
        // It waited since the first one's slot began.
        let second = Job { submitted: Millis::from_secs(600), ..gib(2, 30) };
        node.step(Event::Submitted { job: Box::new(second) });
        let decisions = node.finish(1, LATER);
        assert!(started(&decisions, 2).is_some(), "{decisions:?}");
        match after {
            After::End(verdict_then) => assert_eq!(verdict(&decisions, 1), Some(verdict_then)),
            _ => assert_eq!(node.phase(1), Phase::Waiting),
        }
    }
    // The ladder of signals goes on.
    let mut node = Node::new(1, Settings::default());
    node.at(700).step(adopted(job, &[0], Some(leaving(After::Requeue, Signal::Checkpoint(10), false))));
    assert_eq!(signals(&node.at(2000).step(Event::Tick)), [(1, Signal::Terminate)]);
}

#[test]
fn no_job_starts_or_leaves_while_paused() {
    let mut node = Node::new(1, Settings::default());
    node.at(100).step(Event::Paused { paused: true });
    let less = Job { preemption: preemptible(Ok(())), ..gib(1, 30) };
    let mut told = node.step(adopted(less, &[0], None));
    told.extend(node.submit(gib(2, 30)));
    told.extend(node.submit(Job { priority: 9, ..gib(3, 30) }));
    told.extend(node.at(130).finish(1, DONE));
    told.extend(node.at(200).step(Event::Tick));
    let acts = |decision: &&Decision| !matches!(decision.action, Action::WakeAt { .. } | Action::End { .. });
    assert_eq!(told.iter().find(acts), None);
    let decisions = node.step(Event::Paused { paused: false });
    assert!(started(&decisions, 3).is_some() && started(&decisions, 2).is_none(), "{decisions:?}");
}

#[test]
fn whose_time_is_over_is_told_after_what_ended_meanwhile() {
    let limited = Job { time_limit: Some(Millis::from_secs(100)), ..gib(1, 30) };
    let back = || {
        let mut node = Node::new(1, Settings::default());
        node.at(500).step(Event::Paused { paused: true });
        assert_eq!(signals(&node.step(adopted(limited.clone(), &[0], None))), []);
        node
    };
    for outcome in [DONE, Outcome::Exited { code: 7 }] {
        assert_eq!(verdict(&back().finish(1, outcome), 1), Some(Verdict::Ended(outcome)));
    }
    for outcome in [Outcome::Lost, oom(20)] {
        let mut node = back();
        node.finish(1, outcome);
        assert_eq!(node.phase(1), Phase::Waiting, "{outcome:?}");
        assert!(started(&node.step(Event::Paused { paused: false }), 1).is_some());
    }
    let mut runs_on = back();
    assert_eq!(signals(&runs_on.step(Event::Paused { paused: false })), [(1, Signal::Terminate)]);
    assert_eq!(verdict(&runs_on.finish(1, DONE), 1), Some(Verdict::TimedOut));
}

/// One job that was asked to leave for another, on one device.
fn asked_to_leave() -> Node {
    let mut node = Node::new(1, Settings::default());
    node.run(Job { preemption: preemptible(Err(SuspendRefusal::Unsupported)), ..gib(1, 30) });
    let asked = signals(&node.at(10).submit(Job { priority: 5, ..gib(2, 30) }));
    assert_eq!(asked, [(1, Signal::Checkpoint(10))]);
    node
}

#[test]
fn the_time_to_leave_begins_when_the_signal_is_sent() {
    let mut node = asked_to_leave();
    let job = JobId(1);
    node.step(Event::SignalHeld { job, held: true });
    assert_eq!(signals(&node.at(10_000).step(Event::Tick)), []);
    node.step(Event::SignalHeld { job, held: false });
    assert_eq!(signals(&node.at(10_059).step(Event::Tick)), []);
    assert_eq!(signals(&node.at(10_060).step(Event::Tick)), [(1, Signal::Terminate)]);
    node.step(Event::SignalHeld { job, held: true });
    assert_eq!(signals(&node.at(20_000).step(Event::Tick)), []);
    // It was asked by the first: it left.
    node.finish(1, LATER);
    assert_eq!(node.phase(1), Phase::Waiting);
}

#[test]
fn who_was_not_told_to_leave_ended_by_itself() {
    let job = JobId(1);
    for outcome in [DONE, Outcome::Exited { code: 7 }] {
        let mut node = asked_to_leave();
        node.step(Event::SignalHeld { job, held: true });
        assert_eq!(verdict(&node.finish(1, outcome), 1), Some(Verdict::Ended(outcome)));
    }
    let mut node = asked_to_leave();
    node.step(Event::SignalHeld { job, held: true });
    node.finish(1, oom(35));
    assert_eq!(node.phase(1), Phase::Waiting);
    // A job that is to end for good does, whatever it was signalled before.
    let mut node = asked_to_leave();
    node.step(Event::SignalHeld { job, held: true });
    node.step(Event::Cancelled { job });
    assert_eq!(verdict(&node.finish(1, DONE), 1), Some(Verdict::Cancelled));
    // A device that fails under it is not a failure of its own.
    let mut node = asked_to_leave();
    node.step(Event::SignalHeld { job, held: true });
    node.step(Event::DeviceLost { device: DeviceId(0) });
    node.step(Event::SignalHeld { job, held: true });
    node.finish(1, Outcome::Exited { code: 1 });
    assert_eq!(node.phase(1), Phase::Waiting);
}

#[test]
fn a_job_that_succeeded_does_not_run_again_because_its_device_is_gone() {
    let failures = [
        Outcome::Exited { code: 1 },
        Outcome::Signalled { signal: 9 },
        oom(35),
        Outcome::NotStarted,
        Outcome::Lost,
    ];
    for outcome in [DONE].into_iter().chain(failures) {
        // Lost while it ran, and before the daemon came back.
        let mut lost = Node::new(2, Settings::default());
        lost.run(gib(1, 30));
        lost.step(Event::DeviceLost { device: DeviceId(0) });
        let mut missing = Node::new(1, Settings::default());
        missing.step(adopted(gib(1, 30), &[7], None));
        for mut node in [lost, missing] {
            let decisions = node.finish(1, outcome);
            match outcome {
                DONE => assert_eq!(verdict(&decisions, 1), Some(Verdict::Ended(DONE))),
                _ => assert!(started(&decisions, 1).is_some(), "{outcome:?}: {decisions:?}"),
            }
        }
    }
    // One that was asked to leave first may go on later.
    let mut node = Node::new(2, Settings::default());
    let low = |id| Job { preemption: preemptible(Err(SuspendRefusal::Unsupported)), ..gib(id, 30) };
    node.run(low(1));
    node.run(low(2));
    let signalled = signals(&node.submit(Job { priority: 5, ..gib(3, 30) }));
    let [(first, Signal::Checkpoint(10))] = signalled[..] else { panic!("{signalled:?}") };
    let device = node.state.job(JobId(first)).unwrap().devices[0];
    node.step(Event::DeviceLost { device });
    node.finish(first, LATER);
    assert_eq!(node.phase(first), Phase::Waiting);
}

#[test]
fn a_lost_device_gives_its_jobs_back() {
    let mut node = Node::new(2, Settings::default());
    node.run(gib(1, 30));
    let decisions = node.step(Event::DeviceLost { device: DeviceId(0) });
    assert_eq!(signals(&decisions), [(1, Signal::Kill)]);
    let decisions = node.finish(1, Outcome::Signalled { signal: 9 });
    assert_eq!(started(&decisions, 1), Some((2, vec![1])));
}

#[test]
fn a_grace_longer_than_the_limit_leaves_half_of_it_to_work() {
    for (time_limit, slot) in [(Some(60), None), (None, Some(60)), (Some(60), Some(600))] {
        let span = |seconds: Option<u64>| seconds.map(Millis::from_secs);
        let preemption =
            Preemption { grace: Millis::from_secs(3600), ..preemptible(Err(SuspendRefusal::Mps)) };
        let job = Job { time_limit: span(time_limit), slot: span(slot), preemption, ..gib(1, 30) };
        let mut node = Node::new(1, Settings::default());
        node.at(0).run(job);
        node.at(1).submit(gib(2, 30));
        assert_eq!(signals(&node.at(29).step(Event::Tick)), [], "it had no time to work");
        assert_eq!(signals(&node.at(30).step(Event::Tick)), [(1, Signal::Checkpoint(10))]);
        assert_eq!(signals(&node.at(60).step(Event::Tick)), [(1, Signal::Terminate)]);
    }
}

#[test]
fn after_its_checkpoint_signal_exit_0_is_done_and_75_goes_on() {
    for (code, done) in [(0, true), (75, false), (1, false)] {
        let preemption = preemptible(Err(SuspendRefusal::Mps));
        let job = Job { slot: Some(Millis::from_secs(600)), preemption, ..gib(1, 30) };
        let mut node = Node::new(1, Settings::default());
        node.at(0).run(job);
        node.at(1).submit(gib(2, 30));
        assert_eq!(signals(&node.at(600).step(Event::Tick)), [(1, Signal::Checkpoint(10))]);
        let ended = node.at(601).finish(1, Outcome::Exited { code });
        let requeued = ended.iter().any(|decision| matches!(decision.action, Action::Requeue { .. }));
        assert_eq!((verdict(&ended, 1).is_some(), requeued), (done, !done), "exit code {code}");
    }
}

#[test]
fn a_job_at_its_time_limit_returns_to_the_queue_where_it_asked_for_that() {
    for (code, is_done) in [(0, true), (75, false), (1, false)] {
        let preemption = Preemption { allowed: false, ..preemptible(Err(SuspendRefusal::Mps)) };
        let time_limit = Some(Millis::from_secs(600));
        let job = Job { time_limit, requeue_on_timeout: true, preemption, ..gib(1, 30) };
        let mut node = Node::new(1, Settings::default());
        node.at(0).run(job);
        node.at(1).submit(gib(2, 30));
        assert_eq!(signals(&node.at(540).step(Event::Tick)), [(1, Signal::Checkpoint(10))]);
        let ended = node.at(541).finish(1, Outcome::Exited { code });
        let requeued = ended.iter().any(|decision| matches!(decision.action, Action::Requeue { .. }));
        assert_eq!((verdict(&ended, 1).is_some(), requeued), (is_done, !is_done), "exit code {code}");
        assert!(started(&ended, 2).is_some(), "it is behind those that waited");
        if !is_done {
            // It has its whole time once more.
            let again = node.at(600).finish(2, DONE);
            assert!(started(&again, 1).is_some());
            assert_eq!(signals(&node.at(1100).step(Event::Tick)), []);
        }
    }
}

#[test]
fn a_start_that_takes_too_long_is_tried_again_where_the_job_returns_at_its_time_limit() {
    for requeue_on_timeout in [false, true] {
        let mut node = Node::new(1, Settings::default());
        node.submit(Job { requeue_on_timeout, ..gib(1, 30) });
        node.at(1).submit(gib(2, 30));
        let limit = Millis::from_mins(5);
        let overdue = node.at(300).step(Event::StartOverdue { job: JobId(1), attempt: 1, limit });
        assert_eq!(signals(&overdue), [(1, Signal::Kill)]);
        let ended = node.at(301).finish(1, Outcome::Signalled { signal: 9 });
        assert_eq!(verdict(&ended, 1), (!requeue_on_timeout).then_some(Verdict::TimedOut));
        assert!(started(&ended, 2).is_some(), "it is behind those that waited");
        let again = node.at(600).finish(2, DONE);
        assert_eq!(started(&again, 1).map(|(attempt, _)| attempt), requeue_on_timeout.then_some(2));
    }
}

#[test]
fn a_replayed_job_that_gave_way_runs_its_whole_length_again() {
    let job = |arrival, seconds, priority| TraceJob {
        peak: Bytes::from_gib(30),
        priority,
        preemption: Preemption { allowed: true, ..Preemption::default() },
        ..TraceJob::new("p", Millis::from_secs(arrival), Millis::from_secs(seconds))
    };
    let trace = [job(0, 100, 0), job(50, 10, 1)];
    let options = Options { model: Model::default().plain(), ..Options::default() };
    let jobs = replay(&trace, &Cluster::uniform(1, "G", Bytes::from_gib(40)), &options, &mut ()).jobs;
    assert_eq!((jobs[0].attempts, jobs[1].attempts), (2, 1));
    // It ends at 51 s, waits for the other's 10 s, and begins anew.
    assert_eq!(jobs[0].end, Some(Millis::from_secs(161)));
}

#[test]
fn a_job_that_would_start_again_first_does_not_give_way() {
    let minutes = |minutes| Some(Millis::from_mins(minutes));
    let mut node = Node::new(1, Settings::default());
    let preemption = preemptible(Err(SuspendRefusal::Unsupported));
    node.run(Job { preemption, expected: minutes(1), ..gib(1, 30) });
    // As a long job it stands behind the short one in spite of its priority: they would take turns for ever.
    let decisions = node.at(1).submit(Job { priority: 1, expected: minutes(100), ..gib(2, 30) });
    assert_eq!(signals(&decisions), []);
    let decisions = node.at(2).submit(Job { priority: 3, expected: minutes(100), ..gib(3, 30) });
    assert_eq!(signals(&decisions), [(1, Signal::Checkpoint(10))]);
}

#[test]
fn no_job_leaves_for_one_that_the_host_keeps_waiting() {
    let host = |memory| HostNeed { cpu_milli: 1000, memory: Bytes::from_gib(memory) };
    let limit = |seconds| Some(Millis::from_secs(seconds));
    let mut node = Node::new(1, Settings::default());
    let bounds = radrm_scheduler_core::Node {
        id: NodeId(0),
        cpu_milli: 16_000,
        memory: Bytes::from_gib(256),
        memory_bandwidth: None,
    };
    node.step(Event::NodeAdded { node: bounds });
    node.run(Job { gpus: 0, priority: 2, host: host(80), time_limit: limit(9000), ..Job::new(JobId(1)) });
    let less = Job { preemption: preemptible(Ok(())), host: host(10), time_limit: limit(100), ..gib(2, 30) };
    assert!(started(&node.run(less), 2).is_some());
    // It would be brought back before the head each time, as it is gone before the first.
    let decisions = node.run(Job { priority: 2, host: host(192), ..gib(3, 30) });
    assert_eq!((decisions, node.phase(2)), (Vec::new(), Phase::Running));
    let decisions = node.at(10).finish(1, DONE);
    assert!(
        decisions.iter().any(|decision| decision.action == Action::Suspend { job: JobId(2) }),
        "{decisions:?}"
    );
    assert!(started(&node.suspended(2, 30), 3).is_some());
}

#[test]
fn an_overdue_start_ends_that_attempt_and_no_other() {
    let mut node = Node::new(1, Settings::default());
    let (attempt, _) = started(&node.submit(gib(1, 30)), 1).unwrap();
    let limit = Millis::from_secs(300);
    let overdue = |attempt| Event::StartOverdue { job: JobId(1), attempt, limit };
    assert!(signals(&node.at(300).step(overdue(attempt + 1))).is_empty(), "that is not its attempt");
    assert_eq!(node.phase(1), Phase::Launching);
    assert_eq!(signals(&node.step(overdue(attempt))), [(1, Signal::Kill)]);
    assert!(signals(&node.step(overdue(attempt))).is_empty(), "it is stopping");
    assert_eq!(verdict(&node.finish(1, Outcome::NotStarted), 1), Some(Verdict::TimedOut));
}
