//! Behaviour that a user or an administrator relies on, one property at a time.

use crate::common::{DONE, MODEL, Node, estimated, gib, oom, preemptible, signals, started, verdict, with};
use radrm_scheduler_core::{
    Action, Activity, Basis, Bytes, ConstantsFrom, Decision, Device, DeviceId, Event, Evidence, Forecast,
    Job, JobId, JobObservation, Memory, Millis, NodeId, Observation, Order, Outcome, Permille, Phase, Policy,
    Reason, Rung, Settings, SharingMode, Signal, SuspendRefusal, UserId, Verdict, Wait,
};

fn placed(settings: Settings, jobs: &[(u64, u64)]) -> Vec<Option<u32>> {
    let mut node = Node::new(3, settings);
    let place = |(id, size): &(u64, u64)| started(&node.run(gib(*id, *size)), *id).map(|(_, at)| at[0]);
    jobs.iter().map(place).collect()
}

#[test]
fn each_policy_chooses_its_own_device() {
    let jobs = [(1, 10), (2, 20), (3, 5), (4, 15)];
    let at = |policy| placed(with(policy), &jobs);
    assert_eq!(at(Policy::Exclusive), [Some(0), Some(1), Some(2), None]);
    assert_eq!(at(Policy::RoundRobin), [Some(0), Some(1), Some(2), Some(0)]);
    assert_eq!(at(Policy::FirstFit), [Some(0), Some(0), Some(0), Some(1)]);
    assert_eq!(at(Policy::Magm), [Some(0), Some(1), Some(2), Some(2)]);
    assert_eq!(at(Policy::WorstFit), at(Policy::Magm));
    assert_eq!(at(Policy::BestFit), [Some(0), Some(0), Some(0), Some(1)]);
}

#[test]
fn utilisation_policies_follow_what_the_monitor_sees() {
    for (policy, expected) in [(Policy::Lug, 2), (Policy::Mug, 1)] {
        let mut node = Node::new(3, Settings { memory: Memory::Observed, ..with(policy) });
        for (device, smact) in [(0, 300), (1, 700), (2, 100)] {
            let seen = Observation { smact: Some(Permille(smact)), ..Observation::default() };
            node.step(Event::DeviceObserved { device: DeviceId(device), seen });
        }
        assert_eq!(started(&node.run(gib(1, 1)), 1).unwrap().1, [expected], "{policy}");
    }
}

#[test]
fn a_busy_device_takes_no_more_jobs_unless_it_is_not_hot() {
    let mut settings = Settings { memory: Memory::Observed, ..with(Policy::FirstFit) };
    settings.preconditions.smact = Some(Permille(800));
    let busy = |settings: Settings, smocc| {
        let mut node = Node::new(1, settings);
        node.run(gib(1, 5));
        let (smact, smocc) = (Permille(900), Permille(smocc));
        node.step(Event::DeviceObserved {
            device: DeviceId(0),
            seen: Observation { smact: Some(smact), smocc: Some(smocc), ..Observation::default() },
        });
        started(&node.submit(gib(2, 5)), 2).is_some()
    };
    assert!(!busy(settings.clone(), 500));
    settings.preconditions.hot =
        Some(radrm_scheduler_core::Hot { smocc: Permille(450), drama: Permille(400) });
    assert!(!busy(settings.clone(), 500));
    assert!(busy(settings, 300), "many SMs active at low occupancy have room");
}

#[test]
fn aware_pairs_jobs_that_do_not_hurt_each_other() {
    let act = |smact, drama| {
        Some(Activity { smact: Permille(smact), smocc: Permille(200), drama: Permille(drama) })
    };
    let mut node = Node::new(2, Settings::default());
    node.run(Job { activity: act(850, 500), ..gib(1, 10) });
    node.run(Job { activity: act(150, 20), ..gib(2, 10) });
    let decisions = node.run(Job { activity: act(800, 450), ..gib(3, 10) });
    assert_eq!(started(&decisions, 3).unwrap().1, [1], "beside the light one");
    assert!(decisions[0].reason.to_string().contains("is predicted to add"), "{}", decisions[0].reason);
    // One more that fills a GPU by itself would not pay anywhere.
    assert!(started(&node.run(Job { activity: act(950, 700), ..gib(4, 5) }), 4).is_none());
    let wait = node.state.job(JobId(4)).unwrap().wait.unwrap();
    let by = Forecast::Gpu {
        sharing: SharingMode::Mps,
        constants: ConstantsFrom::Shipped,
        activity: Basis::Measured,
    };
    assert!(matches!(wait, Wait::Slowdown { by: found, .. } if found == by), "{wait}");
}

