//! Queue and history on disk, in SQLite: what a daemon that died left to the next.

pub(crate) mod arriving;
pub(crate) mod changes;
pub(crate) mod curves;
pub(crate) mod disk;
pub(crate) mod drains;
pub(crate) mod energy;
mod integer;
pub(crate) mod job_sums;
pub(crate) mod reservations;
mod spec;
pub(crate) mod user_groups;
pub(crate) mod user_limits;

use std::path::Path;

use radrm_base::SeenActivity;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{GpuStats, Line};
use radrm_scheduler_core::{JobState, Leaving, Needs, Verdict};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{error::DaemonError, suspend::Suspension};
pub(crate) use curves::Watched;
use integer::int;
pub(crate) use spec::put as put_spec;

/// Stage of a job, as far as the disk knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// In the queue.
    #[default]
    Waiting,
    /// An attempt was decided; a supervisor may be there.
    Starting,
    /// Its supervisor is there.
    Running,
    /// Over.
    Ended,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Waiting, Self::Starting, Self::Running, Self::Ended];

    /// State of a job of which nothing else is known. Its text form is what the disk has.
    pub(crate) const fn state(self) -> JobState {
        match self {
            Self::Waiting => JobState::Waiting,
            Self::Starting => JobState::Starting,
            Self::Running => JobState::Running,
            Self::Ended => JobState::Ended,
        }
    }

    fn of(name: &str) -> Self {
        let state = JobState::parse(name);
        Self::ALL.into_iter().find(|stage| state == Some(stage.state())).unwrap_or_default()
    }
}

/// A job with what was decided for it. The environment stays on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) user: String,
    /// Without its environment.
    pub(crate) spec: Spec,
    /// Of `spec`, the environment and the needs, as they are on disk.
    pub(crate) bytes: u64,
    pub(crate) stage: Stage,
    pub(crate) held: bool,
    /// The user does not want it any more.
    pub(crate) cancelled: bool,
    /// Name of the user who cancelled it, as far as this daemon knows: its history has it too.
    pub(crate) cancelled_by: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) ooms: u32,
    pub(crate) floor: u64,
    /// UUIDs of the devices of this attempt.
    pub(crate) devices: Vec<String>,
    /// Description of the emulated GPUs that stand for these, if they do.
    pub(crate) emulated: Option<String>,
    pub(crate) reserved: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) submitted_ms: u64,
    /// Since when it is queued, if that is not its submission.
    pub(crate) lined_up_ms: Option<u64>,
    pub(crate) first_start_ms: Option<u64>,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    /// Time of the attempts that are over.
    pub(crate) ran_ms: u64,
    pub(crate) peak: Option<u64>,
    /// Time in which GPUs of its attempt did nothing, summed over them, ms.
    pub(crate) idle_ms: u64,
    /// Requests for GPU memory that its last attempt was refused.
    pub(crate) refused: u64,
    /// Activity that it caused on a GPU when it was alone there.
    pub(crate) activity: Option<SeenActivity>,
    /// The boot in which the attempt was started.
    pub(crate) boot: String,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) why: String,
    /// State between running and suspended.
    pub(crate) suspension: Suspension,
    /// It was asked to stop, and this is to become of it.
    pub(crate) leaving: Option<Leaving>,
    /// Resolved needs of the job.
    pub(crate) needs: Option<Needs>,
}

/// The database.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) connection: Connection,
    /// The last commit failed. All of it may be in the log none the less, and a daemon that comes after a kill takes it for
    /// written, unless another commit has gone over it.
    has_failed: bool,
}

/// Number of commits after failed ones: a row that each of them changes.
const FAILED_WRITES: &str =
    "CREATE TABLE IF NOT EXISTS failed_writes (id INTEGER PRIMARY KEY, count INTEGER NOT NULL)";

/// Version of the tables; a file with another one is refused. 0 is a file without tables.
const VERSION: i64 = 1;

const TABLES: &str = include_str!("store/tables.sql");

