//! Results of dry runs: a row for each command, batch size, model of GPU and state of the program's files.

use radrm_base::ProgramKind;
use rusqlite::{Connection, Transaction, params};

use super::Outcome;

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS dry_runs (
    id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, program TEXT NOT NULL, batch INTEGER, model TEXT NOT NULL,
    steps INTEGER NOT NULL, digest TEXT NOT NULL, held INTEGER, failed TEXT, at_ms INTEGER NOT NULL, kind TEXT,
    step TEXT
);
CREATE INDEX IF NOT EXISTS dry_runs_program ON dry_runs(uid, program, model);
";

/// The newest are kept: of one command, and of all.
const MAX_OF_PROGRAM: u32 = 16;
const MAX_ALL: u32 = 10_000;
/// After this time a dry run that failed is made again, ms: what it lacked may be there.
const FAILED_FOR: u64 = 86_400_000;

/// Key of a dry run, without the state of the program's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) uid: u32,
    pub(crate) program: String,
    pub(crate) batch: Option<u32>,
    /// The model of the emulated GPU.
    pub(crate) model: String,
    pub(crate) steps: u64,
}

/// Makes the table, if it is not there. One of an earlier build gets the column that it lacks.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    let steps = "SELECT count(*) FROM pragma_table_info('dry_runs') WHERE name = 'step'";
    match connection.query_row(steps, [], |row| row.get::<_, u32>(0))? {
        0 => connection.execute_batch("ALTER TABLE dry_runs ADD COLUMN step TEXT"),
        _ => Ok(()),
    }
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Results that count still, by digest, the newest first.
pub(crate) fn known(
    connection: &Connection,
    key: &Key,
    now_ms: u64,
) -> rusqlite::Result<Vec<(String, Outcome)>> {
    let mut statement = connection.prepare_cached(
        "SELECT digest, held, failed, kind, step FROM dry_runs
         WHERE uid = ?1 AND program = ?2 AND model = ?3 AND batch IS ?4 AND steps = ?5 AND (failed IS NULL OR at_ms > ?6)
         ORDER BY id DESC",
    )?;
    let since = int(now_ms.saturating_sub(FAILED_FOR));
    let values = params![key.uid, key.program, key.model, key.batch, int(key.steps), since];
    let row = |row: &rusqlite::Row<'_>| {
        let held: Option<i64> = row.get(1)?;
        let outcome = match held {
            Some(held) => Outcome::Held {
                bytes: held.unsigned_abs(),
                kind: row.get::<_, Option<String>>(3)?.as_deref().and_then(ProgramKind::parse),
                step: row.get::<_, Option<String>>(4)?.and_then(|text| serde_json::from_str(&text).ok()),
            },
            None => Outcome::Failed(row.get::<_, Option<String>>(2)?.unwrap_or_default()),
        };
        Ok((row.get(0)?, outcome))
    };
    statement.query_map(values, row)?.collect()
}

