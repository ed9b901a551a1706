//! The discrete-event replay: it plays the machine, [`State`] decides.

mod known;
mod memory;
mod observe;
mod source;
mod suspension;
mod truth;

use radrm_base::random::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::action::{Action, Decision, Signal, Verdict};
use crate::device::{DeviceId, Observation};
use crate::event::Event;
use crate::interference::Activity;
use crate::job::JobId;
use crate::outcome::Outcome;
use crate::outside::{PlanError, SpeedModel};
use crate::planner::Planner;
use crate::policy::DecidedBy;
use crate::reason::Reason;
use crate::replay::curve::Curve;
use crate::replay::events::Entry;
use crate::replay::model::Model;
use crate::replay::report::{Bar, Followed, JobResult, Report};
use crate::replay::trace::{Cluster, TraceJob};
use crate::settings::{Memory, Settings};
use crate::state::State;
use crate::units::{Bytes, Millis, Permille};

pub use source::{Knowledge, Source};

/// A replay's choices.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scheduler's settings.
    pub settings: Settings,
    /// Model that the replay takes for the truth.
    pub model: Model,
    /// Source of needs.
    pub source: Source,
    /// Other knowledge about jobs.
    pub knowledge: Knowledge,
    /// Seed of what is random; `None`: nothing is.
    pub seed: Option<u64>,
    /// Keep who was where when, and figures of the devices over time.
    pub bars: bool,
    /// Keep all events and decisions.
    pub steps: bool,
    /// Keep the decisions on this job, by its place in the trace, and the reasons that it waits.
    pub follow: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Finish {
        job: u32,
        attempt: u32,
        generation: u32,
    },
    Memory {
        job: u32,
        attempt: u32,
        last: bool,
    },
    Shown {
        job: u32,
        attempt: u32,
    },
    /// The shim's figures of a job of which nothing was known are read.
    Read {
        job: u32,
        attempt: u32,
    },
    /// The launch rates of the jobs on a device were seen long enough.
    Rates {
        device: u32,
        company: u32,
    },
    Killed {
        job: u32,
        attempt: u32,
    },
    Suspended {
        job: u32,
        attempt: u32,
    },
    Resumed {
        job: u32,
        attempt: u32,
    },
    Tick,
    Observe,
    /// A job has come to a device: the monitor's last report of it counts again.
    Shared {
        device: u32,
    },
    Arrival {
        job: u32,
    },
}

/// A job's processes.
#[derive(Clone, Debug)]
struct Run {
    attempt: u32,
    devices: Vec<usize>,
    /// Speed on each device; the slowest counts.
    speeds: Vec<f64>,
    speed: f64,
    /// Milliseconds of running alone that are left.
    left: f64,
    at: Millis,
    generation: u32,
    limit: Option<Bytes>,
    used: Bytes,
    began: Millis,
    /// Time at which it was suspended, until it is back.
    suspended: Option<Millis>,
    /// Time that it was suspended: its run time is without that.
    away: Millis,
    /// Its process is there and works.
    active: bool,
    cap: f64,
}

#[derive(Clone, Debug, Default)]
struct Gpu {
    capacity: Bytes,
    part: f64,
    jobs: Vec<u32>,
    /// Number of changes of the jobs at work on it.
    company: u32,
    used: Bytes,
    smact: f64,
    drama: f64,
    smocc: f64,
    watts: f64,
    since: Millis,
    energy: f64,
    busy: f64,
    memory: f64,
    /// Integrals of SM activity, SM occupancy and DRAM activity since the window began.
    window: [f64; 3],
    /// The monitor's last report.
    observed: Observation,
    /// Last observation that the scheduler took in.
    reported: Observation,
}

/// Progress of a replay, for displays.
pub trait Watch {
    /// So many jobs of all have ended.
    fn ended(&mut self, jobs: usize);
}

impl Watch for () {
    fn ended(&mut self, _: usize) {}
}

/// Policy and predictor in place of those of this crate.
#[derive(Default)]
pub struct Custom<'a> {
    /// Decides where jobs start. Settings are to be [`Settings::planned`] then.
    pub planner: Option<&'a mut dyn Planner>,
    /// Predicts slowdowns.
    pub speeds: Option<Arc<dyn SpeedModel>>,
}

