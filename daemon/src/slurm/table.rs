//! The table of ended steps, a line each, which `sacct`'s lines can be joined with.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::record::{Key, Record};
use crate::error::DaemonError;

/// The first line. `JobIDRaw` is as in `sacct --format=JobIDRaw`; times are seconds since 1970.
const HEAD: &str = "JobIDRaw,Node,User,UID,Start,End,ExitCode,GrantedBytes,PeakBytes,OutOfMemoryBytes,\
                    SMActivity,RecommendedBytes\n";
/// Only steps of the last lines can have been written twice: by a daemon that was killed.
const TAIL: u64 = 256 << 10;

/// The file.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    file: File,
    /// Beginnings of the last lines.
    known: BTreeSet<String>,
    /// The last line is cut off, as the disk took a part of it.
    is_cut: bool,
}

impl Table {
    /// Opens the file, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, DaemonError> {
        let failed = |error| DaemonError::file(path, &error);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        if length == 0 {
            file.write_all(HEAD.as_bytes()).map_err(failed)?;
        } else if !text.ends_with('\n') {
            // Its writer was killed in the middle of a line, which is written anew.
            file.write_all(b"\n").map_err(failed)?;
        }
        // Only whole lines count.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let known = whole.lines().filter_map(|line| Some(begin(line)?.to_owned())).collect();
        Ok(Self { path: path.to_owned(), file, known, is_cut: false })
    }

    /// Adds a step; false if it is there.
    pub(super) fn add(&mut self, key: &Key, record: &Record, user: &str) -> Result<bool, DaemonError> {
        let line = line(key, record, user);
        let begin = begin(&line).unwrap_or_default().to_owned();
        if self.known.contains(&begin) {
            return Ok(false);
        }
        self.write(&line).map_err(|error| DaemonError::file(&self.path, &error))?;
        self.known.insert(begin);
        Ok(true)
    }

    /// Writes a line, or nothing of it.
    fn write(&mut self, line: &str) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        let begin = if self.is_cut { "\n" } else { "" };
        let written = self.file.write_all([begin, line].concat().as_bytes());
        if written.is_ok() {
            self.is_cut = false;
        } else {
            let has_grown = self.file.metadata().is_ok_and(|found| found.len() > before);
            self.is_cut |= has_grown && self.file.set_len(before).is_err();
        }
        written
    }
}

/// Prefix by which a line is that of a step: all up to `End`.
fn begin(line: &str) -> Option<&str> {
    line.match_indices(',').nth(4).map(|(at, _)| &line[..at])
}

fn line(key: &Key, record: &Record, user: &str) -> String {
    let or_empty = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let Record { node, uid, granted, end_ms, exit, peak, oom, smact } = record;
    let user: String = user.chars().filter(|character| !",\"\n\r".contains(*character)).collect();
    let exit = exit.map(|(code, signal)| format!("{code}:{signal}")).unwrap_or_default();
    let fields = [
        format!("{}.{}", key.job, key.step),
        node.clone(),
        user,
        uid.to_string(),
        format!("{}.{:03}", key.begin_ms / 1000, key.begin_ms % 1000),
        end_ms.map(|end| format!("{}.{:03}", end / 1000, end % 1000)).unwrap_or_default(),
        exit,
        or_empty(*granted),
        or_empty(*peak),
        or_empty(*oom),
        smact.map(|permille| format!("{:.3}", f64::from(permille) / 1000.0)).unwrap_or_default(),
        or_empty(record.recommended()),
    ];
    fields.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_step_has_one_line_also_after_a_kill() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("slurm.csv");
        let key = Key { job: 42, step: "0".into(), begin_ms: 1500 };
        let record = Record {
            node: "n1".into(),
            uid: 7,
            exit: Some((1, 0)),
            end_ms: Some(2501),
            peak: Some(5),
            smact: Some(250),
            ..Record::default()
        };
        Table::open(&path).unwrap().add(&key, &record, "a,b").unwrap();
        let mut table = Table::open(&path).unwrap();
        table.add(&key, &record, "a,b").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().nth(1), Some("42.0,n1,ab,7,1.500,2.501,1:0,,5,,0.250,5"));
        assert_eq!((text.lines().count(), text.starts_with("JobIDRaw,Node,User,")), (2, true));
        // A kill in the middle of a line.
        fs::write(&path, &text[..text.len() - 20]).unwrap();
        Table::open(&path).unwrap().add(&key, &record, "a,b").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("1:0,,5,,0.250,5\n") && text.lines().count() == 3, "{text}");
    }

    #[test]
    fn a_line_that_could_be_written_in_part_only_does_not_spoil_the_next() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("slurm.csv");
        let key = Key { job: 42, step: "0".into(), begin_ms: 1500 };
        let mut table = Table::open(&path).unwrap();
        // As a full disk leaves it, on which the file cannot be made shorter either.
        table.file.write_all(b"42.0,,ada,0,1.5").unwrap();
        table.is_cut = true;
        assert!(table.add(&key, &Record::default(), "ada").unwrap());
        assert!(!table.add(&key, &Record::default(), "ada").unwrap(), "it is there");
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["42.0,,ada,0,1.5", "42.0,,ada,0,1.500,,,,,,,"]);
    }
}
