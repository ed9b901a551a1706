//! A site that nothing was learned from: bounds from TIMM runs of 2024, and a stream of jobs measured in 2026.

use std::collections::{BTreeMap, BTreeSet};

use radrm_estimator::calibrate::{Adaptive, margin, score};
use radrm_estimator::evaluate::{Outcome, Scores};
use radrm_estimator::memory::Line;

use super::published::{Timm, rows, shuffled};

const LEVEL: f64 = 0.95;

/// Jobs of the traces with FakeTensor's figure, and their peaks when they were measured again in 2026; MiB.
fn jobs() -> Option<Vec<(f64, f64)>> {
    let mut peaks: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows("workloads_a100/workloads.csv")?.iter().filter(|row| row.text("gpus") == "1") {
        let parts: Vec<&str> = row.text("workload").split('_').collect();
        if let [model, data, batch, ..] = parts[..] {
            peaks.insert(format!("{model} {data} {batch}"), row.number("mem_peak_mib"));
        }
    }
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut jobs = Vec::new();
    for trace in ["traces/thesis_60.csv", "traces/thesis_90.csv"] {
        for row in rows(trace)?.iter().filter(|row| row.text("n_gpus") == "1") {
            // The traces name versions that the measurements leave out.
            let model = match row.text("model") {
                "efficientnet_b0" => "efficientnet",
                "mobilenet_v2" | "s_mobilenetv3" => "mobilenet",
                other => other,
            };
            let name = format!("{model} {} bs{}", row.text("dataset"), row.text("batch"));
            let dry = row.number("est_faketensor_mib");
            // 40,000 stands for no figure.
            if let Some(peak) = peaks.get(&name).filter(|_| dry < 40_000.0)
                && found.insert(format!("{} {name}", row.text("model")))
            {
                jobs.push((dry, *peak));
            }
        }
    }
    Some(jobs)
}

/// Scores of the first ten jobs and of later ones over many orders: as shipped, and adapted to what has ended.
pub fn evaluate(programs: &[Vec<Timm>]) -> Option<[[Scores; 2]; 2]> {
    let jobs = jobs()?;
    let pairs: Vec<Vec<(f64, f64)>> =
        programs.iter().map(|runs| runs.iter().map(|run| (run.total, run.peak)).collect()).collect();
    let line = Line::learn(&pairs)?;
    let shipped: Vec<f64> =
        pairs.iter().flatten().map(|(dry, peak)| score(*peak, line.estimate(*dry, &[]))).collect();
    let fixed = margin(&shipped, LEVEL)?;
    let mut outcomes: [[Vec<Outcome>; 2]; 2] = Default::default();
    for seed in 0..200 {
        let mut adaptive = Adaptive::new(&shipped, LEVEL)?;
        let mut ended: Vec<(f64, f64)> = Vec::new();
        for at in shuffled(jobs.len(), seed) {
            let (dry, measured) = jobs[at];
            let first = line.estimate(dry, &[]);
            let of_shipped = Outcome { measured, estimate: first, bound: first * fixed.exp() };
            let estimate = line.at_site(&ended).estimate(dry, &[]);
            let early = adaptive.seen() < Adaptive::ENOUGH;
            let bound = estimate * adaptive.margin().exp();
            let bound = if early { bound.max(of_shipped.bound) } else { bound };
            let when = usize::from(!early);
            outcomes[0][when].push(of_shipped);
            outcomes[1][when].push(Outcome { measured, estimate, bound });
            adaptive.observe(score(measured, estimate));
            ended.push((dry, measured));
        }
    }
    Some(outcomes.map(|by_time| by_time.map(Scores::of)))
}