/// Replays a trace. Jobs must be in order of arrival.
pub fn replay(trace: &[TraceJob], cluster: &Cluster, options: &Options, watch: &mut dyn Watch) -> Report {
    let mut sim = Sim::new(trace, cluster, options, Custom::default());
    sim.run(watch);
    sim.report()
}

/// Replays a trace under a policy or predictions of the caller's. The job of number N is the Nth of the trace, from 0.
///
/// # Errors
/// The planner or the predictor failed, or left jobs waiting when nothing else was to happen.
pub fn replay_custom<'a>(
    trace: &'a [TraceJob],
    cluster: &Cluster,
    options: &'a Options,
    custom: Custom<'a>,
    watch: &mut dyn Watch,
) -> Result<Report, PlanError> {
    let mut sim = Sim::new(trace, cluster, options, custom);
    sim.run(watch);
    match sim.failure.take().or_else(|| sim.stuck()) {
        Some(error) => Err(error),
        None => Ok(sim.report()),
    }
}

struct Sim<'a> {
    planner: Option<&'a mut dyn Planner>,
    /// Of the planner or of the caller's predictor.
    failure: Option<PlanError>,
    followed: Vec<Followed>,
    trace: &'a [TraceJob],
    options: &'a Options,
    model: Model,
    state: State,
    now: Millis,
    heap: BinaryHeap<Reverse<(Millis, u64, What)>>,
    sequence: u64,
    /// Index of each device by its number.
    numbers: BTreeMap<DeviceId, usize>,
    ids: Vec<DeviceId>,
    models: Vec<String>,
    gpus: Vec<Gpu>,
    runs: BTreeMap<u32, Run>,
    /// Work left of jobs that wait after a checkpoint.
    kept: BTreeMap<u32, f64>,
    results: Vec<JobResult>,
    bars: Vec<Bar>,
    curve: Curve,
    steps: Vec<Entry>,
    wake: Option<Millis>,
    monitored: bool,
    done: usize,
    /// Knowledge about programs before their jobs run.
    known: known::Programs<'a>,
    activities: Vec<Activity>,
    caps: Vec<f64>,
    speeds: Vec<f64>,
}

impl<'a> Sim<'a> {
    fn new(trace: &'a [TraceJob], cluster: &Cluster, options: &'a Options, custom: Custom<'a>) -> Self {
        let mut model = options.model;
        if let Some(seed) = options.seed {
            let factor = Rng::new(seed, 1).between(1.0 - model.spread, 1.0 + model.spread);
            model.mps = model.mps.scaled(factor);
        }
        let settings = options.settings.clone();
        let monitored = settings.memory == Memory::Observed
            || settings.preconditions.smact.is_some()
            || settings.policy.rules().decided_by() == DecidedBy::Load;
        let mut sim = Self {
            planner: custom.planner,
            failure: None,
            followed: Vec::new(),
            trace,
            options,
            model,
            state: State::new(settings),
            now: Millis::ZERO,
            heap: BinaryHeap::new(),
            sequence: 0,
            numbers: BTreeMap::new(),
            ids: Vec::new(),
            models: Vec::new(),
            gpus: Vec::new(),
            runs: BTreeMap::new(),
            kept: BTreeMap::new(),
            results: trace.iter().map(JobResult::new).collect(),
            bars: Vec::new(),
            curve: trace
                .first()
                .filter(|_| options.bars)
                .map_or_else(Curve::default, |job| Curve::new(job.arrival)),
            steps: Vec::new(),
            wake: None,
            monitored,
            done: 0,
            known: known::Programs::new(&options.source),
            activities: Vec::new(),
            caps: Vec::new(),
            speeds: Vec::new(),
        };
        if let Some(speeds) = custom.speeds {
            sim.state.predict_by(speeds);
        }
        for node in &cluster.nodes {
            sim.state.step(Millis::ZERO, Event::NodeAdded { node: *node });
        }
        for device in &cluster.devices {
            sim.numbers.insert(device.id, sim.gpus.len());
            sim.ids.push(device.id);
            sim.models.push(device.model.clone());
            let part = if device.parent.is_some() { model.mig_part } else { 1.0 };
            sim.gpus.push(Gpu { capacity: device.capacity, part, ..Gpu::default() });
            sim.state.step(Millis::ZERO, Event::DeviceAdded { device: device.clone() });
            if sim.monitored {
                // Published monitors see all devices from the start.
                let seen = Observation::default();
                sim.state.step(Millis::ZERO, Event::DeviceObserved { device: device.id, seen });
            }
        }
        for at in 0..sim.gpus.len() {
            sim.gpus[at].watts = sim.model.watts(0, 0.0, sim.gpus[at].part);
        }
        if sim.monitored && model.window > Millis::ZERO {
            // The windows began some time before the first job came.
            let part = options.seed.map_or(0.0, |seed| Rng::new(seed, 2).unit());
            sim.push(Millis((model.window.0 as f64 * part) as u64), What::Observe);
        }
        // Arrivals come from the trace one by one, so that the heap holds what runs, not what will.
        sim.next_arrival(0);
        sim
    }

