//! Admission control.
//! The tests cover jobs that a node can never start, jobs that wait for a lost device, and jobs that
//! a user may not submit.

use crate::common::random::cases;
use crate::common::{DONE, Node, gib, started, verdict, with};
use proptest::prelude::*;
use radrm_need::Source;
use radrm_scheduler_core::{
    Action, Bytes, Device, DeviceId, Event, HostNeed, Job, JobId, Memory, Millis, Need, NodeId, Permille,
    Phase, Policy, Settings, State, Unknown, UserId, UserLimits, Verdict, Wait,
};

fn device(id: u32, node: u32, gib: u64, parent: Option<u32>) -> Device {
    Device {
        id: DeviceId(id),
        node: NodeId(node),
        model: format!("G{gib}"),
        capacity: Bytes::from_gib(gib),
        parent: parent.map(DeviceId),
        shared: parent.is_none(),
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let memory = prop_oneof![Just(Memory::Reserved), Just(Memory::Observed), Just(Memory::Blind)];
    let unknown = prop_oneof![Just(Unknown::Exclusive), Just(Unknown::MinFree)];
    (0..Policy::ALL.len(), memory, unknown).prop_map(|(at, memory, unknown)| Settings {
        policy: Policy::ALL[at],
        memory,
        unknown,
        ..Settings::default()
    })
}

/// Up to four GPUs on two nodes, of which one may be divided.
fn devices() -> impl Strategy<Value = Vec<Device>> {
    let gpu = (0..2u32, prop_oneof![Just(20u64), Just(40), Just(80)]);
    (prop::collection::vec(gpu, 0..5), any::<bool>()).prop_map(|(gpus, divided)| {
        let mut all: Vec<Device> =
            gpus.into_iter().zip(0..).map(|((node, gib), id)| device(id, node, gib, None)).collect();
        if let Some(node) = all.first().filter(|_| divided).map(|gpu| gpu.node.0) {
            all.extend([10, 11].map(|id| device(id, node, 10, Some(0))));
        }
        all
    })
}

fn need() -> impl Strategy<Value = Option<Need>> {
    let bytes = (1..100u64).prop_map(Bytes::from_gib);
    prop_oneof![
        Just(None),
        bytes.clone().prop_map(|bytes| Some(Need::declared(bytes))),
        bytes.clone().prop_map(|bytes| Some(Need::measured(bytes))),
        bytes.prop_map(|bytes| Some(Need::new(bytes, bytes, None, Source::UserEstimate))),
    ]
}

fn job() -> impl Strategy<Value = Job> {
    let model = prop_oneof![4 => Just(None), 1 => Just(Some("G40".into())), 1 => Just(Some("G10".into())), 1 => Just(Some("H".into()))];
    let share = prop_oneof![3 => Just(None), 1 => (1..1200u32).prop_map(|part| Some(Permille(part)))];
    let host = (0..12_000u64, 0..80u64);
    (0..4u16, need(), model, share, host, any::<bool>()).prop_map(
        |(gpus, need, model, share, host, exclusive)| {
            let host = HostNeed { cpu_milli: host.0, memory: Bytes::from_gib(host.1) };
            Job { gpus, need, model, share, host, exclusive, ..Job::new(JobId(1)) }
        },
    )
}

fn state(settings: &Settings, devices: &[Device]) -> State {
    let mut state = State::new(settings.clone());
    for id in 0..2 {
        let node = radrm_scheduler_core::Node {
            id: NodeId(id),
            cpu_milli: 4000 + u64::from(id) * 4000,
            memory: Bytes::from_gib(64),
            memory_bandwidth: None,
        };
        state.step(Millis(0), Event::NodeAdded { node });
    }
    for device in devices {
        state.step(Millis(0), Event::DeviceAdded { device: device.clone() });
    }
    state
}

fn is_started(decisions: &[radrm_scheduler_core::Decision]) -> bool {
    decisions.iter().any(|decision| matches!(decision.action, Action::Start { .. }))
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn an_empty_node_starts_exactly_what_is_admitted(settings in settings(), devices in devices(), job in job()) {
        let state = state(&settings, &devices);
        let (admission, gpus) = (state.admission(&job, 0), job.gpus);
        let decisions = state.clone().step(Millis(1), Event::Submitted { job: Box::new(job) });
        match admission {
            Ok(oversized) => {
                let start = decisions.iter().find_map(|decision| match decision.action {
                    Action::Start { reserved, .. } => Some(reserved),
                    _ => None,
                });
                let lacks_all = devices.is_empty() && gpus > 0;
                prop_assert!(start.is_some() || lacks_all, "admitted and not started: {:?}", decisions);
                prop_assert!(oversized.is_none() || start == Some(None), "oversized jobs get whole devices");
            }
            Err(reason) => {
                let end = Action::End { job: JobId(1), verdict: Verdict::Impossible };
                prop_assert!(decisions.iter().any(|d| d.action == end && d.reason == reason), "{:?}", decisions);
            }
        }
    }

    #[test]
    fn a_lost_device_changes_no_admission_and_its_jobs_start_when_it_is_back(
        settings in settings(), devices in devices(), lost in any::<u8>(), job in job(),
    ) {
        let mut state = state(&settings, &devices);
        let before = state.admission(&job, 0);
        let lost: Vec<&Device> =
            devices.iter().filter(|d| d.parent.is_none() && lost & (1 << d.id.0) != 0).collect();
        for device in &lost {
            state.step(Millis(1), Event::DeviceLost { device: device.id });
        }
        prop_assert_eq!(&before, &state.admission(&job, 0));
        let decisions = state.step(Millis(2), Event::Submitted { job: Box::new(job) });
        if before.is_err() || is_started(&decisions) || devices.is_empty() {
            return Ok(());
        }
        let view = state.job(JobId(1)).expect("it waits");
        prop_assert_eq!((view.phase, view.wait), (Phase::Waiting, Some(Wait::Lost)));
        let mut started = false;
        for device in lost {
            prop_assert!(!started, "all that it waited for was back before");
            started |= is_started(&state.step(Millis(3), Event::DeviceAdded { device: device.clone() }));
            if started {
                return Ok(());
            }
        }
        prop_assert!(started, "all devices are back: {:?}", state.job(JobId(1)));
    }
}

#[test]
fn a_job_waits_on_a_node_without_gpus_and_starts_on_the_first() {
    let mut state = state(&with(Policy::FirstFit), &[]);
    assert_eq!(state.admission(&gib(1, 1), 0), Ok(None));
    assert_eq!(state.step(Millis(1), Event::Submitted { job: Box::new(gib(1, 1)) }), []);
    let wait = state.job(JobId(1)).unwrap().wait.unwrap();
    assert!(wait.to_string().starts_with("this node has no GPU for jobs"), "{wait}");
    let device = device(0, 0, 40, None);
    assert!(started(&state.step(Millis(2), Event::DeviceAdded { device }), 1).is_some());
}

#[test]
fn a_model_of_two_sizes_is_named_once() {
    let named = |id, gib, model: &str| Device { model: model.into(), ..device(id, 0, gib, None) };
    let devices = [named(0, 40, "A100"), named(1, 80, "A100"), named(2, 16, "T4")];
    let asked = Job { model: Some("H200".into()), ..gib(1, 1) };
    let reason = state(&with(Policy::FirstFit), &devices).admission(&asked, 0).unwrap_err().to_string();
    assert!(reason.contains("A100, T4") && reason.matches("A100").count() == 1, "{reason}");
}

#[test]
fn a_need_above_the_largest_gpu_is_remarked_unless_the_job_has_devices_of_its_own() {
    let state = state(&with(Policy::FirstFit), &[device(0, 0, 80, None), device(1, 0, 40, None)]);
    let remark = |job: Job| state.admission(&job, 0).unwrap().map(|found| found.largest);
    let estimated = |gib| Need::new(Bytes::from_gib(gib), Bytes::from_gib(gib), None, Source::UserEstimate);
    let job = |gib| Job { need: Some(estimated(gib)), ..Job::new(JobId(1)) };
    assert_eq!((remark(job(80)), remark(job(81))), (None, Some(Bytes::from_gib(80))));
    let of_model = |gib| Job { model: Some("G40".into()), ..job(gib) };
    assert_eq!((remark(of_model(40)), remark(of_model(41))), (None, Some(Bytes::from_gib(40))));
    assert_eq!(remark(Job { exclusive: true, ..job(100) }), None);
}

#[test]
fn a_divided_gpu_cannot_be_asked_for_by_its_model() {
    let divided = Device { shared: false, ..device(0, 0, 80, None) };
    let state = state(&with(Policy::FirstFit), &[divided, device(1, 0, 10, Some(0))]);
    let of_model = |model: &str| Job { model: Some(model.into()), ..gib(1, 1) };
    assert!(state.admission(&of_model("G10"), 0).is_ok());
    assert!(state.admission(&of_model("G80"), 0).is_err());
}

#[test]
fn a_job_that_waits_for_a_lost_device_blocks_no_other() {
    for backfill in [true, false] {
        let mut settings = with(Policy::FirstFit);
        settings.order.backfill = backfill;
        let mut node = Node::new(1, settings);
        node.step(Event::DeviceAdded { device: device(5, 0, 80, None) });
        let large = Job { need: Some(Need::measured(Bytes::from_gib(60))), ..gib(1, 60) };
        node.at(1).submit(large);
        let waiting = node.state.job(JobId(1)).unwrap();
        assert_eq!(waiting.devices, [DeviceId(5)]);
        let killed = node.step(Event::DeviceLost { device: DeviceId(5) });
        assert!(matches!(killed[0].action, Action::Signal { .. }));
        node.step(Event::Finished {
            job: JobId(1),
            attempt: 1,
            outcome: radrm_scheduler_core::Outcome::Lost,
        });
        assert_eq!(node.state.job(JobId(1)).unwrap().wait, Some(Wait::Lost));
        assert_eq!((node.state.queue(), node.state.waiting()), (vec![], 1));
        assert!(started(&node.submit(gib(2, 30)), 2).is_some(), "backfill {backfill}");
        let back = node.step(Event::DeviceAdded { device: device(5, 0, 80, None) });
        assert_eq!(started(&back, 1).unwrap().1, [5]);
    }
}

#[test]
fn a_waiting_job_leaves_the_queue_when_its_only_device_is_lost() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    node.run(Job { exclusive: true, ..gib(1, 30) });
    node.submit(gib(2, 30));
    assert_eq!(node.state.queue(), [JobId(2)]);
    node.step(Event::DeviceLost { device: DeviceId(0) });
    assert_eq!(node.state.queue(), []);
    node.step(Event::Held { job: JobId(2) });
    assert_eq!(node.state.job(JobId(2)).unwrap().wait, Some(Wait::Held));
    node.step(Event::Released { job: JobId(2) });
    assert_eq!(node.state.job(JobId(2)).unwrap().wait, Some(Wait::Lost));
    assert_eq!(verdict(&node.step(Event::Cancelled { job: JobId(2) }), 2), Some(Verdict::Cancelled));
    assert_eq!(node.state.waiting(), 0);
}

