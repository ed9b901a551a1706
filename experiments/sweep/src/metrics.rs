//! Figures that a program logged of itself, by `radrm.log_metric` of the Python module.
//!
//! Each line of the file is one figure: `{"name": "loss", "value": 0.25, "step": 3, "time_ms": 1790000000000}`. What is not
//! finite is a text: `"nan"`, `"inf"`, `"-inf"`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The variable that names the file.
pub const VARIABLE: &str = "RADRM_METRICS";

/// The file in the folder of an attempt.
pub(crate) const FILE: &str = "metrics.jsonl";

/// Most bytes that are read of a file: what a program logs beyond is not seen.
const MAX_BYTES: u64 = 256 << 20;

/// Most bytes of a line; longer ones are left out.
const MAX_LINE: u64 = 4096;

/// Most names.
pub(crate) const MAX_NAMES: usize = 1000;

/// A metric of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// The value that was logged last.
    pub last: f64,
    /// The least of all.
    pub min: f64,
    /// The largest of all.
    pub max: f64,
    /// Step of `last`.
    pub step: Option<i64>,
    /// Values that were logged.
    pub count: u64,
}

/// Metrics of a run by name.
pub type Metrics = BTreeMap<String, Logged>;

#[derive(Deserialize)]
struct Line {
    name: String,
    value: Value,
    step: Option<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(f64),
    Text(String),
}

impl Value {
    fn number(self) -> f64 {
        match self {
            Self::Number(value) => value,
            Self::Text(text) => text.parse().unwrap_or(f64::NAN),
        }
    }
}

/// Metrics of a file; none where it is not there. Lines that are no figure, such as the last one of a killed program, are
/// left out, and so are values that are not finite: a metric whose last value is not finite has none.
#[must_use]
pub(crate) fn read(path: &Path) -> Metrics {
    let mut found = Metrics::new();
    let Some(file) = open(path) else { return found };
    let mut lines = BufReader::new(file.take(MAX_BYTES));
    let mut line = Vec::new();
    while let Some(is_whole) = next(&mut lines, &mut line) {
        let parsed = is_whole.then(|| serde_json::from_slice::<Line>(&line).ok()).flatten();
        let Some(Line { name, value, step }) = parsed else { continue };
        add(&mut found, name, value.number(), step);
    }
    found
}

/// Adds a value that was logged.
pub(crate) fn add(found: &mut Metrics, name: String, value: f64, step: Option<i64>) {
    if !value.is_finite() {
        found.remove(&name);
    } else if let Some(one) = found.get_mut(&name) {
        let (min, max) = (one.min.min(value), one.max.max(value));
        *one = Logged { last: value, min, max, step, count: one.count + 1 };
    } else if found.len() < MAX_NAMES {
        found.insert(name, Logged { last: value, min: value, max: value, step, count: 1 });
    }
}

/// Most bytes that [`follow`] reads at once.
const MAX_PART: u64 = 16 << 20;

/// Values of one metric that were logged behind so many bytes of a file, each with its step, and the bytes up to the end of the last
/// whole line. What is not finite is among them.
pub(crate) fn follow(path: &Path, name: &str, from: u64) -> (Vec<(Option<i64>, f64)>, u64) {
    let read = || {
        let mut file = open(path)?;
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_PART.min(MAX_BYTES.saturating_sub(from))).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    let bytes = read().unwrap_or_default();
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        // A line of this length is none of a metric.
        None if bytes.len() as u64 == MAX_PART => bytes.len(),
        None => 0,
    };
    let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| line.len() as u64 <= MAX_LINE);
    let lines = lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    let values = lines.filter(|line| line.name == name).map(|line| (line.step, line.value.number()));
    (values.collect(), from + whole as u64)
}

fn open(path: &Path) -> Option<File> {
    // The program may have put a pipe there, which would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|meta| meta.is_file()).then_some(file)
}

/// Reads the next line; gives whether it is whole, `None` at the end.
fn next(lines: &mut impl BufRead, line: &mut Vec<u8>) -> Option<bool> {
    line.clear();
    lines.by_ref().take(MAX_LINE).read_until(b'\n', line).ok().filter(|count| *count > 0)?;
    if line.last() == Some(&b'\n') {
        return Some(true);
    }
    lines.skip_until(b'\n').ok()?;
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Metrics {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn the_last_value_of_a_metric_is_kept_with_its_extremes() {
        let long = format!("{{\"name\": \"{}\", \"value\": 1}}", "x".repeat(5000));
        let text = format!(
            "{}\n{}\nno figure\n{long}\n{}\n{}\n{}",
            r#"{"name": "loss", "value": 2.5, "step": 0, "time_ms": 1}"#,
            r#"{"name": "loss", "value": 0.25, "step": 1}"#,
            r#"{"name": "accuracy", "value": 1}"#,
            r#"{"name": "loss", "value": 0.5, "step": 2}"#,
            r#"{"name": "loss", "val"#,
        );
        let found = of(&text);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["accuracy", "loss"]);
        assert_eq!(found["loss"], Logged { last: 0.5, min: 0.25, max: 2.5, step: Some(2), count: 3 });
        assert_eq!(read(Path::new("/nowhere")), Metrics::new());
    }

    #[test]
    fn a_file_is_followed_by_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(follow(&path, "loss", 0), (Vec::new(), 0));
        let first = "{\"name\": \"loss\", \"value\": 2, \"step\": 1}\n{\"name\": \"other\", \"value\": 9}\n";
        let next = "{\"name\": \"loss\", \"value\": \"nan\"}\n";
        std::fs::write(&path, format!("{first}{}", &next[..9])).unwrap();
        let (values, read) = follow(&path, "loss", 0);
        assert_eq!((values, read), (vec![(Some(1), 2.0)], first.len() as u64));
        std::fs::write(&path, format!("{first}{next}")).unwrap();
        let (values, end) = follow(&path, "loss", read);
        assert!(values.len() == 1 && values[0].0.is_none() && values[0].1.is_nan(), "{values:?}");
        assert_eq!(follow(&path, "loss", end), (Vec::new(), end));
    }

    #[test]
    fn a_metric_that_diverged_has_no_value() {
        let text = "{\"name\": \"loss\", \"value\": 1}\n{\"name\": \"loss\", \"value\": \"nan\"}\n";
        assert_eq!(of(text), Metrics::new());
    }
}
