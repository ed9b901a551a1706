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
pub(crate) enum ValueError {
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
    #[error("`{0}` is no part of a speed such as 0.8 or 80%")]
    Part(String),
    #[error("`{0}` is no signal such as USR1")]
    Signal(String),
}

/// A span of time in ms: `90s`, `30m`, `2h`, `1d`, `1:30:00`, `1-12:00:00`, or minutes.
pub(crate) fn span(text: &str) -> Result<u64, ValueError> {
    radrm_protocol::span::milliseconds(text).ok_or_else(|| ValueError::Time(text.to_owned()))
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
pub(crate) fn of_file(path: &Path, most: u64) -> Result<String, Failure> {
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
