//! Location of the dataset, its permissions, and its locking.

use super::DatasetError;
use crate::job::account;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `$XDG_DATA_HOME/radrm/dataset.db`, else `~/.local/share/radrm/dataset.db`.
pub fn default_path() -> Option<PathBuf> {
    // A relative path is invalid there, says the XDG base directory
    // specification, and is to be ignored.
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let data = absolute("XDG_DATA_HOME").or_else(|| {
        let home = absolute("HOME")
            .or_else(|| Some(account(rustix::process::getuid().as_raw())?.home))
            .filter(|home| home.is_absolute())?;
        Some(home.join(".local/share"))
    })?;
    Some(data.join("radrm/dataset.db"))
}

/// Makes the folder and an empty file, if they are not there, for their owner alone: they hold command lines. Returns
/// the file if it was made.
pub(super) fn prepare(path: &Path) -> Result<Option<File>, DatasetError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| DatasetError::Folder { folder: folder.to_owned(), error })?;
    }
    // SQLite gives its log the mode of the database, and says itself what is wrong with a file that cannot be made.
    Ok(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).ok())
}

/// A file of SQLite beside the database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens a dataset that is only read; it must exist. In a folder that cannot be written it is read without locks,
/// unless rows are still in its log.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, DatasetError> {
    // SQLite would wait for who writes a pipe, and read a device.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(DatasetError::NoFile(path.to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> Result<Connection, rusqlite::Error> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(super::BUSY)?;
        bound(&connection)?;
        // Only now the files are opened that a log needs.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    };
    let error = match open() {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    let needs_writing =
        matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly));
    if !needs_writing || File::open(path).is_err() {
        return Err(error.into());
    }
    let log = beside(path, "-wal");
    if std::fs::metadata(&log).is_ok_and(|meta| meta.len() > 0) {
        return Err(DatasetError::UnreadableLog { dataset: path.to_owned(), log });
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escape = |byte: &u8| match byte {
        b'%' | b'?' | b'#' => format!("%{byte:02x}"),
        0x21..=0x7e => char::from(*byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    let name: String = absolute.as_os_str().as_bytes().iter().map(escape).collect();
    let flags = flags | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
    bound(&connection)?;
    Ok(connection)
}

/// Largest row of a dataset that is read, bytes: the longest command line that Linux allows takes a third of it.
pub(super) const MAX_ROW: i32 = 6 << 20;

/// A dataset may be anyone's: a row of a gigabyte is not taken into memory.
fn bound(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_ROW).map(drop)
}

/// File systems on which several machines may write at once, by the number
/// that statfs gives: NFS, SMB, CIFS, SMB2, Lustre, GPFS, BeeGFS, Ceph, AFS,
/// 9P, FUSE.
const SHARED: [u32; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
];

/// A write-ahead log lets readers and a writer work side by side, but it needs
/// shared memory, which two machines do not have: there, the rollback journal.
pub(super) fn set_journal(connection: &Connection, path: &Path, busy: Duration) -> Result<(), DatasetError> {
    let shared = rustix::fs::statfs(path).is_ok_and(|fs| SHARED.contains(&(fs.f_type as u32)));
    let (mode, synchronous) = if shared { ("DELETE", "FULL") } else { ("WAL", "NORMAL") };
    // Changing the mode takes an exclusive lock and does not always wait for
    // it: the busy timeout does not cover this.
    let give_up = Instant::now() + busy;
    loop {
        let changed =
            connection.pragma_update_and_check(None, "journal_mode", mode, |row| row.get::<_, String>(0));
        match changed {
            // SQLite keeps the old mode where it cannot have this one; that
            // is slower, but as safe.
            Ok(_) => break,
            Err(error) if is_busy(&error) && Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
    connection.pragma_update(None, "synchronous", synchronous)?;
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