#[test]
fn an_assumed_activity_is_not_told_as_a_finding() {
    let act =
        |smact| Some(Activity { smact: Permille(smact), smocc: Permille(200), drama: Permille(smact / 2) });
    let waits = |first, second| {
        let mut node = Node::new(1, Settings::default());
        node.run(Job { activity: first, ..gib(1, 5) });
        node.run(Job { activity: second, ..gib(2, 5) });
        node.state.job(JobId(2)).unwrap().wait.unwrap()
    };
    for (first, second) in [(act(950), None), (None, act(950))] {
        let wait = waits(first, second);
        assert!(wait.to_string().contains("SM activity assumed"), "{wait}");
    }
    let wait = waits(act(950), act(950));
    assert!(!wait.to_string().contains("assumed"), "{wait}");
}

#[test]
fn a_gang_gets_all_its_devices_at_once_and_is_not_passed_for_ever() {
    let mut node = Node::new(4, with(Policy::FirstFit));
    for id in 0..8 {
        node.at(id).run(gib(id, 20));
    }
    node.at(10).submit(Job { gpus: 4, ..gib(100, 30) });
    let mut ended = 0;
    // A stream of small jobs that would fit beside the others for ever.
    for id in 200..400 {
        node.at(10 + id).run(gib(id, 5));
        let view: Vec<u64> = node.state.devices().flat_map(|view| view.jobs).map(|job| job.0).collect();
        let oldest = *view.iter().min().unwrap();
        let decisions = node.finish(oldest, DONE);
        ended += 1;
        if let Some((_, devices)) = started(&decisions, 100) {
            assert_eq!(devices, [0, 1, 2, 3]);
            assert!(ended >= 8);
            return;
        }
    }
    panic!("the gang starved");
}

#[test]
fn backfilling_does_not_delay_the_head() {
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.at(0).run(gib(1, 30));
    node.at(0).run(gib(2, 30));
    node.at(1).submit(gib(3, 35));
    // Fits now, and would keep the head from its device; on the other device it may go.
    let small = node.at(2).run(gib(4, 8));
    let (_, kept) = node.state.reserved_for().unwrap();
    let (_, at) = started(&small, 4).unwrap();
    assert_ne!(kept[0].0, at[0]);
    assert!(matches!(small[0].reason, Reason::Backfilled { ahead: JobId(3), .. }));
    assert!(started(&node.at(3).run(gib(5, 8)), 5).is_none());
    assert!(matches!(node.state.job(JobId(5)).unwrap().wait, Some(Wait::Reserved { job: JobId(3), .. })));
    let first = if kept[0].0 == 0 { 1 } else { 2 };
    let decisions = node.at(50).finish(first, DONE);
    assert_eq!(started(&decisions, 3).unwrap().1, [kept[0].0]);
}

#[test]
fn a_short_job_passes_a_gang_of_which_no_start_is_known() {
    let limit = |seconds| Some(Millis::from_secs(seconds));
    let short = |id, seconds| Job { time_limit: limit(seconds), ..gib(id, 8) };
    let mut node = Node::new(2, with(Policy::FirstFit));
    // Nothing is known of how long it runs.
    node.at(0).run(gib(1, 30));
    node.at(1).submit(Job { gpus: 2, ..gib(2, 35) });
    assert!(started(&node.at(2).run(gib(3, 8)), 3).is_none(), "it has no limit");
    let kept_off = node.at(3).run(short(4, 30));
    assert!(started(&kept_off, 4).is_none(), "the first job may end as soon");
    node.at(3).run(short(5, 700));
    // With 30 s until it is killed the short one takes as long as the first has run by then.
    let wakes = kept_off.iter().filter_map(|decision| match decision.action {
        Action::WakeAt { at } => Some(at),
        _ => None,
    });
    assert_eq!(wakes.min(), Some(Millis::from_secs(60)));
    let decisions = node.at(60).step(Event::Tick);
    let (attempt, devices) = started(&decisions, 4).unwrap();
    assert_eq!(devices, [1], "not beside the job that the gang waits for");
    let text = decisions[0].reason.to_string();
    assert!(text.ends_with("passes job 2, whose start is not known, for at most 30 s"), "{text}");
    node.step(Event::Started { job: JobId(4), attempt });
    // The gang now waits for the short one, and for no other.
    assert!(started(&node.at(65).finish(1, DONE), 2).is_none());
    assert!(started(&node.at(66).run(short(6, 30)), 6).is_none(), "it would end after the short one");
    let decisions = node.at(89).finish(4, DONE);
    assert_eq!(started(&decisions, 2).unwrap().1, [0, 1]);
    // For none longer than ten minutes, however long the first job has run.
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.at(0).run(gib(1, 30));
    node.at(1).submit(Job { gpus: 2, ..gib(2, 35) });
    assert!(started(&node.at(90_000).run(short(3, 600)), 3).is_none());
    assert!(started(&node.at(90_001).run(short(4, 500)), 4).is_some());
}

