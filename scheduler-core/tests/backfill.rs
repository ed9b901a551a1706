//! Effect of jobs that came behind a blocked one on it.
//! There is none, in worlds in which jobs that share a GPU slow each other.

use std::collections::{BTreeMap, VecDeque};

use crate::common::random::cases;
use proptest::prelude::*;
use radrm_base::random::Rng;
use radrm_scheduler_core::interference::speeds;
use radrm_scheduler_core::replay::{Cluster, Model, Options, TraceJob, replay};
use radrm_scheduler_core::{
    Action, Activity, Bytes, Constants, Decision, Device, DeviceId, Event, Job, JobId, Millis, Need, NodeId,
    Outcome, Permille, Policy, Reason, Settings, Signal, State,
};

fn busy(smact: u32) -> Activity {
    Activity { smact: Permille(smact), smocc: Permille(smact / 2), drama: Permille(smact / 2) }
}

#[test]
fn a_small_long_job_does_not_slow_down_whom_the_head_waits_for() {
    let job = |name: &str, at: u64, minutes: u64, gib: u64| TraceJob {
        peak: Bytes::from_gib(gib),
        activity: Some(busy(600)),
        ..TraceJob::new(name, Millis::from_secs(at), Millis::from_mins(minutes))
    };
    let trace = [job("first", 0, 60, 22), job("head", 1, 60, 30), job("behind", 2, 600, 4)];
    let start_of_head = |trace: &[TraceJob]| {
        let options = Options { model: Model::default().plain(), ..Options::default() };
        let report = replay(trace, &Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40)), &options, &mut ());
        report.jobs[1].start.unwrap()
    };
    assert_eq!(start_of_head(&trace), start_of_head(&trace[..2]));
    assert_eq!(start_of_head(&trace), Millis::from_mins(60));
}

/// Jobs that start when a job without a GPU and a small one come behind `blocked` large ones, of which `requests` differ.
fn started_behind(blocked: u64, requests: u64) -> Vec<u64> {
    let mut state = State::new(Settings::default());
    let device = Device {
        id: DeviceId(0),
        node: NodeId(0),
        model: "G".into(),
        capacity: Bytes::from_gib(40),
        parent: None,
        shared: true,
    };
    state.step(Millis::ZERO, Event::DeviceAdded { device });
    let mut started = Vec::new();
    let mut submit = |id: u64, gpus: u16, gib: u64, minutes: u64| {
        let job = Job {
            gpus,
            need: Some(Need::measured(Bytes::from_gib(gib))),
            activity: Some(busy(50)),
            time_limit: Some(Millis::from_mins(minutes)),
            expected: Some(Millis::from_mins(minutes)),
            submitted: Millis(id),
            ..Job::new(JobId(id))
        };
        for Decision { action, .. } in state.step(Millis(id), Event::Submitted { job: Box::new(job) }) {
            if let Action::Start { job, attempt, .. } = action {
                started.push(job.0);
                state.step(Millis(id), Event::Started { job, attempt });
            }
        }
    };
    for id in 1..=blocked + 1 {
        submit(id, 1, 30, 60 + id % requests);
    }
    submit(5000, 0, 0, 1);
    submit(5001, 1, 2, 1);
    started
}

#[test]
fn jobs_that_fit_start_behind_any_number_of_blocked_ones_of_one_request() {
    assert_eq!(started_behind(2000, 1), [1, 5000, 5001]);
    assert_eq!(started_behind(2000, 100), [1, 5000, 5001]);
}

/// A job as it is, whatever the scheduler was told of it.
#[derive(Clone, Copy, Debug)]
struct Truth {
    activity: Activity,
    /// Running time alone, ms.
    work: f64,
}

#[derive(Clone, Debug)]
struct Run {
    attempt: u32,
    left: f64,
    since: Millis,
    speed: f64,
}

/// GPUs on which jobs slow each other.
#[derive(Clone)]
struct World {
    state: State,
    law: Constants,
    now: Millis,
    truth: BTreeMap<JobId, Truth>,
    running: BTreeMap<JobId, Run>,
    arrivals: VecDeque<Job>,
}

