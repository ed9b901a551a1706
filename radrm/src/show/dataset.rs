//! `radrm dataset`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use radrm_base::{Bytes, Nanos, calendar, signal};
use radrm_collector::dataset::{self, Dataset, DatasetError, Features, Filter, Origin, Row};
use radrm_text::output::Delivery;
use radrm_text::{Table, fit, left, right};
use serde_json::{Value, json};

use crate::error::FileProblem;
use crate::{Failure, deliver, print};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List runs, the newest first
    #[command(after_long_help = "\
Example:
  radrm dataset list --program python3 -n 5")]
    List {
        /// Print JSON, with features of processes
        #[arg(long)]
        json: bool,
        /// Only runs of this program
        #[arg(long, value_name = "NAME")]
        program: Option<String>,
        /// Number of rows; 0 for all
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        limit: u32,
        /// Read this database
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
    /// Copy the dataset to a new file while runs may be added
    Backup {
        /// The copy; must not exist
        file: PathBuf,
        /// Copy this database
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
    /// Check that the dataset is not damaged
    Check {
        /// Check this database
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
}

/// Does what the command line asks for.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List { json, program, limit, dataset } => list(json, program, limit, dataset),
        Command::Backup { file, dataset } => backup(dataset, &file),
        Command::Check { dataset } => check(dataset),
    }
}

/// Prints the newest rows.
fn list(json: bool, program: Option<String>, limit: u32, named: Option<PathBuf>) -> Result<(), Failure> {
    let is_named = named.is_some();
    let path = path(named)?;
    if !is_named && !path.exists() {
        // Nothing was recorded yet: that is an answer, not a failure.
        return print(if json { "[]\n" } else { "no run was recorded yet\n" });
    }
    let filter = Filter { limit: (limit > 0).then_some(limit), program, ..Filter::default() };
    let in_file = |error| in_file(&path, error);
    let dataset = Dataset::open_existing(&path).map_err(in_file)?;
    let rows = dataset.rows(&filter).map_err(in_file)?;
    if !json {
        return print(&table(&rows).to_string());
    }
    // Row by row: with what their processes did, all together may be more than fits into memory.
    let mut before = "[\n";
    for row in &rows {
        let features = dataset.features(row.id).map_err(in_file)?;
        if deliver(&format!("{before}{}", element(&as_json(row, features.as_ref()))))? == Delivery::Closed {
            return Ok(());
        }
        before = ",\n";
    }
    print(if rows.is_empty() { "[]\n" } else { "\n]\n" })
}

/// The dataset that is named, or the user's.
pub(crate) fn path(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    named.or_else(dataset::default_path).ok_or(Failure::NoDataset)
}

/// The error, with the file if it does not name it.
pub(crate) fn in_file(path: &Path, error: DatasetError) -> Failure {
    let text = error.to_string();
    let name = path.display().to_string();
    if text.contains(&name) { error.into() } else { FileProblem::Dataset(error).of(path) }
}

/// Copies a dataset while others may write to it.
fn backup(named: Option<PathBuf>, to: &Path) -> Result<(), Failure> {
    let path = path(named)?;
    let dataset = Dataset::open_existing(&path).map_err(|error| in_file(&path, error))?;
    dataset.backup(to)?;
    print(&format!("{}\n", to.display()))
}

/// Checks a dataset from end to end.
fn check(named: Option<PathBuf>) -> Result<(), Failure> {
    let path = path(named)?;
    let rows = Dataset::open_existing(&path).and_then(|dataset| dataset.check());
    let rows = rows.map_err(|error| in_file(&path, error))?;
    print(&format!("{}: ok, {rows} runs\n", path.display()))
}

/// An element of a pretty-printed list.
fn element(value: &Value) -> String {
    // No line ends but those of the layout: in strings they are escaped.
    format!("  {}", format!("{value:#}").replace('\n', "\n  "))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        right("RUN"),
        left("STARTED (UTC)"),
        right("DURATION"),
        right("PEAK"),
        right("LAUNCHES"),
        left("OUTCOME"),
        left("ORIGIN"),
        left("COMMAND"),
    ]);
    for row in rows {
        table.row([
            row.id.to_string(),
            calendar::utc(row.start_unix_ns)[..16].to_owned(),
            Nanos(row.duration_ns).to_string(),
            peak(row),
            row.launches.map_or_else(|| "n/a".to_owned(), |launches| launches.to_string()),
            outcome(row),
            origin(row.origin).to_owned(),
            fit(&command_line(row), 60),
        ]);
    }
    table
}

/// The peak, marked where it is only known not to be higher.
fn peak(row: &Row) -> String {
    format!("{}{}", if row.peak_exact { "" } else { "<=" }, Bytes(row.peak_bytes))
}

/// Program and arguments, the program without its folder.
pub(crate) fn command_line(row: &Row) -> String {
    let name = row.command.rsplit('/').next().unwrap_or_default();
    let words = std::iter::once(name).chain(row.arguments.iter().map(String::as_str));
    words.collect::<Vec<_>>().join(" ")
}

pub(crate) fn outcome(row: &Row) -> String {
    match (row.out_of_memory, row.exit_code, row.signal) {
        (true, ..) => "out of memory".to_owned(),
        (_, _, Some(signal)) => signal::name(signal),
        (_, Some(0), _) => "ok".to_owned(),
        (_, Some(code), _) => format!("code {code}"),
        _ => row.outcome.clone(),
    }
}

/// Name of the way in which the figures were obtained.
pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Measured => "measured",
        Origin::Emulated => "emulated",
        Origin::DryRun => "dry run",
        Origin::Daemon => "daemon",
    }
}

/// The columns by name, and what the processes did.
fn as_json(row: &Row, features: Option<&Features>) -> Value {
    let mut value = json!(row);
    value["features"] = json!(features);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_interpreter_are_told_apart() {
        let row = |script: &str| Row {
            command: "/usr/bin/python3".into(),
            arguments: vec![script.into(), "--epochs".into(), "3".into()],
            ..Row::default()
        };
        let text = table(&[row("train.py"), row("eval.py")]).to_string();
        assert!(text.contains(" python3 train.py --epochs 3\n"), "{text}");
        assert!(text.contains(" python3 eval.py --epochs 3\n"), "{text}");
    }
}
