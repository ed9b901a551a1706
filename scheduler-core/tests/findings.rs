//! An assumption is never printed as a finding: reasons in states in which a shorter sentence would be false.

use crate::common::{DONE, Node, gib, oom, started, verdict, with};
use radrm_base::HostUse;
use radrm_scheduler_core::{
    Activity, Bytes, Calm, ConstantsFrom, Device, Event, Evidence, Forecast, Job, JobId, JobObservation,
    Memory, Millis, NodeId, Observation, Outcome, Permille, Phase, Policy, Reason, Settings, SharingMode,
    Unknown, Verdict, Wait,
};
use radrm_scheduler_core::{DeviceId, Sharer};

fn act(smact: u32) -> Option<Activity> {
    Some(Activity { smact: Permille(smact), smocc: Permille(200), drama: Permille(smact / 2) })
}

fn job(id: u64, smact: u32) -> Job {
    Job { activity: act(smact), ..gib(id, 4) }
}

fn wait(node: &Node, id: u64) -> String {
    node.state.job(JobId(id)).unwrap().wait.unwrap().to_string()
}

fn device_holds(node: &mut Node, device: u32, gib: u64) {
    let seen = Observation { used: Bytes::from_gib(gib), ..Observation::default() };
    node.step(Event::DeviceObserved { device: DeviceId(device), seen });
}

fn by_slices() -> Settings {
    Settings { sharing: Some(SharingMode::TimeSlices), ..Settings::default() }
}

#[test]
fn a_gain_by_constants_of_no_measurement_is_a_prediction_and_names_the_threshold() {
    let mut node = Node::new(1, by_slices());
    (1..=3).for_each(|id| drop(node.run(job(id, 8))));
    let text = wait(&node, 3);
    assert!(text.starts_with("predicted gain "), "{text}");
    assert!(text.contains("(constants of time slices, not calibrated on this GPU)"), "{text}");
    assert!(text.ends_with("; min_gain asks for 22 %"), "{text}");
    let mut node = Node::new(1, Settings::default());
    (1..=2).for_each(|id| drop(node.run(job(id, 950))));
    let text = wait(&node, 2);
    assert!(text.contains("constants of MPS on an A100 40 GB, not calibrated on this GPU"), "{text}");
}

#[test]
fn a_predicted_loss_is_not_printed_as_no_gain() {
    let mut node = Node::new(1, by_slices());
    (1..=2).for_each(|id| drop(node.run(job(id, 800))));
    // Two of them keep the GPU busy for more than all of the time, and changes between them cost 5 %.
    assert!(wait(&node, 2).starts_with("predicted gain -5 % "), "{}", wait(&node, 2));
}

#[test]
fn a_job_refused_by_min_speed_is_not_told_that_sharing_gains_nothing() {
    let mut node = Node::new(1, Settings { min_speed: Permille(950), ..Settings::default() });
    node.run(job(1, 600));
    node.run(job(2, 300));
    let text = wait(&node, 2);
    assert!(
        text.starts_with("a job is predicted to fall to ") && text.ends_with("; min_speed is 95 %"),
        "{text}"
    );
}

#[test]
fn a_job_refused_for_the_hosts_threads_reads_of_the_host() {
    let mut node = Node::new(1, Settings::default());
    let (cpu_milli, memory) = (4000, Bytes::from_gib(256));
    let host = radrm_scheduler_core::Node { id: NodeId(0), cpu_milli, memory, memory_bandwidth: None };
    node.step(Event::NodeAdded { node: host });
    let used = HostUse { cpu_milli: 4000, threads: 4, resident: Bytes::from_gib(1), ..HostUse::default() };
    (1..=2).for_each(|id| drop(node.run(Job { host_use: Some(used), ..job(id, 100) })));
    let text = wait(&node, 2);
    assert!(text.contains("(contention for cores and memory bandwidth of the host)"), "{text}");
}

