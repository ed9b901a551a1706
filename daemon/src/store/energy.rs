//! Energy of users, by the hour.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction, params};

use super::integer::int;

/// The table, and an index for those who ask for their own. Hours are counted since 1970, energy is in mJ.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS user_energy (
    hour INTEGER NOT NULL, uid INTEGER NOT NULL, mj INTEGER NOT NULL, PRIMARY KEY (hour, uid)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS user_energy_of_user ON user_energy (uid, hour)";

/// Hours of all users, and of one.
const OF_ALL: &str = "SELECT hour, uid, mj FROM user_energy
    WHERE (hour, uid) > (?1, ?2) AND hour < ?3 ORDER BY hour, uid LIMIT ?4";
const OF_USER: &str = "SELECT hour, uid, mj FROM user_energy
    WHERE uid = ?2 AND hour > ?1 AND hour < ?3 ORDER BY hour LIMIT ?4";

const HOUR_MS: u64 = 3_600_000;

/// Adds energy that a user's jobs took up to a time, ms since 1970.
pub(crate) fn add(tx: &Transaction<'_>, uid: u32, at_ms: u64, mj: u64) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO user_energy VALUES (?1, ?2, ?3) ON CONFLICT (hour, uid) DO UPDATE SET mj = mj + excluded.mj",
    )?
    .execute(params![int(at_ms / HOUR_MS), uid, int(mj)])
    .map(|_| ())
}

/// Energy by user, mJ, in the hours that reach into a span, as far as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) of_users: BTreeMap<u32, u64>,
    /// Hour and user that were read last, and the hour that is the first behind the span.
    after: (i64, i64),
    end: i64,
}

impl Sums {
    pub(crate) fn new(from_ms: u64, to_ms: u64) -> Self {
        let after = (int(from_ms / HOUR_MS) - 1, i64::MAX);
        Self { of_users: BTreeMap::new(), after, end: int(to_ms.div_ceil(HOUR_MS)) }
    }

    /// Reads the next `most` hours, of all users or of one. Returns true if there may be more.
    pub(crate) fn read(
        &mut self,
        connection: &Connection,
        uid: Option<u32>,
        most: usize,
    ) -> rusqlite::Result<bool> {
        let mut statement = connection.prepare_cached(if uid.is_some() { OF_USER } else { OF_ALL })?;
        let (hour, last) = self.after;
        let of = uid.map_or(last, i64::from);
        let mut rows = statement.query(params![hour, of, self.end, int(most as u64)])?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            let (hour, uid): (i64, u32) = (row.get(0)?, row.get(1)?);
            *self.of_users.entry(uid).or_default() += row.get::<_, i64>(2)?.unsigned_abs();
            self.after = (hour, i64::from(uid));
            read += 1;
        }
        Ok(read == most)
    }
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
        let read = |store: &Store, uid, from, to, most| {
            let (mut sums, mut parts) = (Sums::new(from, to), 1);
            while sums.read(&store.connection, uid, most).unwrap() {
                parts += 1;
            }
            (sums.of_users, parts)
        };
        let of = |store: &Store, from, to| read(store, None, from, to, 100).0;
        assert_eq!(of(&store, 0, u64::MAX), [(7, 111), (8, 1)].into());
        assert_eq!(of(&store, 0, 9 * HOUR_MS), [(7, 11), (8, 1)].into());
        assert_eq!(of(&store, HOUR_MS + 1, HOUR_MS + 2), [(7, 11), (8, 1)].into(), "hours count as a whole");
        assert_eq!(of(&store, 2 * HOUR_MS, u64::MAX), [(7, 100)].into());
        assert_eq!(read(&store, None, 0, u64::MAX, 1), ([(7, 111), (8, 1)].into(), 4), "in parts");
        assert_eq!(read(&store, None, 0, u64::MAX, 2), ([(7, 111), (8, 1)].into(), 2));
        assert_eq!(read(&store, Some(7), 0, u64::MAX, 1), ([(7, 111)].into(), 3), "of one user");
        store.transaction(|tx| forget_older(tx, 9 * HOUR_MS)).unwrap();
        assert_eq!(of(&store, 0, u64::MAX), [(7, 100)].into());
    }

    #[test]
    fn the_energy_of_one_user_is_found_without_reading_that_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("q.db")).unwrap();
        let plan = |statement: &str| {
            let explained = format!("EXPLAIN QUERY PLAN {statement}");
            let row = |row: &rusqlite::Row<'_>| row.get::<_, String>(3);
            store.connection.query_row(&explained, params![0, 0, 0, 0], row).unwrap()
        };
        assert!(
            plan(OF_USER).contains("user_energy_of_user (uid=? AND hour>? AND hour<?)"),
            "{}",
            plan(OF_USER)
        );
        assert!(plan(OF_ALL).contains("PRIMARY KEY"), "{}", plan(OF_ALL));
    }
}
