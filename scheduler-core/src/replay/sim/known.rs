//! Knowledge about a job before it runs.
//! It is rows of earlier runs, and the need that follows from them by the resolver that the daemon has.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use radrm_base::PastRun;
use radrm_base::random::Rng;

use super::{Knowledge, Sim, Source};
use crate::event::Event;
use crate::interference::{self, Activity};
use crate::job::{Dependency, Job, JobId, Preemption, SuspendRefusal};
use crate::outcome::{Evidence, Outcome};
use crate::replay::trace::TraceJob;
use crate::units::{Bytes, Millis, Permille};
use radrm_base::{SeenActivity, UserId};
use radrm_need::{
    Calibration, DryRun, Features, History, MAX_RUNS, NamedEstimate, NeedResolver, Needs, RunFilter,
    RunHistory, StepPrediction,
};

/// A program: what a user runs on so many devices, at any batch size, as the daemon tells programs apart.
type Program<'a> = (UserId, &'a str, u16);

/// Placeholder in the thesis's traces where an estimator gave no number.
const NO_NUMBER: Bytes = Bytes::from_mib(40_000);

/// The only figure of a trace that a learned model reads.
const TENSORS: &str = "faketensor";

/// Programs of which runs ended, or jobs wait.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    resolver: NeedResolver,
    programs: BTreeMap<Program<'a>, Seen>,
    calibration: Calibration,
}

#[derive(Debug, Default)]
struct Seen {
    /// The newest first.
    runs: Vec<PastRun>,
    /// Jobs that wait, by batch size.
    waiting: BTreeMap<Option<u32>, BTreeSet<u32>>,
    /// Needs that the waiting jobs of each batch size were given last, as they followed from the runs.
    given: BTreeMap<Option<u32>, Needs>,
}

impl<'a> Programs<'a> {
    pub(super) fn new(source: &Source) -> Self {
        let resolver = match source {
            Source::Column(name) => {
                NeedResolver::new(vec![Box::new(NamedEstimate(name.clone())), Box::new(History)])
            }
            _ => NeedResolver::default(),
        };
        Self { resolver, programs: BTreeMap::new(), calibration: Calibration::default() }
    }

    /// Jobs that wait, if what follows from the runs of their program is not what they were given last.
    fn news(&mut self, program: &Program<'a>) -> Vec<u32> {
        let Some(seen) = self.programs.get_mut(program) else { return Vec::new() };
        let runs = &*seen.runs;
        let calibration = Some(&self.calibration);
        let mut all = Vec::new();
        for (batch, jobs) in seen.waiting.iter().filter(|(_, jobs)| !jobs.is_empty()) {
            let job = Features { runs, batch: *batch, calibration, ..Features::default() };
            let needs = self.resolver.resolve(&job);
            if seen.given.get(batch) != Some(&needs) {
                seen.given.insert(*batch, needs);
                all.extend(jobs);
            }
        }
        all
    }
}

impl<'a> RunHistory for Programs<'a> {
    type Program = Program<'a>;
    type Error = Infallible;

    fn runs(&self, program: &Program<'a>, _: &RunFilter<'_>) -> Result<Cow<'_, [PastRun]>, Infallible> {
        // A program of the trace is one user's, and its cluster has one model of GPU.
        Ok(self.programs.get(program).map_or_else(Cow::default, |seen| Cow::Borrowed(&*seen.runs)))
    }
}

fn program(job: &TraceJob) -> Program<'_> {
    (job.user, &job.program, job.gpus)
}

/// Mean error of SM activity and of DRAM activity that dry runs predict, as a part of the GPU: against published trainings on an
/// A100, of which the time of a step was not known.
const MEAN_ERRORS: [f64; 2] = [0.09, 0.058];

/// A dry run of a program that does so much, with an error that each of its jobs has alike. The replay draws it: traces have no
/// predicted activities.
fn predicted(program: &str, activity: Activity) -> DryRun {
    let mut rng = Rng::new(interference::Program::named(program).0, 0);
    let mut with_error = |part: Permille, mean: f64| {
        // Uniform errors of this mean.
        let error = rng.between(-2.0 * mean, 2.0 * mean);
        Permille::from_fraction((part.fraction() + error).clamp(0.0, 1.0))
    };
    let [of_sm, of_dram] = MEAN_ERRORS;
    let (smact, drama) = (with_error(activity.smact, of_sm), with_error(activity.drama, of_dram));
    // The GPU sets its pace: of its time the trace says nothing, and nothing asks for it.
    let time = [1; 3];
    let step = StepPrediction {
        gpu: time,
        host: None,
        low: time[0],
        time: Some(time),
        confidence: None,
        smact,
        drama,
        runs: 0,
    };
    DryRun { step: Some(Box::new(step)), ..DryRun::default() }
}

