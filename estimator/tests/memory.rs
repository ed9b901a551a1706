//! Memory estimators against published measurements of programs whose family they did not see.

use crate::{dry_runs, published, shift, timm};
use radrm_estimator::evaluate::Scores;
use radrm_estimator::memory::network::Split;
use radrm_estimator::memory::{DryRuns, MemoryModel, Network, Program, Run, compare, network};
use radrm_lab::data::{self, Data};
use radrm_lab::gpumemnet;

/// Largest accepted mean over-allocation with all sources, and part of bounds that are too low, by number of own runs.
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

/// Origin that `radrm train` writes into the file that ships.
const ORIGIN: &str =
    "TIMM models, GPUMemNet datasets (github.com/itu-rad/GPUMemNet), CC BY 4.0, A100 40 GB, 2024";

fn programs() -> Option<Vec<Program>> {
    let Ok(Data::Programs(programs)) = data::read(&published::text("gpumemnet/timm_faketensor.csv.gz")?)
    else {
        panic!("programs")
    };
    Some(programs)
}

const MIB: f64 = 1_048_576.0;

const PERCEPTRONS: &str = "gpumemnet/mlp_data_step2.csv.gz";
const CONVOLUTIONAL: &str = "gpumemnet/cnn_data_step1_partial_2061.csv.gz";

fn networks(file: &str) -> Option<Vec<Network>> {
    let Ok(Data::Networks(networks)) = data::read(&published::text(file)?) else { panic!("networks") };
    Some(networks)
}

/// Convolutional networks of unseen designs are not bounded well enough to ship: they are only printed.
#[test]
fn networks_of_unseen_designs_are_bounded() {
    for (file, ships) in [(PERCEPTRONS, true), (CONVOLUTIONAL, false)] {
        let Some(networks) = networks(file) else { return };
        let found = network::boosted(&networks, Split::Design, 0.95, network::bucket(&networks)).unwrap();
        let (scores, right) = (&found.scores, found.right.unwrap());
        println!("{file}: {scores}, buckets right {right:.4}");
        let holds = scores.under <= 0.055 && scores.over <= 0.013 && right > 0.954;
        assert!(holds || !ships, "{scores} {right}");
    }
}

/// Of a design that was measured with other activation functions. GPUMemNet's .8825 is of a random tenth.
#[test]
fn convolutional_networks_are_bounded_with_unseen_activations() {
    let Some(networks) = networks(CONVOLUTIONAL) else { return };
    let found = network::boosted(&networks, Split::Activation, 0.95, network::bucket(&networks)).unwrap();
    let (scores, right) = (&found.scores, found.right.unwrap());
    println!("{scores}, buckets right {right:.4}");
    assert!(scores.under <= 0.05 && scores.over <= 0.28 && right > 0.8825, "{scores} {right}");
}

/// GPUMemNet's classifier, run here, beside the accuracy that is published of it, for buckets of so many MiB.
fn check_classifier(mib: f64, published: f64) {
    let Some(networks) = networks(PERCEPTRONS) else { return };
    let found = gpumemnet::classified(&networks, Split::Chance, mib * MIB);
    println!("buckets of {mib} MiB: {}, right {:?}", found.scores, found.right);
    // The answer that needs no learning.
    let at_first = networks.iter().filter(|network| network.peak < 2000.0 * MIB).count();
    assert!(found.right.unwrap() > at_first as f64 / networks.len() as f64 + 0.1, "{at_first}");
    assert!(found.right.unwrap() > published - 0.01, "{found:?}");
}

#[test]
fn gpumemnets_classifier_of_1000_mib_is_as_good_as_published() {
    check_classifier(1000.0, 0.954);
}

#[test]
fn gpumemnets_classifier_of_2000_mib_is_as_good_as_published() {
    check_classifier(2000.0, 0.971);
}

#[test]
fn the_shipped_model_is_what_training_makes() {
    let Some(programs) = programs() else { return };
    let networks = networks(PERCEPTRONS).unwrap();
    let made = MemoryModel::for_any_site(&programs, &networks, 0.95, ORIGIN).unwrap().to_json().unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/memory.json");
    if std::env::var_os("RADRM_WRITE_MODEL").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    assert_eq!(made, std::fs::read_to_string(path).unwrap());
}

/// Programs of 2026, of which one has few runs.
fn later_programs() -> Option<Vec<Program>> {
    let of = |runs: Vec<(f64, f64)>| {
        let run = |(batch, peak): &(f64, f64)| Run {
            batch: *batch,
            peak: peak * MIB,
            tensors: None,
            dry_run: None,
        };
        Program { runs: runs.iter().map(run).collect(), ..Program::default() }
    };
    Some(published::workload_peaks()?.into_iter().map(of).collect())
}