/// Jobs that are over by their ends: figures of a time read those of that time only.
const ENDED: &str = "CREATE INDEX IF NOT EXISTS jobs_ended ON jobs(ended_ms) WHERE stage = 'ended';
CREATE INDEX IF NOT EXISTS jobs_ended_id ON jobs(id) WHERE stage = 'ended';
CREATE INDEX IF NOT EXISTS jobs_ended_user ON jobs(uid, id) WHERE stage = 'ended'";

/// The newest jobs that are over, of one user or of all. Each form reads its index from the end and as many rows as it gives:
/// with one form for both SQLite reads every job of the table, each with its environment.
const fn newest_ended(of_one: bool) -> &'static str {
    if of_one {
        "WHERE stage = 'ended' AND uid = ?1 ORDER BY id DESC LIMIT ?2"
    } else {
        "WHERE stage = 'ended' AND ?1 IS NULL ORDER BY id DESC LIMIT ?2"
    }
}

/// Ended jobs that are forgotten at once.
pub(crate) const MAX_FORGOTTEN: u64 = 1000;

/// The first lines of a job's history, which are always kept, and the most lines of it.
const FIRST_LINES: u32 = 100;
const LINES: u32 = 1000;

type Result<T> = rusqlite::Result<T>;

impl Store {
    /// Opens the database, which is made if it is not there.
    pub(crate) fn open(path: &Path) -> std::result::Result<Self, DaemonError> {
        let failed = |error: rusqlite::Error| DaemonError::by(path, " cannot be used", error);
        let mut connection = Connection::open(path).map_err(failed)?;
        // One daemon at a time: a second one gets no lock, and none is needed for each transaction.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
            .map_err(failed)?;
        // A job that was accepted is there after a power cut too.
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        connection.pragma_update(None, "cache_size", -1024).map_err(failed)?;
        let version: i64 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
        match version {
            0 => {
                let tx = connection.transaction().map_err(failed)?;
                tx.execute_batch(TABLES).map_err(failed)?;
                tx.pragma_update(None, "user_version", VERSION).map_err(failed)?;
                tx.commit().map_err(failed)?;
            }
            VERSION => {}
            found => return Err(DaemonError::QueueVersion { path: path.to_owned(), found, known: VERSION }),
        }
        connection.execute_batch(super::accounting::TABLE).map_err(failed)?;
        connection.execute_batch(ENDED).map_err(failed)?;
        connection.execute_batch(FAILED_WRITES).map_err(failed)?;
        curves::create(&mut connection).map_err(failed)?;
        connection.execute_batch(disk::TABLES).map_err(failed)?;
        connection.execute_batch(arriving::TABLE).map_err(failed)?;
        connection.execute_batch(changes::TABLE).map_err(failed)?;
        connection.execute_batch(user_limits::TABLE).map_err(failed)?;
        connection.execute_batch(user_groups::TABLE).map_err(failed)?;
        connection.execute_batch(drains::TABLE).map_err(failed)?;
        connection.execute_batch(reservations::TABLE).map_err(failed)?;
        connection.execute_batch(energy::TABLE).map_err(failed)?;
        arriving::discard_all(&mut connection).map_err(failed)?;
        super::dry_run::stored::create(&connection).map_err(failed)?;
        Ok(Self { connection, has_failed: false })
    }

    /// Makes the next writes fail, as a full disk does.
    #[cfg(test)]
    pub(crate) fn fail_writes(&self, fail: bool) {
        self.connection.pragma_update(None, "query_only", fail).unwrap();
    }

