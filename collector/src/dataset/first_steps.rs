//! Memory that jobs held after their first optimizer steps.

use std::collections::BTreeMap;

use super::row::Row;
use radrm_base::Bytes;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

/// Memory that a job was seen to hold early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstSteps {
    /// Optimizer steps that it had made then.
    pub steps: u32,
    /// The most that it had held until then on one GPU, contexts included, bytes.
    pub held_bytes: u64,
}

/// A run that ended well, early and at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastCourse {
    /// Early.
    pub first: FirstSteps,
    /// The most that it held until its end.
    pub peak: Bytes,
}

/// Adds what a run held.
pub(super) fn insert(
    connection: &Connection,
    run: i64,
    first: Option<&FirstSteps>,
) -> Result<(), rusqlite::Error> {
    let Some(first) = first else { return Ok(()) };
    let held = i64::try_from(first.held_bytes).unwrap_or(i64::MAX);
    connection
        .prepare_cached("INSERT OR REPLACE INTO first_steps (run, steps, held_bytes) VALUES (?1, ?2, ?3)")?
        .execute((run, first.steps, held))
        .map(|_| ())
}

pub(super) fn read(sql: &rusqlite::Row<'_>) -> Result<FirstSteps, rusqlite::Error> {
    let held: i64 = sql.get("held_bytes")?;
    Ok(FirstSteps { steps: sql.get("steps")?, held_bytes: u64::try_from(held).unwrap_or(0) })
}

/// Gives rows what their runs held.
pub(super) fn add_to(connection: &Connection, rows: &mut [Row]) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare("SELECT run, steps, held_bytes FROM first_steps")?;
    let found = statement.query_map([], |sql| Ok((sql.get::<_, i64>("run")?, read(sql)?)))?;
    let mut by_run = found.collect::<Result<BTreeMap<i64, FirstSteps>, _>>()?;
    for row in rows {
        row.first_steps = by_run.remove(&row.id);
    }
    Ok(())
}

impl Row {
    /// The run early and at its end; `None` unless both are known and it ended well.
    pub fn past_course(&self) -> Option<PastCourse> {
        let peak = self.footprint_bytes.filter(|_| self.complete && self.program_key.is_some())?;
        self.first_steps.map(|first| PastCourse { first, peak: Bytes(peak) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::dataset::{Dataset, Filter, Origin, PastRuns, ProgramKey};

    #[test]
    fn first_steps_are_read_back_and_deleted_with_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut dataset = Dataset::open(&folder.path().join("d.db")).unwrap();
        let command = ["p".to_owned()];
        let first = FirstSteps { steps: 4, held_bytes: 700 };
        let row = Row {
            origin: Origin::Daemon,
            first_steps: Some(first),
            footprint_bytes: Some(710),
            complete: true,
            outcome: "exited".into(),
            ..Row::of_command(&command, Path::new("/"), 1)
        };
        dataset.add_bounded(&row, None, 9).unwrap();
        // One that was cut short does not show what follows, one without steps shows no beginning.
        for other in [
            Row { complete: false, out_of_memory: true, ..row.clone() },
            Row { first_steps: None, ..row.clone() },
        ] {
            assert_eq!(other.past_course(), None);
            dataset.add(&other, None).unwrap();
        }
        let rows = dataset.rows(&Filter::default()).unwrap();
        let kept: Vec<_> = rows.iter().map(|row| row.first_steps).collect();
        assert_eq!(kept.iter().flatten().count(), 2, "{kept:?}");
        let key = ProgramKey::of(&command, Path::new("/"), 1);
        let of = |uid| PastRuns {
            origin: Origin::Daemon,
            uid,
            gpu_model: None,
            emulated: false,
            limit: 9,
            since: None,
        };
        let course = PastCourse { first, peak: Bytes(710) };
        assert_eq!(row.past_course(), Some(course));
        assert_eq!(dataset.past_courses(&key, &of(0)).unwrap(), [course]);
        assert_eq!(dataset.past_courses(&key, &of(1)).unwrap(), [], "of another user");
        assert_eq!(dataset.forget_older(0).unwrap(), 3);
        let count = "SELECT count(*) FROM first_steps";
        let left: i64 = dataset.connection.query_row(count, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }
}
