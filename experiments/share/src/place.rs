//! Location of a producer: a folder that only its user can enter, with a socket, a lock and a record in it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::ring::Position;
use crate::sys::Descriptor;
use crate::{Error, sys};

/// A folder of this user with mode 0700, held open so that it stays the one that was checked.
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

/// Folders to look into, the best one first.
fn candidates() -> Vec<PathBuf> {
    let uid = sys::user();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let others = [format!("/run/radrm/{uid}"), format!("/dev/shm/radrm-{uid}")].map(PathBuf::from);
    runtime.map(|dir| dir.join("radrm")).into_iter().chain(others).map(|dir| dir.join("share")).collect()
}

impl Folder {
    /// Opens a folder that is there.
    ///
    /// # Errors
    /// It is not a folder, or others can enter it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let folder = options.open(path).map_err(Error::io("the folder of the socket"))?;
        let found = folder.metadata().map_err(Error::io("the folder of the socket"))?;
        if found.uid() != sys::user() || found.mode() & 0o077 != 0 {
            return Err(Error::Folder(path.to_owned()));
        }
        Ok(Self { handle: folder.into(), path: path.to_owned() })
    }

    /// Opens a folder, made before if it is not there; its parent too, where that is one for RADRM alone.
    ///
    /// # Errors
    /// It can neither be made nor used.
    pub fn make(path: &Path) -> Result<Self, Error> {
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        if let Err(error) = private(path)
            && error.kind() == io::ErrorKind::NotFound
            && let Some(parent) = path.parent()
        {
            let _ = private(parent);
            let _ = private(path);
        }
        Self::open(path)
    }

    /// The folder for a producer: the one that is named, else the first that can be used.
    ///
    /// # Errors
    /// None can be used.
    pub fn for_producer(named: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = named {
            return Self::make(path);
        }
        let mut why = Vec::new();
        for path in candidates() {
            match Self::make(&path) {
                Ok(folder) => return Ok(folder),
                Err(error) => why.push(format!("{}: {error}", path.display())),
            }
        }
        Err(Error::NoFolder(why.join("; ")))
    }

    /// Folders in which a producer may be found.
    pub fn for_consumer(named: Option<&Path>) -> Vec<Self> {
        let paths = named.map_or_else(candidates, |path| vec![path.to_owned()]);
        paths.iter().filter_map(|path| Self::open(path).ok()).collect()
    }

    /// A file in it, by a path that fits into a socket's address and leads into this very folder.
    pub fn file(&self, name: &str, ending: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}.{ending}", self.handle.as_raw_fd()))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Checks that a name can be that of a producer.
///
/// # Errors
/// It cannot.
pub fn check_name(name: &str) -> Result<(), Error> {
    let fits = |other: u8| other.is_ascii_alphanumeric() || b"-_.".contains(&other);
    let sound = (1..=64).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.');
    if sound { Ok(()) } else { Err(Error::Name(name.to_owned())) }
}

/// Names that this process has locked: the lock of a file keeps out other processes only.
static TAKEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A producer's name, until it is dropped or the process ends.
pub struct Name {
    entry: String,
    _file: Descriptor,
}

impl Name {
    /// Takes a name.
    ///
    /// # Errors
    /// Another producer has it.
    pub fn take(folder: &Folder, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        let entry = folder.path.join(name).display().to_string();
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the file is opened: closing it a second time would give the first producer's lock away.
        if taken.contains(&entry) {
            return Err(Error::Taken(name.to_owned()));
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(folder.file(name, "lock")).map_err(Error::io("the lock of the name"))?;
        if !sys::lock(file.as_raw_fd()).map_err(Error::io("the lock of the name"))? {
            return Err(Error::Taken(name.to_owned()));
        }
        taken.push(entry.clone());
        Ok(Self { entry, _file: Descriptor::new(file.into()) })
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|entry| *entry != self.entry);
    }
}

/// Most consumers of a producer.
pub const MAX_CONSUMERS: usize = 64;