    /// All in one transaction: everything `work` does, or nothing.
    pub(crate) fn transaction<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let tx = self.connection.transaction()?;
        let done = work(&tx)?;
        if self.has_failed {
            let again =
                "INSERT INTO failed_writes VALUES (0, 1) ON CONFLICT (id) DO UPDATE SET count = count + 1";
            tx.execute(again, [])?;
        }
        let committed = tx.commit();
        self.has_failed = committed.is_err();
        committed.map(|()| done)
    }

    /// Returns true if a commit failed that none has gone over yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Jobs that are not over, in the order of their numbers.
    pub(crate) fn open_jobs(&self) -> Result<Vec<Entry>> {
        self.select("WHERE stage <> 'ended' ORDER BY id", &[])
    }

    /// The latest time in jobs that are not over, ms.
    pub(crate) fn newest(&self) -> Result<Option<u64>> {
        let latest = "SELECT max(max(submitted_ms, coalesce(lined_up_ms, 0), coalesce(first_start_ms, 0),
                                 coalesce(started_ms, 0)))
             FROM jobs WHERE stage <> 'ended'";
        let latest: Option<i64> = self.connection.query_row(latest, [], |row| row.get(0))?;
        Ok(latest.map(i64::unsigned_abs))
    }

    /// Results of `of` for the newest jobs that are over, one by one: all of them may be large.
    pub(crate) fn ended<T>(&self, uid: Option<u32>, most: u32, of: impl Fn(Entry) -> T) -> Result<Vec<T>> {
        self.select_of(newest_ended(uid.is_some()), params![uid.map(i64::from), most], of)
    }

    /// Numbers of the newest jobs that are over.
    pub(crate) fn numbers_of_ended(&self, uid: Option<u32>, most: u32) -> Result<Vec<u64>> {
        let text = format!("SELECT id FROM jobs {}", newest_ended(uid.is_some()));
        let mut statement = self.connection.prepare_cached(&text)?;
        let id = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
        statement.query_map(params![uid.map(i64::from), most], id)?.collect()
    }

    /// One job.
    pub(crate) fn job(&self, id: u64) -> Result<Option<Entry>> {
        let is_whole = "NOT EXISTS (SELECT 1 FROM arriving WHERE ?1 BETWEEN first AND last)";
        Ok(self.select(&format!("WHERE id = ?1 AND {is_whole}"), params![int(id)])?.pop())
    }

    fn select(&self, end: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<Entry>> {
        self.select_of(end, values, |entry| entry)
    }

    fn select_of<T>(
        &self,
        end: &str,
        values: &[&dyn rusqlite::ToSql],
        of: impl Fn(Entry) -> T,
    ) -> Result<Vec<T>> {
        let text = format!("SELECT {COLUMNS} FROM jobs {end}");
        let mut statement = self.connection.prepare_cached(&text)?;
        statement.query_map(values, |row| entry(row).map(&of))?.collect()
    }

    /// A job's environment.
    pub(crate) fn environment(&self, id: u64) -> Result<Vec<String>> {
        let text: Option<String> = self
            .connection
            .query_row("SELECT environment FROM jobs WHERE id = ?1", [int(id)], |row| row.get(0))
            .optional()?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// A job's history, oldest first.
    pub(crate) fn history(&self, id: u64) -> Result<Vec<Line>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT at_ms, text FROM history WHERE job = ?1 ORDER BY rowid")?;
        let line = |row: &Row<'_>| {
            let text: String = row.get(1)?;
            Ok(Line { at_ms: row.get::<_, i64>(0)?.unsigned_abs(), text: text.into() })
        };
        statement.query_map([int(id)], line)?.collect()
    }

    /// GPU time that users have used.
    pub(crate) fn usage(&self) -> Result<Vec<(u32, u64, u64)>> {
        let mut statement = self.connection.prepare("SELECT uid, gpu_ms, at_ms FROM usage")?;
        let row = |row: &Row<'_>| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get::<_, i64>(2)?.unsigned_abs()))
        };
        statement.query_map([], row)?.collect()
    }

    /// Figures of each GPU since then; since 1970 of all time, also that whose buckets are forgotten.
    pub(crate) fn gpu_stats(&self, since_ms: u64) -> Result<Vec<GpuStats>> {
        match since_ms {
            0 => curves::of_all_time(&self.connection),
            since_ms => curves::select(&self.connection, since_ms, u64::MAX),
        }
    }

    /// Numbers of jobs that ended before `before_ms`, [`MAX_FORGOTTEN`] at most.
    pub(crate) fn old(&self, before_ms: u64) -> Result<Vec<u64>> {
        let mut statement = self
            .connection
            .prepare("SELECT id FROM jobs WHERE stage = 'ended' AND ended_ms < ?1 ORDER BY id LIMIT ?2")?;
        let number = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
        statement.query_map([int(before_ms), int(MAX_FORGOTTEN)], number)?.collect()
    }

    /// Numbers of the oldest ended jobs of a user who has more than `most` of them, [`MAX_FORGOTTEN`] at most.
    pub(crate) fn excess(&self, most: u32) -> Result<Vec<u64>> {
        let mut counts = self.connection.prepare_cached(
            "SELECT uid, count(*) - ?1 FROM jobs WHERE stage = 'ended' GROUP BY uid HAVING count(*) > ?1 LIMIT 1",
        )?;
        let first: Option<(u32, i64)> =
            counts.query_row([most], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((uid, more)) = first else { return Ok(Vec::new()) };
        let mut statement = self
            .connection
            .prepare_cached("SELECT id FROM jobs WHERE stage = 'ended' AND uid = ?1 ORDER BY id LIMIT ?2")?;
        let number = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
        statement.query_map(params![uid, more.min(int(MAX_FORGOTTEN))], number)?.collect()
    }
}