#[test]
fn no_job_borrows_what_is_kept_for_one_that_waits_for_unmanaged_processes() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    let in_use = |gib| {
        let seen = Observation { used: Bytes::from_gib(gib), ..Observation::default() };
        Event::DeviceObserved { device: DeviceId(0), seen }
    };
    node.at(0).step(in_use(20));
    node.at(0).submit(Job { priority: 1, ..gib(1, 38) });
    // When those leave is not known, and the first job has short ones leave for it: these would come and go for ever.
    for id in 2..60 {
        let limit = Some(Millis::from_secs(30));
        let short = Job { time_limit: limit, preemption: preemptible(Ok(())), ..gib(id, 4) };
        assert!(started(&node.at(60 * id).run(short), id).is_none(), "job {id}");
    }
    assert!(started(&node.at(4000).step(in_use(0)), 1).is_some());
}

#[test]
fn short_jobs_without_end_delay_a_gang_by_one_limit_at_most() {
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.at(0).run(gib(1, 30));
    node.at(1).submit(Job { gpus: 2, ..gib(2, 38) });
    let (mut passed, mut ends) = (0, None);
    for second in (100..1200).step_by(10) {
        node.at(second);
        let over = ends.take_if(|(_, end)| *end <= second).map(|(id, _)| id);
        let first = (second == 1000).then_some(1);
        let decisions: Vec<Decision> =
            over.into_iter().chain(first).flat_map(|id| node.finish(id, DONE)).collect();
        if started(&decisions, 2).is_some() {
            assert!(passed > 20, "{passed} passed");
            assert!((1000..=1060).contains(&second), "{second}");
            return;
        }
        let id = 10 + second;
        let short = Job { time_limit: Some(Millis::from_secs(30)), ..gib(id, 8) };
        node.run(short);
        // One of those that wait may be started: the only one that runs beside the first.
        if ends.is_none()
            && let Some(id) = (100..=second)
                .map(|at| 10 + at)
                .find(|id| node.state.job(JobId(*id)).is_some_and(|view| !view.devices.is_empty()))
        {
            let attempt = node.state.job(JobId(id)).unwrap().attempts;
            node.step(Event::Started { job: JobId(id), attempt });
            (passed, ends) = (passed + 1, Some((id, second + 20)));
        }
    }
    panic!("the gang starved: {passed} passed");
}

#[test]
fn a_short_job_passes_a_gang_that_waits_for_a_known_run_time() {
    let limit = |seconds| Some(Millis::from_secs(seconds));
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.at(0).run(Job { expected: limit(7200), ..gib(1, 30) });
    node.at(1).submit(Job { gpus: 2, ..gib(2, 35) });
    let short = |id, seconds| Job { time_limit: limit(seconds), ..gib(id, 8) };
    assert!(started(&node.at(2).run(short(3, 7190)), 3).is_none(), "the first job is likely to end before");
    assert_eq!(started(&node.at(3).run(short(4, 3600)), 4).unwrap().1, [1]);
}

#[test]
fn a_short_job_passes_up_to_the_lower_end_of_a_predicted_run_time() {
    let time = |seconds| Some(Millis::from_secs(seconds));
    let short = |id, seconds| Job { time_limit: time(seconds), ..gib(id, 8) };
    for time_limit in [None, time(8000)] {
        let mut node = Node::new(2, with(Policy::FirstFit));
        node.at(0).run(Job { expected: time(7200), at_least: time(5400), time_limit, ..gib(1, 30) });
        node.at(1).submit(Job { gpus: 2, ..gib(2, 35) });
        assert!(started(&node.at(2).run(short(3, 6000)), 3).is_none(), "the first job may end before");
        assert_eq!(started(&node.at(3).run(short(4, 3600)), 4).unwrap().1, [1]);
    }
}

#[test]
fn a_short_job_passes_up_to_the_likely_end_once_the_lower_end_of_a_predicted_run_time_has_passed() {
    let time = |seconds| Some(Millis::from_secs(seconds));
    let short = |id, seconds| Job { time_limit: time(seconds), ..gib(id, 8) };
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.at(0).run(Job { expected: time(7200), at_least: time(5400), ..gib(1, 30) });
    node.at(1).submit(Job { gpus: 2, ..gib(2, 35) });
    assert!(started(&node.at(6900).run(short(3, 500)), 3).is_none(), "the first job is likely to end before");
    assert_eq!(started(&node.at(6901).run(short(4, 200)), 4).unwrap().1, [1]);
}

#[test]
fn a_job_that_is_surely_gone_in_time_may_use_what_is_kept() {
    let limit = |seconds| Some(Millis::from_secs(seconds));
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.at(0).run(Job { time_limit: limit(1000), expected: limit(800), ..gib(1, 30) });
    // Both devices are kept for a gang; the second one is idle until the first job has left.
    node.at(1).submit(Job { gpus: 2, ..gib(2, 35) });
    let short = |id, seconds| Job { time_limit: limit(seconds), ..gib(id, 8) };
    assert!(started(&node.at(2).run(short(3, 790)), 3).is_none(), "it may take longer than the first job");
    assert_eq!(started(&node.at(3).run(short(4, 500)), 4).unwrap().1, [1], "not beside the first one");
}

