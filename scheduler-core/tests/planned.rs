//! Replays under a planner and a predictor from outside of this crate.

use std::sync::Arc;

use radrm_scheduler_core::interference::Resident;
use radrm_scheduler_core::replay::{Cluster, Custom, Model, Options, Report, TraceJob, replay_custom};
use radrm_scheduler_core::{
    Action, Activity, Bytes, DeviceId, Event, JobId, Millis, Permille, Plan, PlanError, Planner, Reason,
    Settings, SpeedModel, State, Wait,
};

/// A planner that is a function.
struct By<F>(F);

impl<F: FnMut(&State) -> Result<Vec<Plan>, PlanError>> Planner for By<F> {
    fn plan(&mut self, state: &State) -> Result<Vec<Plan>, PlanError> {
        (self.0)(state)
    }
}

fn start(job: JobId, devices: &[u32]) -> Plan {
    Plan::Start { job, devices: devices.iter().copied().map(DeviceId).collect(), why: "it fits".into() }
}

/// First come, first served, on the first GPUs that admit the job.
fn first_fit(state: &State) -> Result<Vec<Plan>, PlanError> {
    let Some((job, request)) = state.requests().next() else { return Ok(Vec::new()) };
    let may = |view: &DeviceId| state.admits(job, *view).is_ok();
    let fits: Vec<DeviceId> = state.devices().map(|view| view.device.id).filter(may).collect();
    match fits.get(..usize::from(request.gpus)) {
        Some(devices) => Ok(vec![Plan::Start { job, devices: devices.to_vec(), why: "it fits".into() }]),
        None => Ok(vec![Plan::Wait { job, why: "no room".into() }]),
    }
}

fn job(number: u64, at: u64, takes: u64, gib: u64) -> TraceJob {
    let activity = Some(Activity { smact: Permille(200), ..Activity::default() });
    let job = TraceJob::new(format!("j{number}"), Millis::from_secs(at), Millis::from_secs(takes));
    TraceJob { activity, peak: Bytes::from_gib(gib), ..job }
}

fn options() -> Options {
    Options { settings: Settings::planned(), model: Model::default().plain(), ..Options::default() }
}

fn replayed(
    jobs: &[TraceJob],
    gpus: u32,
    options: &Options,
    plan: impl FnMut(&State) -> Result<Vec<Plan>, PlanError>,
) -> Result<Report, PlanError> {
    let cluster = Cluster::uniform(gpus, "A100-40GB", Bytes::from_gib(40));
    let custom = Custom { planner: Some(&mut By(plan)), ..Custom::default() };
    replay_custom(jobs, &cluster, options, custom, &mut ())
}

#[test]
fn a_planner_decides_where_jobs_start_and_when() {
    let jobs = [job(0, 0, 100, 30), job(1, 10, 100, 30), job(2, 20, 100, 5)];
    // One GPU: the second waits for the first, the third passes no other.
    let report = replayed(&jobs, 1, &options(), first_fit).unwrap();
    let starts: Vec<u64> = report.jobs.iter().map(|job| job.start.unwrap().0 / 1000).collect();
    assert_eq!(starts, [0, 100, 100]);
    // All go to the second GPU where the planner says so.
    let mut seen = Vec::new();
    let there = |state: &State| {
        seen.extend(state.requests().map(|(job, request)| (job, request.reserves)));
        Ok(state
            .requests()
            .filter(|(job, _)| state.admits(*job, DeviceId(1)).is_ok())
            .take(1)
            .map(|(job, _)| start(job, &[1]))
            .collect())
    };
    let report = replayed(&jobs, 2, &Options { steps: true, ..options() }, there).unwrap();
    assert!(report.jobs.iter().all(|job| job.success));
    // 2 % are set aside on top of a measured peak.
    assert_eq!(seen[0], (JobId(0), Bytes::from_gib(30).plus(Bytes::from_gib(30).part(Permille(20)))));
    let starts = report.steps.iter().flat_map(|entry| match entry {
        radrm_scheduler_core::replay::events::Entry::Step { decisions, .. } => decisions.clone(),
        _ => Vec::new(),
    });
    let places: Vec<_> = starts
        .filter_map(|decision| match decision.action {
            Action::Start { devices, .. } => Some((devices, decision.reason)),
            _ => None,
        })
        .collect();
    let there = (vec![DeviceId(1)], Reason::Chosen { why: "it fits".into() });
    assert_eq!(places, [there.clone(), there.clone(), there]);
}