const COLUMNS: &str = "id, uid, gid, user, spec, stage, held, cancelled, attempt, ooms, floor, devices, \
    reserved, mem_limit, submitted_ms, first_start_ms, started_ms, ended_ms, ran_ms, peak, boot, verdict, why, \
    suspension, lined_up_ms, activity, leaving, needs, emulated, refused, idle_ms, \
    octet_length(spec) + octet_length(environment) + coalesce(octet_length(needs), 0)";

fn entry(row: &Row<'_>) -> Result<Entry> {
    let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
    let some = |at: usize| row.get::<_, Option<i64>>(at).map(|value| value.map(i64::unsigned_abs));
    let text = |at: usize| row.get::<_, String>(at);
    let wrong = |error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, Box::new(error))
    };
    Ok(Entry {
        id: number(0)?,
        uid: row.get(1)?,
        gid: row.get(2)?,
        user: text(3)?,
        spec: serde_json::from_str(&text(4)?).map_err(wrong)?,
        stage: Stage::of(&text(5)?),
        held: row.get(6)?,
        cancelled: row.get(7)?,
        cancelled_by: None,
        attempt: row.get(8)?,
        ooms: row.get(9)?,
        floor: number(10)?,
        devices: serde_json::from_str(&text(11)?).unwrap_or_default(),
        reserved: some(12)?,
        limit: some(13)?,
        submitted_ms: number(14)?,
        first_start_ms: some(15)?,
        started_ms: some(16)?,
        ended_ms: some(17)?,
        ran_ms: number(18)?,
        peak: some(19)?,
        boot: text(20)?,
        verdict: from_json(row.get(21)?),
        why: text(22)?,
        suspension: serde_json::from_str(&text(23)?).unwrap_or_default(),
        lined_up_ms: some(24)?,
        activity: from_json(row.get(25)?),
        leaving: from_json(row.get(26)?),
        needs: from_json(row.get(27)?),
        emulated: row.get(28)?,
        refused: number(29)?,
        idle_ms: number(30)?,
        bytes: number(31)?,
    })
}

/// Value of a JSON text; `None` if it cannot be understood.
fn from_json<T: serde::de::DeserializeOwned>(text: Option<String>) -> Option<T> {
    text.and_then(|text| serde_json::from_str(&text).ok())
}

pub(crate) fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Disk use of a job's specification, environment and needs, bytes.
pub(crate) fn bytes(spec: &Spec, environment: &[String], needs: Option<&Needs>) -> u64 {
    let needs = needs.map_or(0, |needs| json(needs).len());
    (json(spec).len() + json(&environment).len() + needs) as u64
}