#[test]
fn priorities_and_fair_shares_order_the_queue_and_age_wins_in_the_end() {
    let user = |id, user| Job { user: UserId(user), ..gib(id, 40) };
    let mut node = Node::new(1, with(Policy::FirstFit));
    node.at(0).run(user(1, 1));
    node.at(100).submit(user(2, 1));
    node.at(101).submit(user(3, 2));
    assert_eq!(node.state.queue(), [JobId(3), JobId(2)], "the first user has the GPU");
    node.at(102).submit(Job { priority: 9, ..user(4, 1) });
    assert_eq!(node.state.queue(), [JobId(4), JobId(3), JobId(2)]);
    // A job that comes later than the largest set-back stays behind, of whichever user.
    node.at(100_000).submit(user(5, 3));
    assert_eq!(node.state.queue().last(), Some(&JobId(5)));
}

#[test]
fn only_a_real_out_of_memory_is_tried_again_and_not_for_ever() {
    let mut node = Node::new(2, Settings::default());
    let job = Job { need: Some(estimated(5, 6)), ..gib(1, 0) };
    node.run(job);
    let mut rungs = Vec::new();
    for attempt in 1..4 {
        let decisions = node.finish(1, oom(7 + attempt));
        assert!(decisions.iter().any(|decision| matches!(decision.action, Action::Requeue { .. })));
        let again =
            decisions.iter().find(|decision| matches!(decision.action, Action::Start { .. })).unwrap();
        let Reason::Retried { rung, .. } = again.reason else { panic!("{}", again.reason) };
        let Action::Start { reserved, .. } = again.action else { unreachable!() };
        assert!(reserved.is_none_or(|reserved| reserved >= Bytes::from_gib(12 + attempt)));
        rungs.push(rung);
    }
    assert_eq!(rungs, [Rung::More, Rung::Emptier, Rung::Exclusive]);
    // Alone on the largest device there is, and still too little.
    assert_eq!(verdict(&node.finish(1, oom(41)), 1), Some(Verdict::Ended(oom(41))));

    for outcome in [Outcome::Exited { code: 3 }, Outcome::Signalled { signal: 11 }, Outcome::NotStarted] {
        let mut node = Node::new(1, Settings::default());
        node.run(gib(1, 5));
        assert_eq!(verdict(&node.finish(1, outcome), 1), Some(Verdict::Ended(outcome)));
    }
}

#[test]
fn a_job_that_waits_for_more_memory_blocks_no_other() {
    let mut node = Node::new(2, with(Policy::FirstFit));
    node.run(gib(1, 18));
    node.run(gib(2, 18));
    node.run(gib(3, 18));
    node.finish(2, oom(30));
    assert_eq!(node.phase(2), Phase::Waiting, "no device has so much free");
    assert!(started(&node.run(gib(4, 10)), 4).is_some());
}

#[test]
fn a_log_is_believed_only_where_that_is_allowed() {
    let log = Outcome::OutOfMemory { seen: Some(Bytes::from_gib(6)), evidence: Evidence::Log, code: 1 };
    let mut settings = Settings::default();
    settings.recovery.trust_log = false;
    let mut node = Node::new(1, settings);
    node.run(gib(1, 5));
    assert_eq!(verdict(&node.finish(1, log), 1), Some(Verdict::Ended(log)));
}

#[test]
fn what_no_device_could_hold_is_refused_at_once() {
    let mut node = Node::new(2, Settings::default());
    assert_eq!(verdict(&node.submit(gib(1, 41)), 1), Some(Verdict::Impossible));
    assert_eq!(verdict(&node.submit(Job { gpus: 3, ..gib(2, 1) }), 2), Some(Verdict::Impossible));
    let share = Some(Permille(1200));
    assert_eq!(verdict(&node.submit(Job { share, ..gib(3, 1) }), 3), Some(Verdict::Impossible));
    let model = Some("H200".to_owned());
    assert_eq!(verdict(&node.submit(Job { model, ..gib(4, 1) }), 4), Some(Verdict::Impossible));
}

#[test]
fn instances_take_one_job_each_and_their_gpu_none() {
    let mut node = Node::new(1, Settings::default());
    for id in 1..3 {
        let device = Device {
            id: DeviceId(id),
            node: NodeId(0),
            model: "A100-40GB 3g.20gb".into(),
            capacity: Bytes::from_gib(20),
            parent: Some(DeviceId(0)),
            shared: false,
        };
        node.step(Event::DeviceAdded { device });
    }
    assert_eq!(started(&node.run(gib(1, 5)), 1).unwrap().1, [1]);
    assert_eq!(started(&node.run(gib(2, 5)), 2).unwrap().1, [2]);
    assert!(started(&node.run(gib(3, 5)), 3).is_none());
    assert_eq!(verdict(&node.submit(gib(4, 30)), 4), Some(Verdict::Impossible));
}