impl World {
    fn new(settings: Settings, law: Constants, gpus: u32) -> Self {
        let mut state = State::new(settings);
        for device in Cluster::uniform(gpus, "A100-40GB", Bytes::from_gib(40)).devices {
            state.step(Millis(0), Event::DeviceAdded { device });
        }
        let (truth, running, arrivals) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { state, law, now: Millis(0), truth, running, arrivals }
    }

    fn step(&mut self, event: Event) -> Vec<Decision> {
        let mut all = Vec::new();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for decision in self.state.step(self.now, event) {
                match &decision.action {
                    Action::Start { job, attempt, .. } => {
                        let left = self.truth[job].work;
                        let (attempt, since) = (*attempt, self.now);
                        self.running.insert(*job, Run { attempt, left, since, speed: 0.0 });
                        events.push_back(Event::Started { job: *job, attempt });
                    }
                    Action::Signal { job, signal: Signal::Terminate } => {
                        let run = self.running.remove(job).unwrap();
                        let outcome = Outcome::Signalled { signal: 15 };
                        events.push_back(Event::Finished { job: *job, attempt: run.attempt, outcome });
                    }
                    _ => {}
                }
                all.push(decision);
            }
        }
        self.set_speeds();
        all
    }

    fn set_speeds(&mut self) {
        let mut least: BTreeMap<JobId, f64> = BTreeMap::new();
        for view in self.state.devices() {
            let there: Vec<Activity> = view.jobs.iter().map(|job| self.truth[job].activity).collect();
            for (job, speed) in view.jobs.iter().zip(speeds(&there, &self.law)) {
                let least = least.entry(*job).or_insert(1.0);
                *least = least.min(speed);
            }
        }
        for (job, run) in &mut self.running {
            run.speed = least[job];
        }
    }

    /// Goes on to whatever happens next. `None`: nothing does.
    fn next(&mut self) -> Option<Vec<Decision>> {
        let arrival = self.arrivals.front().map(|job| job.submitted);
        let limit = |job: &JobId, run: &Run| {
            let limit = self.state.job(*job).and_then(|view| view.job.time_limit);
            limit.map_or(Millis::MAX, |limit| run.since.plus(limit))
        };
        let ends = self.running.iter().map(|(job, run)| {
            let done = Millis((self.now.0 as f64 + (run.left / run.speed).ceil()) as u64);
            (done.min(limit(job, run)), Some(*job))
        });
        let (at, job) = ends.chain(arrival.map(|at| (at, None))).min()?;
        let span = at.minus(self.now).0 as f64;
        for run in self.running.values_mut() {
            run.left -= span * run.speed;
        }
        self.now = at;
        let Some(job) = job else {
            let job = self.arrivals.pop_front().unwrap();
            return Some(self.step(Event::Submitted { job: Box::new(job) }));
        };
        if self.running[&job].left > 1.0 {
            return Some(self.step(Event::Tick));
        }
        let attempt = self.running.remove(&job).unwrap().attempt;
        Some(self.step(Event::Finished { job, attempt, outcome: Outcome::Exited { code: 0 } }))
    }

    fn arrive(&mut self, rng: &mut Rng, count: u64) {
        let mut below = |n: u64| rng.between(0.0, n as f64) as u64;
        let mut at = 0;
        for id in 1..=count {
            at += below(900);
            let activity = busy(below(900) as u32 + 50);
            let minutes = 5 + below(200);
            self.truth.insert(JobId(id), Truth { activity, work: (minutes * 60_000) as f64 });
            let mut job = Job::new(JobId(id));
            job.submitted = Millis::from_secs(at);
            job.need = if below(10) == 0 {
                None
            } else {
                let most = if below(3) == 0 { 39 } else { 12 };
                Some(Need::measured(Bytes::from_gib(1 + below(most))))
            };
            job.gpus = [1, 1, 1, 1, 1, 2, 2, 3][below(8) as usize];
            job.activity = (below(3) > 0).then_some(activity);
            job.expected = match below(4) {
                0 => None,
                1 => Some(Millis::from_mins(5 + below(200))),
                _ => Some(Millis::from_mins(minutes)),
            };
            job.time_limit = (below(4) == 0).then(|| Millis::from_mins(minutes + below(100)));
            self.arrivals.push_back(job);
        }
    }

    /// Time at which the head's blockers are gone if no job comes behind, and the head stays away.
    /// It is no earlier than the latest end that their limits set, if they have any.
    fn promise(&self) -> Millis {
        let mut alone = self.clone();
        alone.arrivals.clear();
        let blockers: Vec<JobId> = self.state.blockers().collect();
        let limited = |job: &JobId| {
            let limit = self.state.job(*job).unwrap().job.time_limit;
            limit.map(|limit| self.running[job].since.plus(limit))
        };
        let by = blockers.iter().filter_map(limited).max();
        // The head last, or those behind it would take its place.
        for job in alone.state.queue().into_iter().rev() {
            alone.step(Event::Held { job });
        }
        while blockers.iter().any(|job| alone.running.contains_key(job)) {
            alone.next().unwrap();
        }
        alone.now.max(by.unwrap_or(Millis::ZERO))
    }
}

