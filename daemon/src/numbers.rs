//! Job numbers, which are never given twice.
//!
//! A job's folder is named after its number and belongs to its user. A queue that was lost or replaced would give
//! the numbers of old folders to other users, so the highest number is kept beside it, and the folders that are
//! there count too.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::DaemonError;
use super::store::{Store, arriving};

/// Numbers are reserved on disk in blocks, so that a submission seldom writes the file.
const BLOCK: u64 = 1000;

/// The file with the highest number that may have been given.
#[derive(Debug)]
pub(crate) struct Numbers {
    file: PathBuf,
    reserved: u64,
}

/// The queue ends below numbers that were set aside or given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The number above which new ones begin.
    pub(crate) floor: u64,
    /// Jobs above those of the queue have folders: it is an older one.
    has_folders: bool,
}

impl Behind {
    /// It in one sentence, for a queue that ends at this number.
    pub(crate) fn sentence(&self, given: u64) -> String {
        let why = match self.has_folders {
            true => format!(
                "the queue is older than the jobs' folders, or was lost: jobs after number {given} are not in it"
            ),
            // A large array whose submission the disk did not take leaves its numbers.
            false => format!(
                "numbers after {given} were set aside for jobs that are not in the queue: their submission was not \
                 stored, or the queue is an older one"
            ),
        };
        format!("{why}; new jobs have numbers above {}", self.floor)
    }
}

impl Numbers {
    /// Reads what is known of earlier numbers below the state directory. Returns it with what the queue, whose highest
    /// number is `given`, lacks, if it is behind.
    pub(crate) fn open(state: &Path, given: u64) -> Result<(Self, Option<Behind>), DaemonError> {
        let file = state.join("last-job");
        let failed = |path: &Path, error: &io::Error| DaemonError::not(path, " cannot be read", error);
        let reserved = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map_err(|_| DaemonError::NoNumber(file.clone()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failed(&file, &error)),
        };
        let folders = state.join("jobs");
        let mut highest = 0;
        for entry in fs::read_dir(&folders).map_err(|error| failed(&folders, &error))? {
            let name = entry.map_err(|error| failed(&folders, &error))?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            highest = highest.max(number.unwrap_or(0));
        }
        // A block that was reserved and not used up is not a sign of a loss.
        let is_behind = highest > given || reserved > given.saturating_add(BLOCK);
        let behind = Behind { floor: reserved.max(highest), has_folders: highest > given };
        Ok((Self { file, reserved }, is_behind.then_some(behind)))
    }

    /// Reserves the numbers up to this one, before any of them is given.
    ///
    /// # Errors
    /// The file's.
    pub(crate) fn reserve(&mut self, up_to: u64) -> io::Result<()> {
        if up_to <= self.reserved {
            return Ok(());
        }
        let reserved = up_to.saturating_add(BLOCK);
        let draft = self.file.with_extension("new");
        let mut file = fs::File::create(&draft)?;
        writeln!(file, "{reserved}")?;
        file.sync_all()?;
        fs::rename(&draft, &self.file)?;
        self.reserved = reserved;
        Ok(())
    }
}

impl Store {
    /// The highest job number that was given.
    pub(crate) fn highest(&self) -> rusqlite::Result<u64> {
        let highest = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)";
        self.connection.query_row(highest, [], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))
    }

    /// Gives new jobs numbers above this one only.
    pub(crate) fn skip_to(&mut self, floor: u64) -> rusqlite::Result<()> {
        self.transaction(|tx| arriving::skip(tx, floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Entry, insert};

    fn state() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("jobs")).unwrap();
        dir
    }

    #[test]
    fn numbers_go_on_above_those_of_a_lost_queue() {
        let state = state();
        let (mut numbers, behind) = Numbers::open(state.path(), 0).unwrap();
        assert_eq!(behind, None, "a new queue");
        numbers.reserve(1).unwrap();
        numbers.reserve(2).unwrap();
        let (_, behind) = Numbers::open(state.path(), 2).unwrap();
        assert_eq!(behind, None, "the queue is there");
        numbers.reserve(5000).unwrap();
        let (_, behind) = Numbers::open(state.path(), 0).unwrap();
        let behind = behind.expect("it is lost, or never had them");
        assert_eq!(behind.floor, 6000);
        let said = behind.sentence(0);
        assert!(
            said.contains("not stored") && !said.contains("folders"),
            "no folder shows that it had them: {said}"
        );
    }

    #[test]
    fn folders_that_are_there_count_without_the_file() {
        let state = state();
        fs::create_dir(state.path().join("jobs/17")).unwrap();
        fs::create_dir(state.path().join("jobs/other")).unwrap();
        let behind = Numbers::open(state.path(), 16).unwrap().1.expect("a folder of a job that is not in it");
        assert_eq!(behind.floor, 17);
        assert!(behind.sentence(16).contains("jobs after number 16 are not in it"));
        assert_eq!(Numbers::open(state.path(), 17).unwrap().1, None);
    }

    #[test]
    fn a_damaged_file_is_reported() {
        let state = state();
        fs::write(state.path().join("last-job"), "x\n").unwrap();
        assert!(Numbers::open(state.path(), 0).unwrap_err().to_string().contains("last-job"));
    }

    #[test]
    fn skipped_numbers_are_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        assert_eq!(store.highest().unwrap(), 0);
        store.skip_to(41).unwrap();
        let id = store.transaction(|tx| insert(tx, &Entry::default(), "[]")).unwrap();
        assert_eq!((id, store.highest().unwrap()), (42, 42));
    }
}
