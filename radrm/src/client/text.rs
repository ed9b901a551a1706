//! Times and amounts for people.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use radrm_os::untrusted;
use radrm_scheduler_core::{Bytes, Millis};
use rustix::fs::{FileType, Mode, OFlags};
use thiserror::Error;

use crate::Failure;
use crate::error::FileProblem;

/// Reason that the value of an option is rejected.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum ValueError {
    #[error("`{0}` is no time: write 90s, 30m, 2h, 1-12:00:00 or minutes")]
    Time(String),
    #[error("`{0}` is no day such as 2026-11-01")]
    Day(String),
    #[error("`{0}` is not between 0.1 and 3600 seconds")]
    Interval(String),
    #[error("`{0}` is not a number of cores")]
    Cores(String),
    #[error("{0}")]
    Percentage(String),
    #[error("`{0}` is not a percentage from 0.1 to 100")]
    NoShare(String),
    #[error("`{0}` is not a part of a speed such as 0.8 or 80%")]
    Part(String),
    #[error("`{0}` is not a signal such as USR1")]
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

/// Opens a file that the user names: a regular file, or a pipe of a shell such as `<(zcat FILE)`. A pipe that has a name
/// is not opened: it may have no writer, and opening it would wait.
pub(crate) fn open_named(path: &Path) -> Result<File, FileProblem> {
    /// `PIPEFS_MAGIC`: where pipes without a name are.
    const PIPES: i64 = 0x5049_5045;
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(io_error)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&found).map_err(io_error)?.st_mode) {
        FileType::RegularFile => Ok(untrusted::open_found(&found)?),
        FileType::Fifo if rustix::fs::fstatfs(&found).map_err(io_error)?.f_type as i64 == PIPES => {
            Ok(File::open(path)?)
        }
        _ => Err(FileProblem::Irregular),
    }
}

fn io_error(error: rustix::io::Errno) -> FileProblem {
    FileProblem::Io(error.into())
}

/// The text of a file that the user names: a regular file, or a pipe of a shell, of at most `most` bytes.
pub(crate) fn of_file(path: &Path, most: u64) -> Result<String, Failure> {
    let read = || {
        let file = open_named(path)?;
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
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(of_file(&link, 5).unwrap(), "12345");
    }

    #[test]
    fn a_pipe_of_a_shell_is_read_and_one_with_a_name_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let named = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &named, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(of_file(&named, 5).unwrap_err().to_string().ends_with("fifo: not a regular file"));
        let (read, mut write) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut write, b"12345").unwrap();
        drop(write);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
        assert_eq!(of_file(Path::new(&path), 5).unwrap(), "12345");
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