/// Checks that heads start in time.
/// Returns how many were started, and how many after jobs behind them passed.
fn heads_start_as_promised(settings: Settings, law: Constants, seed: u64) -> (u32, u32) {
    let mut world = World::new(settings, law, 4);
    world.arrive(&mut Rng::new(seed, 1), 80);
    let mut head: Option<(JobId, Millis, bool)> = None;
    let (mut served, mut passed) = (0, 0);
    while let Some(decisions) = world.next() {
        let starts = decisions.iter().filter_map(|decision| match decision.action {
            Action::Start { job, .. } => Some((job, &decision.reason)),
            _ => None,
        });
        for (job, reason) in starts {
            let Some((first, by, others)) = &mut head else { continue };
            if job == *first {
                // Rounding to ms, once for each change of speed.
                assert!(
                    world.now <= by.plus(Millis(50)),
                    "job {job} at {} ms for {}, seed {seed}",
                    world.now.0,
                    by.0
                );
                served += 1;
                passed += u32::from(*others);
                head = None;
            } else if matches!(reason, Reason::Backfilled { ahead, .. } if ahead == first) {
                *others = true;
            } else if let Reason::Borrowed { ahead, limit, .. } = reason
                && ahead == first
            {
                // Of the head's start nothing was known: it is delayed by that limit at most.
                (*others, *by) = (true, (*by).max(world.now.plus(*limit)));
            } else {
                // A job that is before it in the queue: what was promised holds no more.
                head = None;
            }
        }
        let kept = world.state.reserved_for().map(|(job, _)| job);
        if kept.is_none_or(|job| head.is_none_or(|(first, ..)| first != job)) {
            // Another job has become the first one, or none is blocked.
            head = kept.map(|job| (job, world.promise(), false));
        }
    }
    assert_eq!(world.state.jobs().count(), 0);
    (served, passed)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..cases(64) })]

    /// Also where jobs slow each other more, or less, than is predicted, and where nothing is.
    #[test]
    fn a_head_starts_when_those_have_left_who_were_in_its_way(
        seed in any::<u64>(), slower in 0.3..3.0f64, policy in 0..2 * Policy::ALL.len(),
    ) {
        // Half of them the default one.
        let policy = Policy::ALL.get(policy).copied().unwrap_or_default();
        let settings = Settings { policy, ..Settings::default() };
        let (served, passed) = heads_start_as_promised(settings, Model::MPS.scaled(slower), seed);
        prop_assert!(served > 3, "only {served} heads: the test is about nothing");
        prop_assert!(passed > 0 || policy == Policy::Exclusive, "no job passed any of {served}");
    }
}
