//! Results of dry runs, kept in a file between calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::reading::DryRun;
use super::table::Row;

/// Outcome of the dry run of one figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// Bytes, or the reason that there are none.
    pub(super) figure: Result<u64, String>,
    pub(super) seconds: u64,
    /// Version of PyTorch, empty if the run failed.
    pub(super) torch: String,
}

impl Outcome {
    pub(super) fn of(run: &DryRun, row: &Row) -> Self {
        Self { figure: run.figure(row), seconds: run.seconds, torch: run.torch.clone() }
    }

    /// Outcome of a figure whose dry run was not made.
    pub(super) fn not_run() -> Self {
        Self { figure: Err("not run".to_owned()), seconds: 0, torch: String::new() }
    }

    /// Relative error against the published figure.
    pub(super) fn error(&self, row: &Row) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        self.figure.as_ref().ok().map(|bytes| *bytes as f64 / row.bytes() - 1.0)
    }
}

/// Results by the figure's name, each with the digest of what it depends on.
#[derive(Debug, Default)]
pub(super) struct Results {
    all: BTreeMap<String, (String, Outcome)>,
    /// Figures whose result is of this call.
    new: BTreeSet<String>,
}

impl Results {
    /// # Errors
    /// The file is there and cannot be read.
    pub(super) fn load(file: &Path) -> Result<Self> {
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let all =
            text.lines().map(parse).collect::<Result<_>>().with_context(|| file.display().to_string())?;
        Ok(Self { all, new: BTreeSet::new() })
    }

    /// # Errors
    /// The file cannot be written.
    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let lines = self.all.iter().map(|(id, (digest, outcome))| {
            let figure = match &outcome.figure {
                Ok(bytes) => bytes.to_string(),
                Err(reason) => format!("failed: {reason}"),
            };
            format!("{id}\t{digest}\t{}\t{}\t{figure}\n", outcome.seconds, outcome.torch)
        });
        fs::write(file, lines.collect::<String>()).with_context(|| file.display().to_string())
    }

    /// Result of a figure, if what it depends on has this digest.
    pub(super) fn get(&self, id: &str, digest: &str) -> Option<&Outcome> {
        self.all.get(id).filter(|(known, _)| known == digest).map(|(_, outcome)| outcome)
    }

    /// Returns true if the result was made by this call.
    pub(super) fn is_new(&self, id: &str) -> bool {
        self.new.contains(id)
    }

    pub(super) fn set(&mut self, id: &str, digest: &str, outcome: Outcome) {
        self.all.insert(id.to_owned(), (digest.to_owned(), outcome));
        self.new.insert(id.to_owned());
    }
}

fn parse(line: &str) -> Result<(String, (String, Outcome))> {
    let [id, digest, seconds, torch, figure] = line.split('\t').collect::<Vec<_>>()[..] else {
        bail!("not five fields: {line}")
    };
    let figure = match figure.strip_prefix("failed: ") {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(figure.parse().with_context(|| line.to_owned())?),
    };
    let outcome = Outcome { figure, seconds: seconds.parse()?, torch: torch.to_owned() };
    Ok((id.to_owned(), (digest.to_owned(), outcome)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_the_file_and_fall_to_a_changed_program() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.tsv");
        let mut results = Results::load(&file).unwrap();
        let good = Outcome { figure: Ok(5), seconds: 7, torch: "2.7.0".to_owned() };
        let bad = Outcome { figure: Err("no GPU".to_owned()), seconds: 0, torch: String::new() };
        results.set("a", "1", good.clone());
        results.set("b", "2", bad.clone());
        results.save(&file).unwrap();
        let again = Results::load(&file).unwrap();
        assert_eq!(again.get("a", "1"), Some(&good));
        assert_eq!(again.get("b", "2"), Some(&bad));
        assert_eq!(again.get("a", "2"), None);
        assert!(results.is_new("a") && !again.is_new("a"));
        fs::write(&file, "a\t1\n").unwrap();
        assert!(Results::load(&file).is_err());
    }
}
