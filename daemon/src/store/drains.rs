//! GPUs that take no new jobs, until an administrator lets jobs on them again.

use radrm_protocol::limits::DrainRow;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::integer::int;

/// The table of reasons. That of drained GPUs is older.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS drains (
    gpu TEXT PRIMARY KEY, reason TEXT, set_by TEXT NOT NULL, at_ms INTEGER NOT NULL) WITHOUT ROWID";

/// A GPU takes no new jobs, or takes them again.
pub(crate) fn put(tx: &Transaction<'_>, gpu: &str, drain: Option<&DrainRow>) -> rusqlite::Result<()> {
    let Some(DrainRow { reason, by, at_ms }) = drain else {
        tx.execute("DELETE FROM drains WHERE gpu = ?1", [gpu])?;
        return tx.execute("DELETE FROM drained WHERE gpu = ?1", [gpu]).map(|_| ());
    };
    tx.execute(
        "INSERT OR REPLACE INTO drains VALUES (?1, ?2, ?3, ?4)",
        params![gpu, reason, by, int(*at_ms)],
    )?;
    tx.execute("INSERT OR IGNORE INTO drained VALUES (?1)", [gpu]).map(|_| ())
}

/// All of them, by UUID.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<(String, DrainRow)>> {
    let mut gpus = connection.prepare("SELECT gpu FROM drained")?;
    let gpus: Vec<String> = gpus.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut of = connection.prepare("SELECT reason, set_by, at_ms FROM drains WHERE gpu = ?1")?;
    let row = |row: &rusqlite::Row<'_>| {
        let at_ms = row.get::<_, i64>(2)?.unsigned_abs();
        Ok(DrainRow { reason: row.get(0)?, by: row.get(1)?, at_ms })
    };
    let mut with = |gpu: String| Ok((gpu.clone(), of.query_row([gpu], row).optional()?.unwrap_or_default()));
    gpus.into_iter().map(&mut with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_drain_is_kept_with_its_reason_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let of = |reason: Option<&str>, by: &str| DrainRow {
            reason: reason.map(str::to_owned),
            by: by.to_owned(),
            at_ms: 7,
        };
        let mut store = Store::open(&path).unwrap();
        for drain in [of(None, "root"), of(Some("fan broken"), "alice")] {
            store.transaction(|tx| put(tx, "GPU-1", Some(&drain))).unwrap();
        }
        // By a version that knew no reasons.
        store.transaction(|tx| tx.execute("INSERT INTO drained VALUES ('GPU-2')", [])).unwrap();
        drop(store);
        let mut store = Store::open(&path).unwrap();
        let known = all(&store.connection).unwrap();
        let expected = [("GPU-1", of(Some("fan broken"), "alice")), ("GPU-2", DrainRow::default())];
        assert_eq!(known, expected.map(|(gpu, drain)| (gpu.to_owned(), drain)));
        for gpu in ["GPU-1", "GPU-2"] {
            store.transaction(|tx| put(tx, gpu, None)).unwrap();
        }
        assert!(all(&store.connection).unwrap().is_empty());
    }
}
