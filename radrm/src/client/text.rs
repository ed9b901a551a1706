//! Times and amounts for people.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use radrm_scheduler_core::{Bytes, Millis};
use thiserror::Error;

use crate::Failure;
use crate::error::FileProblem;

/// Why the value of an option is not taken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(super) enum ValueError {
    #[error("`{0}` is no time: write 90s, 30m, 2h, 1-12:00:00 or minutes")]
    Time(String),
    #[error("`{0}` is no day such as 2026-11-01")]
    Day(String),
    #[error("`{0}` is not between 0.1 and 3600 seconds")]
    Interval(String),
    #[error("`{0}` is no number of cores")]
    Cores(String),
    #[error("`{0}` is no percentage such as 30%")]
    Percentage(String),
    #[error("`{0}` is no signal such as USR1")]
    Signal(String),
}

/// A span of time in ms: `90s`, `30m`, `2h`, `1d`, `1:30:00`, `1-12:00:00`, or minutes.
pub(super) fn span(text: &str) -> Result<u64, ValueError> {
    let bad = || ValueError::Time(text.to_owned());
    let text = text.trim();
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    let ms = |value: f64| Ok((value * 1000.0).round() as u64);
    for (unit, factor) in
        [("ms", 0.001), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)]
    {
        if let Some(value) = text.strip_suffix(unit).and_then(|rest| number(rest.trim())) {
            return ms(value * factor);
        }
    }
    if !text.contains([':', '-']) {
        return number(text).ok_or_else(bad).and_then(|minutes| ms(minutes * 60.0));
    }
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().map_err(|_| bad())?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> =
        clock.split(':').map(|part| part.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
    let dashed = text.contains('-');
    let [hours, minutes, seconds] = match (dashed, parts.as_slice()) {
        (true, [hours]) => [*hours, 0, 0],
        (true, [hours, minutes]) => [*hours, *minutes, 0],
        (_, [hours, minutes, seconds]) => [*hours, *minutes, *seconds],
        (false, [minutes, seconds]) => [0, *minutes, *seconds],
        _ => return Err(bad()),
    };
    let sum = [(days, 86_400_000_u64), (hours, 3_600_000), (minutes, 60_000), (seconds, 1000)];
    let sum = sum.into_iter().try_fold(0, |sum: u64, (count, ms)| sum.checked_add(count.checked_mul(ms)?));
    sum.ok_or_else(bad)
}

/// `1.5 GiB`, or `-` for nothing.
pub(super) fn bytes(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { Bytes(bytes).to_string() }
}

/// A span for people.
pub(super) fn time(ms: u64) -> String {
    Millis(ms).to_string()
}

/// The text of a file that the user names: a regular file, or a pipe of a shell, of at most `most` bytes.
pub(super) fn of_file(path: &Path, most: u64) -> Result<String, Failure> {
    let read = || {
        let file = File::open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_fifo() {
            return Err(FileProblem::Irregular);
        }
        let mut text = String::new();
        match file.take(most + 1).read_to_string(&mut text)? as u64 > most {
            true => Err(FileProblem::TooLarge(Bytes(most))),
            false => Ok(text),
        }
    };
    read().map_err(|problem| problem.of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_is_regular_and_of_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(of_file(&path, 5).unwrap(), "12345");
        let why = |path: &Path, most| of_file(path, most).unwrap_err().to_string();
        assert!(why(&path, 4).ends_with("a: more than 4 B"));
        assert!(why(Path::new("/dev/zero"), 5).ends_with("/dev/zero: not a regular file"));
        assert!(of_file(dir.path(), 5).is_err());
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1800),
            ("2h", 7200),
            ("1.5h", 5400),
            ("10", 600),
            ("1:30", 90),
            ("1:00:00", 3600),
            ("1-12:00:00", 129_600),
            ("2-1", 176_400),
        ] {
            assert_eq!(span(text), Ok(seconds * 1000), "{text}");
        }
        assert_eq!(span("250ms"), Ok(250));
        for text in ["", "x", "-5", "1:2:3:4", "5x", "nan", "99999999999999999-1:00", "300000000000000000:0"]
        {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
