//! Jobs of large submissions while they are written piece by piece: what is there of one is no job until all of it is.

use rusqlite::{Connection, Transaction, params};

use super::Result;
use super::integer::int;

/// The table: first and last numbers of submissions of which not all jobs are written.
pub(crate) const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS arriving (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)";

/// First and last number of a submission's jobs.
pub(crate) type Numbers = [u64; 2];

/// Begins a submission of so many jobs, whose numbers no other job gets.
pub(crate) fn begin(tx: &Transaction<'_>, jobs: u64) -> Result<Numbers> {
    // There is no row before the first job.
    let given = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs'";
    let given: u64 = tx.query_row(given, [], |row| row.get::<_, i64>(0).map(i64::unsigned_abs))?;
    let numbers = [given.saturating_add(1), given.saturating_add(jobs)];
    tx.execute("INSERT INTO arriving (first, last) VALUES (?1, ?2)", numbers.map(int))?;
    skip(tx, numbers[1])?;
    Ok(numbers)
}

/// Gives new jobs numbers above this one only.
pub(crate) fn skip(tx: &Transaction<'_>, floor: u64) -> Result<()> {
    tx.execute("DELETE FROM sqlite_sequence WHERE name = 'jobs'", [])?;
    tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', ?1)", [int(floor)]).map(drop)
}

/// All its jobs are written: from now on they are jobs.
pub(crate) fn end(tx: &Transaction<'_>, [first, _]: Numbers) -> Result<()> {
    tx.execute("DELETE FROM arriving WHERE first = ?1", [int(first)]).map(|_| ())
}

/// Removes the jobs of submissions that a daemon has not written to their ends.
pub(crate) fn discard_all(connection: &mut Connection) -> Result<()> {
    let tx = connection.transaction()?;
    tx.execute("DELETE FROM jobs WHERE EXISTS (SELECT 1 FROM arriving WHERE id BETWEEN first AND last)", [])?;
    tx.execute("DELETE FROM arriving", [])?;
    tx.commit()
}

/// Removes at most so many jobs of a submission that will not be written to its end. Returns true if no more are there.
pub(crate) fn discard_some(tx: &Transaction<'_>, numbers: Numbers, most: u32) -> Result<bool> {
    let [first, last] = numbers.map(int);
    let some = "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)";
    let removed = tx.execute(some, params![first, last, most])?;
    let is_done = removed < most as usize;
    if is_done {
        end(tx, numbers)?;
    }
    Ok(is_done)
}
