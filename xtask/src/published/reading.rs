//! Figures of a dry run: those that its program printed, and those of the report.

use std::collections::BTreeMap;

use serde_json::Value;

use super::table::{Quantity, Row};

/// First word of a line in which a program prints a figure: `figure CASE QUANTITY BYTES`.
const MARK: &str = "figure";

/// Outcome of one dry run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DryRun {
    /// By case and quantity, bytes.
    printed: BTreeMap<(String, String), u64>,
    /// By quantity, of the whole run, bytes.
    whole: BTreeMap<&'static str, u64>,
    /// Seconds of the run.
    pub(super) seconds: u64,
    /// Version of PyTorch.
    pub(super) torch: String,
    /// Reason that there is no figure.
    pub(super) failed: Option<String>,
}

impl DryRun {
    /// Run that gave no figure, with the reason in one line.
    pub(super) fn failed(reason: &str, seconds: u64) -> Self {
        let line: String = reason.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        let short: String = line.trim().chars().take(200).collect();
        Self { failed: Some(short), seconds, ..Self::default() }
    }

    /// Reads what the program printed, and the report of `radrm-run --json`.
    pub(super) fn read(output: &str, report: &Value) -> Self {
        let told = &report["dry_run"];
        let seconds = told["seconds"].as_f64().unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration")]
        let seconds = seconds.round().max(0.0) as u64;
        if let Some(why) = told["withheld"].as_str() {
            return Self::failed(&format!("the report withholds its figures: {why}"), seconds);
        }
        let gpu = &told["gpus"][0];
        let whole = [
            (Quantity::Allocated.name(), &gpu["phases"]["whole"]["allocated"]),
            (Quantity::Reserved.name(), &gpu["phases"]["whole"]["reserved"]),
            (Quantity::Smi.name(), &gpu["held_peak"]),
        ];
        Self {
            printed: output.lines().filter_map(printed).collect(),
            whole: whole.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect(),
            seconds,
            torch: told["torch"].as_str().unwrap_or("").to_owned(),
            failed: None,
        }
    }

    /// Figure of a row, bytes: what the program printed at the moment that the source measured, or the report's of the
    /// whole run for a row without a case.
    ///
    /// # Errors
    /// The reason that there is none.
    pub(super) fn figure(&self, row: &Row) -> Result<u64, String> {
        if let Some(reason) = &self.failed {
            return Err(reason.clone());
        }
        let name = row.quantity.name();
        let whole = self.whole.get(name).copied();
        let figure = match row.case.as_str() {
            "-" => whole,
            case => self.printed.get(&(case.to_owned(), name.to_owned())).copied(),
        };
        match (figure, whole) {
            (None, _) => Err(format!("the dry run gave no figure \"{name}\" of \"{}\"", row.case)),
            // The report has the largest figure of the whole run: a program that prints more read something else.
            (Some(figure), Some(whole)) if figure > whole => {
                Err(format!("the program printed {figure} bytes, and the report has {whole}"))
            }
            (Some(figure), _) => Ok(figure),
        }
    }
}

fn printed(line: &str) -> Option<((String, String), u64)> {
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [MARK, case, quantity, bytes] => Some(((case.to_owned(), quantity.to_owned()), bytes.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, quantity: Quantity) -> Row {
        Row {
            id: "a".to_owned(),
            kind: "k".to_owned(),
            source: "s".to_owned(),
            card: "T4".to_owned(),
            stack: "torch-2.7".to_owned(),
            program: "a.py".to_owned(),
            case: case.to_owned(),
            quantity,
            published: 1.0,
            unit: "B".to_owned(),
            configuration: String::new(),
            after: String::new(),
        }
    }

    fn report() -> Value {
        serde_json::json!({"dry_run": {
            "gpus": [{"held_peak": 900, "phases": {"whole": {"allocated": 500, "reserved": 700}}}],
            "seconds": 9.6, "torch": "2.7.0", "withheld": null,
        }})
    }

    #[test]
    fn a_figure_is_that_of_its_case_and_quantity() {
        let run =
            DryRun::read("loss 1\nfigure one allocated 100\nfigure one active 550\nfigure two\n", &report());
        assert_eq!(run.figure(&row("one", Quantity::Allocated)), Ok(100));
        assert_eq!(run.figure(&row("one", Quantity::Active)), Ok(550));
        assert_eq!(run.figure(&row("-", Quantity::Allocated)), Ok(500));
        assert_eq!(run.figure(&row("-", Quantity::Reserved)), Ok(700));
        assert_eq!(run.figure(&row("-", Quantity::Smi)), Ok(900));
        assert!(run.figure(&row("-", Quantity::Active)).is_err());
        assert!(run.figure(&row("two", Quantity::Allocated)).is_err());
        assert_eq!((run.seconds, run.torch.as_str()), (10, "2.7.0"));
    }

    #[test]
    fn a_printed_figure_above_the_report_is_refused() {
        let run = DryRun::read("figure one allocated 501\n", &report());
        assert!(run.figure(&row("one", Quantity::Allocated)).unwrap_err().contains("501"));
    }

    #[test]
    fn a_withheld_report_gives_its_reason() {
        let mut withheld = report();
        withheld["dry_run"]["withheld"] = "killed\nby a signal".into();
        let run = DryRun::read("figure one allocated 100\n", &withheld);
        let reason = run.figure(&row("one", Quantity::Allocated)).unwrap_err();
        assert!(reason.contains("killed by a signal"), "{reason}");
    }
}