/// Adds a result in place of an older one for the same files.
pub(crate) fn insert(
    tx: &Transaction<'_>,
    key: &Key,
    digest: &str,
    outcome: &Outcome,
    at_ms: u64,
) -> rusqlite::Result<()> {
    let of = params![key.uid, key.program, key.model, key.batch, int(key.steps), digest];
    tx.prepare_cached(
        "DELETE FROM dry_runs WHERE uid = ?1 AND program = ?2 AND model = ?3 AND batch IS ?4 AND steps = ?5 AND digest = ?6",
    )?
    .execute(of)?;
    let (held, kind, step, failed) = match outcome {
        Outcome::Held { bytes, kind, step } => {
            // Numbers: nothing that JSON cannot hold.
            let step = step.and_then(|step| serde_json::to_string(&step).ok());
            (Some(int(*bytes)), kind.map(ProgramKind::as_str), step, None)
        }
        Outcome::Failed(why) => (None, None, None, Some(why)),
    };
    tx.prepare_cached(
        "INSERT INTO dry_runs (uid, program, model, batch, steps, digest, held, failed, at_ms, kind, step)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        key.uid,
        key.program,
        key.model,
        key.batch,
        int(key.steps),
        digest,
        held,
        failed,
        int(at_ms),
        kind,
        step
    ])?;
    tx.prepare_cached(
        "DELETE FROM dry_runs WHERE uid = ?1 AND program = ?2 AND model = ?3 AND id NOT IN
             (SELECT id FROM dry_runs WHERE uid = ?1 AND program = ?2 AND model = ?3 ORDER BY id DESC LIMIT ?4)",
    )?
    .execute(params![key.uid, key.program, key.model, MAX_OF_PROGRAM])?;
    tx.prepare_cached("DELETE FROM dry_runs WHERE id <= (SELECT max(id) FROM dry_runs) - ?1")?
        .execute([MAX_ALL])
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use radrm_need::StepPrediction;
    use radrm_scheduler_core::Permille;

    use super::*;

    fn held(bytes: u64, kind: Option<ProgramKind>) -> Outcome {
        Outcome::Held { bytes, kind, step: None }
    }

    fn key() -> Key {
        Key { uid: 7, program: "p".into(), batch: None, model: "A100".into(), steps: 3 }
    }

    fn empty() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        create(&connection).unwrap();
        connection
    }

    #[test]
    fn a_result_is_known_for_its_files_and_a_failure_for_a_day() {
        let mut connection = empty();
        let key = |batch, steps| Key { batch, steps, ..key() };
        let mut add = |key: &Key, digest: &str, outcome: &Outcome| {
            let tx = connection.transaction().unwrap();
            insert(&tx, key, digest, outcome, 1000).unwrap();
            tx.commit().unwrap();
        };
        let failed = Outcome::Failed("it ended with exit code 1".into());
        add(&key(None, 3), "a", &failed);
        add(&key(None, 3), "b", &held(5, None));
        add(&key(Some(8), 3), "b", &held(6, None));
        add(&key(None, 3), "b", &held(7, Some(ProgramKind::Cudnn)));
        for at in 0..40 {
            add(&Key { uid: 8, ..key(None, 3) }, &at.to_string(), &held(at, None));
        }
        let of = |key: Key, now| known(&connection, &key, now).unwrap();
        let newest = ("b".to_owned(), held(7, Some(ProgramKind::Cudnn)));
        assert_eq!(of(key(None, 3), 2000), [newest.clone(), ("a".to_owned(), failed)]);
        assert_eq!(of(key(None, 3), 2000 + FAILED_FOR), [newest]);
        assert_eq!(of(key(Some(8), 3), 2000), [("b".to_owned(), held(6, None))]);
        assert_eq!(of(key(None, 4), 2000), []);
        assert_eq!(of(Key { uid: 8, ..key(None, 3) }, 2000).len(), MAX_OF_PROGRAM as usize);
        for other in [
            Key { program: "q".into(), ..key(None, 3) },
            Key { model: "H200".into(), ..key(None, 3) },
            Key { uid: 9, ..key(None, 3) },
        ] {
            assert_eq!(of(other.clone(), 2000), [], "{other:?}");
        }
    }

    #[test]
    fn a_predicted_step_is_kept_in_a_table_of_an_earlier_build_too() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&TABLE.replace(",\n    step TEXT", "")).unwrap();
        for _ in 0..2 {
            create(&connection).unwrap();
        }
        let step = StepPrediction {
            gpu: [1, 2, 3],
            host: None,
            low: 1,
            time: Some([1, 2, 3]),
            confidence: None,
            smact: Permille(100),
            drama: Permille(200),
            runs: 0,
        };
        let found = Outcome::Held { bytes: 5, kind: None, step: Some(step) };
        let tx = connection.transaction().unwrap();
        insert(&tx, &key(), "d", &found, 1000).unwrap();
        tx.commit().unwrap();
        assert_eq!(known(&connection, &key(), 2000).unwrap(), [("d".to_owned(), found)]);
    }

    #[test]
    fn a_result_replaces_no_other_users_programs_or_models() {
        let mut connection = empty();
        let key = key();
        let others = [
            Key { uid: 8, ..key.clone() },
            Key { program: "q".into(), ..key.clone() },
            Key { model: "H200".into(), ..key.clone() },
            Key { batch: Some(8), ..key.clone() },
            Key { steps: 4, ..key.clone() },
        ];
        let all: Vec<&Key> = others.iter().chain([&key]).collect();
        let tx = connection.transaction().unwrap();
        for (key, bytes) in all.iter().zip(0..) {
            insert(&tx, key, "same", &held(bytes, None), 1000).unwrap();
        }
        tx.commit().unwrap();
        for (key, bytes) in all.iter().zip(0..) {
            let found = known(&connection, key, 2000).unwrap();
            assert_eq!(found, [("same".to_owned(), held(bytes, None))], "{key:?}");
        }
    }

    #[test]
    fn the_oldest_results_of_all_programs_go() {
        let mut connection = empty();
        let key = |at: u32| Key { program: at.to_string(), ..key() };
        let tx = connection.transaction().unwrap();
        for at in 0..MAX_ALL + 5 {
            insert(&tx, &key(at), "d", &held(1, None), 1000).unwrap();
        }
        tx.commit().unwrap();
        let count: u32 = connection.query_row("SELECT count(*) FROM dry_runs", [], |row| row.get(0)).unwrap();
        assert_eq!(count, MAX_ALL);
        assert_eq!(known(&connection, &key(4), 2000).unwrap(), []);
        assert_eq!(known(&connection, &key(5), 2000).unwrap().len(), 1);
    }
}
