//! The dataset: one row per job that ran, in SQLite.
//!
//! Several jobs may end at the same moment, on several machines if the home
//! directory is shared; a row is one short transaction that waits for the lock.

mod features;
mod files;
mod first_steps;
mod fits;
mod needs;
mod pairs;
mod past;
pub mod program;
mod ranks;
mod row;
mod schema;
mod share_curves;
mod sharing;
mod table;

pub use features::{Features, Figure, ProcessFeatures};
pub use files::default_path;
pub use first_steps::{FirstSteps, PastCourse};
pub use past::PastRuns;
pub use program::{ProgramKey, last_change, script_word};
pub use ranks::RowRanks;
pub use row::{GpuPeak, Origin, Row, dry_run_of, framework_list, gpu_peaks};
pub use share_curves::MeasuredShares;
pub use sharing::{SharedJob, Sharing, program_name};
pub use table::Filter;

use radrm_base::{PastRun, Permille};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Longest wait of a writer for others. A row takes well under a millisecond on a local disk; this is for hundreds at
/// once on a slow one.
const BUSY: Duration = Duration::from_secs(15);

/// Error of the dataset.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum DatasetError {
    #[error("the dataset's folder {} cannot be made: {error}", folder.display())]
    Folder { folder: PathBuf, error: std::io::Error },
    #[error(
        "the dataset has schema version {found}, this radrm knows version {known}: use the radrm that wrote it"
    )]
    Version { found: i64, known: i64 },
    #[error(
        "the dataset is damaged ({0}): restore a copy, or rename the file, and the next run starts a new dataset"
    )]
    Damaged(#[source] rusqlite::Error),
    #[error(
        "the dataset is damaged ({0}): restore a copy, or rename the file, and the next run starts a new dataset"
    )]
    Inconsistent(String),
    #[error(
        "{} cannot be read in a folder that this user cannot write, because new rows are still in {}: copy both files \
         to another folder and read them there",
        dataset.display(),
        log.display()
    )]
    UnreadableLog { dataset: PathBuf, log: PathBuf },
    #[error("the dataset has a row of more than {} MiB, as no run has: it is not read", files::MAX_ROW >> 20)]
    LongRow,
    #[error("{} is not a regular file", .0.display())]
    NoFile(PathBuf),
    #[error("{} exists: a copy of the dataset replaces no file", .0.display())]
    Exists(PathBuf),
    #[error("{}: {error}", path.display())]
    Copy { path: PathBuf, error: rusqlite::Error },
    #[error("the dataset cannot be used: {0}")]
    Sqlite(#[source] rusqlite::Error),
}

impl DatasetError {
    /// Returns true if the same may work later: the disk is in trouble, or another program has the file locked.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        let DatasetError::Sqlite(error) = self else { return false };
        let code = error.sqlite_error_code();
        matches!(
            code,
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DiskFull
                    | ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
            )
        )
    }
}

impl From<rusqlite::Error> for DatasetError {
    fn from(error: rusqlite::Error) -> DatasetError {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => DatasetError::Damaged(error),
            Some(ErrorCode::TooBig) => DatasetError::LongRow,
            _ => DatasetError::Sqlite(error),
        }
    }
}

/// An open dataset.
#[derive(Debug)]
pub struct Dataset {
    connection: Connection,
}

impl Dataset {
    /// Opens a dataset; it is made if it does not exist.
    pub fn open(path: &Path) -> Result<Dataset, DatasetError> {
        Dataset::open_within(path, BUSY)
    }

    /// As [`Dataset::open`], for a caller that cannot wait longer than this for other writers.
    pub fn open_within(path: &Path, busy: Duration) -> Result<Dataset, DatasetError> {
        files::prepare(path)?;
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(busy)?;
        files::set_journal(&connection, path, busy)?;
        schema::create(&mut connection)?;
        Ok(Dataset { connection })
    }

    /// Opens a dataset for reading; it must exist.
    pub fn open_existing(path: &Path) -> Result<Dataset, DatasetError> {
        Ok(Dataset { connection: schema::check(files::open_read_only(path)?)? })
    }

    /// Adds a row, with what its processes did if that is known, and returns its number. A daemon's row of an attempt
    /// takes the place of an earlier row of that attempt.
    pub fn add(&mut self, row: &Row, features: Option<&Features>) -> Result<i64, DatasetError> {
        // IMMEDIATE: a transaction that begins by reading cannot wait for
        // another writer, it fails at once.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let id = table::insert(&transaction, row, features)?;
        fits::insert(&transaction, id, &row.fits)?;
        ranks::insert(&transaction, id, row.ranks.as_ref())?;
        first_steps::insert(&transaction, id, row.first_steps.as_ref())?;
        transaction.commit()?;
        Ok(id)
    }