impl Sim<'_> {
    fn learns(&self) -> bool {
        matches!(self.options.source, Source::History | Source::Combined) || self.options.knowledge.learns()
    }

    /// Returns true if an equal run ended before.
    pub(super) fn has_run(&self, index: u32) -> bool {
        let from = &self.trace[index as usize];
        let seen = self.known.programs.get(&program(from));
        seen.is_some_and(|seen| seen.runs.iter().any(|run| run.batch == from.batch))
    }

    /// The job as it is submitted.
    pub(super) fn submission(&mut self, index: u32) -> Job {
        let needs = self.needs(index);
        let from = &self.trace[index as usize];
        // Failures that the scheduler has forgotten are named, as the daemon does.
        let failed = |after: &Dependency| {
            let of = |job: &u64| self.results.get(usize::try_from(*job).ok()?);
            let is_failed = |job: &u64| of(job).is_some_and(|result| result.end.is_some() && !result.success);
            (after.first.0..=after.last.0).find(is_failed).map(JobId)
        };
        let after = from.after.iter().map(|after| Dependency { failed: failed(after), ..*after });
        Job {
            user: from.user,
            priority: from.priority,
            gpus: from.gpus,
            share: from.share,
            model: from.model.clone(),
            host: from.host,
            program: Some(interference::Program::named(&from.name)),
            time_limit: from.time_limit,
            submitted: from.arrival,
            preemption: Preemption { suspend: Err(SuspendRefusal::NoShim), ..self.preemption(index) },
            after: after.collect(),
            ..Job::new(JobId(index.into())).needing(&needs, self.state.settings().assumed)
        }
    }

    /// Resolves the needs of a trace's job from what is known now.
    fn needs(&self, index: u32) -> Needs {
        let trace = self.trace;
        let from = &trace[index as usize];
        // An equal run, as if it was measured before.
        let batch = from.batch;
        let equal = [PastRun {
            batch,
            peak: from.peak,
            ran: from.duration,
            activity: from.activity.map(SeenActivity::from),
            host: None,
            complete: true,
        }];
        let learned = match self.learns() {
            true => {
                self.known.runs(&program(from), &RunFilter::default()).unwrap_or_else(|never| match never {})
            }
            false => Cow::default(),
        };
        let learned = &*learned;
        let resolve = |job: &Features<'_>| self.known.resolver.resolve(job);
        // As a job's file gives them.
        let figures = |is_read: fn(&str) -> bool| -> BTreeMap<String, Bytes> {
            let all = from.estimates.iter().filter(|(name, bytes)| is_read(name) && **bytes != NO_NUMBER);
            all.map(|(name, bytes)| (name.clone(), *bytes)).collect()
        };
        let memory = match &self.options.source {
            // A share of a device with no memory of its own.
            Source::Measured if from.peak == Bytes::ZERO && from.share.is_some() => {
                resolve(&Features { declared: Some(Bytes::ZERO), ..Features::default() })
            }
            Source::Measured => resolve(&Features { runs: &equal, batch, ..Features::default() }),
            Source::Unknown => Needs::default(),
            Source::History => resolve(&Features { runs: learned, batch, ..Features::default() }),
            Source::Column(_) => resolve(&Features { file: Some(&from.estimates), ..Features::default() }),
            Source::Learned => {
                let file = figures(|name| name == TENSORS);
                resolve(&Features { file: Some(&file), batch, ..Features::default() })
            }
            Source::DryRun => {
                resolve(&Features { dry_run: from.dry_run.as_ref(), batch, ..Features::default() })
            }
            Source::Combined => resolve(&Features {
                declared: from.declared,
                runs: learned,
                dry_run: from.dry_run.as_ref(),
                file: Some(&figures(|_| true)),
                batch,
                user: Some(from.user),
                calibration: Some(&self.known.calibration),
                ..Features::default()
            }),
        };
        let other = match self.options.knowledge {
            Knowledge::All => resolve(&Features { runs: &equal, batch, ..Features::default() }),
            Knowledge::Learned => resolve(&Features { runs: learned, batch, ..Features::default() }),
            Knowledge::Predicted => {
                let dry_run = from.activity.map(|activity| predicted(&from.program, activity));
                let dry_run = dry_run.as_ref();
                resolve(&Features { runs: learned, batch, dry_run, ..Features::default() })
            }
            Knowledge::Nothing => Needs::default(),
        };
        Needs { memory: memory.memory, ..other }
    }

    /// A job waits, or does not any more.
    pub(super) fn waits(&mut self, index: u32, waits: bool) {
        if !self.learns() {
            return;
        }
        let trace = self.trace;
        let from = &trace[index as usize];
        let seen = self.known.programs.entry(program(from)).or_default();
        let waiting = seen.waiting.entry(from.batch).or_default();
        match waits {
            true => waiting.insert(index),
            false => waiting.remove(&index),
        };
    }

    /// An attempt is over. What it showed is known of all that wait before its devices are given away, as the daemon
    /// has it.
    pub(super) fn finish(&mut self, index: u32, attempt: u32, ran: Millis, outcome: Outcome) {
        let finished = Event::Finished { job: JobId(index.into()), attempt, outcome };
        let trace = self.trace;
        let from = &trace[index as usize];
        let row = match outcome {
            Outcome::Exited { code: 0 } => Some((from.peak, true)),
            Outcome::OutOfMemory { seen: Some(seen), evidence: Evidence::Shim, .. } => Some((seen, false)),
            _ => None,
        };
        // A run without GPUs shows no need of theirs.
        let Some((peak, complete)) = row.filter(|_| self.learns() && from.gpus > 0) else {
            return self.step(finished);
        };
        if let Some(need) = self.state.job(JobId(index.into())).and_then(|view| view.job.need) {
            self.known.calibration.observe(from.user, &need, peak, complete);
        }
        let seen = self.known.programs.entry(program(from)).or_default();
        let activity = from.activity.map(SeenActivity::from);
        let run = PastRun { batch: from.batch, peak, ran, activity, host: None, complete };
        seen.runs.insert(0, run);
        seen.runs.truncate(MAX_RUNS);
        self.step(Event::Paused { paused: true });
        self.step(finished);
        // The job itself needs more than it ran out of: that is known of it already.
        let others = self.known.news(&program(from)).into_iter().filter(|other| *other != index);
        for index in others.collect::<Vec<_>>() {
            let needs = self.needs(index);
            let Some(view) = self.state.job(JobId(index.into())) else { continue };
            let assumed = self.state.settings().assumed;
            Event::needs_known(&view.job, &needs, assumed).into_iter().for_each(|event| self.step(event));
        }
        self.step(Event::Paused { paused: false });
    }
}
