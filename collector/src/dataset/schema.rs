//! The tables, and the version of their layout.

use std::collections::BTreeMap;

use super::DatasetError;
use rusqlite::{Connection, TransactionBehavior};

/// Version of the layout; a file with another one is refused. 0 is a file without tables.
const VERSION: i64 = 1;

const TABLES: &str = include_str!("tables.sql");

fn version(connection: &Connection) -> Result<i64, DatasetError> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match found {
        0 | VERSION => Ok(found),
        _ => Err(DatasetError::Version { found, known: VERSION }),
    }
}

/// Makes the tables, if the file has none.
///
/// # Errors
/// [`DatasetError::Version`] for a file with another layout.
pub(super) fn create(connection: &mut Connection) -> Result<(), DatasetError> {
    if version(connection)? == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have been first while this one waited.
    if version(&transaction)? != VERSION {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(transaction.commit()?)
}

/// Checks that the file has no views and triggers but those of the layout: another one could compute without end.
fn check_code(connection: &Connection) -> Result<(), DatasetError> {
    let code = |connection: &Connection| -> rusqlite::Result<BTreeMap<String, Option<String>>> {
        let text = "SELECT name, sql FROM sqlite_schema \
                    WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'";
        let mut found = connection.prepare(text)?;
        found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    let found = code(connection)?;
    if found.is_empty() {
        return Ok(());
    }
    let mut empty = Connection::open_in_memory()?;
    create(&mut empty)?;
    let known = code(&empty)?;
    match found.iter().find(|(name, text)| known.get(*name) != Some(*text)) {
        Some((name, _)) => {
            Err(DatasetError::Inconsistent(format!("it has the foreign view or trigger `{name}`")))
        }
        None => Ok(()),
    }
}

/// The connection for reading; for a file that was made but has no tables yet, one to an empty dataset.
///
/// # Errors
/// [`DatasetError::Version`] for a file with another layout.
pub(super) fn check(connection: Connection) -> Result<Connection, DatasetError> {
    check_code(&connection)?;
    let is_empty = || connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0));
    if version(&connection)? == VERSION || !is_empty()? {
        return Ok(connection);
    }
    let mut empty = Connection::open_in_memory()?;
    create(&mut empty)?;
    Ok(empty)
}
