//! `radrm replay`: what policies would have done with the jobs of a trace.

mod chosen;
mod cli;
mod error;
mod events;
mod factors;
mod html;
pub(crate) mod input;
mod jobs_in;
mod jobs_out;
mod live;
mod outcome;
mod python;
mod scripts;
mod show;
mod why;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use radrm_launcher::report_file;
use radrm_scheduler_core::replay::{
    Cluster, Custom, Metrics, Mode, Model, Options, Report, Source, Trace, TraceJob, Watch, bounds, replay,
    replay_custom,
};
use radrm_scheduler_core::{Memory, PlanError, Planner, Policy, Settings, SharingMode, SpeedModel};

use crate::error::UsageError;
use crate::{Failure, print};

use chosen::Chosen;
pub use chosen::OwnPolicy;
pub(crate) use cli::Flags;
pub(crate) use error::ReplayError;
use outcome::{Outcome, Traced};
use python::{PythonPolicy, PythonPredictor};

/// Replays, and prints the metrics. `socket`: that of a live radrmd, if it is named.
pub(crate) fn run(order: &Flags, socket: Option<&Path>, own: Option<OwnPolicy<'_>>) -> Result<(), Failure> {
    order.check(own)?;
    if order.live {
        return live::run(order, socket);
    }
    if let Some(page) = &order.html {
        report_file::spares_profile(page).map_err(UsageError::Overwrites)?;
    }
    if let Some(file) = &order.jobs_out {
        file.check()?;
    }
    if let Some(log) = &order.events {
        return events::run(log, order.json);
    }
    let Done { traces, outcomes, model, devices, gpus } = replays(order, own)?;
    let order = &with_chance_of(&model, order);
    if let Some(path) = &order.html {
        let page = html::page(&traces, &outcomes, order, gpus);
        report_file::write(path, page)?;
    }
    if let Some(file) = &order.jobs_out {
        file.write(&traces, &outcomes)?;
    }
    let mut text = if order.json {
        show::json(&traces, &outcomes, order, &model)
    } else if order.interference.0.len() > 1 {
        factors::table(&traces, &outcomes, order, devices, gpus)
    } else {
        show::table(&traces, &outcomes, order, devices, gpus)
    };
    if !order.json {
        text.push_str(&why::text(&traces, &outcomes));
    }
    print(&text)
}

/// Metrics of each seed under the first policy that is named.
pub(crate) fn metrics(order: &Flags) -> Result<Vec<Metrics>, Failure> {
    order.check(None)?;
    let done = replays(order, None)?;
    Ok(done.outcomes.into_iter().next().map(|outcome| outcome.metrics).unwrap_or_default())
}

/// Replays of traces under policies.
struct Done {
    traces: Vec<Traced>,
    outcomes: Vec<Outcome>,
    model: Model,
    /// Number of devices, MIG instances included.
    devices: usize,
    /// Number of GPUs.
    gpus: usize,
}

fn replays(order: &Flags, own: Option<OwnPolicy<'_>>) -> Result<Done, Failure> {
    let cluster = input::cluster(&order.gpus, order.mode)?;
    let profiles = jobs_in::profiles(order.profiles.as_deref())?;
    let model = model(order)?;
    let order = &with_chance_of(&model, order);
    let gpus = cluster.devices.iter().filter(|device| device.parent.is_none()).count();
    let mut traces = Vec::new();
    for path in &order.traces {
        let Trace { jobs, left_out } = jobs_in::trace(path, order, &profiles, gpus)?;
        knows(&jobs, path, order)?;
        let capacity = model.mps.capacity;
        // No scheduler can run the others, so they are no part of what the best one would take.
        let can_run: Vec<TraceJob> = jobs.iter().filter(|job| cluster.holds(job)).cloned().collect();
        let bounds = bounds(&can_run, gpus, capacity, model.unknown);
        let never = jobs.len() - can_run.len();
        let followed = order.why.as_ref().map(|job| why::place(job, &jobs, path)).transpose()?;
        let (name, unknown) = (path.display().to_string(), model.unknown.smact);
        traces.push(Traced { name, jobs, left_out, bounds, unknown, never, followed });
    }
    let mut outcomes = Vec::new();
    let each = order.seeds.max(1);
    let all: usize = traces.iter().map(|trace| trace.jobs.len()).sum();
    let cases = order.policy.0.len() * order.interference.0.len();
    let bar = bar(all as u64 * each * cases as u64);
    for (number, trace) in traces.iter().enumerate() {
        for &factor in &order.interference.0 {
            for policy in &order.policy.0 {
                let settings = settings(policy, order)?;
                bar.set_message(policy.to_string());
                let model = Model { mps: model.mps.scaled(factor), ..model };
                let case = Case { trace, settings: &settings, cluster: &cluster, model, order, policy, own };
                let Replayed { metrics, first, calls } = case.replay(&bar)?;
                outcomes.push(Outcome {
                    trace: number,
                    factor,
                    policy: policy.clone(),
                    metrics,
                    first,
                    calls,
                });
            }
        }
    }
    bar.finish_and_clear();
    Ok(Done { traces, outcomes, model, devices: cluster.devices.len(), gpus })
}

