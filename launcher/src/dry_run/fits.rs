//! `--fits CARD,...`: a dry run on each card, and what it says of the program there.

use std::collections::BTreeMap;
use std::time::Instant;

use radrm_console::output;
use radrm_emulator_machine::Models;
use radrm_profile::Bytes;
use radrm_term::{Table, left, right};
use serde::Serialize;
use serde_json::Value;

use super::cards::Verdict;
use super::flags::DryRun;
use super::trial::{Reading, Trial};
use crate::NAME;
use crate::cli::{Plan, ReportTo};
use crate::ending::{Ending, FAILED};
use crate::report_file;

/// Optimizer steps of each run where `--steps` names none: memory is what it is after the second.
const STEPS: u64 = 3;

/// What a dry run on a card has shown.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tried {
    /// Model.
    pub card: String,
    /// Whether the program fits.
    pub verdict: Verdict,
    /// Why there is no better verdict, as a clause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The most that the driver would hold on one GPU, bytes; with `no` up to the refused request.
    pub held_peak: u64,
    /// Memory of the card, bytes.
    pub memory: u64,
    /// Duration of the run.
    pub seconds: f64,
}

/// Runs the program on each card, prints the verdicts, and gives the exit code: 0 if every card has one.
#[must_use]
pub fn run(plan: &Plan, wanted: &DryRun) -> i32 {
    let memory = memory_of_cards();
    let mut all = Vec::new();
    for card in &wanted.fits {
        let began = Instant::now();
        let judged = Trial::like(plan, wanted, Some(card), STEPS)
            .and_then(|mut trial| {
                trial.command.arg("--").args(&plan.command);
                trial.run()
            })
            .map(|(ending, report)| judge(ending, &report))
            .unwrap_or_else(|error| {
                (Verdict::Unknown, Some(format!("no dry run was made: {}", output::reason(&error))), 0)
            });
        let (verdict, why, held_peak) = judged;
        let memory = memory.get(card).copied().unwrap_or(0);
        let tried = Tried {
            card: card.clone(),
            verdict,
            why,
            held_peak,
            memory,
            seconds: began.elapsed().as_secs_f64(),
        };
        if !plan.quiet {
            output::say(NAME, &format!("{}: {}", tried.card, words(&tried)));
        }
        all.push(tried);
    }
    let code = i32::from(all.iter().any(|tried| tried.verdict == Verdict::Unknown));
    match deliver(plan, &all) {
        Ok(()) => code,
        Err(sentence) => {
            output::say(NAME, &sentence);
            FAILED
        }
    }
}

fn memory_of_cards() -> BTreeMap<String, u64> {
    let models = Models::known().map(|models| models.gpu).unwrap_or_default();
    models.into_iter().map(|model| (model.id.clone(), model.memory_bytes())).collect()
}

/// The verdict, why there is no better one, and what the driver would hold at most.
fn judge(ending: Ending, report: &Value) -> (Verdict, Option<String>, u64) {
    let reading = Reading::of(report);
    let held = reading.of_gpus("held_peak").max().unwrap_or(0);
    let unknown = |why: String| (Verdict::Unknown, Some(why), held);
    match (ending == Ending::Exited(0), reading.refused, reading.withheld) {
        (false, true, _) => (Verdict::No, None, held),
        (false, false, _) => {
            let how = match ending {
                Ending::Exited(code) => format!("with exit code {code}"),
                Ending::Killed { signal, .. } => format!("by {}", radrm_base::signal::name(signal)),
            };
            unknown(format!("the program ended there {how}, and not for lack of GPU memory"))
        }
        (true, _, Some(why)) => unknown(why.to_owned()),
        (true, _, None) if held == 0 => unknown("the program used no GPU".to_owned()),
        (true, _, None) => match reading.retries {
            0 => (Verdict::Yes, None, held),
            1 => (Verdict::Tight, Some("memory ran short once".to_owned()), held),
            many => (Verdict::Tight, Some(format!("memory ran short {many} times")), held),
        },
    }
}

fn words(tried: &Tried) -> String {
    let why = tried.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    format!("{}{why}", tried.verdict.word())
}

fn deliver(plan: &Plan, all: &[Tried]) -> Result<(), String> {
    let command: Vec<_> = plan.command.iter().map(|word| word.to_string_lossy()).collect();
    let json = || {
        let value = serde_json::json!({ "schema": 1, "command": command, "fits": all });
        serde_json::to_string_pretty(&value).map_or_else(|error| error.to_string(), |text| text + "\n")
    };
    match &plan.report {
        ReportTo::Nowhere => {}
        ReportTo::Text { .. } => {
            output::to_stderr(&table(all));
        }
        ReportTo::JsonOnStderr => {
            output::to_stderr(&json());
        }
        ReportTo::JsonOnStdout => {
            output::to_stdout(&json())
                .map_err(|error| format!("standard output cannot be written: {}", output::reason(&error)))?;
        }
        ReportTo::JsonFile(file) => report_file::write(file, &json()).map_err(|error| error.to_string())?,
    }
    Ok(())
}

fn table(all: &[Tried]) -> String {
    let mut table = Table::new([
        left("card"),
        left("fits"),
        right("driver holds"),
        right("of"),
        right("share"),
        left(""),
    ]);
    for tried in all {
        let share = tried.held_peak as f64 / tried.memory.max(1) as f64 * 100.0;
        table.row([
            tried.card.clone(),
            tried.verdict.word().to_owned(),
            Bytes(tried.held_peak).to_string(),
            Bytes(tried.memory).to_string(),
            format!("{share:.0} %"),
            tried.why.clone().unwrap_or_default(),
        ]);
    }
    format!("\n{}", table.indented(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_judged_by_its_own_run() {
        let report = |retries: u64, refused: u64, more: Value| {
            let mut found = serde_json::json!({
                "gpus": [{"held_peak": 5}, {"held_peak": 9}], "retries": retries, "out_of_memory": refused,
            });
            found.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::json!({ "dry_run": found })
        };
        let none = || serde_json::json!({});
        let ended = Ending::Exited;
        assert_eq!(judge(ended(0), &report(0, 0, none())), (Verdict::Yes, None, 9));
        assert_eq!(judge(ended(0), &report(2, 0, none())).0, Verdict::Tight);
        assert_eq!(judge(ended(1), &report(0, 1, none())).0, Verdict::No);
        // A program that catches the error and goes on fits in its own way.
        assert_eq!(judge(ended(0), &report(0, 1, none())).0, Verdict::Yes);
        let killed = Ending::Killed { signal: 9, core: false };
        for (ending, report, part) in [
            (ended(3), report(0, 0, none()), "exit code 3, and not for lack"),
            (killed, report(0, 0, none()), "by SIGKILL"),
            (ended(0), report(0, 0, serde_json::json!({"withheld": "x was called"})), "x was called"),
            (ended(0), report(0, 0, serde_json::json!({"gpus": []})), "used no GPU"),
            (ended(0), Value::Null, "used no GPU"),
        ] {
            let (verdict, why, _) = judge(ending, &report);
            assert_eq!(verdict, Verdict::Unknown);
            assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{why:?}");
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_card() {
        let tried = Tried {
            card: "T4".to_owned(),
            verdict: Verdict::Unknown,
            why: Some("the program ended there with exit code 1".to_owned()),
            held_peak: 3 << 30,
            memory: 15 << 30,
            seconds: 1.0,
        };
        let text = table(&[tried]);
        for part in ["T4", "unknown", "3.00 GiB", "15.0 GiB", "20 %", "exit code 1"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