#[test]
fn a_placement_by_prediction_says_so_and_its_slowest_neighbour_is_not_itself() {
    let mut node = Node::new(1, Settings::default());
    node.run(job(1, 900));
    let decisions = node.run(job(2, 50));
    let text = decisions[0].reason.to_string();
    assert!(text.contains("is predicted to add ") && text.contains("not calibrated on this GPU"), "{text}");
    let Reason::Placed { score: radrm_scheduler_core::Score::Progress { speed, slowest, .. }, .. } =
        decisions[0].reason
    else {
        panic!("{text}")
    };
    assert!(speed < slowest, "the newcomer is the slower one: {text}");
    let mut node = Node::new(1, Settings::default());
    node.run(job(1, 50));
    let text = node.run(gib(2, 4))[0].reason.to_string();
    assert!(text.contains("; SM activity assumed"), "{text}");
}

#[test]
fn observed_companies_of_a_gpu_model_are_counted_in_its_predictions() {
    let mut node = Node::new(1, Settings::default());
    let sharer = |program| Sharer {
        program: radrm_scheduler_core::Program(program),
        activity: act(700).unwrap(),
        speed: Permille(500),
    };
    for _ in 0..8 {
        let jobs = vec![sharer(1), sharer(2)];
        node.step(Event::SharingObserved { model: crate::common::MODEL.into(), jobs });
    }
    (1..=2).for_each(|id| drop(node.run(job(id, 950))));
    let Some(Wait::Slowdown { by: Forecast::Gpu { constants, .. }, .. }) =
        node.state.job(JobId(2)).unwrap().wait
    else {
        panic!("{}", wait(&node, 2))
    };
    assert_eq!(constants, ConstantsFrom::Observed { companies: 8 });
}

#[test]
fn a_rule_that_predicts_nothing_reads_as_that_rule() {
    for (policy, words) in [
        (Policy::Horus, "horus: the SM activities of the jobs"),
        (Policy::Lucid, "lucid: two jobs at most share a GPU"),
        (Policy::Muri, "muri: two jobs at most share a GPU"),
        (Policy::Kace, "kace: two jobs at most share a GPU"),
        (Policy::Xu, "xu: its regression over pairs of an A100"),
        (Policy::Miso, "miso: no division into MIG slices"),
    ] {
        let mut node = Node::new(1, with(policy));
        // Eight jobs of 5 GiB are more than MIG slices there are, and all others refuse earlier.
        (1..=9).for_each(|id| drop(node.run(Job { activity: act(900), ..gib(id, 4) })));
        let text = wait(&node, 9);
        assert!(text.starts_with(words), "{policy}: {text}");
    }
}

#[test]
fn room_by_a_sum_of_activities_is_not_the_activity_there() {
    let mut node = Node::new(1, with(Policy::Horus));
    node.run(job(1, 300));
    let text = node.run(job(2, 500))[0].reason.to_string();
    assert!(
        text.starts_with("horus: 20 % SM activity left by the sum of what each job does alone,"),
        "{text}"
    );
}

#[test]
fn a_device_without_jobs_is_not_called_idle() {
    let mut node = Node::new(2, with(Policy::Exclusive));
    device_holds(&mut node, 0, 6);
    let decisions = node.run(gib(1, 4));
    assert_eq!(
        decisions[0].reason.to_string(),
        "exclusive: a device without jobs (6.00 GiB held outside of jobs)"
    );
    node.run(gib(2, 4));
    node.run(gib(3, 4));
    assert_eq!(wait(&node, 3), "each device that it may use has jobs");
}

#[test]
fn an_unknown_need_is_not_printed_as_a_need() {
    let mut settings = Settings {
        unknown: Unknown::MinFree,
        policy: Policy::FirstFit,
        slack: Permille::ZERO,
        ..Settings::default()
    };
    settings.preconditions.min_free = Bytes::from_gib(14);
    let mut node = Node::new(2, settings);
    node.run(gib(1, 31));
    node.run(gib(2, 31));
    node.run(Job::new(JobId(3)));
    let text = wait(&node, 3);
    assert_eq!(
        text,
        "unknown need: preconditions.min_free asks for 14.0 GiB unreserved; GPU 0 comes closest with 9.00 GiB"
    );
    node.run(gib(4, 12));
    assert_eq!(wait(&node, 4), "needs 12.0 GiB unreserved; GPU 0 comes closest with 9.00 GiB");
}