/// A trace under a policy.
struct Case<'a> {
    trace: &'a Traced,
    settings: &'a Settings,
    cluster: &'a Cluster,
    model: Model,
    order: &'a Flags,
    policy: &'a Chosen,
    own: Option<OwnPolicy<'a>>,
}

/// Metrics of each seed, the report of the first replay, and the number of calls of functions in Python.
struct Replayed {
    metrics: Vec<Metrics>,
    first: Report,
    calls: u64,
}

impl Case<'_> {
    fn replay(&self, bar: &ProgressBar) -> Result<Replayed, Failure> {
        let order = self.order;
        let (mut metrics, mut first, mut calls) = (Vec::new(), None, 0);
        for seed in 0..order.seeds.max(1) {
            let options = Options {
                settings: self.settings.clone(),
                model: self.model,
                source: order.estimator.clone(),
                knowledge: order.known,
                seed: (order.seeds > 0).then_some(seed + 1),
                bars: (order.html.is_some() || order.jobs_out.is_some()) && seed == 0,
                follow: self.trace.followed.filter(|_| seed == 0),
                ..Options::default()
            };
            let mut watch = Shown { bar, before: bar.position() };
            let (report, more) = self.once(&options, &mut watch)?;
            calls += more;
            metrics.push(report.metrics());
            first.get_or_insert(report);
        }
        let first = first.unwrap_or_else(|| replay(&[], self.cluster, &Options::default(), &mut ()));
        Ok(Replayed { metrics, first, calls })
    }

    /// One replay, with a policy and a predictor that know nothing of another one.
    fn once(&self, options: &Options, watch: &mut Shown<'_>) -> Result<(Report, u64), ReplayError> {
        let (jobs, order) = (&self.trace.jobs, self.order);
        let limit = Duration::from_secs_f64(order.call_limit);
        let failed = |name: &dyn std::fmt::Display| {
            let name = name.to_string();
            move |why: PlanError| ReplayError::Custom { name, why }
        };
        let mut python = match self.policy {
            Chosen::Python(file) => {
                let started = PythonPolicy::start(file, jobs, limit);
                Some(started.map_err(|why| failed(&file.display())(why.into()))?)
            }
            Chosen::Named(_) | Chosen::Own => None,
        };
        let mut own = self.own.filter(|_| *self.policy == Chosen::Own).map(|own| own());
        let planner: Option<&mut dyn Planner> = match (&mut python, &mut own) {
            (Some(python), _) => Some(python),
            (None, Some(own)) => Some(&mut **own),
            (None, None) => None,
        };
        let file = order.predictor.as_ref().filter(|_| *self.policy == Chosen::Named(Policy::Aware));
        let predictor = file.map(|file| {
            let started = PythonPredictor::start(file, jobs, limit);
            started.map(Arc::new).map_err(|why| failed(&file.display())(why.into()))
        });
        let predictor = predictor.transpose()?;
        let speeds = predictor.clone().map(|predictor| predictor as Arc<dyn SpeedModel>);
        let report = replay_custom(jobs, self.cluster, options, Custom { planner, speeds }, watch);
        let report = report.map_err(|why| match file {
            Some(file) => failed(&file.display())(why),
            None => failed(self.policy)(why),
        })?;
        let calls = python.map_or(0, |python| python.calls()) + predictor.map_or(0, |own| own.calls());
        Ok((report, calls))
    }
}