#[test]
fn the_resolvers_bounds_hold_at_two_sites() {
    let Some(programs) = programs() else { return };
    let held_out = compare::scores(&compare::held_out(&programs, 5, 0.95).unwrap());
    for (case, scores) in &held_out {
        println!("TIMM, 2024, {case:?}: {scores}");
    }
    let Some(later) = later_programs() else { return };
    let model = MemoryModel::shipped();
    let there = compare::scores(&compare::outcomes(model, &later.iter().collect::<Vec<_>>()));
    for (case, scores) in &there {
        println!("workloads, 2026, {case:?}: {scores}");
    }
    let one = &there[&(1, "own runs")];
    assert!(one.rows == 60 && one.under == 0.0 && one.over < 0.27, "one own run at the later site: {one}");
    for (runs, over) in [(1, 0.33), (2, 0.09), (3, 0.06)] {
        let found = &held_out[&(runs, "own runs")];
        assert!(found.under <= 0.055 && found.over <= over, "{runs} own runs: {found}");
    }
}

#[test]
fn bounds_of_recorded_dry_runs_hold_at_two_sites() {
    let Some(found) = dry_runs::outcomes() else { return };
    for (site, found) in ["2024", "2026"].into_iter().zip(found) {
        let scores = Scores::of(found);
        println!("recorded dry runs, {site}: {scores}");
        assert!(scores.rows >= 25 && scores.under <= 0.1, "{site}: {scores}");
    }
}

#[test]
fn runs_of_other_families_correct_dry_runs_at_both_sites() {
    let Some(found) = dry_runs::corrected(usize::MAX, 0) else { return };
    for (site, found) in ["2024", "2026"].into_iter().zip(found) {
        let scores = Scores::of(found);
        println!("dry runs corrected by half of the families, {site}: {scores}");
        assert!(scores.median <= 0.02 && scores.under <= 0.02, "{site}: {scores}");
        // Few programs, of which each one that a bound does not hold counts by some per cent.
        assert!((0.93..=0.99).contains(&scores.coverage()), "{site}: {scores}");
    }
    let of_ten = dry_runs::corrected(usize::MAX, DryRuns::ENOUGH).unwrap();
    for ((site, found), over) in ["2024", "2026"].into_iter().zip(of_ten).zip([0.053, 0.071]) {
        let scores = Scores::of(found);
        println!("dry runs corrected by ten programs and more, {site}: {scores}");
        assert!(scores.under <= 0.021 && scores.over <= over, "{site}: {scores}");
    }
    // One run teaches most of the constant; the bound is the one that ships.
    for (site, found) in ["2024", "2026"].into_iter().zip(dry_runs::corrected(1, 0).unwrap()) {
        let scores = Scores::of(found);
        println!("dry runs corrected by one run, {site}: {scores}");
        assert!(scores.median <= 0.05 && scores.under <= 0.01, "{site}: {scores}");
    }
}

/// Within 6 %, but for one.
#[test]
fn runs_of_other_families_correct_dry_runs_of_large_workspaces() {
    let Some(errors) = dry_runs::errors_of(&["vgg", "inception"]) else { return };
    println!("{errors:.3?}");
    assert_eq!(errors.len(), 12, "three batch sizes of two networks at two sites");
    let far: Vec<&(String, f64)> = errors.iter().filter(|(_, error)| error.abs() > 0.06).collect();
    let [(name, error)] = &far[..] else { panic!("{far:?}") };
    assert!(name == "2024 inception imagenet bs128" && *error < 0.064, "{name}: {error}");
}

#[test]
fn bounds_adapt_to_a_site_that_nothing_was_learned_from() {
    let Some(timm) = published::timm() else { return };
    let Some([shipped, adapted, own]) = shift::evaluate(&timm) else { return };
    println!("shipped: {}\nadapted: {}\nwith own runs: {} {}", shipped[1], adapted[1], own[0], own[1]);
    assert!(shipped[1].under > 0.1 && adapted[1].under <= 0.055, "{} {}", shipped[1], adapted[1]);
    assert!(adapted[1].over < 0.83 && adapted[1].median < 0.5 * shipped[1].median, "{}", adapted[1]);
    assert!(own[1].under <= 0.055 && own[1].over < 0.83, "{}", own[1]);
    // Too careful is wrong as well: each bound states 95 %.
    for found in [&adapted[1], &own[1]] {
        assert!((0.93..=0.98).contains(&found.coverage()), "{found}");
    }
}