#[test]
fn an_unknown_need_is_told_as_the_settings_treat_it() {
    let of = |settings: Settings, held: bool, job: Job| {
        let mut node = Node::new(1, settings);
        if held {
            node.submit(Job { held, ..job });
        } else {
            node.run(job);
        }
        node.state.unknown_need(JobId(1)).unwrap().to_string()
    };
    let unknown = || Job::new(JobId(1));
    let until = "unknown: it has its GPUs to itself until it has run for 2 min 00 s and left room";
    assert_eq!(of(Settings::default(), true, unknown()), until);
    assert_eq!(of(Settings::default(), false, unknown()), until);
    let alone = "unknown: it has its GPUs to itself";
    assert_eq!(of(with(Policy::Exclusive), false, unknown()), alone);
    assert_eq!(of(Settings::default(), false, Job { exclusive: true, ..unknown() }), alone);
    let joins = "unknown: it joins others where 5.00 GiB (preconditions.min_free) are free";
    let min_free = || Settings { unknown: Unknown::MinFree, ..Settings::default() };
    assert_eq!(of(min_free(), true, unknown()), joins);
    assert_eq!(of(Settings::published(Policy::Magm), true, unknown()), joins);
    let open = "unknown: all that was free on its GPUs is reserved for it until it has run for 2 min 00 s";
    assert_eq!(of(min_free(), false, unknown()), open);
    assert_eq!(
        of(Settings::default(), true, Job { floor: Bytes::from_gib(7), ooms: 1, ..unknown() }),
        "unknown: more than 7.00 GiB, with which it ran out"
    );
    let mut node = Node::new(1, min_free());
    node.run(unknown());
    let held = Bytes::from_gib(8);
    let seen = JobObservation { used: held, peak: held, ..JobObservation::default() };
    node.step(Event::JobObserved { job: JobId(1), device: DeviceId(0), seen });
    node.at(120).step(Event::Tick);
    let seen = node.state.unknown_need(JobId(1)).unwrap().to_string();
    assert_eq!(seen, "unknown; reserved by what it was seen to hold");
    node.run(gib(2, 4));
    assert_eq!(node.state.unknown_need(JobId(2)), None, "its need is known");
}

#[test]
fn a_device_that_no_monitor_saw_has_no_sm_activity() {
    for policy in [Policy::Lug, Policy::Mug] {
        let mut node = Node::new(1, Settings { memory: Memory::Observed, ..with(policy) });
        let text = node.run(gib(1, 4))[0].reason.to_string();
        assert!(text.ends_with("SM activity there is not measured"), "{text}");
    }
}

#[test]
fn launches_are_given_back_for_a_reason_that_is_known() {
    let mut node = Node::new(1, with(Policy::FirstFit));
    node.run(Job { priority: 5, ..gib(1, 4) });
    node.run(gib(2, 4));
    let seen = |speed| JobObservation { speed: Some(Permille(speed)), ..JobObservation::default() };
    node.step(Event::JobObserved { job: JobId(1), device: DeviceId(0), seen: seen(620) });
    let reasons = |node: &Node| node.state.history(JobId(2)).last().unwrap().1.clone();
    let slowed = reasons(&node);
    assert!(matches!(slowed, Reason::SlowsNeighbour { .. }), "{slowed}");
    assert!(slowed.to_string().starts_with("job 1 launches at 62 % of its rate alone"), "{slowed}");
    node.at(60).finish(1, DONE);
    device_holds(&mut node, 0, 4);
    assert_eq!(reasons(&node), Reason::Calm { why: Calm::Alone });
}

