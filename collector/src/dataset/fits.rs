//! On which cards the programs of dry runs fit.

use std::collections::BTreeMap;

use super::row::Row;
use radrm_profile::model::Fit;
use radrm_profile::model::dry_run::Verdict;
use rusqlite::{Connection, named_params};

/// Adds a run's verdicts.
pub(super) fn insert(connection: &Connection, run: i64, fits: &[Fit]) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO fits (run, card, verdict, why, need_bytes, memory_bytes, seconds)
         VALUES (:run, :card, :verdict, :why, :need, :memory, :seconds)",
    )?;
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    for fit in fits {
        statement.execute(named_params! {
            ":run": run, ":card": fit.card, ":verdict": fit.verdict.word(), ":why": fit.why,
            ":need": number(fit.need), ":memory": number(fit.memory), ":seconds": fit.seconds,
        })?;
    }
    Ok(())
}

/// Gives rows the verdicts of their runs, the smallest card first.
pub(super) fn add_to(connection: &Connection, rows: &mut [Row]) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare("SELECT * FROM fits ORDER BY run, memory_bytes, card")?;
    let found = statement.query_map([], |sql| {
        let number = |column: &str| -> Result<u64, rusqlite::Error> {
            Ok(u64::try_from(sql.get::<_, i64>(column)?).unwrap_or(0))
        };
        let word: String = sql.get("verdict")?;
        let fit = Fit {
            card: sql.get("card")?,
            // A word of a newer version promises nothing.
            verdict: Verdict::ALL.into_iter().find(|it| it.word() == word).unwrap_or(Verdict::Unknown),
            why: sql.get("why")?,
            need: number("need_bytes")?,
            memory: number("memory_bytes")?,
            seconds: sql.get("seconds")?,
        };
        Ok((sql.get::<_, i64>("run")?, fit))
    })?;
    let mut by_run: BTreeMap<i64, Vec<Fit>> = BTreeMap::new();
    for found in found {
        let (run, fit) = found?;
        by_run.entry(run).or_default().push(fit);
    }
    for row in rows {
        row.fits = by_run.remove(&row.id).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Dataset, Filter};

    #[test]
    fn verdicts_are_read_back_and_deleted_with_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut dataset = Dataset::open(&folder.path().join("d.db")).unwrap();
        let fit = |card: &str, verdict, memory| Fit {
            card: card.to_owned(),
            verdict,
            why: (verdict == Verdict::Tight).then(|| "memory ran short once".to_owned()),
            need: 5,
            memory,
            seconds: (verdict != Verdict::Unknown).then_some(1.5),
        };
        let fits: Vec<Fit> = Verdict::ALL
            .into_iter()
            .zip(1..)
            .map(|(verdict, at)| fit(&format!("c{at}"), verdict, at))
            .collect();
        let row = Row { fits: fits.clone(), outcome: "exited".into(), ..Row::default() };
        dataset.add(&row, None).unwrap();
        dataset.add(&Row { fits: Vec::new(), ..row }, None).unwrap();
        let rows = dataset.rows(&Filter::default()).unwrap();
        assert_eq!(rows.iter().map(|row| row.fits.len()).collect::<Vec<_>>(), [0, 5]);
        assert_eq!(rows[1].fits, fits);
        assert_eq!(dataset.forget_older(0).unwrap(), 2);
        let left: i64 =
            dataset.connection.query_row("SELECT count(*) FROM fits", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }
}
