//! `cargo xtask models --fits`: what a run of a model on each card says of all others, beside the runs on these.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Row, program};
use xtask::shell;

/// Verdicts by card.
type Verdicts = BTreeMap<String, String>;

/// Outcome of a model on one card, and that run's verdicts on all cards.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    came_to: String,
    said: Verdicts,
}

/// Tally of the comparisons so far.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tally {
    models: u32,
    /// By a verdict from another card, and what came of a run on the card.
    pairs: BTreeMap<(String, String), u32>,
    /// A verdict "yes" where the run on the card did not end well, in words.
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, model: &str, runs: &BTreeMap<String, Run>) {
        self.models += 1;
        for (from, run) in runs {
            // What a run says of its own card is not a forecast.
            for (card, said) in run.said.iter().filter(|(card, _)| *card != from) {
                let Some(Run { came_to, .. }) = runs.get(card) else { continue };
                *self.pairs.entry((said.clone(), came_to.clone())).or_default() += 1;
                if said == "yes" && came_to != "yes" {
                    self.wrong
                        .push(format!("{model}: {from} says yes of {card}, where it came to {came_to}"));
                }
            }
        }
    }

    /// A table of what was said against what came out.
    pub(super) fn text(&self) -> String {
        let all: u32 = self.pairs.values().sum();
        let head = format!("{} models, {all} verdicts beside runs", self.models);
        let rows =
            self.pairs.iter().map(|((said, came_to), count)| format!("| {said} | {came_to} | {count} |"));
        let wrong = [format!("false \"yes\": {}", self.wrong.len())].into_iter().chain(self.wrong.clone());
        let table =
            ["", "| a run on another card | a run on the card | cases |", "|---|---|--:|"].map(str::to_owned);
        let lines: Vec<String> = [head].into_iter().chain(table).chain(rows).chain(wrong).collect();
        lines.join("\n") + "\n"
    }

    /// # Errors
    /// A card was said to hold a model that does not run there.
    pub(super) fn check(&self) -> Result<()> {
        if self.wrong.is_empty() { Ok(()) } else { bail!("{} false \"yes\"", self.wrong.len()) }
    }
}

/// Runs a model on each of `cards` (names by commas, or all that a report knows), adds the verdicts, and gives what the runs
/// came to as a line.
pub(super) fn one(
    row: &Row<'_>,
    (python, programs): (&Path, &Path),
    (card, cards): (&str, &str),
    tally: &mut Tally,
) -> Result<String> {
    let first = on(row, python, programs, card)?;
    let named: Vec<String> = match cards {
        "all" => first.said.keys().cloned().collect(),
        list => list.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let mut runs = BTreeMap::from([(card.to_owned(), first)]);
    for name in named {
        if let Entry::Vacant(place) = runs.entry(name) {
            let run = on(row, python, programs, place.key())?;
            place.insert(run);
        }
    }
    let name = format!("{} {}", row.shown, row.batch);
    tally.add(&name, &runs);
    let of = |(card, run): (&String, &Run)| format!("{card} {}", run.came_to);
    Ok(format!("{name}: {}", runs.iter().map(of).collect::<Vec<_>>().join(", ")))
}

/// A run on a card; that the program fails there is no error.
fn on(row: &Row<'_>, python: &Path, programs: &Path, card: &str) -> Result<Run> {
    let file = shell::target_dir().join("fits.json");
    let _ = fs::remove_file(&file);
    let options = ["--emulate", card, "--steps", "3"].map(OsStr::new);
    let output = program(row, python, programs, &file, &options).output().context("radrm-run")?;
    let said = || format!("{} on {card}: {}", row.model, String::from_utf8_lossy(&output.stderr));
    let text = fs::read(&file).with_context(said)?;
    fs::remove_file(&file)?;
    let report: Value = serde_json::from_slice(&text)?;
    Ok(run(output.status.code(), &report["dry_run"]))
}

fn run(code: Option<i32>, told: &Value) -> Run {
    let count = |name: &str| told[name].as_u64().unwrap_or(0);
    let came_to = match (code, count("out_of_memory"), count("retries")) {
        _ if told["withheld"].is_string() => "unknown",
        (Some(0), _, 0) => "yes",
        (Some(0), _, _) => "tight",
        (_, 1.., _) => "no",
        _ => "unknown",
    };
    let fits = told["fits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |fit: &Value| Some((fit["card"].as_str()?.to_owned(), fit["verdict"].as_str()?.to_owned()));
    Run { came_to: came_to.to_owned(), said: fits.iter().filter_map(of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(came_to: &str, said: &[(&str, &str)]) -> Run {
        let said = said.iter().map(|(card, verdict)| ((*card).to_owned(), (*verdict).to_owned())).collect();
        Run { came_to: came_to.to_owned(), said }
    }

    #[test]
    fn a_yes_that_a_run_contradicts_is_an_error() {
        let runs = |second: &str| {
            let first = of("yes", &[("A", "yes"), ("B", "yes"), ("C", "unknown")]);
            BTreeMap::from([("A".to_owned(), first), ("B".to_owned(), of(second, &[("A", "no")]))])
        };
        let mut tally = Tally::default();
        tally.add("m", &runs("yes"));
        assert!(tally.check().is_ok());
        assert!(
            tally.text().starts_with("1 models, 2 verdicts") && tally.text().contains("| no | yes | 1 |")
        );
        for second in ["no", "tight", "unknown"] {
            tally.add("n", &runs(second));
        }
        assert_eq!(tally.wrong.len(), 3);
        assert!(tally.check().is_err());
        assert!(tally.text().contains("n: A says yes of B, where it came to no"), "{}", tally.text());
    }

    #[test]
    fn a_run_comes_to_what_its_end_says() {
        let told = |oom: u64, retries: u64| serde_json::json!({"out_of_memory": oom, "retries": retries, "fits": [{"card": "T4", "verdict": "no"}, {}]});
        for (code, oom, retries, came_to) in [
            (Some(0), 0, 0, "yes"),
            (Some(0), 1, 2, "tight"),
            (Some(1), 1, 0, "no"),
            (Some(1), 0, 0, "unknown"),
            (None, 0, 0, "unknown"),
        ] {
            assert_eq!(run(code, &told(oom, retries)), of(came_to, &[("T4", "no")]));
        }
        assert_eq!(run(Some(0), &serde_json::json!({"withheld": "x"})).came_to, "unknown");
    }
}