#[test]
fn a_more_important_job_suspends_one_that_can_be_and_gives_the_place_back() {
    let mut node = Node::new(1, Settings::default());
    node.at(0).run(Job { preemption: preemptible(Ok(())), ..gib(1, 30) });
    let decisions = node.at(10).submit(Job { priority: 2, ..gib(2, 30) });
    assert_eq!(decisions[0].action, Action::Suspend { job: JobId(1) });
    let decisions = node.at(20).suspended(1, 29);
    assert!(started(&decisions, 2).is_some());
    node.step(Event::Started { job: JobId(2), attempt: 1 });
    // A small job comes; then the place is free again, and the suspended one fits beside it or waits.
    let decisions = node.at(500).finish(2, DONE);
    let resume = decisions.iter().find_map(|decision| match &decision.action {
        Action::Resume { job: JobId(1), devices } => Some(devices.clone()),
        _ => None,
    });
    assert_eq!(resume, Some(vec![DeviceId(0)]));
    let view = node.state.devices().next().unwrap();
    assert!(view.reserved >= Bytes::from_gib(30), "its memory is set aside before it comes back");
    node.step(Event::Resumed { job: JobId(1), attempt: 1 });
    assert_eq!(node.phase(1), Phase::Running);
    assert_eq!(node.state.job(JobId(1)).unwrap().attempts, 1, "it goes on, it does not begin anew");
}

#[test]
fn one_that_cannot_be_suspended_gets_signals_in_order_and_is_put_back() {
    let mut node = Node::new(1, Settings::default());
    node.at(0).run(Job { preemption: preemptible(Err(SuspendRefusal::Mps)), ..gib(1, 30) });
    let decisions = node.at(10).submit(Job { priority: 2, ..gib(2, 30) });
    assert_eq!(signals(&decisions), [(1, Signal::Checkpoint(10))]);
    assert_eq!(signals(&node.at(69).step(Event::Tick)), []);
    assert_eq!(signals(&node.at(70).step(Event::Tick)), [(1, Signal::Terminate)]);
    assert_eq!(signals(&node.at(100).step(Event::Tick)), [(1, Signal::Kill)]);
    let decisions = node.at(101).finish(1, Outcome::Signalled { signal: 9 });
    assert!(matches!(decisions[0].action, Action::Requeue { job: JobId(1), .. }));
    assert!(started(&decisions, 2).is_some());
    let history = node.state.history(JobId(1));
    assert!(history.iter().any(|(_, reason)| reason.to_string().contains("client of MPS")), "{history:?}");
}

#[test]
fn a_suspended_job_comes_back_where_it_was_with_room_for_all_it_held() {
    let mut settings = Settings::default();
    settings.eviction.migrate = false;
    let mut node = Node::new(2, settings);
    // Up to the last byte of the device: no margin keeps it away.
    node.at(0).run(Job { preemption: preemptible(Ok(())), ..gib(1, 40) });
    node.at(1).run(gib(2, 40));
    node.at(10).submit(Job { priority: 2, ..gib(3, 40) });
    node.at(20).suspended(1, 40);
    node.step(Event::Started { job: JobId(3), attempt: 1 });
    let resumed = |decisions: &[Decision]| {
        decisions.iter().find_map(|decision| match &decision.action {
            Action::Resume { devices, .. } => Some(devices.clone()),
            _ => None,
        })
    };
    let decisions = node.at(30).finish(2, DONE);
    assert_eq!(resumed(&decisions), None, "the other device of its model is free");
    let decisions = node.at(40).finish(3, DONE);
    assert_eq!(resumed(&decisions), Some(vec![DeviceId(0)]));
}

#[test]
fn a_suspended_gang_comes_back_to_devices_of_several_models() {
    let mut node = Node::new(1, Settings::default());
    let device = Device {
        id: DeviceId(1),
        node: NodeId(0),
        model: "A100-80GB".into(),
        capacity: Bytes::from_gib(80),
        parent: None,
        shared: true,
    };
    node.step(Event::DeviceAdded { device });
    node.at(0).run(Job { gpus: 2, preemption: preemptible(Ok(())), ..gib(1, 30) });
    node.at(10).submit(Job { gpus: 2, priority: 2, ..gib(2, 30) });
    node.at(20).suspended(1, 30);
    node.step(Event::Started { job: JobId(2), attempt: 1 });
    node.at(30).finish(2, DONE);
    assert_eq!(node.phase(1), Phase::Resuming);
}

