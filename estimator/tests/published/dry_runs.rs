//! Dry runs that were recorded for the programs of the thesis's traces, beside what these took at two sites.

use std::collections::{BTreeMap, BTreeSet};

use radrm_estimator::evaluate::Outcome;
use radrm_estimator::memory::{Known, MemoryModel};

use super::published::rows;

const MIB: f64 = 1_048_576.0;

/// Bounds of dry runs alone: against the peaks of 2024, and against those that were measured again in 2026.
pub fn outcomes() -> Option<[Vec<Outcome>; 2]> {
    let model = MemoryModel::shipped();
    let recorded = include_str!("../../../scheduler-core/tests/data/thesis_dry_runs.csv");
    let held: BTreeMap<&str, f64> = recorded.lines().skip(1).filter_map(row).collect();
    let later: BTreeMap<String, f64> = rows("workloads_a100/workloads.csv")?
        .iter()
        .filter(|row| row.text("gpu_label") != "gpu_b")
        .filter_map(|row| {
            let parts: Vec<&str> = row.text("workload").split('_').collect();
            let [model, data, batch, ..] = parts[..] else { return None };
            Some((format!("{model} {data} {batch}"), row.number("mem_peak_mib")))
        })
        .collect();
    let (mut seen, mut found) = (BTreeSet::new(), [Vec::new(), Vec::new()]);
    for trace in ["traces/thesis_60.csv", "traces/thesis_90.csv"] {
        for row in rows(trace)?.iter() {
            // The traces name versions that the later measurements leave out.
            let program = match row.text("model") {
                "efficientnet_b0" => "efficientnet",
                "mobilenet_v2" | "s_mobilenetv3" => "mobilenet",
                other => other,
            };
            let name = format!("{program} {} bs{}", row.text("dataset"), row.text("batch"));
            let Some(held) = held.get(row.text("rad")).filter(|_| seen.insert(name.clone())) else {
                continue;
            };
            let known = Known { dry_run: Some(held * MIB), ..Known::default() };
            let answer = model.estimate(&known, 1.0)?;
            let mut add = |site: usize, peak: f64| {
                let (estimate, bound) = (answer.value / MIB, answer.bound / MIB);
                found[site].push(Outcome { measured: peak, estimate, bound });
            };
            add(0, row.number("mem_mib"));
            later.get(&name).into_iter().for_each(|peak| add(1, *peak));
        }
    }
    Some(found)
}

fn row(line: &str) -> Option<(&str, f64)> {
    let fields: Vec<&str> = line.split(',').collect();
    Some((fields.first()?, fields.last()?.parse().ok()?))
}
