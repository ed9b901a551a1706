//! Memory estimators against published measurements of programs whose family they did not see.

use radrm_estimator::evaluate::{Outcome, Scores};
use radrm_estimator::memory::{Point, from_one_run};

mod published;
#[path = "published/shift.rs"]
mod shift;
#[path = "published/timm.rs"]
mod timm;

/// Mean over-allocation with all sources, and the part of bounds that are too low, by number of own runs: what issue 14
/// asks for.
const ASKED: [(f64, f64); 4] = [(0.32, 0.055), (0.18, 0.055), (0.085, 0.055), (0.06, 0.055)];

#[test]
fn bounds_of_unseen_families_hold_and_are_close() {
    let Some(programs) = published::timm() else { return };
    let scores = timm::scores(&timm::evaluate(&programs, 5).unwrap());
    let all = timm::SETS.len() - 1;
    for (runs, (over, under)) in ASKED.iter().enumerate() {
        let found = scores[&(all, runs)];
        println!("{runs} own runs: {found}");
        assert!(found.under <= *under && found.over <= *over, "{runs} own runs: {found}");
    }
    // Of one run: today's rule is at +124 %.
    assert!(scores[&(0, 1)].over < 0.25, "own history alone: {}", scores[&(0, 1)]);
}

/// Each run of a program beside each other one, MiB.
fn from_single_runs(programs: &[Vec<(f64, f64)>]) -> Scores {
    const MIB: f64 = 1_048_576.0;
    let outcomes = programs.iter().flat_map(|runs| {
        runs.iter().flat_map(move |(batch, peak)| {
            let others = runs.iter().filter(move |(other, _)| other != batch);
            others.map(move |(other, measured)| {
                let (value, bound) = from_one_run(Point { batch: *batch, peak: peak * MIB }, *other);
                Outcome { measured: *measured, estimate: value / MIB, bound: bound / MIB }
            })
        })
    });
    Scores::of(outcomes)
}

#[test]
fn one_run_bounds_others_at_two_sites() {
    let Some(timm) = published::timm() else { return };
    let of = |runs: &Vec<published::Timm>| runs.iter().map(|run| (run.batch, run.peak)).collect();
    let first = from_single_runs(&timm.iter().map(of).collect::<Vec<_>>());
    let Some(programs) = published::workload_peaks() else { return };
    let second = from_single_runs(&programs);
    println!("TIMM, 2024: {first}\nworkloads, 2026: {second}");
    assert!(first.under <= 0.04 && first.over < 0.32, "{first}");
    assert!(second.rows == 60 && second.under == 0.0 && second.over < 0.27, "{second}");
}

#[test]
fn bounds_adapt_to_a_site_that_nothing_was_learned_from() {
    let Some(timm) = published::timm() else { return };
    let Some([shipped, adapted]) = shift::evaluate(&timm) else { return };
    println!("shipped: {}\nadapted: {}", shipped[1], adapted[1]);
    assert!(shipped[1].under > 0.1 && adapted[1].under <= 0.055, "{} {}", shipped[1], adapted[1]);
    assert!(adapted[1].over < 1.5 && adapted[1].median < 0.5 * shipped[1].median, "{}", adapted[1]);
}