    fn next_arrival(&mut self, index: usize) {
        if let Some(job) = self.trace.get(index) {
            let at = job.arrival;
            self.push(at, What::Arrival { job: index as u32 });
        }
    }

    fn push(&mut self, at: Millis, what: What) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, what)));
    }

    fn run(&mut self, watch: &mut dyn Watch) {
        let mut shown = 0;
        while self.done < self.trace.len()
            && self.failure.is_none()
            && let Some(Reverse((at, _, what))) = self.heap.pop()
        {
            self.now = self.now.max(at);
            self.happens(what);
            if self.done - shown > self.trace.len() / 200 {
                shown = self.done;
                watch.ended(shown);
            }
        }
        watch.ended(self.done);
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Arrival { job } => {
                self.next_arrival(job as usize + 1);
                let event = Event::Submitted { job: Box::new(self.submission(job)) };
                self.waits(job, true);
                self.step(event);
                self.observe_at_once();
            }
            What::Shown { job, attempt } => self.shown(job, attempt),
            What::Read { job, attempt } => self.read(job, attempt),
            What::Rates { device, company } => self.read_rates(device as usize, company),
            What::Memory { job, attempt, last } => self.memory(job, attempt, last),
            What::Finish { job, attempt, generation } => {
                // Not that of an attempt that gave way: the next one runs by its own time.
                let is_now = |run: &Run| (run.attempt, run.generation) == (attempt, generation);
                if self.runs.get(&job).is_some_and(is_now) {
                    self.over(job, Outcome::Exited { code: 0 });
                }
            }
            What::Killed { job, attempt } => {
                if self.runs.get(&job).is_some_and(|run| run.attempt == attempt) {
                    self.over(job, Outcome::Signalled { signal: 15 });
                }
            }
            What::Suspended { job, attempt } => self.suspended(job, attempt),
            What::Resumed { job, attempt } => self.resumed(job, attempt),
            What::Tick => {
                if self.wake.is_some_and(|wake| wake <= self.now) {
                    self.wake = None;
                    self.step(Event::Tick);
                }
            }
            What::Shared { device } => self.report_device(device as usize),
            What::Observe => {
                self.observe();
                self.push(self.now.plus(self.model.window), What::Observe);
            }
        }
    }

    fn step(&mut self, event: Event) {
        if self.failure.is_some() {
            return;
        }
        let kept = self.options.steps.then(|| event.clone());
        let decisions = match &mut self.planner {
            None => Ok(self.state.step(self.now, event)),
            Some(planner) => self.state.step_planned(self.now, event, &mut **planner),
        };
        let decisions = decisions.unwrap_or_else(|error| {
            self.failure = Some(error);
            Vec::new()
        });
        if let Some(error) = self.state.prediction_failure() {
            self.failure.get_or_insert(error);
        }
        self.follow(&decisions);
        if let Some(event) = kept {
            self.steps.push(Entry::Step { at: self.now, event, decisions: decisions.clone() });
        }
        for decision in decisions {
            self.carry_out(decision.action);
        }
    }

    /// Keeps what was decided on the job that is followed.
    fn follow(&mut self, decisions: &[Decision]) {
        let Some(job) = self.options.follow.map(|job| JobId(job.into())) else { return };
        let at = self.now;
        let own = decisions.iter().filter(|decision| decision.action.job() == Some(job));
        self.followed.extend(own.map(|Decision { action, reason }| Followed {
            at,
            action: Some(action.clone()),
            reason: reason.clone(),
        }));
        let wait = self.state.job(job).filter(|view| view.devices.is_empty()).and_then(|view| view.wait);
        let Some(reason) = wait.map(|cause| Reason::Waiting { cause }) else { return };
        if self.followed.last().is_none_or(|last| last.reason != reason) {
            self.followed.push(Followed { at, action: None, reason });
        }
    }

    /// The planner left jobs waiting when nothing else was to happen.
    fn stuck(&self) -> Option<PlanError> {
        self.planner.as_ref()?;
        let left: Vec<JobId> = self.state.requests().map(|(job, _)| job).collect();
        let first = left.first()?;
        let jobs =
            if left.len() == 1 { "1 job waits".to_owned() } else { format!("{} jobs wait", left.len()) };
        Some(PlanError(format!(
            "{jobs} for ever, the first is job {first}: no job runs or comes any more, and none was started"
        )))
    }

    fn carry_out(&mut self, action: Action) {
        let index = |job: JobId| u32::try_from(job.0).unwrap_or(u32::MAX);
        match action {
            Action::Start { job, attempt, devices, limit, .. } => {
                self.waits(index(job), false);
                self.start(index(job), attempt, &devices, limit)
            }
            Action::SetBudget { job, budget } => {
                let cap = budget.map_or(1.0, |budget| budget.share.fraction());
                if let Some(run) = self.runs.get_mut(&index(job)) {
                    run.cap = cap;
                    self.population_changed(index(job));
                }
            }
            Action::Signal { job, signal } => {
                let job = index(job);
                // A program that writes a checkpoint goes on from there; any other begins anew.
                if let (Signal::Checkpoint(_), Some(run)) = (signal, self.runs.get(&job)) {
                    let left = run.left - run.speed * self.now.minus(run.at).0 as f64;
                    self.kept.insert(job, left.max(1.0));
                } else if let Some(attempt) = self.runs.get(&job).map(|run| run.attempt) {
                    self.push(self.now.plus(Millis(1000)), What::Killed { job, attempt });
                }
            }
            Action::Suspend { job } => {
                let job = index(job);
                let Some(run) = self.runs.get(&job) else { return };
                let (attempt, takes) = (run.attempt, self.model.suspension(run.used));
                self.freeze(job);
                self.push(self.now.plus(takes), What::Suspended { job, attempt });
            }
            Action::Resume { job, devices } => self.resume(index(job), &devices),
            Action::Requeue { job, .. } => self.waits(index(job), true),
            Action::SetAside { .. } | Action::Ready { .. } => {}
            Action::End { job, verdict } => {
                self.waits(index(job), false);
                self.done += 1;
                let now = self.now;
                let result = &mut self.results[index(job) as usize];
                result.end = Some(now);
                result.success = verdict == Verdict::Ended(Outcome::Exited { code: 0 });
            }
            Action::WakeAt { at } => {
                self.wake = Some(at);
                self.push(at, What::Tick);
            }
        }
    }

    fn start(&mut self, job: u32, attempt: u32, devices: &[DeviceId], limit: Option<Bytes>) {
        let devices: Vec<usize> = devices.iter().filter_map(|id| self.numbers.get(id).copied()).collect();
        let result = &mut self.results[job as usize];
        result.start.get_or_insert(self.now);
        result.attempts = attempt;
        let duration = self.trace[job as usize].duration.0 as f64;
        let jitter = self
            .options
            .seed
            .map_or(0.0, |seed| self.model.jitter * Rng::new(seed, 1000 + u64::from(job)).normal());
        let left = self.kept.remove(&job).unwrap_or_else(|| (duration * (1.0 + jitter)).max(1.0));
        let run = Run {
            attempt,
            speeds: vec![1.0; devices.len()],
            speed: 0.0,
            left,
            at: self.now,
            generation: 0,
            limit,
            used: Bytes::ZERO,
            began: self.now,
            suspended: None,
            away: Millis::ZERO,
            active: false,
            cap: 1.0,
            devices,
        };
        for &at in &run.devices {
            self.gpus[at].jobs.push(job);
            if self.monitored {
                self.push(self.now, What::Shared { device: at as u32 });
            }
        }
        self.runs.insert(job, run);
        if self.model.launch == Millis::ZERO {
            // Still an event of its own: actions of one step come before what they lead to.
            self.push(self.now, What::Shown { job, attempt });
        } else {
            self.push(self.now.plus(self.model.launch), What::Shown { job, attempt });
        }
    }

    fn shown(&mut self, job: u32, attempt: u32) {
        let Some(run) = self.runs.get_mut(&job).filter(|run| run.attempt == attempt) else { return };
        run.active = true;
        run.at = self.now;
        let peak = self.trace[job as usize].peak;
        if peak > Bytes::ZERO {
            if self.model.ramp == Millis::ZERO {
                if !self.take(job, peak) {
                    return;
                }
            } else {
                if !self.take(job, self.model.context.min(peak)) {
                    return;
                }
                let ramp = self.ramp(job);
                self.push(self.now.plus(Millis(ramp / 2)), What::Memory { job, attempt, last: false });
                self.push(self.now.plus(Millis(ramp)), What::Memory { job, attempt, last: true });
            }
        }
        self.step(Event::Started { job: JobId(job.into()), attempt });
        self.show_suspend(job);
        self.population_changed(job);
        let unknown = self.state.job(JobId(job.into())).is_some_and(|view| view.job.activity.is_none());
        let is_read = self.planner.is_some() || self.options.settings.policy.predicts();
        if self.model.read > Millis::ZERO && unknown && is_read {
            self.push(self.now.plus(self.model.read), What::Read { job, attempt });
        }
    }

    /// The job's processes are gone.
    fn over(&mut self, job: u32, outcome: Outcome) {
        self.settle_devices(job);
        let Some(run) = self.runs.remove(&job) else { return };
        let result = &mut self.results[job as usize];
        let ran = self.now.minus(run.began).minus(run.away);
        result.ran = result.ran.plus(ran);
        for &at in &run.devices {
            let gpu = &mut self.gpus[at];
            gpu.jobs.retain(|other| *other != job);
            gpu.used = gpu.used.minus(run.used);
            if gpu.jobs.is_empty() {
                // The scheduler takes an empty device that is monitored for one that does nothing.
                gpu.reported = Observation::default();
            }
            if self.options.bars {
                self.bars.push(Bar {
                    job,
                    device: at as u32,
                    from: run.began,
                    to: self.now,
                    failed: outcome != Outcome::Exited { code: 0 },
                });
            }
        }
        for at in run.devices {
            self.recompute(at);
        }
        self.finish(job, run.attempt, ran, outcome);
        self.observe_at_once();
    }

    /// Figures of the job's devices up to now.
    fn settle_devices(&mut self, job: u32) {
        if let Some(devices) = self.runs.get(&job).map(|run| run.devices.clone()) {
            for at in devices {
                self.settle(at);
            }
        }
    }

    fn settle(&mut self, at: usize) {
        let gpu = &mut self.gpus[at];
        let span = self.now.minus(gpu.since).0 as f64;
        gpu.energy += gpu.watts * span / 1000.0;
        gpu.busy += gpu.smact.min(1.0) * span;
        gpu.memory += gpu.used.0 as f64 * span;
        for (sum, now) in gpu.window.iter_mut().zip([gpu.smact, gpu.smocc, gpu.drama]) {
            *sum += now * span;
        }
        if self.options.bars {
            let figures = [gpu.used.0 as f64, gpu.smact.min(1.0), gpu.watts];
            self.curve.add(gpu.since, self.now, figures);
        }
        gpu.since = self.now;
    }

    fn population_changed(&mut self, job: u32) {
        if let Some(devices) = self.runs.get(&job).map(|run| run.devices.clone()) {
            for at in devices {
                self.recompute(at);
            }
            // A job without a device shares with no other.
            if self.runs.get(&job).is_some_and(|run| run.devices.is_empty() && run.active) {
                self.set_speed(job);
            }
        }
    }

    /// Speeds of all jobs on a device, after a job came or left.
    fn recompute(&mut self, at: usize) {
        self.settle(at);
        let mut activities = std::mem::take(&mut self.activities);
        let mut caps = std::mem::take(&mut self.caps);
        let mut speeds = std::mem::take(&mut self.speeds);
        activities.clear();
        caps.clear();
        let jobs: Vec<u32> = self.gpus[at]
            .jobs
            .iter()
            .copied()
            .filter(|job| self.runs.get(job).is_some_and(|run| run.active))
            .collect();
        for job in &jobs {
            activities.push(self.activity(*job));
            caps.push(self.runs[job].cap);
        }
        self.true_speeds(at, &jobs, &activities, &caps, &mut speeds);
        let sum = |pick: fn(&Activity) -> Permille| -> f64 {
            activities.iter().zip(&speeds).map(|(job, speed)| pick(job).fraction() * speed).sum()
        };
        let (smact, smocc, drama) = (sum(|a| a.smact), sum(|a| a.smocc), sum(|a| a.drama));
        let watts = self.model.watts(self.gpus[at].jobs.len(), smact, self.gpus[at].part);
        let gpu = &mut self.gpus[at];
        gpu.watts = watts;
        (gpu.smact, gpu.smocc, gpu.drama) = (smact, smocc, drama);
        for (job, speed) in jobs.iter().zip(&speeds) {
            if let Some(run) = self.runs.get_mut(job)
                && let Some(place) = run.devices.iter().position(|device| *device == at)
            {
                run.speeds[place] = *speed;
            }
            self.set_speed(*job);
        }
        self.gpus[at].company += 1;
        if jobs.len() > 1 && self.learns_sharing() {
            let (device, company) = (at as u32, self.gpus[at].company);
            self.push(self.now.plus(self.model.read), What::Rates { device, company });
        }
        self.activities = activities;
        self.caps = caps;
        self.speeds = speeds;
    }

    /// A job's speed is its slowest device's; when it changes, so does the time of its end.
    fn set_speed(&mut self, job: u32) {
        let now = self.now;
        let Some(run) = self.runs.get_mut(&job) else { return };
        let speed = run.speeds.iter().copied().fold(1.0, f64::min);
        if (speed - run.speed).abs() < 1e-9 {
            return;
        }
        run.left -= run.speed * now.minus(run.at).0 as f64;
        run.at = now;
        run.speed = speed;
        run.generation += 1;
        let (attempt, generation) = (run.attempt, run.generation);
        let at = Millis(now.0 + (run.left.max(0.0) / speed).ceil() as u64);
        self.push(at, What::Finish { job, attempt, generation });
    }

    fn report(mut self) -> Report {
        for at in 0..self.gpus.len() {
            self.settle(at);
        }
        let first = self.trace.first().map_or(Millis::ZERO, |job| job.arrival);
        let end = self.results.iter().filter_map(|result| result.end).max().unwrap_or(first);
        let physical = self.gpus.iter().filter(|gpu| gpu.part >= 1.0).count();
        let mut energy: f64 = self.gpus.iter().map(|gpu| gpu.energy).sum();
        // Before the first arrival nothing is measured.
        energy -= self.model.idle_watts * first.as_secs_f64() * physical as f64;
        let total = (self.now.0.saturating_sub(first.0)).max(1) as f64;
        let count = physical.max(1) as f64;
        Report {
            makespan: end.minus(first),
            smact: self.gpus.iter().map(|gpu| gpu.busy).sum::<f64>() / total / count,
            memory: self.gpus.iter().map(|gpu| gpu.memory).sum::<f64>() / total / count,
            energy,
            watts: energy / (total / 1000.0) / count,
            jobs: self.results,
            bars: self.bars,
            curve: self.curve,
            steps: self.steps,
            followed: self.followed,
            devices: self.ids,
        }
    }
}