/// Adds a new job with its environment, as [`json`], and gives its number: a new one where it has none.
pub(crate) fn insert(tx: &Transaction<'_>, entry: &Entry, environment: &str) -> Result<u64> {
    tx.prepare_cached(
        "INSERT INTO jobs (id, uid, gid, user, spec, environment, stage, held, cancelled, attempt, ooms, floor,
             devices, submitted_ms, ran_ms, boot, why, needs)
         VALUES (nullif(?9, 0), ?1, ?2, ?3, ?4, ?5, 'waiting', ?6, 0, 0, 0, 0, '[]', ?7, 0, '', '', ?8)",
    )?
    .execute(params![
        entry.uid,
        entry.gid,
        entry.user,
        json(&entry.spec),
        environment,
        entry.held,
        int(entry.submitted_ms),
        entry.needs.as_ref().map(json),
        int(entry.id),
    ])?;
    Ok(tx.last_insert_rowid().unsigned_abs())
}

/// Writes what changes of a job.
pub(crate) fn update(tx: &Transaction<'_>, entry: &Entry) -> Result<()> {
    tx.prepare_cached(
        "UPDATE jobs SET stage = ?2, held = ?3, cancelled = ?4, attempt = ?5, ooms = ?6, floor = ?7,
             devices = ?8, reserved = ?9, mem_limit = ?10, first_start_ms = ?11, started_ms = ?12,
             ended_ms = ?13, ran_ms = ?14, peak = ?15, boot = ?16, verdict = ?17, why = ?18, suspension = ?19,
             lined_up_ms = ?20, activity = ?21, leaving = ?22, needs = ?23, emulated = ?24, refused = ?25,
             idle_ms = ?26
             WHERE id = ?1",
    )?
    .execute(params![
        int(entry.id),
        entry.stage.state().as_str(),
        entry.held,
        entry.cancelled,
        entry.attempt,
        entry.ooms,
        int(entry.floor),
        json(&entry.devices),
        entry.reserved.map(int),
        entry.limit.map(int),
        entry.first_start_ms.map(int),
        entry.started_ms.map(int),
        entry.ended_ms.map(int),
        int(entry.ran_ms),
        entry.peak.map(int),
        entry.boot,
        entry.verdict.as_ref().map(json),
        entry.why,
        json(&entry.suspension),
        entry.lined_up_ms.map(int),
        entry.activity.as_ref().map(json),
        entry.leaving.as_ref().map(json),
        entry.needs.as_ref().map(json),
        entry.emulated,
        int(entry.refused),
        int(entry.idle_ms),
    ])?;
    match entry.stage {
        Stage::Ended => spec::shorten(tx, entry),
        _ => Ok(()),
    }
}

/// Adds a line to a job's history. In a long one a line gives way behind the first.
pub(crate) fn note(tx: &Transaction<'_>, job: u64, line: &Line) -> Result<()> {
    tx.prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3)")?.execute(params![
        int(job),
        int(line.at_ms),
        line.text.raw()
    ])?;
    tx.prepare_cached(
        "DELETE FROM history WHERE EXISTS (SELECT 1 FROM history WHERE job = ?1 LIMIT 1 OFFSET ?3)
             AND rowid = (SELECT rowid FROM history WHERE job = ?1 ORDER BY rowid LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![int(job), FIRST_LINES, LINES])
    .map(|_| ())
}

/// Keeps a user's used GPU time.
pub(crate) fn put_usage(tx: &Transaction<'_>, uid: u32, gpu_ms: u64, at_ms: u64) -> Result<()> {
    tx.prepare_cached("INSERT OR REPLACE INTO usage VALUES (?1, ?2, ?3)")?
        .execute(params![uid, int(gpu_ms), int(at_ms)])
        .map(|_| ())
}

/// Adds figures of the time up to now to a GPU's.
pub(crate) fn put_watched(tx: &Transaction<'_>, gpu: &str, at_ms: u64, more: &Watched) -> Result<()> {
    curves::put(tx, gpu, at_ms, more)?;
    tx.prepare_cached(
        "INSERT INTO watched VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (gpu) DO UPDATE SET
             samples = samples + excluded.samples, used = used + excluded.used, smact = smact + excluded.smact,
             smact_samples = smact_samples + excluded.smact_samples, power = power + excluded.power,
             power_samples = power_samples + excluded.power_samples,
             energy = CASE WHEN excluded.energy IS NULL THEN energy ELSE coalesce(energy, 0) + excluded.energy END",
    )?
    .execute(params![
        gpu,
        int(more.samples),
        more.used,
        more.smact,
        int(more.smact_samples),
        more.power,
        int(more.power_samples),
        more.energy_mj
    ])
    .map(|_| ())
}

