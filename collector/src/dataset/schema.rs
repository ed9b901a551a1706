//! The tables, and how older ones are brought up to date.

use super::DatasetError;
use rusqlite::{Connection, TransactionBehavior};

/// Step `n` leads from version `n` to `n + 1`. Steps are never changed, only
/// added: datasets of every age are out there.
const STEPS: [&str; 2] = [
    // Sizes are bytes, times nanoseconds; JSON arrays are text. `peaks` holds
    // one object per GPU: index, uuid, name, peak_bytes, exact.
    "CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        start_unix_ns INTEGER NOT NULL,
        duration_ns INTEGER NOT NULL,
        command TEXT NOT NULL,
        program TEXT,
        program_sha256 TEXT,
        arguments TEXT NOT NULL,
        user TEXT,
        uid INTEGER NOT NULL,
        host TEXT NOT NULL,
        gpus TEXT NOT NULL,
        driver TEXT,
        framework TEXT,
        emulated TEXT,
        peak_bytes INTEGER NOT NULL,
        peak_exact INTEGER NOT NULL,
        peaks TEXT NOT NULL,
        device_peak_bytes INTEGER NOT NULL,
        pool_reserved_peak_bytes INTEGER NOT NULL,
        pool_used_peak_bytes INTEGER NOT NULL,
        vmm_peak_bytes INTEGER NOT NULL,
        array_peak_bytes INTEGER NOT NULL,
        graph_peak_bytes INTEGER NOT NULL,
        managed_peak_bytes INTEGER NOT NULL,
        pinned_peak_bytes INTEGER NOT NULL,
        nvml_peak_bytes INTEGER,
        launches INTEGER NOT NULL,
        graph_launches INTEGER NOT NULL,
        kernels INTEGER NOT NULL,
        processes INTEGER NOT NULL,
        failed_requests INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        exit_code INTEGER,
        signal INTEGER,
        out_of_memory INTEGER NOT NULL,
        profile_path TEXT,
        radrm_version TEXT NOT NULL
    );
    CREATE INDEX runs_by_start ON runs (start_unix_ns);
    CREATE INDEX runs_by_program ON runs (program_sha256);",
    // One JSON object: `processes`, of each its pid and its features by name, and how many were left out.
    // It is the last column, so that whoever does not ask for it does not read through it.
    "ALTER TABLE runs ADD COLUMN features TEXT;",
];

/// The newest version.
pub(super) const VERSION: i64 = STEPS.len() as i64;

fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn refuse_newer(found: i64) -> Result<(), DatasetError> {
    if found > VERSION { Err(DatasetError::Newer { found, known: VERSION }) } else { Ok(()) }
}

/// Refuses what a newer version made.
pub(super) fn check(connection: &Connection) -> Result<(), DatasetError> {
    refuse_newer(version(connection)?)
}

/// Brings the tables up to date.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), DatasetError> {
    let found = version(connection)?;
    refuse_newer(found)?;
    if found == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have been first while this one waited.
    let found = version(&transaction)?;
    refuse_newer(found)?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}
