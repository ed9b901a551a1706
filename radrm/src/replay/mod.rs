//! `radrm replay`: what policies would have done with the jobs of a trace.

mod cli;
mod error;
mod events;
mod factors;
mod html;
pub(crate) mod input;
mod live;
mod outcome;
mod show;

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use radrm_launcher::report_file;
use radrm_scheduler_core::replay::{
    Cluster, Metrics, Mode, Model, Options, Report, Source, Trace, TraceJob, Watch, bounds, replay,
};
use radrm_scheduler_core::{Memory, Policy, Settings, SharingMode};

use crate::error::UsageError;
use crate::{Failure, print};

pub(crate) use cli::Flags;
pub(crate) use error::ReplayError;
use outcome::{Outcome, Traced};

/// Replays, and prints the metrics. `socket`: that of a live radrmd, if it is named.
pub(crate) fn run(order: &Flags, socket: Option<&Path>) -> Result<(), Failure> {
    order.check()?;
    if order.live {
        return live::run(order, socket);
    }
    if let Some(page) = &order.html {
        report_file::spares_profile(page).map_err(UsageError::Overwrites)?;
    }
    if let Some(log) = &order.events {
        return events::run(log, order.json);
    }
    let cluster = input::cluster(&order.gpus, order.mode)?;
    let profiles = input::profiles(order.profiles.as_deref())?;
    let model = model(order)?;
    let gpus = cluster.devices.iter().filter(|device| device.parent.is_none()).count();
    let mut traces = Vec::new();
    for path in &order.traces {
        let Trace { jobs, left_out } = input::trace(path, order, &profiles, gpus)?;
        knows(&jobs, path, order)?;
        let capacity = model.mps.capacity;
        // No scheduler can run the others, so they are no part of what the best one would take.
        let can_run: Vec<TraceJob> = jobs.iter().filter(|job| cluster.holds(job)).cloned().collect();
        let bounds = bounds(&can_run, gpus, capacity, model.unknown);
        let never = jobs.len() - can_run.len();
        traces.push(Traced { name: path.display().to_string(), jobs, left_out, bounds, never });
    }
    let mut outcomes = Vec::new();
    let each = order.seeds.max(1);
    let all: usize = traces.iter().map(|trace| trace.jobs.len()).sum();
    let cases = order.policy.0.len() * order.interference.0.len();
    let bar = bar(all as u64 * each * cases as u64);
    for (number, trace) in traces.iter().enumerate() {
        for &factor in &order.interference.0 {
            for &policy in &order.policy.0 {
                let settings = settings(policy, order)?;
                bar.set_message(policy.name());
                let model = Model { mps: model.mps.scaled(factor), ..model };
                let (metrics, first) = one(trace, &settings, &cluster, model, order, &bar);
                outcomes.push(Outcome { trace: number, factor, policy, metrics, first });
            }
        }
    }
    bar.finish_and_clear();
    if let Some(path) = &order.html {
        let page = html::page(&traces, &outcomes, order, gpus);
        report_file::write(path, page)?;
    }
    let text = if order.json {
        show::json(&traces, &outcomes, order, &model)
    } else if order.interference.0.len() > 1 {
        factors::table(&traces, &outcomes, order, cluster.devices.len(), gpus)
    } else {
        show::table(&traces, &outcomes, order, cluster.devices.len(), gpus)
    };
    print(&text)
}

/// Metrics of each seed, and the report of the first replay.
fn one(
    trace: &Traced,
    settings: &Settings,
    cluster: &Cluster,
    model: Model,
    order: &Flags,
    bar: &ProgressBar,
) -> (Vec<Metrics>, Report) {
    let mut metrics = Vec::new();
    let mut first = None;
    for seed in 0..order.seeds.max(1) {
        let options = Options {
            settings: settings.clone(),
            model,
            source: order.estimator.clone(),
            knowledge: order.known,
            seed: (order.seeds > 0).then_some(seed + 1),
            bars: order.html.is_some() && seed == 0,
            ..Options::default()
        };
        let mut watch = Shown { bar, before: bar.position() };
        let report = replay(&trace.jobs, cluster, &options, &mut watch);
        metrics.push(report.metrics());
        if first.is_none() {
            first = Some(report);
        }
    }
    let first = first.unwrap_or_else(|| replay(&[], cluster, &Options::default(), &mut ()));
    (metrics, first)
}

/// A policy's settings: as published, or this project's own, with what the command line changes.
fn settings(policy: Policy, order: &Flags) -> Result<Settings, Failure> {
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
    if order.model.is_none() && order.traces.iter().all(|trace| !is_thesis(trace)) {
        model = model.plain();
    }
    model.mode = order.mode;
    model.scatter = order.scatter.unwrap_or(model.scatter);
    Ok(model)
}

fn is_thesis(path: &Path) -> bool {
    input::beginning(path).contains("arrival_s")
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
