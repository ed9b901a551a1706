//! Requests that cancel, hold or release many jobs, while what they ask is done piece by piece: a daemon that comes back goes on
//! with them.

use rusqlite::{Connection, Result, Transaction, params};
use serde::{Deserialize, Serialize};

use super::integer::int;

/// The table. What is asked, and the ranges of the jobs, are JSON.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS changes (
    number INTEGER PRIMARY KEY, uid INTEGER NOT NULL, change TEXT NOT NULL, jobs TEXT NOT NULL)";

/// Change that a request asks for its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// The user of this name does not want them any more.
    Cancel { by: String },
    /// They must not start.
    Hold,
    /// They may start again.
    Release,
}

/// A request that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undone {
    /// User who asks.
    pub(crate) uid: u32,
    pub(crate) change: Change,
    /// First and last numbers of the jobs that are left.
    pub(crate) jobs: Vec<[u64; 2]>,
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Keeps a request, or forgets it once it is done.
pub(crate) fn put(tx: &Transaction<'_>, number: u64, undone: Option<&Undone>) -> Result<()> {
    let Some(Undone { uid, change, jobs }) = undone else {
        return tx.execute("DELETE FROM changes WHERE number = ?1", [int(number)]).map(|_| ());
    };
    tx.execute(
        "INSERT OR REPLACE INTO changes VALUES (?1, ?2, ?3, ?4)",
        params![int(number), uid, text(change), text(jobs)],
    )
    .map(|_| ())
}

/// All of them by number, in the order in which they were begun. What this version cannot read is left out.
pub(crate) fn all(connection: &Connection) -> Result<Vec<(u64, Undone)>> {
    let mut statement =
        connection.prepare("SELECT number, uid, change, jobs FROM changes ORDER BY number")?;
    let row = |row: &rusqlite::Row<'_>| {
        let change = serde_json::from_str(&row.get::<_, String>(2)?).ok();
        let jobs = serde_json::from_str(&row.get::<_, String>(3)?).ok();
        let (number, uid) = (row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?);
        Ok(change.zip(jobs).map(|(change, jobs)| (number, Undone { uid, change, jobs })))
    };
    statement.query_map([], row)?.filter_map(Result::transpose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn requests_under_way_are_there_after_a_restart_until_they_are_done() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let mut store = Store::open(&path).unwrap();
        let undone = |uid, change| Undone { uid, change, jobs: vec![[3, 5], [9, 9]] };
        let cancel = undone(7, Change::Cancel { by: "a \"b\"".to_owned() });
        let hold = undone(8, Change::Hold);
        for (number, of) in [(2, &hold), (1, &hold), (1, &cancel), (3, &undone(9, Change::Release))] {
            store.transaction(|tx| put(tx, number, Some(of))).unwrap();
        }
        store.transaction(|tx| put(tx, 3, None)).unwrap();
        store.connection.execute("INSERT INTO changes VALUES (4, 7, '\"a later one\"', '[]')", []).unwrap();
        drop(store);
        let store = Store::open(&path).unwrap();
        assert_eq!(all(&store.connection).unwrap(), [(1, cancel), (2, hold)]);
    }
}