#[test]
fn what_a_planner_may_not_decide_is_refused_in_a_sentence() {
    let mut gang = job(0, 0, 100, 30);
    gang.gpus = 2;
    let jobs = [gang, job(1, 10, 100, 15), job(2, 20, 100, 15)];
    let with = |second: Vec<Plan>| {
        let why = replayed(&jobs, 2, &options(), |state: &State| match state.now() {
            Millis(0) => Ok(vec![start(JobId(0), &[0, 1])]),
            _ => Ok(second.clone()),
        });
        why.unwrap_err().to_string()
    };
    for (second, part) in [
        (
            vec![start(JobId(1), &[0])],
            "job 1 cannot start on GPU 0: it reserves 15.3 GiB, and 9.40 GiB are free there",
        ),
        (vec![start(JobId(1), &[0, 1])], "job 1 asks for 1 GPUs and was given 2"),
        (vec![start(JobId(1), &[7])], "job 1 was given GPU 7, and there is none"),
        (vec![start(JobId(0), &[0, 1])], "job 0 does not wait"),
        (vec![start(JobId(99), &[0])], "job 99 does not wait"),
        (vec![Plan::Wait { job: JobId(0), why: "x".into() }], "job 0 does not wait"),
        (Vec::new(), "2 jobs wait for ever, the first is job 1"),
    ] {
        let why = with(second);
        assert!(why.contains(part), "{why}");
    }
    let twice = replayed(&jobs, 2, &options(), |_: &State| Ok(vec![start(JobId(0), &[1, 1])]));
    assert_eq!(twice.unwrap_err().to_string(), "job 0 was given GPU 1 twice");
    let failed = replayed(&jobs, 2, &options(), |_: &State| Err(PlanError("no plan".into())));
    assert_eq!(failed, Err(PlanError("no plan".into())));
}

#[test]
fn no_planner_puts_more_on_a_gpu_than_it_has() {
    let jobs: Vec<TraceJob> = (0..60).map(|n| job(n, n * 7, 50 + n * 13 % 90, 1 + n * 11 % 39)).collect();
    let mut most = 0;
    let report = replayed(&jobs, 2, &options(), |state: &State| {
        for view in state.devices() {
            most = most.max(view.jobs.len());
            assert!(view.reserved <= view.device.capacity, "{view:?}");
            assert_eq!(state.free(view.device.id), view.device.capacity.minus(view.reserved));
        }
        first_fit(state)
    });
    assert!(report.unwrap().jobs.iter().all(|job| job.success && job.ooms == 0));
    assert!(most > 1, "jobs share GPUs");
}

#[test]
fn a_planner_that_starts_one_job_at_a_time_is_asked_until_it_starts_none() {
    // Both fit where the first has left.
    let jobs = [job(0, 0, 100, 30), job(1, 10, 100, 15), job(2, 20, 100, 15)];
    let report = replayed(&jobs, 1, &options(), first_fit).unwrap();
    let starts: Vec<u64> = report.jobs.iter().map(|job| job.start.unwrap().0 / 1000).collect();
    assert_eq!(starts, [0, 100, 100]);
}