#[test]
fn a_suspended_job_of_unknown_need_comes_back_to_devices_of_its_own() {
    let mut node = Node::new(1, Settings::default());
    let unknown = Job { need: None, ..gib(1, 1) };
    node.at(0).run(Job { preemption: preemptible(Ok(())), ..unknown });
    node.at(10).submit(Job { priority: 2, ..gib(2, 10) });
    node.at(20).suspended(1, 3);
    node.step(Event::Started { job: JobId(2), attempt: 1 });
    assert_eq!(node.phase(1), Phase::Suspended, "it may take more than it held");
    node.at(40).finish(2, DONE);
    assert_eq!(node.phase(1), Phase::Resuming);
    assert!(started(&node.at(50).run(gib(3, 1)), 3).is_none());
}

#[test]
fn whether_a_job_can_be_suspended_may_change_while_it_runs() {
    for (first, then) in [(Err(SuspendRefusal::NoShim), Ok(())), (Ok(()), Err(SuspendRefusal::ManagedMemory))]
    {
        let mut node = Node::new(1, Settings::default());
        node.at(0).run(Job { preemption: preemptible(first), ..gib(1, 30) });
        node.step(Event::SuspendKnown { job: JobId(1), suspend: then });
        let decisions = node.at(10).submit(Job { priority: 2, ..gib(2, 30) });
        let suspends = decisions[0].action == Action::Suspend { job: JobId(1) };
        assert_eq!(suspends, then.is_ok(), "{decisions:?}");
    }
}

#[test]
fn only_preemptible_jobs_of_lower_priority_are_evicted() {
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 30));
    assert!(node.submit(Job { priority: 9, ..gib(2, 30) }).is_empty());
    let mut node = Node::new(1, Settings::default());
    node.run(Job { preemption: preemptible(Ok(())), ..gib(1, 30) });
    assert!(node.submit(gib(2, 30)).is_empty());
}

#[test]
fn memory_pressure_takes_off_the_least_important() {
    let settings = Settings { memory: Memory::Observed, ..with(Policy::FirstFit) };
    let mut node = Node::new(1, settings);
    node.at(0).run(Job { priority: 1, preemption: preemptible(Ok(())), ..gib(1, 10) });
    node.at(1).run(Job { preemption: preemptible(Ok(())), ..gib(2, 10) });
    let seen = Observation { used: Bytes::from_gib(40), ..Observation::default() };
    let decisions = node.at(60).step(Event::DeviceObserved { device: DeviceId(0), seen });
    assert_eq!(decisions[0].action, Action::Suspend { job: JobId(2) });
    assert!(decisions[0].reason.to_string().contains("least important"));
    assert!(
        node.at(61).step(Event::DeviceObserved { device: DeviceId(0), seen }).is_empty(),
        "one at a time"
    );
}

#[test]
fn a_restore_that_failed_is_tried_again_later() {
    let mut node = Node::new(1, Settings::default());
    let job = Box::new(gib(1, 30));
    let (model, bytes) = ("A100-40GB".to_owned(), Bytes::from_gib(29));
    let decisions = node.at(0).step(Event::AdoptedSuspended {
        job,
        model,
        bytes,
        gpus: 1,
        devices: Vec::new(),
        whole: false,
        ran: Millis::ZERO,
    });
    assert!(matches!(decisions[0].action, Action::Resume { .. }));
    let decisions = node.at(5).step(Event::ResumeFailed { job: JobId(1), attempt: 1 });
    let Some(Action::WakeAt { at }) = decisions.first().map(|decision| decision.action.clone()) else {
        panic!("{decisions:?}")
    };
    assert!(node.at(6).step(Event::Tick).is_empty());
    let decisions = node.at(at.0 / 1000).step(Event::Tick);
    assert!(matches!(decisions[0].action, Action::Resume { .. }), "{decisions:?}");
}

#[test]
fn a_slot_ends_with_a_checkpoint_only_if_a_job_waits() {
    let slotted = |id| Job {
        slot: Some(Millis::from_secs(600)),
        preemption: preemptible(Err(SuspendRefusal::Unsupported)),
        ..gib(id, 30)
    };
    let mut node = Node::new(1, Settings::default());
    node.at(0).run(slotted(1));
    assert!(signals(&node.at(540).step(Event::Tick)).is_empty(), "no job waits");
    let decisions = node.at(700).submit(gib(2, 30));
    assert_eq!(signals(&decisions), [(1, Signal::Checkpoint(10))]);
    let mut node = Node::new(1, Settings::default());
    node.at(0).run(slotted(1));
    node.at(10).submit(gib(2, 30));
    assert!(signals(&node.at(539).step(Event::Tick)).is_empty());
    assert_eq!(
        signals(&node.at(540).step(Event::Tick)),
        [(1, Signal::Checkpoint(10))],
        "the grace before its end"
    );
}

