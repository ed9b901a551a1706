//! Comparison of runs: differences, their size, and a test against noise.

mod metrics;
mod noise;

use crate::model::Summary;
use crate::model::stacks::{Flame, FlameDifference, LineDifference};
use noise::Verdict;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub use metrics::Unit;

/// Runs before and after a change, compared. This is also the JSON form: the fields are its keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this form; it rises when a key is renamed, removed or changes its meaning.
    pub schema: u32,
    /// Runs before.
    pub before: usize,
    /// Runs after.
    pub after: usize,
    /// Warnings about runs that are not alike.
    pub notes: Vec<String>,
    /// Every figure that is known of both sides.
    pub figures: Vec<Difference>,
    /// Kernels that changed, those with the largest change first.
    pub kernels: Vec<KernelDifference>,
    /// Lines that hold more or less at the peak, by program and GPU, those with the largest change first; empty where call
    /// stacks are not recorded on both sides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineDifference>,
    /// The stacks of these lines, and of those that hold the same.
    #[serde(skip)]
    pub flames: Vec<FlameDifference>,
}

/// One figure before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Stable name, such as `gpu0.peak_bytes`.
    pub name: String,
    /// Name for people.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Mean of the runs before.
    pub before: f64,
    /// Mean of the runs after.
    pub after: f64,
    /// `after - before`.
    pub change: f64,
    /// The change as a share of `before`; null if that is zero.
    pub change_share: Option<f64>,
    /// `same`, `real` (more than noise at 99 %), `noise` (may be noise) or `unknown` (one run on each
    /// side: noise is unknown).
    pub verdict: &'static str,
    /// Half the width of the 99 % interval of the change, where noise is known.
    pub half_width: Option<f64>,
}

/// One kernel before and after, in the mean of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelDifference {
    /// Name in the source language, without parameters.
    pub name: String,
    /// Launches before, in graphs included.
    pub launches_before: f64,
    /// Launches after.
    pub launches_after: f64,
    /// Time on the GPU before, ns; null if it was not measured.
    pub gpu_time_before_ns: Option<f64>,
    /// Time on the GPU after, ns.
    pub gpu_time_after_ns: Option<f64>,
    /// True if the two times differ by more than noise; null if that is not known.
    /// Noise is their confidence intervals and the runs' spread.
    pub time_differs: Option<bool>,
}

/// Version of [`Comparison`].
const SCHEMA: u32 = 1;

impl Comparison {
    /// Compares runs; at least one on each side.
    pub fn of(before: &[Summary], after: &[Summary]) -> Comparison {
        let collect = |runs: &[Summary]| {
            let mut values: BTreeMap<metrics::Key, Vec<f64>> = BTreeMap::new();
            for run in runs {
                for (key, value) in metrics::of(run) {
                    values.entry(key).or_default().push(value);
                }
            }
            values
        };
        let (old, mut new) = (collect(before), collect(after));
        let figures = old.into_iter().filter_map(|(key, old)| {
            let new = new.remove(&key)?;
            Some(difference(key, &old, &new))
        });
        Comparison {
            schema: SCHEMA,
            before: before.len(),
            after: after.len(),
            notes: notes(before, after),
            figures: figures.collect(),
            kernels: kernels(before, after),
            lines: Vec::new(),
            flames: Vec::new(),
        }
    }

    /// The same with the call stacks at the peak of the runs; `None` where they were not recorded.
    #[must_use]
    pub fn with_stacks(mut self, before: &[Option<Vec<Flame>>], after: &[Option<Vec<Flame>>]) -> Comparison {
        let recorded =
            |runs: &[Option<Vec<Flame>>]| -> Vec<Vec<Flame>> { runs.iter().flatten().cloned().collect() };
        let (old, new) = (recorded(before), recorded(after));
        if old.is_empty() && new.is_empty() {
            return self;
        }
        for (side, all, found) in [("before", before, &old), ("after", after, &new)] {
            if found.len() < all.len() {
                let (all, without) = (all.len(), all.len() - found.len());
                self.notes.push(format!("{without} of {all} runs {side} did not record call stacks"));
            }
        }
        if !old.is_empty() && !new.is_empty() {
            self.flames = FlameDifference::all(&old, &new);
            self.lines = self.flames.iter().flat_map(FlameDifference::lines).collect();
        }
        self
    }
}

