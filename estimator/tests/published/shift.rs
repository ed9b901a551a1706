//! A site that nothing was learned from: bounds from TIMM runs of 2024, and a stream of jobs measured in 2026.

use std::collections::{BTreeMap, BTreeSet};

use radrm_estimator::calibrate::{Adaptive, margin, score};
use radrm_estimator::evaluate::{Outcome, Scores};
use radrm_estimator::memory::{Known, Line, MemoryModel, Point, SiteLine};

use super::published::{Timm, rows, shuffled};

const LEVEL: f64 = 0.95;
const MIB: f64 = 1_048_576.0;
/// Deviation that every peak may have, MiB: a piece in which PyTorch's allocator takes memory.
const PIECE: f64 = 20.0;

struct Job {
    /// Model and data.
    program: String,
    batch: f64,
    /// FakeTensor's figure, MiB.
    dry: f64,
    /// Peak when it was measured again in 2026, MiB.
    peak: f64,
}

/// Jobs of the traces that have both figures.
fn jobs() -> Option<Vec<Job>> {
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
                let program = format!("{} {}", row.text("model"), row.text("dataset"));
                jobs.push(Job { program, batch: row.number("batch"), dry, peak: *peak });
            }
        }
    }
    Some(jobs)
}

/// Calibration of bounds from own runs at a site, as the scheduler keeps it (`need/src/calibration.rs`).
struct Held {
    scores: Adaptive,
    stretch: f64,
}

impl Held {
    fn new() -> Option<Self> {
        let model = MemoryModel::shipped();
        Some(Self { scores: Adaptive::new(model.scores(), model.level())?, stretch: 1.0 })
    }

    /// The bound of a job from what is known of it, and what follows from its peak for the next ones.
    fn outcome(&mut self, known: &Known<'_>, measured: f64) -> Option<Outcome> {
        let found = MemoryModel::shipped().estimate(known, self.stretch)?;
        let outcome = Outcome { measured, estimate: found.value / MIB, bound: found.bound / MIB };
        let margin = score(outcome.bound, outcome.estimate) / self.stretch;
        if margin >= 1e-4 {
            self.scores.observe(score(measured, outcome.estimate) / margin);
            let least = if self.scores.seen() < Adaptive::ENOUGH { 1.0 } else { 0.2 };
            self.stretch = self.scores.margin().clamp(least, 5.0);
        }
        Some(outcome)
    }
}

/// Scores of the first ten jobs and of later ones over many orders: as shipped, adapted to what has ended, and adapted with a
/// program's own runs at other batch sizes where there are any, as the scheduler has them: with the factor that it makes of how
/// the bounds before held.
pub fn evaluate(programs: &[Vec<Timm>]) -> Option<[[Scores; 2]; 3]> {
    let jobs = jobs()?;
    let pairs: Vec<Vec<(f64, f64)>> =
        programs.iter().map(|runs| runs.iter().map(|run| (run.total, run.peak)).collect()).collect();
    let line = Line::learn(&pairs)?;
    let shipped: Vec<f64> =
        pairs.iter().flatten().map(|(dry, peak)| score(*peak, line.estimate(*dry, &[]))).collect();
    let fixed = margin(&shipped, LEVEL)?;
    let mut outcomes: [[Vec<Outcome>; 2]; 3] = Default::default();
    for seed in 0..200 {
        let mut site = SiteLine::new(&line, PIECE, LEVEL);
        let mut runs: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
        let mut held = Held::new()?;
        for at in shuffled(jobs.len(), seed) {
            let Job { ref program, batch, dry, peak: measured } = jobs[at];
            let first = line.estimate(dry, &[]);
            let of_shipped = Outcome { measured, estimate: first, bound: first * fixed.exp() };
            let early = site.seen() < Adaptive::ENOUGH;
            let (estimate, bound) = site.estimate(dry);
            let bound = if early { bound.max(of_shipped.bound) } else { bound };
            let when = usize::from(!early);
            outcomes[0][when].push(of_shipped);
            let adapted = Outcome { measured, estimate, bound };
            outcomes[1][when].push(adapted);
            let points = runs.entry(program).or_default();
            let known = Known { points, batch: Some(batch), ..Known::default() };
            outcomes[2][when].push(held.outcome(&known, measured).unwrap_or(adapted));
            points.push(Point { batch, peak: measured * MIB });
            site.observe(dry, measured);
        }
    }
    Some(outcomes.map(|by_time| by_time.map(Scores::of)))
}
