//! `radrm dataset`.

use std::path::{Path, PathBuf};

use radrm_base::signal;
use radrm_collector::dataset::{self, Dataset, DatasetError, Features, Filter, Origin, Row};
use radrm_console::output::Delivery;
use radrm_term::{Table, fit, left, right};
use serde_json::{Value, json};

use crate::cli::List;
use crate::{Failure, deliver, print};

/// Prints the newest rows.
///
/// # Errors
/// One sentence: the dataset cannot be read.
pub fn list(wanted: &List) -> Result<(), Failure> {
    let path = path(wanted.dataset.clone())?;
    if wanted.dataset.is_none() && !path.exists() {
        // Nothing was recorded yet: that is an answer, not a failure.
        return print(if wanted.json { "[]\n" } else { "no run was recorded yet\n" });
    }
    let filter = Filter {
        limit: (wanted.limit > 0).then_some(wanted.limit),
        program: wanted.program.clone(),
        ..Filter::default()
    };
    let in_file = |error| in_file(&path, error);
    let dataset = Dataset::open_existing(&path).map_err(in_file)?;
    let rows = dataset.rows(&filter).map_err(in_file)?;
    if !wanted.json {
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
fn path(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    named.or_else(dataset::default_path).ok_or(Failure::NoDataset)
}

/// The error, with the file if it does not name it.
fn in_file(path: &Path, error: DatasetError) -> Failure {
    let text = error.to_string();
    let name = path.display().to_string();
    if text.contains(&name) { error.into() } else { Failure::Work(format!("{name}: {text}")) }
}

/// Copies a dataset while others may write to it.
///
/// # Errors
/// [`Failure`]: the dataset cannot be read, or the copy cannot be made.
pub fn backup(named: Option<PathBuf>, to: &Path) -> Result<(), Failure> {
    let path = path(named)?;
    let dataset = Dataset::open_existing(&path).map_err(|error| in_file(&path, error))?;
    dataset.backup(to)?;
    print(&format!("{}\n", to.display()))
}

/// Checks a dataset from end to end.
///
/// # Errors
/// [`Failure`]: it is damaged or cannot be read.
pub fn check(named: Option<PathBuf>) -> Result<(), Failure> {
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
            minute(row.start_unix_ns),
            seconds(row.duration_ns),
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
    format!("{}{}", if row.peak_exact { "" } else { "<=" }, mebibytes(row.peak_bytes))
}

/// Program and arguments, the program without its folder.
fn command_line(row: &Row) -> String {
    let name = row.command.rsplit('/').next().unwrap_or_default();
    let words = std::iter::once(name).chain(row.arguments.iter().map(String::as_str));
    words.collect::<Vec<_>>().join(" ")
}

fn outcome(row: &Row) -> String {
    match (row.out_of_memory, row.exit_code, row.signal) {
        (true, ..) => "out of memory".to_owned(),
        (_, _, Some(signal)) => signal::name(signal),
        (_, Some(0), _) => "ok".to_owned(),
        (_, Some(code), _) => format!("code {code}"),
        _ => row.outcome.clone(),
    }
}

/// How the figures were obtained.
fn origin(origin: Origin) -> &'static str {
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

/// `2026-11-21 04:28`, by the proleptic Gregorian calendar (days to date after Howard Hinnant).
fn minute(unix_ns: u64) -> String {
    let minutes = unix_ns / 60_000_000_000;
    let days = minutes / 1440 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60 % 24, minutes % 60)
}

fn seconds(ns: u64) -> String {
    let tenths = ns / 100_000_000;
    match tenths / 10 {
        0..=99 => format!("{}.{} s", tenths / 10, tenths % 10),
        whole @ 100..=5999 => format!("{} min", whole / 60),
        whole => format!("{} h", whole / 3600),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let second = 1_000_000_000;
        for (unix, expected) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_735_689_599, "2024-12-31 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(minute(unix * second), expected);
        }
    }

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

    #[test]
    fn durations_are_short() {
        let second = 1_000_000_000;
        assert_eq!(
            [seconds(0), seconds(99 * second), seconds(100 * second), seconds(7200 * second)],
            ["0.0 s", "99.0 s", "1 min", "2 h"]
        );
    }
}
