//! Ranks of larger jobs that dry runs ran.

use std::collections::BTreeMap;

use super::row::Row;
use radrm_profile::model::DryRunRanks;
use rusqlite::{Connection, named_params};
use serde::{Deserialize, Serialize};

/// Ranks of a dry run, as a row keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowRanks {
    /// Number of all ranks of the job.
    pub world: u32,
    /// Number of ranks of a node.
    pub per_node: u32,
    /// Ranks that ran, ascending. The others were modelled.
    pub ran: Vec<u32>,
}

impl From<&DryRunRanks> for RowRanks {
    fn from(ranks: &DryRunRanks) -> Self {
        let ran = ranks.ran.iter().map(|ran| ran.rank).collect();
        Self { world: ranks.world, per_node: ranks.per_node, ran }
    }
}

/// Adds a run's ranks.
pub(super) fn insert(
    connection: &Connection,
    run: i64,
    ranks: Option<&RowRanks>,
) -> Result<(), rusqlite::Error> {
    let Some(ranks) = ranks else { return Ok(()) };
    connection.execute(
        "INSERT OR REPLACE INTO ranks (run, world, per_node, ran) VALUES (:run, :world, :per_node, :ran)",
        named_params! {
            ":run": run, ":world": ranks.world, ":per_node": ranks.per_node,
            ":ran": serde_json::json!(ranks.ran).to_string(),
        },
    )?;
    Ok(())
}

/// Gives rows the ranks of their runs.
pub(super) fn add_to(connection: &Connection, rows: &mut [Row]) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare("SELECT run, world, per_node, ran FROM ranks")?;
    let found = statement.query_map([], |sql| {
        let ran: String = sql.get("ran")?;
        let ran = serde_json::from_str(&ran).unwrap_or_default();
        Ok((
            sql.get::<_, i64>("run")?,
            RowRanks { world: sql.get("world")?, per_node: sql.get("per_node")?, ran },
        ))
    })?;
    let mut by_run = found.collect::<Result<BTreeMap<i64, RowRanks>, _>>()?;
    for row in rows {
        row.ranks = by_run.remove(&row.id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Dataset, Filter};

    #[test]
    fn ranks_are_read_back_and_deleted_with_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut dataset = Dataset::open(&folder.path().join("d.db")).unwrap();
        let ranks = RowRanks { world: 64, per_node: 8, ran: vec![0, 63] };
        let row = Row { ranks: Some(ranks), outcome: "exited".into(), ..Row::default() };
        dataset.add(&row, None).unwrap();
        dataset.add(&Row { ranks: None, ..row.clone() }, None).unwrap();
        let rows = dataset.rows(&Filter::default()).unwrap();
        assert_eq!(rows.iter().map(|row| row.ranks.clone()).collect::<Vec<_>>(), [None, row.ranks]);
        assert_eq!(dataset.forget_older(0).unwrap(), 2);
        let left: i64 =
            dataset.connection.query_row("SELECT count(*) FROM ranks", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }
}
