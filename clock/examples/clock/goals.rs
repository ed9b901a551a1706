//! The goals of predicted times beside what is measured, one row for each card: `cargo xtask clock table`.
//!
//! A row names its split. "Chosen on": the left-out shapes or the left-out card were looked at while formulas, numbers of trees and levels
//! of bounds were chosen. "Reported": nothing was chosen on it. Goals of which the published measurements have no rows are listed
//! with the reason; nothing is scored on what was learned from.

use std::time::Instant;

use radrm_clock::power::PowerCurve;
use radrm_clock::train::{self, CardScores, Sample};
use radrm_clock::{Clock, Kind, Operands, Power, Precision, Shape, Work};
use radrm_estimator::Error;

use crate::published;
use crate::report::{self, Label};

const CHOSEN: &str = "chosen on";
const REPORTED: &str = "reported";

/// The most that errors and a bound may have, and the least coverage.
#[derive(Clone, Copy)]
struct Goal {
    median: f64,
    ninetieth: f64,
    factor: f64,
    coverage: f64,
}

impl Goal {
    /// Errors, in per cent, without a bound.
    const fn errors(median: f64, ninetieth: f64) -> Self {
        Self { median, ninetieth, factor: f64::INFINITY, coverage: 0.0 }
    }

    const fn within(self, factor: f64, coverage: f64) -> Self {
        Self { factor, coverage, ..self }
    }

    fn words(&self) -> String {
        let errors = format!("{} / {} %", self.median, self.ninetieth);
        match self.factor.is_finite() {
            true => format!("{errors}, x{} for {} %", self.factor, self.coverage),
            false => errors,
        }
    }

    fn is_met(&self, of: &CardScores) -> bool {
        100.0 * of.error(0.5) <= self.median
            && 100.0 * of.error(0.9) <= self.ninetieth
            && of.factor() <= self.factor
            && 100.0 * of.coverage() >= self.coverage
    }
}

/// Goals of a kind: on left-out shapes of a measured card, and on a card that is left out.
const KINDS: [(Kind, Option<Goal>, Goal); 5] = [
    (
        Kind::Gemm,
        Some(Goal::errors(5.0, 15.0).within(1.25, 88.0)),
        Goal::errors(12.0, 30.0).within(1.5, 88.0),
    ),
    (
        Kind::GemmSimt,
        Some(Goal::errors(5.0, 15.0).within(1.25, 88.0)),
        Goal::errors(12.0, 30.0).within(1.5, 88.0),
    ),
    (Kind::AttentionPrefill, None, Goal::errors(18.0, 40.0)),
    (Kind::AttentionDecode, None, Goal::errors(20.0, 50.0)),
    (Kind::Collective, None, Goal::errors(12.0, 35.0)),
];

/// Goals that no published measurement here can score, and why.
const NOT_SCORED: [(&str, &str, &str); 6] = [
    ("recorded work of 30 models", "FLOP 1 %, bytes 5 %", "no recorded steps are kept"),
    ("end to end, GPU-bound", "8 / 20 %; 15 / 30 %", "needs dry runs of TIMM's models"),
    ("host-bound class; after one local run", ">= 90 %; 15 / 35 %", "needs a GPU and its host"),
    ("SM and DRAM activity", "mean error 0.08", "needs dry runs of the trainings on an A100"),
    ("cost of recording", "< 10 %, 2 MiB", "bench/CLOCK.md"),
    ("makespan with predicted activity", "on every trace", "radrm replay --known predicted"),
];

fn row(what: &str, on: &str, split: &str, [found, goal]: [&str; 2], is_met: bool) {
    println!("| {what} | {on} | {split} | {found} | {goal} | {} |", if is_met { "yes" } else { "no" });
}

fn scores(what: &str, split: &str, all: &[CardScores], goal: &Goal) {
    for of in all {
        let found = format!(
            "{:.1} / {:.1} %, x{:.2} for {:.0} %",
            100.0 * of.error(0.5),
            100.0 * of.error(0.9),
            of.factor(),
            100.0 * of.coverage()
        );
        row(what, &of.card, split, [&found, &goal.words()], goal.is_met(of));
    }
}

