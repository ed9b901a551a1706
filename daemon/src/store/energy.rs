//! Energy of users, by the hour.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction, params};

use super::integer::int;

/// The table. Hours are counted since 1970, energy is in mJ.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS user_energy (
    hour INTEGER NOT NULL, uid INTEGER NOT NULL, mj INTEGER NOT NULL, PRIMARY KEY (hour, uid)
) WITHOUT ROWID";

const HOUR_MS: u64 = 3_600_000;

/// Adds energy that a user's jobs took up to a time, ms since 1970.
pub(crate) fn add(tx: &Transaction<'_>, uid: u32, at_ms: u64, mj: u64) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO user_energy VALUES (?1, ?2, ?3) ON CONFLICT (hour, uid) DO UPDATE SET mj = mj + excluded.mj",
    )?
    .execute(params![int(at_ms / HOUR_MS), uid, int(mj)])
    .map(|_| ())
}

/// Energy by user, mJ, in the hours that reach into `from_ms..to_ms`.
pub(crate) fn sums(
    connection: &Connection,
    from_ms: u64,
    to_ms: u64,
) -> rusqlite::Result<BTreeMap<u32, u64>> {
    let mut statement = connection
        .prepare_cached("SELECT uid, sum(mj) FROM user_energy WHERE hour >= ?1 AND hour < ?2 GROUP BY uid")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()));
    statement.query_map(params![int(from_ms / HOUR_MS), int(to_ms.div_ceil(HOUR_MS))], row)?.collect()
}

/// Forgets the hours that ended before a time, ms since 1970.
pub(crate) fn forget_older(tx: &Transaction<'_>, before_ms: u64) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM user_energy WHERE hour < ?1", [int(before_ms / HOUR_MS)]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn energy_of_users_is_summed_over_hours_and_kept_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let mut store = Store::open(&path).unwrap();
        for (uid, at_ms, mj) in
            [(7, HOUR_MS, 5), (7, HOUR_MS + 60_000, 6), (8, HOUR_MS, 1), (7, 9 * HOUR_MS, 100)]
        {
            store.transaction(|tx| add(tx, uid, at_ms, mj)).unwrap();
        }
        drop(store);
        let mut store = Store::open(&path).unwrap();
        let of = |store: &Store, from, to| sums(&store.connection, from, to).unwrap();
        assert_eq!(of(&store, 0, u64::MAX), [(7, 111), (8, 1)].into());
        assert_eq!(of(&store, 0, 9 * HOUR_MS), [(7, 11), (8, 1)].into());
        assert_eq!(of(&store, HOUR_MS + 1, HOUR_MS + 2), [(7, 11), (8, 1)].into(), "hours count as a whole");
        assert_eq!(of(&store, 2 * HOUR_MS, u64::MAX), [(7, 100)].into());
        store.transaction(|tx| forget_older(tx, 9 * HOUR_MS)).unwrap();
        assert_eq!(of(&store, 0, u64::MAX), [(7, 100)].into());
    }
}
