//! Reservations of administrators: they are kept for a while after they are over, as a clock may be set back.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::integer::int;
use crate::reservations::{Reservation, SetReservation};

/// The table. A reservation is JSON; times are ms since 1970. No number is given twice.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS reservations (
    number INTEGER PRIMARY KEY AUTOINCREMENT, stated TEXT NOT NULL, set_by TEXT NOT NULL, at_ms INTEGER NOT NULL)";

/// Puts a reservation, or takes it away.
pub(crate) fn put(
    tx: &Transaction<'_>,
    number: u64,
    reservation: Option<&SetReservation>,
) -> rusqlite::Result<()> {
    let Some(SetReservation { of, by, at_ms }) = reservation else {
        return tx.execute("DELETE FROM reservations WHERE number = ?1", [int(number)]).map(|_| ());
    };
    let stated = serde_json::to_string(of).unwrap_or_default();
    tx.execute(
        "INSERT OR REPLACE INTO reservations VALUES (?1, ?2, ?3, ?4)",
        params![int(number), stated, by, int(*at_ms)],
    )
    .map(|_| ())
}

/// All of them, and the highest number that was ever given. What this version cannot read is left out, and stays.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<(Vec<(u64, SetReservation)>, u64)> {
    let mut statement = connection.prepare("SELECT number, stated, set_by, at_ms FROM reservations")?;
    let row = |row: &rusqlite::Row<'_>| {
        let number = row.get::<_, i64>(0)?.unsigned_abs();
        let of: Option<Reservation> = serde_json::from_str(&row.get::<_, String>(1)?).ok();
        let (by, at_ms) = (row.get(2)?, row.get::<_, i64>(3)?.unsigned_abs());
        Ok(of.map(|of| (number, SetReservation { of, by, at_ms })))
    };
    let found =
        statement.query_map([], row)?.filter_map(Result::transpose).collect::<rusqlite::Result<_>>()?;
    let last = "SELECT seq FROM sqlite_sequence WHERE name = 'reservations'";
    let last: Option<i64> = connection.query_row(last, [], |row| row.get(0)).optional()?;
    Ok((found, last.unwrap_or(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn reservations_are_there_after_a_restart_and_no_number_is_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let of = Reservation {
            users: vec!["alice".to_owned()],
            groups: vec!["lab".to_owned()],
            gpus: vec!["0".to_owned()],
            from_ms: 5,
            until_ms: 9,
            lead_ms: 1,
            evict: true,
            reason: Some("course".to_owned()),
        };
        let set = SetReservation { of, by: "root".to_owned(), at_ms: 7 };
        let mut store = Store::open(&path).unwrap();
        assert_eq!(all(&store.connection).unwrap(), (Vec::new(), 0));
        for number in [1, 2] {
            store.transaction(|tx| put(tx, number, Some(&set))).unwrap();
        }
        drop(store);
        let mut store = Store::open(&path).unwrap();
        assert_eq!(all(&store.connection).unwrap(), (vec![(1, set.clone()), (2, set.clone())], 2));
        store.transaction(|tx| put(tx, 2, None)).unwrap();
        assert_eq!(all(&store.connection).unwrap(), (vec![(1, set)], 2));
    }
}
