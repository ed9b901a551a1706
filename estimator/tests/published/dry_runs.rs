//! Dry runs that were recorded for the programs of the thesis's traces, beside what these took at two sites.

use std::collections::{BTreeMap, BTreeSet};

use radrm_base::ProgramKind;
use radrm_estimator::evaluate::Outcome;
use radrm_estimator::memory::{DryRunFigure, DryRuns, Known, MemoryModel};

use super::published::rows;

const MIB: f64 = 1_048_576.0;

/// A program of the thesis's traces.
struct Program {
    /// Model, data and batch size.
    name: String,
    /// Its architecture.
    family: String,
    /// Its dry run.
    dry_run: DryRunFigure,
    /// Measured peaks of 2024 and, if it was measured again, of 2026, MiB.
    peaks: [Option<f64>; 2],
}

fn programs() -> Option<Vec<Program>> {
    let recorded = include_str!("../../../scheduler-core/tests/data/thesis_dry_runs.csv");
    let dry_runs: BTreeMap<&str, DryRunFigure> = recorded.lines().skip(1).filter_map(row).collect();
    let later: BTreeMap<String, f64> = rows("workloads_a100/workloads.csv")?
        .iter()
        .filter(|row| row.text("gpu_label") != "gpu_b")
        .filter_map(|row| {
            let parts: Vec<&str> = row.text("workload").split('_').collect();
            let [model, data, batch, ..] = parts[..] else { return None };
            Some((format!("{model} {data} {batch}"), row.number("mem_peak_mib")))
        })
        .collect();
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for trace in ["traces/thesis_60.csv", "traces/thesis_90.csv"] {
        for row in rows(trace)?.iter() {
            // The traces name versions that the later measurements leave out.
            let program = match row.text("model") {
                "efficientnet_b0" => "efficientnet",
                "mobilenet_v2" | "s_mobilenetv3" => "mobilenet",
                other => other,
            };
            let name = format!("{program} {} bs{}", row.text("dataset"), row.text("batch"));
            let Some(dry_run) = dry_runs.get(row.text("rad")).filter(|_| seen.insert(name.clone())) else {
                continue;
            };
            let family = program.split('_').next().unwrap_or(program);
            found.push(Program {
                family: family.trim_end_matches(|it: char| it.is_ascii_digit()).to_owned(),
                dry_run: *dry_run,
                peaks: [Some(row.number("mem_mib")), later.get(&name).copied()],
                name,
            });
        }
    }
    Some(found)
}

/// Estimates and bounds for a program, after the runs here, beside what it took.
fn outcome(dry_run: DryRunFigure, measured: f64, here: &DryRuns) -> Option<Outcome> {
    let known = Known { dry_run: Some(dry_run), here: Some(here), ..Known::default() };
    let answer = MemoryModel::shipped().estimate(&known, 1.0)?;
    Some(Outcome { measured, estimate: answer.value / MIB, bound: answer.bound / MIB })
}

/// Bounds of dry runs alone: against the peaks of 2024, and against those that were measured again in 2026.
pub fn outcomes() -> Option<[Vec<Outcome>; 2]> {
    let all = programs()?;
    let none = DryRuns::default();
    Some([0, 1].map(|site| {
        all.iter().filter_map(|program| outcome(program.dry_run, program.peaks[site]?, &none)).collect()
    }))
}

/// The same programs when others have run at the site: half of the families, or up to so many programs of these, of 200 orders;
/// those orders in which enough have run, as a number of programs.
pub fn corrected(most: usize, enough: usize) -> Option<[Vec<Outcome>; 2]> {
    let of_site = |found: Vec<(&str, Outcome)>| found.into_iter().map(|(_, outcome)| outcome).collect();
    Some(scored(&programs()?, most, enough).map(of_site))
}

/// Of each program of these families at each site the relative error when half of the other families have run there: its mean
/// over the orders.
pub fn errors_of(families: &[&str]) -> Option<Vec<(String, f64)>> {
    let all = programs()?;
    let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (site, found) in ["2024", "2026"].into_iter().zip(scored(&all, usize::MAX, DryRuns::ENOUGH)) {
        for (name, outcome) in found {
            if families.iter().any(|family| name.starts_with(family)) {
                let error = outcome.estimate / outcome.measured - 1.0;
                errors.entry(format!("{site} {name}")).or_default().push(error);
            }
        }
    }
    let mean = |errors: Vec<f64>| errors.iter().sum::<f64>() / errors.len() as f64;
    Some(errors.into_iter().map(|(name, errors)| (name, mean(errors))).collect())
}

fn scored(all: &[Program], most: usize, enough: usize) -> [Vec<(&str, Outcome)>; 2] {
    const ORDERS: u64 = 200;
    let families: BTreeSet<&str> = all.iter().map(|program| program.family.as_str()).collect();
    let mut found = [Vec::new(), Vec::new()];
    for order in 0..ORDERS {
        let mut next = numbers(order);
        let mut shuffled: Vec<(u64, &str)> = families.iter().map(|family| (next(), *family)).collect();
        shuffled.sort_unstable();
        let (ran, _) = shuffled.split_at(shuffled.len() / 2);
        let has_run = |program: &Program| ran.iter().any(|(_, family)| *family == program.family);
        for (site, found) in found.iter_mut().enumerate() {
            let mut known: Vec<(u64, (DryRunFigure, f64))> = all
                .iter()
                .filter(|program| has_run(program))
                .filter_map(|program| Some((next(), (program.dry_run, program.peaks[site]?))))
                .collect();
            known.sort_unstable_by_key(|(at, _)| *at);
            if known.len() < enough {
                continue;
            }
            let mut here = DryRuns::default();
            known.iter().take(most).for_each(|(_, (dry, peak))| here.observe(*dry, peak * MIB));
            let others = all.iter().filter(|program| !has_run(program));
            let score = |program: &Program| outcome(program.dry_run, program.peaks[site]?, &here);
            found.extend(others.filter_map(|program| Some((program.name.as_str(), score(program)?))));
        }
    }
    found
}

fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// A line of `rad,model,batch,options,kind,dry_run_mib`.
fn row(line: &str) -> Option<(&str, DryRunFigure)> {
    let [rad, _, _, _, kind, held] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
    Some((rad, DryRunFigure { held: held.parse::<f64>().ok()? * MIB, kind: ProgramKind::parse(kind) }))
}
