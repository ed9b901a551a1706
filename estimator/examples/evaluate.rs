//! Prints the tables of `docs/estimator-accuracy.md`, `docs/interference-accuracy.md` and `docs/dry-run-bounds.md` from
//! the published measurements:
//! `cargo run -p radrm-estimator --example evaluate [timm] [networks] [dry] [sharing] [coverage]`.

#[path = "../tests/published/dry_runs.rs"]
mod dry_runs;
#[path = "../tests/published/mod.rs"]
mod published;
#[path = "../tests/published/sharing.rs"]
mod sharing;
#[path = "../tests/published/shift.rs"]
mod shift;
#[path = "../tests/published/sites.rs"]
mod sites;
#[path = "../tests/published/timm.rs"]
mod timm;

use std::hint::black_box;
use std::time::Instant;

use radrm_estimator::boost::{Ensemble, Settings};
use radrm_estimator::evaluate::Scores;
use radrm_estimator::memory::network::{HeldOut, Split};
use radrm_estimator::memory::{Known, MemoryModel, Point, compare, network};
use radrm_estimator::{Error, Table};
use radrm_lab::data::{self, Data};
use radrm_lab::gpumemnet;

fn main() -> Result<(), Error> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let asked = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    if asked("timm") {
        memory()?;
    }
    if asked("networks") {
        networks()?;
    }
    if asked("dry") {
        dry_runs_here();
    }
    if asked("sharing") {
        interference()?;
    }
    if asked("coverage") {
        coverage()?;
    }
    Ok(())
}

fn memory() -> Result<(), Error> {
    let Some(programs) = published::timm() else { return Ok(()) };
    let rows: usize = programs.iter().map(Vec::len).sum();
    let mut families: Vec<&str> = programs.iter().map(|runs| runs[0].family.as_str()).collect();
    families.sort_unstable();
    families.dedup();
    println!(
        "TIMM on an A100: {rows} runs of {} models, {} families held out in turn",
        programs.len(),
        families.len()
    );
    for ((set, runs), scores) in timm::scores(&timm::evaluate(&programs, 5)?) {
        println!("  {:14} {runs} own runs  {scores}", timm::SETS[set].0);
    }
    for (name, [early, later]) in
        ["as shipped", "adapted", "own runs"].into_iter().zip(shift::evaluate(&programs).unwrap_or_default())
    {
        println!("  another site, {name:10} first ten jobs {early}\n  {:24} later {later}", "");
    }
    cost()
}

/// The files of measured networks.
const NETWORKS: [(&str, &str); 2] = [
    ("perceptrons", "gpumemnet/mlp_data_step2.csv.gz"),
    ("convolutional networks", "gpumemnet/cnn_data_step1_partial_2061.csv.gz"),
];

fn networks() -> Result<(), Error> {
    for (name, file) in NETWORKS {
        let Some(Ok(Data::Networks(all))) = published::text(file).map(|text| data::read(&text)) else {
            continue;
        };
        let bucket = network::bucket(&all);
        println!("{} {name}, buckets of {} MiB", all.len(), bucket / f64::from(1 << 20));
        for HeldOut { name, scores, right } in gpumemnet::held_out(&all, 0.95, bucket)? {
            let right = right.map_or_else(String::new, |right| format!("buckets right {right:.4}"));
            println!("  {name:40} {scores}  {right}");
        }
    }
    Ok(())
}

/// Dry runs after runs of other families at the same site.
fn dry_runs_here() {
    println!("Recorded dry runs, half of the families have run at the site, 200 orders");
    for (name, most, enough) in [
        ("none", 0, 0),
        ("1 run", 1, 0),
        ("2 runs", 2, 0),
        ("4 runs", 4, 0),
        ("9 runs", 9, 0),
        ("all", usize::MAX, 0),
        ("all, of ten and more", usize::MAX, 10),
    ] {
        let found = dry_runs::corrected(most, enough).unwrap_or_default();
        for (site, found) in ["2024", "2026"].into_iter().zip(found) {
            println!("  {name:20} {site} {}", Scores::of(found));
        }
    }
    for (name, error) in dry_runs::errors_of(&["vgg", "inception"]).unwrap_or_default() {
        println!("  mean error of {name:27} {:+.1} %", 100.0 * error);
    }
}

fn interference() -> Result<(), Error> {
    if let Some(pairs) = sharing::a100() {
        println!("A100: {} pairs, families held out in turn", pairs.len());
        for exponent in [2, 4, 6, 8] {
            println!("  formula with exponent {exponent}: error {:.4}", sharing::error_of(&pairs, exponent));
        }
        print!("{}", sharing::evaluate(&pairs));
    }
    if let Some(found) = sites::kace() {
        print!("KACE, V100, families held out in turn\n{}", found?);
    }
    for gpu in ["k80", "p100", "v100"] {
        if let Some(found) = sites::gavel(gpu) {
            println!("Gavel {gpu}: mean, partner effects, after 1 pair, after 5");
            println!("  of each program of the family: {:.3?}", found.family);
            println!("  of one program alone: {:.3?}", found.lone_program);
        }
    }
    for (from, to) in [("p100", "v100"), ("v100", "p100"), ("k80", "v100")] {
        if let Some(found) = sites::across(from, to) {
            let [bandwidth, own] = found.error.map(|error| 100.0 * error);
            println!(
                "Gavel, {from} to {to}: bandwidths {bandwidth:.0} %, own ratio {own:.0} %, in 95 % intervals {:.2?}",
                found.coverage
            );
        }
    }
    Ok(())
}