#[test]
fn a_job_admitted_before_a_restart_waits_for_a_device_that_may_be_missing() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    let h200 = |id| Job { model: Some("H200".into()), ..gib(id, 1) };
    assert_eq!(verdict(&node.submit(h200(1)), 1), Some(Verdict::Impossible));
    assert!(node.submit(Job { admitted: true, ..h200(2) }).is_empty());
    let wait = node.state.job(JobId(2)).unwrap().wait.unwrap();
    assert!(matches!(wait, Wait::Missing { .. }) && wait.to_string().contains("called H200"), "{wait}");
    // Possible at the restart: it ends as any other when it is found to need more than there is.
    node.run(Job { admitted: true, exclusive: true, ..gib(3, 40) });
    assert!(node.submit(Job { admitted: true, ..gib(4, 30) }).is_empty());
    let need = Need::measured(Bytes::from_gib(41));
    assert_eq!(verdict(&node.step(Event::NeedKnown { job: JobId(4), need }), 4), Some(Verdict::Impossible));
    node.finish(3, DONE);
    let device = Device { model: "H200".into(), ..device(9, 0, 141, None) };
    assert!(started(&node.step(Event::DeviceAdded { device }), 2).is_some());
}

#[test]
fn user_limits_hold_at_submission_and_not_after_a_restart() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    node.step(Event::UserLimitsSet { limits: UserLimits { jobs: Some(2), priority: Some(0) } });
    let of = |id, user| Job { user: UserId(user), ..gib(id, 1) };
    let first = of(1, 7);
    assert!(node.state.admission(&first, 1).is_ok());
    let why = node.state.admission(&first, 2).unwrap_err().to_string();
    assert!(why.contains("you would have 3 jobs waiting and running, and 2 is the most"), "{why}");
    node.run(first);
    node.submit(Job { held: true, ..of(2, 7) });
    assert_eq!(verdict(&node.submit(of(3, 7)), 3), Some(Verdict::Rejected));
    assert!(started(&node.submit(of(4, 8)), 4).is_some(), "another user");
    assert!(started(&node.submit(Job { admitted: true, ..of(5, 7) }), 5).is_some());
    node.finish(1, DONE);
    node.finish(5, DONE);
    assert!(started(&node.submit(of(6, 7)), 6).is_some(), "an end makes room");
    assert_eq!(verdict(&node.submit(Job { priority: 1, ..of(7, 9) }), 7), Some(Verdict::Rejected));
    assert!(started(&node.submit(Job { priority: 1, by_admin: true, ..of(8, 9) }), 8).is_some());
}