fn difference(key: metrics::Key, old: &[f64], new: &[f64]) -> Difference {
    let (before, after) = (noise::mean(old), noise::mean(new));
    let change = after - before;
    let (verdict, half_width) = match noise::verdict(old, new) {
        Verdict::Same => ("same", Some(0.0)),
        Verdict::Unknown => ("unknown", None),
        Verdict::Real(half) => ("real", Some(half)),
        Verdict::Noise(half) => ("noise", Some(half)),
    };
    Difference {
        change_share: (before != 0.0).then(|| change / before),
        name: key.name(),
        label: key.label(),
        unit: key.unit(),
        before,
        after,
        change,
        verdict,
        half_width,
    }
}

/// Differences in setup between the runs of the two sides, and limits of the comparison, a clause each.
fn notes(before: &[Summary], after: &[Summary]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differ = |what: &str, of: &dyn Fn(&Summary) -> String| {
        let values = |runs: &[Summary]| runs.iter().map(of).collect::<BTreeSet<String>>();
        let (old, new) = (values(before), values(after));
        if old != new {
            let list = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(" | ");
            notes.push(format!("{what}: {} -> {}", list(old), list(new)));
        }
    };
    differ("the command differs", &|s| s.command_line().to_string());
    differ("the program's file differs (SHA-256)", &|s| {
        s.job.program_sha256.as_ref().map_or("unknown".into(), |digest| digest.chars().take(12).collect())
    });
    differ("the GPUs differ", &|s| s.gpus.iter().map(|gpu| gpu.name.clone()).collect::<Vec<_>>().join(" + "));
    differ("the drivers differ", &|s| {
        let versions: BTreeSet<_> = s.gpus.iter().filter_map(|gpu| gpu.driver_version.clone()).collect();
        versions.into_iter().collect::<Vec<_>>().join(", ")
    });
    differ("the host differs", &|s| s.job.host.to_string());
    differ("the emulated machine differs", &|s| s.emulated.clone().unwrap_or_else(|| "none".into()));
    differ("the end differs", &|s| s.outcome.word());
    differ("the kind of run differs", &|s| {
        if s.dry_run.is_some() { "a dry run, in which nothing was computed".into() } else { "a run".into() }
    });
    let predicts = |run: &Summary| run.dry_run.as_ref().is_some_and(|dry_run| dry_run.step.is_some());
    let are_predicted = [before, after].iter().all(|runs| runs.iter().any(predicts));
    let all_dry_runs = before.iter().chain(after).all(|run| run.dry_run.is_some());
    if all_dry_runs {
        differ("the bound differs", &|s| {
            let why = s.dry_run.as_ref().and_then(|dry_run| dry_run.figures.no_bound());
            why.map_or_else(|| "there is one".into(), |why| format!("none, as {why}"))
        });
    }
    for card in cards(before, after) {
        differ(&format!("whether it fits on {card} differs"), &|s| {
            let fits = s.dry_run.iter().flat_map(|dry_run| &dry_run.fits);
            fits.into_iter()
                .find(|fit| fit.card == card)
                .map_or("not tried", |fit| fit.verdict.word())
                .to_owned()
        });
    }
    if are_predicted {
        notes.push(
            "predicted times are no measurements: on one card their errors have one sign, so that a ratio is surer than a time"
                .to_owned(),
        );
    }
    for (side, runs) in [("before", before), ("after", after)] {
        let bounds = runs.iter().flat_map(|run| &run.gpus).any(|gpu| !gpu.peak_exact);
        if bounds {
            notes.push(format!("peaks {side} are upper bounds: several processes were busy at once"));
        }
        notes.extend(unrecorded(side, runs));
    }
    notes
}

/// Cards on which dry runs of both sides have a verdict.
fn cards(before: &[Summary], after: &[Summary]) -> BTreeSet<String> {
    let of = |runs: &[Summary]| -> BTreeSet<String> {
        let dry_runs = runs.iter().filter_map(|run| run.dry_run.as_ref());
        dry_runs.flat_map(|dry_run| &dry_run.fits).map(|fit| fit.card.clone()).collect()
    };
    &of(before) & &of(after)
}

/// Warning about launches, kernels and copies of one side that cannot be compared; `None` if all can be.
fn unrecorded(side: &str, runs: &[Summary]) -> Option<String> {
    let without = runs.iter().filter(|run| !run.has_all_kernels()).count();
    match without {
        0 => None,
        _ if without == runs.len() => Some(format!(
            "launches, kernels and copies are not compared: {side} they were not recorded (--kernels off)"
        )),
        _ => Some(format!(
            "{without} of {} runs {side} did not record launches, kernels and copies (--kernels off): of these the \
             others are compared",
            runs.len()
        )),
    }
}