/// Prints the table.
pub fn run(samples: &[Sample]) -> Result<(), Error> {
    println!("| what | card | split | measured: median / 90th percentile, bound for coverage | goal | met |");
    println!("|---|---|---|---|---|---|");
    for (kind, of_own, of_other) in KINDS {
        let (own, other) = train::evaluate(kind, samples)?;
        if let Some(goal) = of_own {
            scores(&format!("{kind:?}, unseen shapes"), CHOSEN, &own, &goal);
        }
        scores(&format!("{kind:?}, unseen card"), CHOSEN, &other, &of_other);
    }
    models(&report::predicted(samples));
    energy(&published::power().unwrap_or_default());
    step()?;
    for (what, goal, why) in NOT_SCORED {
        println!("| {what} | - | - | n/a: {why} | {goal} | n/a |");
    }
    Ok(())
}

/// NeuSight's models on cards that are left out, and the order of two cards.
fn models(labels: &[Label]) {
    let mut cards: Vec<&str> = labels.iter().map(|label| label.card.as_str()).collect();
    cards.sort_unstable();
    cards.dedup();
    for card in cards {
        let of: Vec<&Label> = labels.iter().filter(|label| label.card == card).collect();
        let mean = 100.0 * of.iter().map(|label| label.error().abs()).sum::<f64>() / of.len().max(1) as f64;
        let within = of.iter().filter(|label| label.is_within()).count();
        let found = format!("mean {mean:.1} %, {within} of {} within the bound", of.len());
        row("NeuSight's models, unseen card", card, REPORTED, [&found, "mean 10 %"], mean <= 10.0);
    }
    let (mut right, mut pairs) = (0, 0);
    for (at, one) in labels.iter().enumerate() {
        for other in labels[at + 1..].iter().filter(|other| other.model == one.model) {
            let measured = one.measured / other.measured;
            if measured.max(1.0 / measured) > 1.15 {
                pairs += 1;
                right += usize::from((measured > 1.0) == (one.predicted[1] > other.predicted[1]));
            }
        }
    }
    let part = 100.0 * right as f64 / pairs.max(1) as f64;
    let found = format!("{right} of {pairs} pairs, {part:.1} %");
    row("order of two cards > 15 % apart", "both unseen", REPORTED, [&found, ">= 97 %"], part >= 97.0);
}

/// Power of GPU-bound trainings at the highest limit, the card left out: the energy of a time that is known.
fn energy(curves: &[PowerCurve]) {
    let mut cards: Vec<&str> = curves.iter().map(|curve| curve.card.id.as_str()).collect();
    cards.sort_unstable();
    cards.dedup();
    for card in cards {
        let (held, learn): (Vec<PowerCurve>, Vec<PowerCurve>) =
            curves.iter().cloned().partition(|curve| curve.card.id == card);
        let Ok(power) = Power::learn(&learn) else { continue };
        let error = |curve: &PowerCurve| {
            let free = curve.points.iter().max_by(|a, b| a[0].total_cmp(&b[0]))?;
            let [low, watts, high] = power.watts(&curve.card);
            Some(((free[2] / watts).ln(), (high / watts).max(watts / low).ln()))
        };
        let rows = held.iter().filter(|curve| curve.is_gpu_bound()).filter_map(error).collect();
        let of = CardScores { card: card.to_owned(), rows };
        scores("energy in a known time, unseen card", CHOSEN, &[of], &Goal::errors(15.0, 35.0));
    }
}

/// Time that a step of 5,000 different operations takes to predict.
fn step() -> Result<(), Error> {
    let clock = Clock::shipped()?;
    let cards = published::cards();
    let Some(card) = cards.find("A100-80GB") else { return Ok(()) };
    let began = Instant::now();
    let mut sum = 0.0;
    for at in 0..5000 {
        let shape = Shape::Gemm { batch: 1.0, m: 64.0 + f64::from(at), n: 4096.0, k: 4096.0 };
        let work = Work::of(shape, Operands::of(Precision::Bf16));
        sum += clock.time(&work, card).map_or(0.0, |found| found.time);
    }
    let took = began.elapsed().as_secs_f64() * 1e3;
    let found = format!("{took:.0} ms (a step of {sum:.1} s)");
    row("prediction of 5,000 operations", "A100-80GB", "this machine", [&found, "50 ms"], took <= 50.0);
    Ok(())
}
