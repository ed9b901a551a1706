//! Trains the clock and prints how far off it is, from the published measurements beside the repository:
//! `cargo xtask clock train | evaluate | report | table`.

mod goals;
mod report;

#[path = "../../tests/published/mod.rs"]
mod published;

use std::path::Path;
use std::time::Instant;

use radrm_clock::train::{self, CardScores, Sample};
use radrm_clock::{Clock, Kind, Power};
use radrm_estimator::Error;

/// Kinds that are learned.
pub const KINDS: [Kind; 9] = [
    Kind::Gemm,
    Kind::GemmSimt,
    Kind::Convolution,
    Kind::AttentionPrefill,
    Kind::AttentionDecode,
    Kind::Elementwise,
    Kind::Norm,
    Kind::Softmax,
    Kind::Collective,
];

const ORIGIN: &str =
    "NVIDIA AIConfigurator (Apache-2.0), Zeus (Apache-2.0), NeuSight (MIT), Vidur (MIT), LLMServingSim (MIT)";

fn main() -> Result<(), Error> {
    let Some(samples) = published::samples() else { return Ok(()) };
    let command = std::env::args().nth(1).unwrap_or_default();
    match command.as_str() {
        "train" => trained(&samples),
        "evaluate" => evaluate(&samples),
        "report" => {
            report::run(&samples);
            Ok(())
        }
        "table" => goals::run(&samples),
        _ => {
            eprintln!("usage: clock train | evaluate | report | table");
            Ok(())
        }
    }
}

/// Writes `clock/data/clock.json`.
fn trained(samples: &[Sample]) -> Result<(), Error> {
    let started = Instant::now();
    let kinds = KINDS.iter().map(|kind| train::learn(*kind, samples)).collect::<Result<Vec<_>, _>>()?;
    let power = Power::learn(&published::power().unwrap_or_default())?;
    let clock = Clock::new(ORIGIN, kinds, power);
    let text = clock.to_json()?;
    for learned in clock.kinds() {
        let (trees, cards) = learned.size();
        let length = serde_json::to_string(learned).map_or(0, |text| text.len());
        println!(
            "{:?}: {trees} trees, {cards} cards, {length} bytes, other cards x{:.2}",
            learned.kind,
            learned.other.exp()
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/clock.json");
    std::fs::write(&path, &text).map_err(|error| Error::Malformed(error.to_string()))?;
    println!("{} bytes in {:.1} s; power {power:?}", text.len(), started.elapsed().as_secs_f64());
    Ok(())
}

/// Goal of a kind: median and 90th percentile on left-out shapes and on left-out cards.
fn goal(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Gemm | Kind::GemmSimt => ("5 / 15 %", "12 / 30 %, x1.5"),
        Kind::AttentionPrefill => ("-", "18 / 40 %"),
        Kind::AttentionDecode => ("-", "20 / 50 %"),
        Kind::Collective => ("-", "12 / 35 %"),
        _ => ("-", "-"),
    }
}

fn evaluate(samples: &[Sample]) -> Result<(), Error> {
    let only = std::env::args().nth(2);
    println!(
        "| kind | card | rows | own card, unseen shapes: median / 90th, bound, coverage | card left out: median / 90th, bound, coverage |"
    );
    println!("|---|---|--:|---|---|");
    for kind in KINDS {
        let name = format!("{kind:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let (own, other) = train::evaluate(kind, samples)?;
        let cell = |scores: &CardScores| {
            format!(
                "{:.1} / {:.1} %, x{:.2}, {:.0} %",
                100.0 * scores.error(0.5),
                100.0 * scores.error(0.9),
                scores.factor(),
                100.0 * scores.coverage()
            )
        };
        for (own, other) in own.iter().zip(&other) {
            println!("| {name} | {} | {} | {} | {} |", own.card, own.rows.len(), cell(own), cell(other));
        }
        let (of_own, of_other) = goal(kind);
        println!("| {name} | goal | | {of_own} | {of_other} |");
    }
    power()
}

/// The price of a power limit, on the card that was not learned from.
fn power() -> Result<(), Error> {
    let curves = published::power().unwrap_or_default();
    for card in ["V100-PCIe-32GB", "P100-PCIe-16GB"] {
        let (held, learn): (Vec<_>, Vec<_>) = curves.iter().cloned().partition(|curve| curve.card.id == card);
        let power = Power::learn(&learn)?;
        let bound = held.iter().filter(|curve| curve.is_gpu_bound());
        let mut errors: Vec<f64> = bound.clone().flat_map(|curve| power.errors(curve)).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let at = |rank: f64| 100.0 * errors[((errors.len() as f64 * rank) as usize).min(errors.len() - 1)];
        let own = Power::learn(&held)?;
        println!(
            "power limit, {card} left out: {} programs, slowdown off by {:.1} / {:.1} %; busy {:?} of the limit there, {:?} elsewhere",
            bound.count(),
            at(0.5),
            at(0.9),
            own.busy,
            power.busy
        );
    }
    Ok(())
}
