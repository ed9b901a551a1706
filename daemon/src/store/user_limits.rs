//! Limits that administrators set while a daemon ran: they hold until they are taken back.

use radrm_scheduler_core::{LimitKey, LimitValue};
use rusqlite::{Connection, Transaction, params};

use super::integer::int;
use crate::user_limits::{LimitSetting, Scope};

/// The table. A value is text, as `radrm admin set` takes it; times are ms since 1970.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS user_limits (
    scope TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, set_by TEXT NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope, name)) WITHOUT ROWID";

/// Sets a limit, or takes back what was set.
pub(crate) fn put(
    tx: &Transaction<'_>,
    scope: &Scope,
    key: LimitKey,
    setting: Option<&LimitSetting>,
) -> rusqlite::Result<()> {
    let Some(LimitSetting { value, by, at_ms }) = setting else {
        return tx
            .execute(
                "DELETE FROM user_limits WHERE scope = ?1 AND name = ?2",
                params![scope.text(), key.info().name],
            )
            .map(|_| ());
    };
    tx.execute(
        "INSERT OR REPLACE INTO user_limits VALUES (?1, ?2, ?3, ?4, ?5)",
        params![scope.text(), key.info().name, value.text(key), by, int(*at_ms)],
    )
    .map(|_| ())
}

/// All of them. What this version does not know is left out, and stays.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<(Scope, LimitKey, LimitSetting)>> {
    let mut statement = connection.prepare("SELECT scope, name, value, set_by, at_ms FROM user_limits")?;
    let row = |row: &rusqlite::Row<'_>| {
        let text = |at: usize| row.get::<_, String>(at);
        let known = Scope::parse(&text(0)?).zip(LimitKey::named(&text(1)?));
        let (value, by, at_ms) = (text(2)?, text(3)?, row.get::<_, i64>(4)?.unsigned_abs());
        Ok(known.and_then(|(scope, key)| {
            let value = LimitValue::read(key, &value).ok()?;
            Some((scope, key, LimitSetting { value, by, at_ms }))
        }))
    };
    statement.query_map([], row)?.filter_map(Result::transpose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn limits_that_were_set_are_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let mut store = Store::open(&path).unwrap();
        let scope = Scope::User("alice".to_owned());
        let setting = |ms| LimitSetting { value: LimitValue::Number(ms), by: "root".to_owned(), at_ms: 7 };
        for ms in [1000, 16_200_000] {
            store.transaction(|tx| put(tx, &scope, LimitKey::MaxTime, Some(&setting(ms)))).unwrap();
        }
        drop(store);
        let mut store = Store::open(&path).unwrap();
        let expected = (scope.clone(), LimitKey::MaxTime, setting(16_200_000));
        assert_eq!(all(&store.connection).unwrap(), [expected]);
        store.transaction(|tx| put(tx, &scope, LimitKey::MaxTime, None)).unwrap();
        assert!(all(&store.connection).unwrap().is_empty());
    }
}
