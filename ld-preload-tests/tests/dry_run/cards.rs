//! Verdicts on other cards in the report of one run, beside runs on these cards.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::harness::{DryRun, dry_run, python};

/// Cards of one architecture: 46,068, 24,564 and 23,034 MiB.
const CARDS: [&str; 3] = ["L40S", "RTX4090", "L4"];

/// Its tensors fit on the second card, but not beside what the allocator keeps of the first one; on the third card
/// not even alone.
const PROGRAM: &str = "import torch
first = torch.empty(10 << 30, dtype=torch.uint8, device='cuda')
del first
torch.empty(23200 << 20, dtype=torch.uint8, device='cuda')
";

/// The verdict that a run on a card is.
fn came_to(run: &DryRun) -> &'static str {
    let told = &run.report["dry_run"];
    match (run.ended.status.code(), told["out_of_memory"].as_u64(), told["retries"].as_u64()) {
        (Some(0), Some(0), Some(0)) => "yes",
        (Some(0), Some(0), Some(_)) => "tight",
        (_, Some(1..), _) => "no",
        _ => panic!("{}\n{told:#}", run.ended.stderr),
    }
}

/// Verdict of its report on each of the cards.
fn listed(run: &DryRun) -> BTreeMap<&'static str, String> {
    let all = run.report["dry_run"]["fits"].as_array().cloned().unwrap_or_default();
    let verdict = |card: &'static str| {
        let fit = all.iter().find(|fit| fit["card"] == card)?;
        Some((card, fit["verdict"].as_str()?.to_owned()))
    };
    CARDS.into_iter().filter_map(verdict).collect()
}

#[test]
fn verdicts_from_one_card_are_those_of_runs_on_the_others() {
    let Some(python) = python() else { return };
    let on = |card: &'static str, python: PathBuf| {
        std::thread::spawn(move || dry_run(&python, &["--emulate", card], &["-c", PROGRAM]))
    };
    let runs = CARDS.map(|card| on(card, python.clone())).map(|run| run.join().expect("a dry run"));
    let ran: BTreeMap<&str, String> =
        CARDS.into_iter().zip(runs.iter().map(|run| came_to(run).to_owned())).collect();
    assert_eq!(ran.values().collect::<Vec<_>>(), ["no", "yes", "tight"], "L4, L40S, RTX4090");
    assert_eq!(listed(&runs[0]), ran);
    // A run that memory cut short knows less: what ran short is never said to fit, and one that failed says nothing.
    assert!(listed(&runs[1]).values().all(|verdict| verdict != "yes"), "{:?}", listed(&runs[1]));
    assert_eq!(listed(&runs[2]), BTreeMap::new());
}