/// Forgets a job.
pub(crate) fn forget(tx: &Transaction<'_>, job: u64) -> Result<()> {
    tx.execute("DELETE FROM history WHERE job = ?1", [int(job)])?;
    disk::forget(tx, job)?;
    tx.execute("DELETE FROM jobs WHERE id = ?1", [int(job)]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::loader::Loader;
    use radrm_scheduler_core::{After, Bytes, Millis, Need, Outcome, Permille, Reason, Signal};

    #[test]
    fn a_job_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        let mut store = Store::open(&path).unwrap();
        let spec = Spec { command: vec!["a".into()], gpus: 2, batch: Some(15), ..Spec::default() };
        let mut entry =
            Entry { uid: 7, user: "u".into(), spec, submitted_ms: 9, held: true, ..Entry::default() };
        let environment = ["A=1 \"\u{e9}\"".to_owned()];
        entry.needs = Some(Needs { memory: Some(Need::declared(Bytes(7))), ..Needs::default() });
        entry.bytes = bytes(&entry.spec, &environment, entry.needs.as_ref());
        entry.id = store.transaction(|tx| insert(tx, &entry, &json(&environment))).unwrap();
        assert_eq!(store.open_jobs().unwrap(), [entry.clone()]);
        entry.stage = Stage::Running;
        entry.devices = vec!["GPU-1".into()];
        entry.peak = Some(1 << 40);
        entry.lined_up_ms = Some(12);
        let reason = Reason::SlotEnds { slot: Millis(7) };
        let after = After::End(Verdict::TimedOut);
        entry.leaving = Some(Leaving { after, signal: Signal::Checkpoint(10), reason, slot_over: true });
        entry.activity = Some(SeenActivity { smact: Permille(250), ..SeenActivity::default() });
        store.transaction(|tx| update(tx, &entry)).unwrap();
        assert_eq!(store.newest().unwrap(), Some(12));
        let line = Line { at_ms: 4, text: "x".into() };
        store.transaction(|tx| note(tx, entry.id, &line)).unwrap();
        drop(store);
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.open_jobs().unwrap(), [entry.clone()]);
        assert_eq!(store.history(entry.id).unwrap(), [line]);
        assert_eq!(store.environment(entry.id).unwrap(), environment);
        entry.stage = Stage::Ended;
        entry.verdict = Some(Verdict::Ended(Outcome::Exited { code: 0 }));
        (entry.first_start_ms, entry.ended_ms, entry.ran_ms, entry.ooms) = (Some(20), Some(109), 60, 1);
        store.transaction(|tx| update(tx, &entry)).unwrap();
        assert!(store.open_jobs().unwrap().is_empty() && store.newest().unwrap().is_none());
        let of = |uid| {
            let mut sums = job_sums::JobSums::default();
            sums.read(&store.connection, Some(uid), job_sums::JobSums::since(0), 10).unwrap();
            sums.stats()
        };
        let stats = of(7);
        assert_eq!((stats.jobs, stats.succeeded, stats.failed, stats.ooms), (1, 1, 0, 1));
        assert_eq!((stats.makespan_ms, stats.mean_wait_ms, stats.mean_execution_ms), (100, 40.0, 60.0));
        assert_eq!(of(8).jobs, 0);
    }

    #[test]
    fn a_jobs_history_keeps_its_beginning_and_its_end_and_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let other = Line { at_ms: 0, text: "another's".into() };
        store.transaction(|tx| note(tx, 2, &other)).unwrap();
        let line = |at_ms| Line { at_ms, text: "launches in 50 % of the time".into() };
        store.transaction(|tx| (0..5000).try_for_each(|at| note(tx, 1, &line(at)))).unwrap();
        let at: Vec<u64> = store.history(1).unwrap().iter().map(|line| line.at_ms).collect();
        assert_eq!(at, (0..100).chain(4100..5000).collect::<Vec<u64>>());
        assert_eq!(store.history(2).unwrap(), [other]);
    }

    #[test]
    fn a_queue_of_another_version_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.db");
        drop(Store::open(&path).unwrap());
        for version in [-1, 2, 99] {
            Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
            let expected = format!(
                "{} has queue version {version}, this radrmd knows version 1: use the radrmd that wrote it",
                path.display()
            );
            assert_eq!(Store::open(&path).unwrap_err().to_string(), expected);
            let file = Connection::open(&path).unwrap();
            let left: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
            assert_eq!(left, version);
        }
    }

    #[test]
    fn of_a_job_that_is_over_a_bounded_part_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let environment = vec!["E=1".to_owned()];
        let mut ended = |command: Vec<String>| {
            let loader = Some(Loader { command: command.clone(), ..Loader::default() });
            let spec = Spec { command, loader, ..Spec::default() };
            let mut entry = Entry { spec, ..Entry::default() };
            store
                .transaction(|tx| {
                    entry.id = insert(tx, &entry, &json(&environment))?;
                    entry.stage = Stage::Ended;
                    update(tx, &entry)
                })
                .unwrap();
            assert!(store.environment(entry.id).unwrap().is_empty());
            store.ended(None, 1, |entry| (entry.spec.command, entry.bytes)).unwrap().remove(0)
        };
        let short = vec!["train".to_owned(), "x".repeat(8000)];
        assert_eq!(ended(short.clone()).0, short);
        for long in [vec!["\u{e9}".repeat(60_000); 16], vec!["a".to_owned(); 100_000]] {
            let (kept, bytes) = ended(long.clone());
            assert!(bytes < 36 << 10, "{bytes}");
            assert!(kept.last().unwrap().starts_with("... (cut: ") && long[0].starts_with(&kept[0]));
        }
    }

    #[test]
    fn what_failed_in_the_middle_did_not_happen() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let failed: Result<()> = store.transaction(|tx| {
            insert(tx, &Entry::default(), "[]")?;
            Err(rusqlite::Error::QueryReturnedNoRows)
        });
        assert!(failed.is_err() && store.open_jobs().unwrap().is_empty());
    }

    /// Jobs that wait are read by none of these questions: a user may have 100,000 of them, each with its environment.
    #[test]
    fn newest_ended_jobs_are_found_without_the_others() {
        use rusqlite::StatementStatus::VmStep;

        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let mut number = |stage: Stage, uid: u32| {
            let mut entry = Entry { uid, ..Entry::default() };
            store
                .transaction(|tx| {
                    entry.id = insert(tx, &entry, "[]")?;
                    entry.stage = stage;
                    update(tx, &entry)
                })
                .unwrap();
            entry.id
        };
        let ended = [number(Stage::Ended, 1), number(Stage::Ended, 2), number(Stage::Ended, 1)];
        let steps = |store: &Store, uid: Option<u32>| {
            let text = format!("SELECT id FROM jobs {}", newest_ended(uid.is_some()));
            let mut statement = store.connection.prepare(&text).unwrap();
            let rows =
                statement.query_map(params![uid.map(i64::from), 2], |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(rows.count(), 2);
            statement.get_status(VmStep)
        };
        let before = (steps(&store, None), steps(&store, Some(1)));
        for _ in 0..200 {
            let mut entry = Entry { uid: 1, ..Entry::default() };
            store.transaction(|tx| insert(tx, &entry, "[]").map(|id| entry.id = id)).unwrap();
        }
        assert_eq!((steps(&store, None), steps(&store, Some(1))), before);
        assert_eq!(store.numbers_of_ended(None, 2).unwrap(), [ended[2], ended[1]]);
        assert_eq!(store.numbers_of_ended(Some(1), 9).unwrap(), [ended[2], ended[0]]);
    }
}
