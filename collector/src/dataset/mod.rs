//! The dataset: one row per job that ran, in SQLite.
//!
//! Several jobs may end at the same moment, on several machines if the home
//! directory is shared; a row is one short transaction that waits its turn.

mod features;
mod files;
mod row;
mod schema;

pub use features::{Features, Figure, ProcessFeatures};
pub use files::default_path;
pub use row::{Filter, GpuPeak, Row};

use radrm_profile::Profile;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How long a writer waits for others. A row takes well under a millisecond
/// on a local disk; this is for hundreds at once on a slow one.
const BUSY: Duration = Duration::from_secs(15);

/// What can go wrong with the dataset.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// Its folder cannot be made or used.
    #[error("the dataset's folder {} cannot be made: {error}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A newer version of radrm made it.
    #[error(
        "the dataset has schema version {found}, this radrm knows up to version {known}: use a newer radrm"
    )]
    Newer {
        /// Its version.
        found: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// SQLite refused: not a database, locked for too long, disk full...
    #[error("the dataset cannot be used: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// An open dataset.
#[derive(Debug)]
pub struct Dataset {
    connection: Connection,
}

impl Dataset {
    /// Opens a dataset; it is made if it does not exist, and brought up to
    /// date if an older version made it.
    pub fn open(path: &Path) -> Result<Dataset, DatasetError> {
        files::prepare_folder(path)?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        files::set_journal(&connection, path)?;
        let mut dataset = Dataset { connection };
        schema::migrate(&mut dataset.connection)?;
        Ok(dataset)
    }

    /// Opens a dataset to look at it; it must exist.
    pub fn open_existing(path: &Path) -> Result<Dataset, DatasetError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        let dataset = Dataset { connection };
        schema::check(&dataset.connection)?;
        Ok(dataset)
    }

    /// Adds a row, with what its processes did if that is known, and gives its number.
    pub fn add(&mut self, row: &Row, features: Option<&Features>) -> Result<i64, DatasetError> {
        // IMMEDIATE: a transaction that begins by reading cannot wait for
        // another writer, it fails at once.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let id = row::insert(&transaction, row, features)?;
        transaction.commit()?;
        Ok(id)
    }

    /// Rows that pass the filter, newest first. Their features are not read: see [`Dataset::features`].
    pub fn rows(&self, filter: &Filter) -> Result<Vec<Row>, DatasetError> {
        Ok(row::select(&self.connection, filter)?)
    }

    /// What the processes of a run did, by the number of its row; `None` if the row keeps none.
    pub fn features(&self, id: i64) -> Result<Option<Features>, DatasetError> {
        Ok(features::read(&self.connection, id)?)
    }
}

/// Adds a finished job to the dataset. What goes wrong comes back as one
/// sentence: a job never fails for its row. `None` for the path means that
/// there is no place for a dataset.
///
/// A job in which no process was seen to use a GPU gets no row. Whether it used
/// none, failed before it could, or did so out of sight: a peak of zero bytes
/// would be a guess, and whoever learns from the rows would learn it.
///
/// `features` are worked out from the profile by the caller.
pub fn record(
    path: Option<&Path>,
    profile: &Profile,
    profile_path: Option<&Path>,
    features: &Features,
) -> Option<String> {
    if profile.processes.is_empty() {
        return None;
    }
    let Some(path) = path else {
        return Some("no row was added to the dataset: this user has no home directory".into());
    };
    let row = Row::from_profile(profile, profile_path);
    match Dataset::open(path).and_then(|mut dataset| dataset.add(&row, Some(features))) {
        Ok(_) => None,
        Err(error) => Some(format!("no row was added to the dataset {}: {error}", path.display())),
    }
}