#[test]
fn a_job_for_which_the_host_has_no_room_waits_under_a_planner() {
    use radrm_scheduler_core::{HostNeed, Node, NodeId};
    let host = HostNeed { cpu_milli: 3000, ..HostNeed::default() };
    let jobs: Vec<TraceJob> = (0..3).map(|n| TraceJob { host, ..job(n, n, 100, 5) }).collect();
    let node = Node { id: NodeId(0), cpu_milli: 4000, memory: Bytes::from_gib(64), memory_bandwidth: None };
    let mut cluster = Cluster::uniform(2, "A100-40GB", Bytes::from_gib(40));
    cluster.nodes.push(node);
    let mut planner = By(|state: &State| Ok(state.requests().map(|(job, _)| start(job, &[0])).collect()));
    let options = Options { follow: Some(2), ..options() };
    let custom = Custom { planner: Some(&mut planner), ..Custom::default() };
    let report = replay_custom(&jobs, &cluster, &options, custom, &mut ()).unwrap();
    assert_eq!(report.followed[0].reason, Reason::Waiting { cause: Wait::Host });
    assert!(report.jobs.iter().all(|job| job.success));
}

#[test]
fn what_is_followed_has_the_reasons_of_the_planner() {
    let jobs = [job(0, 0, 100, 30), job(1, 10, 100, 30)];
    let report = replayed(&jobs, 1, &Options { follow: Some(1), ..options() }, first_fit).unwrap();
    let told: Vec<(u64, String)> =
        report.followed.iter().map(|one| (one.at.0 / 1000, one.reason.to_string())).collect();
    let expected = [(10, "no room"), (100, "it fits"), (200, "its program ended")];
    assert_eq!(told, expected.map(|(at, why)| (at, why.to_owned())));
    let silent = |state: &State| {
        Ok(first_fit(state)?.into_iter().filter(|plan| matches!(plan, Plan::Start { .. })).collect())
    };
    let report = replayed(&jobs, 1, &Options { follow: Some(1), ..options() }, silent).unwrap();
    assert_eq!(report.followed[0].reason, Reason::Waiting { cause: Wait::Chosen { why: String::new() } });
}

#[test]
fn a_planner_hears_of_each_event_before_it_decides() {
    struct Counts(Vec<&'static str>);
    impl Planner for Counts {
        fn happened(&mut self, _: Millis, event: &Event) {
            match event {
                Event::Submitted { .. } => self.0.push("submitted"),
                Event::Started { .. } => self.0.push("started"),
                Event::Finished { .. } => self.0.push("finished"),
                _ => {}
            }
        }
        fn plan(&mut self, state: &State) -> Result<Vec<Plan>, PlanError> {
            self.0.push("plan");
            first_fit(state)
        }
    }
    let mut planner = Counts(Vec::new());
    let cluster = Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40));
    let custom = Custom { planner: Some(&mut planner), ..Custom::default() };
    replay_custom(&[job(0, 0, 100, 30), job(1, 10, 100, 30)], &cluster, &options(), custom, &mut ()).unwrap();
    let all =
        ["submitted", "plan", "started", "submitted", "plan", "finished", "plan", "started", "finished"];
    assert_eq!(planner.0, all);
}

/// All jobs together are as fast as this.
#[derive(Debug)]
struct Flat(f64);

impl SpeedModel for Flat {
    fn speeds(&self, jobs: &[Resident]) -> Result<Vec<f64>, PlanError> {
        Ok(vec![self.0; jobs.len()])
    }
}

#[test]
fn aware_decides_by_a_predictor_from_outside() {
    let jobs = [job(0, 0, 100, 5), job(1, 10, 100, 5)];
    let cluster = Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40));
    let options = Options { model: Model::default().plain(), ..Options::default() };
    let start = |speed: f64| {
        let speeds: Arc<dyn SpeedModel> = Arc::new(Flat(speed));
        let custom = Custom { planner: None, speeds: Some(speeds) };
        replay_custom(&jobs, &cluster, &options, custom, &mut ())
    };
    // What really happens is the model's, whatever is predicted.
    assert_eq!(start(0.9), start(0.8));
    let start = |speed| start(speed).map(|report| report.jobs[1].start.unwrap().0 / 1000);
    assert_eq!(start(0.9), Ok(10), "the GPU gains 0.8 of a job");
    assert_eq!(start(0.5), Ok(100), "it gains nothing");
    for wrong in [0.0, 1.5, f64::NAN, -1.0] {
        assert!(start(wrong).unwrap_err().to_string().contains("was predicted"), "{wrong}");
    }
}