#[test]
fn a_job_whose_slot_is_over_goes_behind_those_that_waited() {
    let slotted = |id, suspend| Job {
        slot: Some(Millis::from_secs(600)),
        preemption: preemptible(suspend),
        ..gib(id, 30)
    };
    let mut node = Node::new(1, Settings::default());
    node.at(0).run(slotted(1, Err(SuspendRefusal::Unsupported)));
    node.at(10).submit(slotted(2, Ok(())));
    node.at(540).step(Event::Tick);
    let decisions = node.at(550).finish(1, Outcome::Signalled { signal: 10 });
    assert!(started(&decisions, 2).is_some() && started(&decisions, 1).is_none());
    node.step(Event::Started { job: JobId(2), attempt: 1 });
    // Its own slot ends in turn, and the first one, which waits since 550, is next.
    let decisions = node.at(1100).step(Event::Tick);
    assert!(decisions.iter().any(|decision| decision.action == Action::Suspend { job: JobId(2) }));
    let decisions = node.at(1110).suspended(2, 30);
    assert!(started(&decisions, 1).is_some());
    assert_eq!(node.phase(2), Phase::Suspended);
}

#[test]
fn whose_slot_is_over_stays_where_it_would_be_first_again() {
    let mut node = Node::new(1, Settings::default());
    let preemption = preemptible(Ok(()));
    node.at(0).run(Job { priority: 5, slot: Some(Millis::from_secs(600)), preemption, ..gib(1, 30) });
    node.at(10).submit(gib(2, 30));
    let decisions = node.at(700).step(Event::Tick);
    assert!(!decisions.iter().any(|decision| matches!(decision.action, Action::Suspend { .. })));
    assert_eq!(node.phase(1), Phase::Running);
}

#[test]
fn a_time_limit_ends_a_job() {
    let mut node = Node::new(1, Settings::default());
    node.at(0).run(Job { time_limit: Some(Millis::from_secs(100)), ..gib(1, 5) });
    assert!(signals(&node.at(99).step(Event::Tick)).is_empty());
    assert_eq!(signals(&node.at(100).step(Event::Tick)), [(1, Signal::Terminate)]);
    assert_eq!(
        verdict(&node.at(101).finish(1, Outcome::Signalled { signal: 15 }), 1),
        Some(Verdict::TimedOut)
    );
}

#[test]
fn who_slows_a_more_important_job_gets_less_and_gets_it_back() {
    let mut node = Node::new(1, Settings::default());
    let light = Some(Activity { smact: Permille(200), smocc: Permille(100), drama: Permille(50) });
    node.at(0).run(Job { priority: 1, activity: light, ..gib(1, 5) });
    node.at(1).run(Job { activity: light, ..gib(2, 5) });
    let budget = |decisions: &[Decision]| {
        decisions.iter().find_map(|decision| match decision.action {
            Action::SetBudget { job: JobId(2), budget } => Some(budget.map(|budget| budget.share.0)),
            _ => None,
        })
    };
    let seen = |speed| Event::JobObserved {
        job: JobId(1),
        device: DeviceId(0),
        seen: JobObservation { speed: Some(Permille(speed)), ..JobObservation::default() },
    };
    let decisions = node.at(10).step(seen(600));
    assert_eq!(budget(&decisions), Some(Some(500)));
    assert!(decisions[0].reason.to_string().starts_with("job 1 launches at 60 % of its rate alone"));
    assert_eq!(budget(&node.at(12).step(seen(600))), None, "not faster than it can show");
    assert_eq!(budget(&node.at(20).step(seen(600))), Some(Some(250)));
    assert_eq!(budget(&node.at(40).step(seen(950))), Some(Some(300)));
    node.at(50).finish(1, DONE);
    let alone = Event::DeviceObserved { device: DeviceId(0), seen: Observation::default() };
    assert_eq!(budget(&node.at(60).step(alone)), Some(None), "alone it is not held back");
}

#[test]
fn a_device_of_which_nothing_is_left_for_jobs_takes_none() {
    let mut node = Node::new(0, with(Policy::FirstFit));
    let device = |id: u32, capacity: Bytes| Device {
        id: DeviceId(id),
        node: NodeId(0),
        model: MODEL.into(),
        capacity,
        parent: None,
        shared: true,
    };
    node.step(Event::DeviceAdded { device: device(0, Bytes::ZERO) });
    node.step(Event::DeviceAdded { device: device(1, Bytes::from_gib(40)) });
    let unknown = |id| Job { need: None, ..gib(id, 1) };
    let decisions = node.run(unknown(1));
    assert_eq!(started(&decisions, 1).map(|(_, devices)| devices), Some(vec![1]));
    assert!(started(&node.run(unknown(2)), 2).is_none());
}

#[test]
fn declared_shares_become_budgets_and_are_never_sold_twice() {
    let share = |id, share| Job { share: Some(Permille(share)), ..gib(id, 5) };
    let mut node = Node::new(1, with(Policy::FirstFit));
    for (id, part) in [(1, 300), (2, 700)] {
        let decisions = node.run(share(id, part));
        let set = decisions.iter().any(|decision| {
            matches!(decision.action, Action::SetBudget { budget: Some(budget), .. } if budget.share.0 == part)
        });
        assert!(set, "{decisions:?}");
    }
    assert!(started(&node.run(share(3, 100)), 3).is_none());
    assert!(matches!(node.state.job(JobId(3)).unwrap().wait, Some(Wait::Share { .. })));
}