#[test]
fn a_job_that_failed_beside_an_unmanaged_process_is_tried_again_with_its_name() {
    let mut node = Node::new(1, Settings::default());
    device_holds(&mut node, 0, 18);
    // It has the largest device as a whole, and 18 GiB of that are another's.
    let job = Job { exclusive: true, ..Job::new(JobId(1)) };
    assert!(started(&node.run(job), 1).is_some());
    let decisions = node.finish(1, oom(22));
    let reason = decisions
        .iter()
        .map(|decision| &decision.reason)
        .find(|reason| matches!(reason, Reason::RanOutOfMemory { .. }));
    let text = reason.expect("it is tried again").to_string();
    assert!(text.ends_with("22.0 GiB; 18.0 GiB of GPU 0 were held outside of jobs"), "{text}");
    assert_eq!(verdict(&decisions, 1), None);
}

#[test]
fn a_job_that_ran_out_below_the_size_of_its_device_is_not_too_large_for_it() {
    let ends = |gib| {
        let mut node = Node::new(1, Settings::default());
        node.run(Job { exclusive: true, ..Job::new(JobId(1)) });
        verdict(&node.finish(1, oom(gib)), 1).is_some()
    };
    assert!(!ends(22), "its free memory was in pieces");
    assert!(ends(39), "the driver keeps the rest");
    // Published systems bound no attempts: once it had a device of its own as a retry there is nothing more to give.
    let mut node = Node::new(1, Settings::published(Policy::FirstFit));
    node.submit(Job { exclusive: true, ..Job::new(JobId(1)) });
    let mut attempts = 0;
    let last = loop {
        attempts += 1;
        let decisions = node.at(1000 * attempts).step(Event::Tick);
        let (attempt, _) = started(&decisions, 1).expect("it is tried again");
        node.step(Event::Started { job: JobId(1), attempt });
        let decisions = node.finish(1, oom(22));
        if verdict(&decisions, 1).is_some() || attempts > 9 {
            break decisions;
        }
    };
    assert_eq!(verdict(&last, 1), Some(Verdict::Ended(oom(22))));
    assert_eq!(last[0].reason, Reason::TooManyAttempts { attempts: 2 });
}

#[test]
fn an_amount_that_no_shim_saw_is_not_made_up() {
    let unseen = Outcome::OutOfMemory { seen: None, evidence: Evidence::Log, code: 1 };
    let mut node = Node::new(1, Settings::default());
    node.run(gib(1, 12));
    let decisions = node.finish(1, unseen);
    let text = decisions[0].reason.to_string();
    assert_eq!(text, "its output reports out-of-memory (no shim); the amount is not known");
    assert!(started(&decisions, 1).is_some(), "it gets more than it had");
    // Alone on the only device there is nothing to add.
    let mut node = Node::new(1, Settings::default());
    node.run(Job::new(JobId(1)));
    let decisions = node.finish(1, unseen);
    let end = decisions.iter().find(|decision| matches!(decision.reason, Reason::Impossible { .. }));
    let text = end.expect("it ends").reason.to_string();
    assert_eq!(text, "can never run here: it ran out with the largest device, 40.0 GiB, to itself");
    assert_eq!(verdict(&decisions, 1), Some(Verdict::Ended(unseen)));
}

