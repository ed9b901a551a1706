//! Where the dataset lies, and how it may be locked there.

use super::DatasetError;
use crate::job::account;
use rusqlite::{Connection, ErrorCode};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
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

pub(super) fn prepare_folder(path: &Path) -> Result<(), DatasetError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    // Command lines are nobody else's business.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| DatasetError::Folder { folder: folder.to_owned(), error })
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
pub(super) fn set_journal(connection: &Connection, path: &Path) -> Result<(), DatasetError> {
    let shared = rustix::fs::statfs(path).is_ok_and(|fs| SHARED.contains(&(fs.f_type as u32)));
    let (mode, synchronous) = if shared { ("DELETE", "FULL") } else { ("WAL", "NORMAL") };
    // Changing the mode takes an exclusive lock and does not always wait for
    // it: the busy timeout does not cover this.
    let give_up = Instant::now() + super::BUSY;
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