/// Sums over the runs of one side.
#[derive(Clone, Default)]
struct Times {
    launches: f64,
    times: Vec<f64>,
    squares: f64,
}

fn kernels(before: &[Summary], after: &[Summary]) -> Vec<KernelDifference> {
    // A kernel that was not recorded is not a kernel that is gone.
    let recorded = |runs: &[Summary]| runs.iter().filter(|run| run.has_all_kernels()).count();
    let (old_runs, new_runs) = (recorded(before), recorded(after));
    if old_runs == 0 || new_runs == 0 {
        return Vec::new();
    }
    let mut names: BTreeMap<&str, (&str, Times, Times)> = BTreeMap::new();
    let runs = before.iter().map(|run| (false, run)).chain(after.iter().map(|run| (true, run)));
    for (is_after, run) in runs.filter(|(_, run)| run.has_all_kernels()) {
        for kernel in &run.kernels {
            let entry = names
                .entry(&kernel.mangled_name)
                .or_insert_with(|| (&kernel.short_name, Times::default(), Times::default()));
            let times = if is_after { &mut entry.2 } else { &mut entry.1 };
            times.launches += kernel.launches.saturating_add(kernel.graph_launches) as f64;
            if let Some(time) = kernel.gpu_time {
                times.times.push(time.total_ns.0 as f64);
                times.squares += (time.half_width_ns.0 as f64).powi(2);
            }
        }
    }
    let (old_runs, new_runs) = (old_runs as f64, new_runs as f64);
    let mut kernels: Vec<KernelDifference> = names
        .into_values()
        .map(|(name, old, new)| {
            let mean = |times: &Times| (!times.times.is_empty()).then(|| noise::mean(&times.times));
            KernelDifference {
                name: name.to_owned(),
                launches_before: old.launches / old_runs,
                launches_after: new.launches / new_runs,
                gpu_time_before_ns: mean(&old),
                gpu_time_after_ns: mean(&new),
                time_differs: differs(&old, &new),
            }
        })
        .filter(|kernel| kernel.launches_before != kernel.launches_after || kernel.time_differs == Some(true))
        .collect();
    // By time where it is known of both, else by launches: both are "how much of the run".
    let weight = |kernel: &KernelDifference| match (kernel.gpu_time_before_ns, kernel.gpu_time_after_ns) {
        (None, None) => (0.0, (kernel.launches_after - kernel.launches_before).abs()),
        (old, new) => (
            (new.unwrap_or(0.0) - old.unwrap_or(0.0)).abs(),
            (kernel.launches_after - kernel.launches_before).abs(),
        ),
    };
    kernels.sort_by(|a, b| {
        let (a, b) = (weight(a), weight(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    kernels
}

/// Returns true if two estimated times differ by more than the intervals of their samples.
/// With several runs they must also differ by more than the runs' own spread. `None` if one side has no times.
fn differs(old: &Times, new: &Times) -> Option<bool> {
    if old.times.is_empty() || new.times.is_empty() {
        return None;
    }
    let change = noise::mean(&new.times) - noise::mean(&old.times);
    let half = |times: &Times| times.squares.sqrt() / times.times.len() as f64;
    let by_samples = change.abs() > (half(old).powi(2) + half(new).powi(2)).sqrt();
    Some(by_samples && !matches!(noise::verdict(&old.times, &new.times), Verdict::Noise(_) | Verdict::Same))
}

#[cfg(test)]
mod tests {
    use radrm_profile::model::dry_run::DryRunFigures;
    use radrm_profile::model::{Job, Profile};

    use super::*;

    #[test]
    fn a_run_beside_a_dry_run_is_noted() {
        let run = Profile::new(Job::default());
        let dry = Profile { dry_run: Some(DryRunFigures::default()), ..run.clone() };
        let [run, dry] = [run, dry].map(|profile| [Summary::from_profile(&profile)]);
        let note = "the kind of run differs: a run -> a dry run, in which nothing was computed".to_owned();
        assert!(notes(&run, &dry).contains(&note), "{:?}", notes(&run, &dry));
        assert!(notes(&dry, &dry).iter().all(|note| !note.contains("kind of run")));
    }
}
