//! Room that the folders of jobs take on the disk, with outputs and profiles, by job and by user.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::integer::int;

/// The tables. Bytes on disk, of the jobs and their sums.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS disk (job INTEGER PRIMARY KEY, uid INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS disk_large ON disk(uid, bytes);
CREATE TABLE IF NOT EXISTS disk_users (uid INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
";

/// The folder of a job has so many bytes now.
pub(crate) fn put(tx: &Transaction<'_>, job: u64, uid: u32, bytes: u64) -> rusqlite::Result<()> {
    let mut stored = tx.prepare_cached("SELECT bytes FROM disk WHERE job = ?1")?;
    let stored: Option<i64> = stored.query_row([int(job)], |row| row.get(0)).optional()?;
    if stored.unwrap_or(0) == int(bytes) {
        // Running jobs are measured each minute: what did not change costs no write.
        return Ok(());
    }
    forget(tx, job)?;
    if bytes == 0 {
        // It may be gone.
        return Ok(());
    }
    tx.prepare_cached("INSERT INTO disk VALUES (?1, ?2, ?3)")?.execute(params![int(job), uid, int(bytes)])?;
    tx.prepare_cached(
        "INSERT INTO disk_users VALUES (?1, ?2) ON CONFLICT (uid) DO UPDATE SET bytes = bytes + excluded.bytes",
    )?
    .execute(params![uid, int(bytes)])
    .map(|_| ())
}

/// The folder of a job is gone.
pub(crate) fn forget(tx: &Transaction<'_>, job: u64) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE disk_users SET bytes = disk_users.bytes - disk.bytes FROM disk WHERE disk.job = ?1 AND disk.uid = disk_users.uid",
    )?
    .execute([int(job)])?;
    tx.prepare_cached("DELETE FROM disk WHERE job = ?1")?.execute([int(job)]).map(|_| ())
}

/// Bytes of all folders of a user, as they were measured.
pub(crate) fn of_user(connection: &Connection, uid: u32) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT bytes FROM disk_users WHERE uid = ?1")?;
    let bytes: Option<i64> = statement.query_row([uid], |row| row.get(0)).optional()?;
    Ok(bytes.unwrap_or(0).max(0).unsigned_abs())
}

/// Bytes of a job's folder, as it was measured.
pub(crate) fn of_job(connection: &Connection, job: u64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT bytes FROM disk WHERE job = ?1")?;
    let bytes: Option<i64> = statement.query_row([int(job)], |row| row.get(0)).optional()?;
    Ok(bytes.unwrap_or(0).max(0).unsigned_abs())
}

/// The jobs of a user with the most bytes.
pub(crate) fn largest(connection: &Connection, uid: u32, most: u32) -> rusqlite::Result<Vec<u64>> {
    let text = "SELECT job FROM disk WHERE uid = ?1 ORDER BY bytes DESC LIMIT ?2";
    let mut statement = connection.prepare_cached(text)?;
    statement.query_map(params![uid, most], |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn sums_of_users_are_those_of_their_jobs() {
        let place = tempfile::tempdir().unwrap();
        let mut store = Store::open(&place.path().join("q.db")).unwrap();
        let measured = [(1, 7, 10), (2, 7, 20), (3, 8, 40), (2, 7, 25)];
        store
            .transaction(|tx| measured.iter().try_for_each(|(job, uid, bytes)| put(tx, *job, *uid, *bytes)))
            .unwrap();
        let of = |store: &Store| [7, 8, 9].map(|uid| of_user(&store.connection, uid).unwrap());
        assert_eq!(of(&store), [35, 40, 0]);
        assert_eq!(largest(&store.connection, 7, 9).unwrap(), [2, 1]);
        let written = store.connection.total_changes();
        store.transaction(|tx| put(tx, 2, 7, 25).and_then(|()| put(tx, 9, 9, 0))).unwrap();
        assert_eq!(store.connection.total_changes(), written, "nothing has changed");
        store.transaction(|tx| super::super::forget(tx, 2).and_then(|()| forget(tx, 9))).unwrap();
        assert_eq!(of(&store), [10, 40, 0]);
    }
}