/// A policy's settings: as published, or this project's own, with what the command line changes.
fn settings(policy: &Chosen, order: &Flags) -> Result<Settings, Failure> {
    let Some(policy) = policy.named() else { return Ok(Settings::planned()) };
    let mut settings = match (order.preset, policy, &order.settings) {
        (Some(preset), policy, _) if policy != Policy::Aware => preset.settings(policy),
        (_, Policy::Aware, Some(path)) => input::toml(path)?,
        (_, Policy::Aware, None) => Settings::default(),
        _ => Settings::published(policy),
    };
    // With needs that are measured round-robin checks whether a job fits; without, it checks nothing.
    if policy == Policy::RoundRobin && order.estimator != Source::Unknown {
        settings.memory = Memory::Observed;
        settings.preconditions.smact = Settings::published(Policy::Magm).preconditions.smact;
    }
    if order.mode == Mode::Streams {
        settings.sharing.get_or_insert(SharingMode::TimeSlices);
    }
    if policy != Policy::Exclusive {
        if let Some(cli::Smact(smact)) = order.smact {
            settings.preconditions.smact = smact;
        }
        settings.preconditions.min_free = order.min_free.unwrap_or(settings.preconditions.min_free);
        settings.preconditions.margin = order.margin.unwrap_or(settings.preconditions.margin);
    }
    Ok(settings)
}

fn model(order: &Flags) -> Result<Model, Failure> {
    let mut model: Model = order.model.as_deref().map_or_else(|| Ok(Model::default()), input::toml)?;
    // Of cluster traces only run times are known: no memory that ramps up, no start to wait for.
    if order.model.is_none() && order.traces.iter().all(|trace| !is_of_trainings(trace, order)) {
        model = model.plain();
    }
    model.mode = order.mode;
    model.scatter = order.scatter.unwrap_or(model.scatter);
    Ok(model)
}

/// The order with as many replays as can differ: one where the model has no chance.
fn with_chance_of(model: &Model, order: &Flags) -> Flags {
    let seeds = if model.has_chance() { order.seeds } else { 0 };
    Flags { seeds, ..order.clone() }
}

/// Returns true if a trace states the memory of its jobs: one of the thesis, or a script of `.rad` files.
fn is_of_trainings(path: &Path, order: &Flags) -> bool {
    input::beginning(path).contains("arrival_s") || jobs_in::is_script(path, order)
}

/// Checks that the trace has the estimator that was asked for.
fn knows(jobs: &[TraceJob], path: &Path, order: &Flags) -> Result<(), Failure> {
    let has = |name: &str| jobs.iter().any(|job| job.estimates.contains_key(name));
    let name = match &order.estimator {
        Source::DryRun if jobs.iter().all(|job| job.dry_run.is_none()) => {
            return Err(ReplayError::NothingRecorded { trace: path.into(), what: "dry runs" }.into());
        }
        Source::Learned if !has("faketensor") => {
            let what = "FakeTensor figures, which the learned model reads";
            return Err(ReplayError::NothingRecorded { trace: path.into(), what }.into());
        }
        Source::Column(name) if !has(name) => name,
        _ => return Ok(()),
    };
    let has: std::collections::BTreeSet<&str> =
        jobs.iter().flat_map(|job| job.estimates.keys().map(String::as_str)).collect();
    let has: Vec<&str> = cli::SOURCES.iter().map(|(name, _)| *name).chain(has).collect();
    Err(ReplayError::NoEstimates { trace: path.into(), name: name.clone(), known: has.join(", ") }.into())
}

/// A progress bar on a terminal; it shows itself only if the work is long.
fn bar(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) =
        ProgressStyle::with_template("{msg:12} [{bar:40}] {human_pos}/{human_len} jobs, {eta} left")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

struct Shown<'a> {
    bar: &'a ProgressBar,
    before: u64,
}

impl Watch for Shown<'_> {
    fn ended(&mut self, jobs: usize) {
        self.bar.set_position(self.before + jobs as u64);
    }
}