/// State that a producer leaves for its restart.
/// It is written in one piece, so a kill leaves the old state or the new one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The producer, also over its restarts.
    pub session: [u8; 16],
    /// Seed of the order of samples.
    pub seed: u64,
    /// The oldest batch that a consumer needed.
    pub needed: Position,
    /// Its consumers: pid and start time, 0 if not known.
    pub consumers: Vec<(u32, u64)>,
}

const MAGIC: [u8; 8] = *b"RADRMSH1";

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.session);
        let consumers = self.consumers.len().min(MAX_CONSUMERS);
        for value in [self.seed, self.needed.epoch, self.needed.index, consumers as u64] {
            bytes.extend(value.to_le_bytes());
        }
        for (pid, start) in self.consumers.iter().take(MAX_CONSUMERS) {
            bytes.extend(u64::from(*pid).to_le_bytes());
            bytes.extend(start.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (session, rest) = rest.split_first_chunk()?;
        let mut longs = rest.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let (seed, epoch, index) = (longs.next()?, longs.next()?, longs.next()?);
        let count = usize::try_from(longs.next()?).ok().filter(|count| *count <= MAX_CONSUMERS)?;
        let consumers = (0..count)
            .map(|_| Some((u32::try_from(longs.next()?).ok()?, longs.next()?)))
            .collect::<Option<_>>()?;
        Some(Self { session: *session, seed, needed: Position { epoch, index }, consumers })
    }
}

/// The record of a producer, on disk.
pub struct RecordFile {
    file: File,
    last: Vec<u8>,
}

impl RecordFile {
    /// Opens it; with what a former producer has left, if it did not end as it should.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(folder: &Folder, name: &str) -> Result<(Self, Option<Record>), Error> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file =
            options.open(folder.file(name, "state")).map_err(Error::io("the record of the producer"))?;
        let mut bytes = [0u8; 4096];
        let read = file.read_at(&mut bytes, 0).map_err(Error::io("the record of the producer"))?;
        let former = bytes.get(..read).and_then(Record::decode);
        Ok((Self { file, last: Vec::new() }, former))
    }

    /// Writes it, if it has changed.
    ///
    /// # Errors
    /// The disk is full.
    pub fn write(&mut self, record: &Record) -> Result<(), Error> {
        let bytes = record.encode();
        if bytes != self.last {
            self.file.write_all_at(&bytes, 0).map_err(Error::io("the record of the producer"))?;
            self.last = bytes;
        }
        Ok(())
    }

    /// Says that nothing is to be resumed.
    ///
    /// # Errors
    /// The file cannot be made empty.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(Error::io("the record of the producer"))
    }
}

/// Start time of a process, in the system's ticks; none if it does not live.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.rsplit_once(')')?.1;
    let mut fields = after.split_whitespace();
    // A process that has ended and that its parent has not collected yet does not come back.
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_garbage_is_none() {
        let record = Record {
            session: [7; 16],
            seed: u64::MAX,
            needed: Position { epoch: 3, index: 5 },
            consumers: vec![(1, 2), (u32::MAX, 0)],
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        for length in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..length]), None, "cut at {length}");
        }
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("share");
        assert!(Folder::make(&path).is_ok());
        for mode in [0o750, 0o701, 0o770] {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            assert!(matches!(Folder::make(&path), Err(Error::Folder(_))), "{mode:o}");
        }
        std::os::unix::fs::symlink(place.path(), place.path().join("link")).unwrap();
        assert!(Folder::open(&place.path().join("link")).is_err());
    }

    #[test]
    fn a_name_belongs_to_one_producer_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(&place.path().join("share")).unwrap();
        let first = Name::take(&folder, "train").unwrap();
        assert!(matches!(Name::take(&folder, "train"), Err(Error::Taken(_))));
        assert!(Name::take(&folder, "other").is_ok());
        drop(first);
        assert!(Name::take(&folder, "train").is_ok());
        for name in ["", ".hidden", "a/b", "a b", &"x".repeat(65)] {
            assert!(matches!(check_name(name), Err(Error::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn start_times_of_living_processes_are_known() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }
}