    /// Adds rows without features, all or none: by one transaction, as a thousand take their time.
    ///
    /// # Errors
    /// See [`DatasetError`].
    pub fn add_all(&mut self, rows: &[Row]) -> Result<(), DatasetError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for row in rows {
            table::insert(&transaction, row, None)?;
        }
        Ok(transaction.commit()?)
    }

    /// Rows that pass the filter, newest first. Their features are not read: see [`Dataset::features`].
    pub fn rows(&self, filter: &Filter) -> Result<Vec<Row>, DatasetError> {
        let mut rows = table::select(&self.connection, filter)?;
        fits::add_to(&self.connection, &mut rows)?;
        ranks::add_to(&self.connection, &mut rows)?;
        first_steps::add_to(&self.connection, &mut rows)?;
        Ok(rows)
    }

    /// Features of a run's processes, by the number of its row; `None` if the row keeps none.
    pub fn features(&self, id: i64) -> Result<Option<Features>, DatasetError> {
        Ok(features::read(&self.connection, id)?)
    }

    /// Replaces the features of a run's processes, because metrics were imported. Of the activity (SM activity, SM
    /// occupancy, DRAM activity) what is not known stays as it was.
    pub fn update_features(
        &mut self,
        id: i64,
        features: &Features,
        activity: [Option<Permille>; 3],
    ) -> Result<(), DatasetError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        features::update(&transaction, id, features, activity)?;
        Ok(transaction.commit()?)
    }

    /// Adds a row and forgets all but the newest `keep` rows of its program, origin, user and GPU model.
    pub fn add_bounded(
        &mut self,
        row: &Row,
        features: Option<&Features>,
        keep: u32,
    ) -> Result<i64, DatasetError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let id = table::insert(&transaction, row, features)?;
        first_steps::insert(&transaction, id, row.first_steps.as_ref())?;
        past::forget_older_like(&transaction, row, keep)?;
        transaction.commit()?;
        Ok(id)
    }

    /// Forgets all but the newest rows; returns how many it forgot. It reads all rows: not to be done often.
    pub fn forget_older(&mut self, keep: u32) -> Result<usize, DatasetError> {
        Ok(past::forget_older(&self.connection, keep)?)
    }

    /// Adds jobs that were seen to share a GPU, and forgets all but the newest `keep` rows of that kind.
    pub fn add_sharing(&mut self, row: &Sharing, keep: u32) -> Result<(), DatasetError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        sharing::insert(&transaction, row, keep)?;
        Ok(transaction.commit()?)
    }

    /// Jobs that were seen to share a GPU: the newest rows, oldest first.
    pub fn sharing(&self, newest: u32) -> Result<Vec<Sharing>, DatasetError> {
        Ok(sharing::select(&self.connection, newest)?)
    }

    /// Keeps what a program launches at parts of a GPU's multiprocessors, in place of what was measured before.
    pub fn set_share_curve(&mut self, row: &MeasuredShares) -> Result<(), DatasetError> {
        Ok(share_curves::replace(&self.connection, row)?)
    }

    /// Measured curve of a program on a GPU model.
    pub fn share_curve(
        &self,
        program: &str,
        model: &str,
        emulated: bool,
    ) -> Result<Option<MeasuredShares>, DatasetError> {
        Ok(share_curves::of(&self.connection, program, model, emulated)?)
    }

    /// Copies the dataset to a new file, for its owner alone, while others may write to it.
    ///
    /// # Errors
    /// [`DatasetError`]: the file exists or cannot be made, or the dataset cannot be read.
    pub fn backup(&self, to: &Path) -> Result<(), DatasetError> {
        files::prepare(to)?.ok_or_else(|| DatasetError::Exists(to.to_owned()))?;
        let copied = self.connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(|_| ());
        copied.map_err(|error| {
            // It is this call's own, and incomplete.
            let _ = std::fs::remove_file(to);
            DatasetError::Copy { path: to.to_owned(), error }
        })
    }

    /// Reads the whole file and checks its structure; returns the number of rows.
    ///
    /// # Errors
    /// [`DatasetError::Inconsistent`] with the first finding, or another if it cannot be read.
    pub fn check(&self) -> Result<u64, DatasetError> {
        let found: String = self.connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            // The first line only names the database.
            let finding = found.lines().last().unwrap_or_default().trim();
            return Err(DatasetError::Inconsistent(finding.to_owned()));
        }
        let rows: i64 = self.connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?;
        Ok(rows.unsigned_abs())
    }

    /// Earlier runs of a program that bound its need, the newest first: those that ended well, and those that ran out
    /// of GPU memory.
    pub fn past_runs(&self, key: &ProgramKey, of: &PastRuns<'_>) -> Result<Vec<PastRun>, DatasetError> {
        Ok(past::select(&self.connection, key, of)?)
    }

    /// Earlier runs of a program that ended well and whose first optimizer steps were seen, the newest first.
    pub fn past_courses(&self, key: &ProgramKey, of: &PastRuns<'_>) -> Result<Vec<PastCourse>, DatasetError> {
        Ok(past::select_courses(&self.connection, key, of)?)
    }
}

/// Adds a finished run to the dataset. What goes wrong comes back as one
/// sentence: a run never fails for its row. `None` for the path means that
/// there is no place for a dataset.
///
/// A run in which no process was seen to use a GPU gets no row. Whether it used
/// none, failed before it could, or did so unrecorded: a peak of zero bytes
/// would be a guess, and an estimator that learns from the rows would learn it.
///
/// `features` are worked out from the profile by the caller.
pub fn record(path: Option<&Path>, row: &Row, features: &Features) -> Option<String> {
    if row.processes == Some(0) {
        return None;
    }
    let Some(path) = path else {
        return Some("no row was added to the dataset: this user has no home directory".into());
    };
    match Dataset::open(path).and_then(|mut dataset| dataset.add(row, Some(features))) {
        Ok(_) => None,
        Err(error) => Some(format!("no row was added to the dataset {}: {error}", path.display())),
    }
}