#[test]
fn a_job_that_ran_out_of_an_unknown_amount_moves_to_a_larger_device() {
    let unseen = Outcome::OutOfMemory { seen: None, evidence: Evidence::Log, code: 1 };
    let large = Device {
        id: DeviceId(1),
        node: NodeId(0),
        model: "A100-80GB".into(),
        capacity: Bytes::from_gib(80),
        parent: None,
        shared: true,
    };
    for exclusive in [false, true] {
        // Its need is unknown, so it has a device as a whole either way.
        let mut node = Node::new(1, Settings { unknown: Unknown::Exclusive, ..Settings::default() });
        node.run(Job { exclusive, ..Job::new(JobId(1)) });
        node.step(Event::DeviceAdded { device: large.clone() });
        let decisions = node.finish(1, unseen);
        assert_eq!(started(&decisions, 1), Some((2, vec![1])), "exclusive: {exclusive}");
        assert!(
            decisions[0].reason.to_string().ends_with("the amount is not known"),
            "{}",
            decisions[0].reason
        );
    }
    // With the largest to itself there is nothing to add.
    let mut node = Node::new(0, Settings::default());
    node.step(Event::DeviceAdded { device: large });
    node.run(Job { exclusive: true, ..Job::new(JobId(1)) });
    assert_eq!(verdict(&node.finish(1, unseen), 1), Some(Verdict::Ended(unseen)));
}

#[test]
fn an_unknown_amount_on_devices_of_two_sizes_is_no_reason_that_a_job_can_never_run() {
    let unseen = Outcome::OutOfMemory { seen: None, evidence: Evidence::Log, code: 1 };
    let mut node = Node::new(1, Settings::default());
    let capacity = Bytes::from_gib(80);
    let (id, model) = (DeviceId(1), "A100-80GB".into());
    let device = Device { id, node: NodeId(0), model, capacity, parent: None, shared: true };
    node.step(Event::DeviceAdded { device });
    node.run(Job { gpus: 2, exclusive: true, ..Job::new(JobId(1)) });
    let decisions = node.finish(1, unseen);
    assert_eq!(started(&decisions, 1), Some((2, vec![0, 1])), "{decisions:?}");
}

#[test]
fn a_job_that_passes_another_is_said_to_do_what_lets_it() {
    let passes = |short: Job| {
        let mut node = Node::new(2, with(Policy::FirstFit));
        node.run(Job { time_limit: Some(Millis::from_secs(1000)), ..gib(1, 30) });
        node.submit(Job { gpus: 2, ..gib(2, 35) });
        let decisions = node.run(short);
        assert!(started(&decisions, 3).is_some());
        decisions[0].reason.to_string()
    };
    let ends = passes(Job { time_limit: Some(Millis::from_secs(100)), ..gib(3, 8) });
    let words =
        "passes job 2, and ends by its --time before the devices kept for job 2 are expected to be free";
    assert!(ends.ends_with(words), "{ends}");
    let beside = passes(gib(3, 2));
    assert!(
        beside.ends_with("passes job 2, which fits beside it when the jobs before have left"),
        "{beside}"
    );
}

#[test]
fn a_device_near_a_blocker_is_not_said_to_be_kept() {
    let mut node = Node::new(1, Settings::default());
    node.run(job(1, 300));
    node.submit(Job { gpus: 1, exclusive: true, ..gib(2, 4) });
    node.run(job(3, 10));
    assert_eq!(node.phase(3), Phase::Waiting);
    assert_eq!(wait(&node, 3), "on devices that would do it could slow jobs that job 2 waits for");
}

#[test]
fn a_window_that_just_began_and_its_highest_sample_are_named() {
    let mut settings = Settings { memory: Memory::Observed, ..with(Policy::FirstFit) };
    settings.preconditions.smact = Some(Permille(800));
    let mut node = Node::new(1, settings);
    node.run(gib(1, 4));
    let seen = |window, smact| Observation {
        window: Millis::from_secs(window),
        smact: Some(Permille(smact)),
        peak: Some(Permille(850)),
        ..Observation::default()
    };
    node.submit(gib(2, 4));
    let mut observe = |seen| {
        node.step(Event::DeviceObserved { device: DeviceId(0), seen });
        wait(&node, 2)
    };
    let early = observe(seen(5, 100));
    assert!(early.contains("changed less than 10 s ago"), "{early}");
    let highest = observe(seen(30, 100));
    assert!(highest.starts_with("the least busy device had 85 % SM activity at most since"), "{highest}");
    let mean = observe(seen(90, 900));
    assert!(mean.starts_with("the least busy device has 90 % SM activity"), "{mean}");
}