/// Prints how often stated bounds hold, by data set: all on families, designs or sites that were left out.
fn coverage() -> Result<(), Error> {
    println!("How often bounds hold");
    let row = |name: &str, level: f64, held: f64, cases: usize| {
        // Two standard errors of that many independent cases.
        let chance = 2.0 * (level * (1.0 - level) / cases as f64).sqrt();
        let off = held < level - chance.max(0.02) || held > level + chance.max(0.03);
        let remark = if off { "  <- off" } else { "" };
        println!("  {name:52} stated {level:.2}, {held:.3} of {cases}{remark}");
    };
    let of = |name: &str, level: f64, scores: &Scores| row(name, level, scores.coverage(), scores.rows);
    if let Some(programs) = published::timm() {
        let all = timm::SETS.len() - 1;
        for ((_, runs), scores) in
            timm::scores(&timm::evaluate(&programs, 5)?).iter().filter(|(key, _)| key.0 == all)
        {
            of(&format!("TIMM, all sources, {runs} own runs"), 0.95, scores);
        }
        for (name, [_, later]) in ["adapted", "own runs"]
            .into_iter()
            .zip(shift::evaluate(&programs).unwrap_or_default().into_iter().skip(1))
        {
            of(&format!("unseen site, after ten jobs, {name}"), 0.95, &later);
        }
    }
    if let Some(Ok(Data::Programs(programs))) =
        published::text("gpumemnet/timm_faketensor.csv.gz").map(|text| data::read(&text))
    {
        for ((runs, what), scores) in compare::scores(&compare::held_out(&programs, 5, 0.95)?) {
            of(&format!("TIMM, the resolver's rule, {runs} {what}"), 0.95, &scores);
        }
    }
    for (name, file) in NETWORKS {
        if let Some(Ok(Data::Networks(networks))) = published::text(file).map(|text| data::read(&text)) {
            let found = network::boosted(&networks, Split::Activation, 0.95, network::bucket(&networks))?;
            of(&format!("{name}, design and activation held out"), 0.95, &found.scores);
        }
    }
    for (site, outcomes) in ["2024", "2026"].into_iter().zip(dry_runs::outcomes().unwrap_or_default()) {
        of(&format!("recorded dry runs, peaks of {site}"), 0.9, &Scores::of(outcomes));
    }
    for (site, found) in
        ["2024", "2026"].into_iter().zip(dry_runs::corrected(usize::MAX, 0).unwrap_or_default())
    {
        of(&format!("dry runs corrected by other families, {site}"), 0.95, &Scores::of(found));
    }
    if let Some(pairs) = sharing::a100() {
        let found = sharing::evaluate(&pairs);
        row("A100 pairs, factor of other families", 0.95, found.coverage.0, 2 * pairs.len());
        row("A100 pairs, the factor that ships", 0.95, found.coverage.1, 2 * pairs.len());
    }
    for (from, to) in [("p100", "v100"), ("v100", "p100"), ("k80", "v100")] {
        if let Some(found) = sites::across(from, to) {
            row(&format!("Gavel, {from} to {to}, bandwidths"), 0.95, found.coverage[0], found.cases[0]);
            row(&format!("Gavel, {from} to {to}, own ratio"), 0.95, found.coverage[1], found.cases[1]);
        }
    }
    Ok(())
}

/// Prints the cost of training and of a prediction.
fn cost() -> Result<(), Error> {
    let mut table = Table::new((0..15).map(|at| at.to_string()));
    let mut target = Vec::new();
    for n in 0..5000u64 {
        let row: Vec<f64> = (1..16).map(|at| (n * n * at % 9973) as f64).collect();
        table.push(&row)?;
        target.push(row[0].sqrt() + row[1] * 0.01);
    }
    let start = Instant::now();
    let trees = Ensemble::fit(&table, &target, &Settings::default())?;
    let fitted = start.elapsed();
    let start = Instant::now();
    let sum: f64 = (0..table.len()).map(|row| trees.predict(table.row(row))).sum();
    let each = start.elapsed() / 5000;
    println!(
        "  5000 rows, 15 columns, 300 trees: {fitted:.2?}; a prediction: {each:.2?} (mean {:.1})",
        sum / 5000.0
    );
    let points = [Point { batch: 8.0, peak: 4e9 }, Point { batch: 16.0, peak: 7e9 }];
    let known = Known { points: &points, batch: Some(32.0), dry_run: Some(11e9.into()), here: None };
    let model = MemoryModel::shipped();
    let start = Instant::now();
    let found = (0..5000).filter(|_| model.estimate(black_box(&known), 1.0).is_some()).count();
    println!("  combined from two own runs and a dry run: {:.2?} ({found})", start.elapsed() / 5000);
    Ok(())
}
