//! Results of a suite by file of tests, kept so that it can be run in pieces.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::outcome::{Outcome, parse};
use super::run::Both;

/// Reads what was kept; nothing where nothing was.
pub fn load(file: &Path) -> BTreeMap<String, Both> {
    let mut texts: BTreeMap<(String, String), String> = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let mut fields = line.splitn(3, '\t');
        if let (Some(of), Some(side), Some(rest)) = (fields.next(), fields.next(), fields.next()) {
            writeln!(texts.entry((of.to_owned(), side.to_owned())).or_default(), "{rest}").expect("a string");
        }
    }
    let mut runs: BTreeMap<String, Both> = BTreeMap::new();
    for ((of, side), text) in texts {
        let run = runs.entry(of).or_default();
        match side.as_str() {
            "shim" => run.shimmed = parse(&text),
            "bare" => run.bare = parse(&text),
            "runs" => run.runs = text.trim_end().parse().unwrap_or(0),
            "made" => text.trim_end().clone_into(&mut run.made),
            _ => run.unsteady = text.lines().map(|test| test.trim_end().to_owned()).collect(),
        }
    }
    runs
}

/// Writes all of it.
///
/// # Errors
/// The file cannot be written.
pub fn save(file: &Path, runs: &BTreeMap<String, Both>) -> Result<()> {
    let mut text = String::new();
    for (of, run) in runs {
        for (side, outcomes) in [("bare", &run.bare), ("shim", &run.shimmed)] {
            for (test, outcome) in outcomes {
                let (word, reason) = match outcome {
                    Outcome::Passed => ("passed", ""),
                    Outcome::Skipped => ("skipped", ""),
                    Outcome::Failed(reason) => ("failed", reason.as_str()),
                    Outcome::Crashed => ("started", ""),
                };
                writeln!(text, "{of}\t{side}\t{test}\t{word}\t{reason}").expect("a string");
            }
        }
        writeln!(text, "{of}\truns\t{}\n{of}\tmade\t{}", run.runs, run.made).expect("a string");
        for test in &run.unsteady {
            writeln!(text, "{of}\tunsteady\t{test}").expect("a string");
        }
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/suite.tsv");
        assert!(load(&file).is_empty());
        let bare = parse("a\tpassed\t\nb\tfailed\tbad: 1\nc\tstarted\t\nd\tskipped\t\n");
        let shimmed = parse("a\tfailed\tother\n");
        let runs = BTreeMap::from([(
            "x.py".to_owned(),
            Both {
                bare: bare.clone(),
                shimmed: shimmed.clone(),
                unsteady: ["d".to_owned()].into(),
                runs: 3,
                made: "today".to_owned(),
            },
        )]);
        save(&file, &runs).unwrap();
        let loaded = load(&file);
        assert_eq!((&loaded["x.py"].bare, &loaded["x.py"].shimmed), (&bare, &shimmed));
        assert!(loaded["x.py"].unsteady.contains("d"));
        assert_eq!((loaded["x.py"].runs, loaded["x.py"].made.as_str()), (3, "today"));
    }
}
