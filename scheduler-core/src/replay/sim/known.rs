//! What is known of a job before it runs: rows of earlier runs, and the need that follows from them by the resolver that
//! the daemon has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use radrm_base::PastRun;

use super::{Knowledge, Sim, Source};
use crate::event::Event;
use crate::interference;
use crate::job::{Dependency, Job, JobId, Preemption, SuspendRefusal, UserId};
use crate::need::{Calibration, Features, History, MAX_RUNS, NamedEstimate, NeedResolver, Needs};
use crate::outcome::{Evidence, Outcome};
use crate::replay::trace::TraceJob;
use crate::units::{Bytes, Millis};

/// A program: jobs of one name and user on as many devices, as the daemon tells programs apart.
type Program<'a> = (UserId, &'a str, u16);

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
    runs: VecDeque<PastRun>,
    waiting: BTreeSet<u32>,
    /// What followed from them when those that wait were given it last.
    given: Needs,
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
        let runs = &*seen.runs.make_contiguous();
        let calibration = Some(&self.calibration);
        let needs = self.resolver.resolve(&Features { runs, calibration, ..Features::default() });
        if seen.given == needs {
            return Vec::new();
        }
        seen.given = needs;
        seen.waiting.iter().copied().collect()
    }
}

fn program(job: &TraceJob) -> Program<'_> {
    (job.user, &job.name, job.gpus)
}

impl Sim<'_> {
    fn learns(&self) -> bool {
        matches!(self.options.source, Source::History | Source::Submitted)
            || self.options.knowledge == Knowledge::Learned
    }

    /// Whether a run of its program ended before.
    pub(super) fn has_run(&self, index: u32) -> bool {
        let seen = self.known.programs.get(&program(&self.trace[index as usize]));
        seen.is_some_and(|seen| !seen.runs.is_empty())
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
        let job = Job {
            user: from.user,
            priority: from.priority,
            gpus: from.gpus,
            share: from.share,
            model: from.model.clone(),
            host: from.host,
            program: Some(interference::Program::named(&from.name)),
            time_limit: from.time_limit,
            submitted: from.arrival,
            preemption: Preemption { suspend: Err(SuspendRefusal::NoShim), ..from.preemption },
            after: after.collect(),
            ..Job::new(JobId(index.into()))
        };
        needs.of(job)
    }

    /// What is known of a trace's job now.
    fn needs(&mut self, index: u32) -> Needs {
        let trace = self.trace;
        let from = &trace[index as usize];
        // An equal run, as if it was measured before.
        let equal = [PastRun {
            batch: None,
            peak: from.peak,
            ran: from.duration,
            activity: from.activity,
            complete: true,
        }];
        let learned: &[PastRun] = match self.learns() {
            true => {
                let seen = self.known.programs.get_mut(&program(from));
                seen.map_or(&[], |seen| &*seen.runs.make_contiguous())
            }
            false => &[],
        };
        let resolve = |job: &Features<'_>| self.known.resolver.resolve(job);
        if self.options.source == Source::Submitted {
            return resolve(&Features {
                declared: from.declared,
                runs: learned,
                dry_run: from.dry_run.as_ref(),
                file: Some(&from.estimates),
                user: Some(from.user),
                calibration: Some(&self.known.calibration),
                ..Features::default()
            });
        }
        let memory = match &self.options.source {
            // A share of a device with no memory of its own.
            Source::Measured if from.peak == Bytes::ZERO && from.share.is_some() => {
                resolve(&Features { declared: Some(Bytes::ZERO), ..Features::default() })
            }
            Source::Measured => resolve(&Features { runs: &equal, ..Features::default() }),
            Source::Unknown | Source::Submitted => Needs::default(),
            Source::History => resolve(&Features { runs: learned, ..Features::default() }),
            Source::Column(_) => resolve(&Features { file: Some(&from.estimates), ..Features::default() }),
        };
        let other = match self.options.knowledge {
            Knowledge::All => resolve(&Features { runs: &equal, ..Features::default() }),
            Knowledge::Learned => resolve(&Features { runs: learned, ..Features::default() }),
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
        let seen = self.known.programs.entry(program(&trace[index as usize])).or_default();
        match waits {
            true => seen.waiting.insert(index),
            false => seen.waiting.remove(&index),
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
            Outcome::OutOfMemory { seen, evidence: Evidence::Shim, .. } => Some((seen, false)),
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
        seen.runs.push_front(PastRun { batch: None, peak, ran, activity: from.activity, complete });
        seen.runs.truncate(MAX_RUNS);
        self.step(Event::Paused { paused: true });
        self.step(finished);
        // The job itself needs more than it ran out of: that is known of it already.
        let others = self.known.news(&program(from)).into_iter().filter(|other| *other != index);
        for index in others.collect::<Vec<_>>() {
            let needs = self.needs(index);
            let Some(view) = self.state.job(JobId(index.into())) else { continue };
            Event::needs_known(&view.job, &needs).into_iter().for_each(|event| self.step(event));
        }
        self.step(Event::Paused { paused: false });
    }
}
