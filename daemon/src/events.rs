//! The log of events: every event of the scheduler and what it decided, so that
//! `radrm replay --events` can feed it the same again.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use radrm_scheduler_core::replay::events::Entry;
use radrm_scheduler_core::{Decision, Event, Millis, Settings};

use super::error::DaemonError;

/// Lines that have no room are kept up to this many bytes, then given up.
const MAX_PENDING: usize = 16 << 20;

/// The file, written line by line: what a killed daemon did is in it.
pub(crate) struct Log {
    file: File,
    /// Lines, or the rest of one, that are not written yet.
    unwritten: Vec<u8>,
    /// Lines that were given up.
    lost: u64,
}

impl Log {
    /// Opens the file to go on at its end.
    pub(crate) fn open(path: &Path) -> Result<Self, DaemonError> {
        let failed = |error| DaemonError::file(path, &error);
        // It names users and what their jobs take. Its folder may be open to others, who put something else in its place.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
        let mut file = options.open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(DaemonError::NotPrivate(path.to_owned()));
        }
        // One that an earlier build made may be open to others.
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        let mut unwritten = Vec::new();
        // A daemon that had no room left at its end may have left half a line.
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(0)).map_err(failed)? > 0 {
            file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(failed)?;
        }
        if last != *b"\n" {
            unwritten.push(b'\n');
        }
        Ok(Self { file, unwritten, lost: 0 })
    }

    /// A state with nothing in it.
    pub(crate) fn start(&mut self, settings: &Settings) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.put(&Entry::Start { version, settings: Box::new(settings.clone()) });
    }

    /// An event, and what the scheduler decided.
    pub(crate) fn step(&mut self, at: Millis, event: Event, decisions: &[Decision]) {
        self.put(&Entry::Step { at, event, decisions: decisions.to_vec() });
    }

    fn put(&mut self, entry: &Entry) {
        if self.unwritten.len() > MAX_PENDING {
            self.lost += 1;
        } else {
            self.add(entry);
        }
        self.flush();
        if self.lost > 0 && self.unwritten.len() < MAX_PENDING {
            let gap = Entry::Gap { lines: std::mem::take(&mut self.lost) };
            self.add(&gap);
        }
    }

    fn add(&mut self, entry: &Entry) {
        if serde_json::to_writer(&mut self.unwritten, entry).is_ok() {
            self.unwritten.push(b'\n');
        }
    }

    /// Writes what there is room for; the rest waits.
    fn flush(&mut self) {
        let mut written = 0;
        while written < self.unwritten.len() {
            match self.file.write(&self.unwritten[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.unwritten.drain(..written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_does_not_spoil_the_next_daemons() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        std::fs::write(&path, "{\"step\":{\"at\":").unwrap();
        let mut log = Log::open(&path).unwrap();
        log.start(&Settings::default());
        log.step(Millis(1), Event::Tick, &[]);
        drop(log);
        Log::open(&path).unwrap().start(&Settings::default());
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1..].iter().all(|line| serde_json::from_str::<Entry>(line).is_ok()));
    }

    #[test]
    fn the_log_is_radrmds_alone_and_nothing_that_others_put_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        drop(Log::open(&path("new")).unwrap());
        let mode = || std::fs::metadata(path("new")).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(path("new"), Permissions::from_mode(0o644)).unwrap();
        drop(Log::open(&path("new")).unwrap());
        assert_eq!(mode(), 0o600, "one that was open to others");
        std::os::unix::fs::symlink(path("new"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("made"), path("dangling")).unwrap();
        assert!(Log::open(&path("link")).is_err() && Log::open(&path("dangling")).is_err());
        assert!(!path("made").exists(), "nothing is made through a link");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), mode).unwrap();
        assert!(matches!(Log::open(&path("pipe")), Err(DaemonError::NotPrivate(_))));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path("new"), Some(64_004), None).unwrap();
            assert!(matches!(Log::open(&path("new")), Err(DaemonError::NotPrivate(_))), "another user's");
        }
    }

    #[test]
    fn what_has_no_room_is_written_later_or_named_as_a_gap() {
        let mut log = Log { file: File::open("/dev/full").unwrap(), unwritten: Vec::new(), lost: 0 };
        log.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let line = |at| Entry::Step { at: Millis(at), event: Event::Tick, decisions: Vec::new() };
        log.put(&line(1));
        log.unwritten.resize(MAX_PENDING + 1, b'\n');
        log.put(&line(2));
        log.put(&line(3));
        assert_eq!(log.lost, 2);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        log.file = File::create(&path).unwrap();
        log.put(&line(4));
        log.put(&line(5));
        let text = std::fs::read_to_string(&path).unwrap();
        let entries: Vec<Entry> = text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(entries, [line(1), Entry::Gap { lines: 3 }, line(5)]);
    }
}