#[test]
fn an_unknown_job_is_alone_until_it_has_shown_what_it_needs() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    node.at(0).run(Job::new(JobId(1)));
    assert!(started(&node.at(1).run(gib(2, 10)), 2).is_none());
    let used = Bytes::from_gib(8);
    let seen = JobObservation { used, peak: used, ..JobObservation::default() };
    node.at(100).step(Event::JobObserved { job: JobId(1), device: DeviceId(0), seen });
    let decisions = node.at(600).step(Event::Tick);
    assert!(started(&decisions, 2).is_some(), "{decisions:?}");
    assert_eq!(node.state.job(JobId(1)).unwrap().reserved, Some(Bytes::from_gib(10)), "a quarter on top");
}

#[test]
fn what_ran_before_a_restart_is_adopted_and_what_waited_keeps_its_place() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    node.at(1000);
    let adopted = Event::Adopted {
        job: Box::new(Job { attempts: 2, ..gib(1, 30) }),
        devices: vec![DeviceId(0)],
        since: Millis::from_secs(400),
        reserved: Some(Bytes::from_gib(31)),
        leaving: None,
    };
    node.step(adopted);
    assert_eq!(node.state.job(JobId(1)).unwrap().ran, Millis::from_secs(600));
    assert!(started(&node.submit(gib(2, 20)), 2).is_none());
    let early = Job { submitted: Millis(5), attempts: 1, ooms: 1, floor: Bytes::from_gib(9), ..gib(3, 5) };
    node.step(Event::Submitted { job: Box::new(early) });
    assert_eq!(node.state.queue(), [JobId(3), JobId(2)]);
    let decisions = node.finish(1, DONE);
    let (attempt, _) = started(&decisions, 3).unwrap();
    assert_eq!(attempt, 2, "the number goes on");
}

/// As a daemon that comes back tells of a job that ran.
#[test]
fn a_manager_that_takes_its_time_looks_at_idle_devices_before_it_shares() {
    let mut settings = with(Policy::Magm);
    settings.order =
        Order { pace: Millis::from_secs(36), pace_shared: Millis::from_secs(30), ..settings.order };
    let mut node = Node::new(2, settings);
    assert_eq!(started(&node.submit(gib(1, 10)), 1), None);
    assert_eq!(started(&node.at(35).step(Event::Tick), 1), None);
    assert_eq!(started(&node.at(36).step(Event::Tick), 1), Some((1, vec![0])));
    // No job waited, so the time counts from the submission.
    for id in 2..=4 {
        node.at(100).submit(gib(id, 10));
    }
    assert_eq!(started(&node.at(136).step(Event::Tick), 2), Some((1, vec![1])));
    assert_eq!(started(&node.at(172).step(Event::Tick), 3), None, "none is idle");
    assert_eq!(started(&node.at(202).step(Event::Tick), 3), Some((1, vec![0])));
    // An idle device is found half a minute before one that is shared.
    node.at(210).finish(2, DONE);
    assert_eq!(started(&node.at(237).step(Event::Tick), 4), None);
    assert_eq!(started(&node.at(238).step(Event::Tick), 4), Some((1, vec![1])));
}

#[test]
fn what_a_running_job_does_is_learned_where_nothing_was_known() {
    let mut node = Node::new(1, Settings::default());
    let seen = |smact| JobObservation {
        activity: Some(Activity { smact: Permille(smact), smocc: Permille(50), drama: Permille(20) }),
        ..JobObservation::default()
    };
    let observed =
        |job, smact| Event::JobObserved { job: JobId(job), device: DeviceId(0), seen: seen(smact) };
    node.run(gib(1, 2));
    node.run(gib(2, 2));
    for id in 3..=5 {
        node.run(gib(id, 2));
    }
    let waiting = (3..=5).filter(|id| node.phase(*id) == Phase::Waiting).count();
    assert!(waiting >= 1, "jobs of unknown activity are taken for busy ones");
    // They turn out to do next to nothing, so there is room for the others.
    let decisions: Vec<Decision> = (1..=4)
        .flat_map(|id| node.step(observed(id, 40)))
        .filter(|d| matches!(d.action, Action::Start { .. }))
        .collect();
    assert!(!decisions.is_empty());
    // What was known beforehand is not overruled.
    let known = Activity { smact: Permille(900), smocc: Permille(300), drama: Permille(300) };
    let mut node = Node::new(1, Settings::default());
    node.run(Job { activity: Some(known), ..gib(1, 2) });
    node.step(observed(1, 40));
    node.run(Job { activity: Some(known), ..gib(2, 2) });
    assert_eq!(node.phase(2), Phase::Waiting);
}
