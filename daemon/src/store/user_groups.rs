//! Groups of users as they were looked up last: they hold while nothing that names groups answers, also over restarts.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction, params};

/// The table. Names are a JSON array.
pub(crate) const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS user_groups (uid INTEGER PRIMARY KEY, names TEXT NOT NULL)";

/// Keeps the groups of a user, or forgets them.
pub(crate) fn put(tx: &Transaction<'_>, uid: u32, names: Option<&[String]>) -> rusqlite::Result<()> {
    let Some(names) = names else {
        return tx.execute("DELETE FROM user_groups WHERE uid = ?1", [uid]).map(|_| ());
    };
    let text = serde_json::to_string(names).unwrap_or_default();
    tx.execute("INSERT OR REPLACE INTO user_groups VALUES (?1, ?2)", params![uid, text]).map(|_| ())
}

/// All of them, by user.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<BTreeMap<u32, Vec<String>>> {
    let mut statement = connection.prepare("SELECT uid, names FROM user_groups")?;
    let row = |row: &rusqlite::Row<'_>| {
        let text: String = row.get(1)?;
        Ok((row.get(0)?, serde_json::from_str(&text).unwrap_or_default()))
    };
    statement.query_map([], row)?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn groups_of_users_are_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let mut store = Store::open(&path).unwrap();
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (uid, groups) in [(7, names(&["lab"])), (8, names(&["a, b", "\"c\""])), (7, names(&["x", "y"]))] {
            store.transaction(|tx| put(tx, uid, Some(&groups))).unwrap();
        }
        drop(store);
        let mut store = Store::open(&path).unwrap();
        let expected = [(7, names(&["x", "y"])), (8, names(&["a, b", "\"c\""]))];
        assert_eq!(all(&store.connection).unwrap(), expected.into());
        store.transaction(|tx| put(tx, 7, None)).unwrap();
        assert_eq!(all(&store.connection).unwrap().len(), 1);
    }
}
