//! The state of a sweep in SQLite: one row for each run. A row changes before the run is started, and when it is over.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, named_params, params};

use crate::error::SweepError;
use crate::metrics::Metrics;
use crate::plan::{Group, Plan};

mod jobs;

pub use jobs::Submission;

/// Version of the layout; a file with another one is refused.
const VERSION: i64 = 1;

/// Longest wait for another process's lock: a report reads while the sweep writes.
const BUSY: Duration = Duration::from_secs(15);

/// `machine` has one row: the machine of the last call, NULL for the real one.
const TABLES: &str = "\
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    group_name TEXT NOT NULL,
    name TEXT NOT NULL,
    configuration TEXT NOT NULL,
    parameters TEXT NOT NULL,
    repetition INTEGER NOT NULL,
    collocation TEXT NOT NULL,
    profiled INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'started', 'finished', 'failed', 'timeout', 'stopped')),
    attempt INTEGER NOT NULL,
    started_ms INTEGER,
    duration_ms INTEGER,
    exit_code INTEGER,
    signal INTEGER,
    reason TEXT,
    peak_bytes INTEGER,
    gpu_sm_activity REAL,
    gpu_sm_origin TEXT,
    launch_sm_activity REAL,
    steps_per_s REAL,
    gpu_energy_j REAL,
    others INTEGER,
    emulated INTEGER,
    profile TEXT,
    metrics TEXT,
    tag TEXT,
    job INTEGER,
    shares INTEGER NOT NULL DEFAULT 0,
    withdrawn INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE machine (emulate TEXT) STRICT;";

/// State of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It was not started, or its attempts were interrupted.
    #[default]
    Waiting,
    /// An attempt was started, and its end is not recorded.
    Started,
    /// It ended with exit code 0.
    Finished,
    /// It ended otherwise.
    Failed,
    /// Its time was over.
    TimedOut,
    /// Early stopping gave it up.
    Stopped,
}

impl State {
    /// The word in the database.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Started => "started",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::TimedOut => "timeout",
            Self::Stopped => "stopped",
        }
    }

    fn of(key: &str) -> Self {
        let all = [Self::Waiting, Self::Started, Self::Finished, Self::Failed, Self::TimedOut, Self::Stopped];
        all.into_iter().find(|state| state.key() == key).unwrap_or_default()
    }

    /// Returns true if nothing is left to do.
    #[must_use]
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Waiting | Self::Started)
    }
}

/// Outcome of a run: its end, and the resources that it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Current state.
    pub state: State,
    /// Start, ms since 1970.
    pub started_ms: u64,
    /// Run time, ms.
    pub duration_ms: u64,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Reason that there is no exit code, or resource that the program was refused.
    pub reason: Option<String>,
    /// Highest GPU memory on one GPU, bytes.
    pub peak_bytes: Option<u64>,
    /// Mean SM activity of its GPUs while it ran, by any program on them, 0 to 1: of a meter.
    pub gpu_sm_activity: Option<f64>,
    /// The meter.
    pub gpu_sm_origin: Option<String>,
    /// SM activity by the shapes and times of the run's own launches, 0 to 1. Beside other programs launches take longer, so it is
    /// too high there.
    pub launch_sm_activity: Option<f64>,
    /// Steps per second of its fastest process.
    pub steps_per_s: Option<f64>,
    /// Energy of its GPUs while it ran, by any process on them, J.
    pub gpu_energy_j: Option<f64>,
    /// A process that is not of the run was seen on its GPUs: one of another run, or of no sweep.
    pub has_others: bool,
    /// It ran on emulated GPUs.
    pub emulated: bool,
    /// Its profile.
    pub profile: Option<PathBuf>,
    /// Figures that the program logged of itself.
    pub metrics: Metrics,
}

/// A run as it is recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Identifies the run.
    pub key: String,
    /// Its number in the sweep, from 1.
    pub number: u64,
    /// The group with which it started.
    pub group: String,
    /// Name in tables.
    pub name: String,
    /// Equal for repetitions.
    pub configuration: String,
    /// Values that distinguish the configuration.
    pub parameters: BTreeMap<String, String>,
    /// From 1.
    pub repetition: u32,
    /// Way in which it shared its GPU.
    pub collocation: String,
    /// GPUs that it was given, as the plan names them; none: those of the machine.
    pub devices: Vec<String>,
    /// A profiler was around it: its figures are not comparable.
    pub profiled: bool,
    /// Attempts so far.
    pub attempt: u32,
    /// The last attempt is a job of radrmd.
    pub submission: Option<Submission>,
    /// Outcome of the run.
    pub outcome: Outcome,
}

/// An open state.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the state; it is made if there is none, for its owner alone.
    ///
    /// # Errors
    /// [`SweepError::State`], [`SweepError::Version`].
    pub fn open(path: &Path) -> Result<Self, SweepError> {
        // SQLite gives its journal the mode of the database, and says itself why a file cannot be made.
        let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let store = Self::with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        store.create()?;
        Ok(store)
    }

    /// Opens a state that must exist. What a killed sweep left half written is undone, so it is not opened read-only.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_existing(path: &Path) -> Result<Self, SweepError> {
        let store = Self::with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        store.version()?;
        Ok(store)
    }

    fn with_flags(path: &Path, flags: OpenFlags) -> Result<Self, SweepError> {
        let open = || {
            let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.busy_timeout(BUSY)?;
            Ok(connection)
        };
        let connection = open().map_err(|source| SweepError::State { path: path.to_owned(), source })?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn wrong(&self) -> impl Fn(rusqlite::Error) -> SweepError + use<> {
        let path = self.path.clone();
        move |source| SweepError::State { path: path.clone(), source }
    }

    /// Version of the layout; 0 for a file without tables.
    fn version(&self) -> Result<i64, SweepError> {
        let found = self
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(self.wrong())?;
        match found {
            0 | VERSION => Ok(found),
            _ => Err(SweepError::Version { path: self.path.clone(), found, known: VERSION }),
        }
    }

    fn create(&self) -> Result<(), SweepError> {
        if self.version()? == VERSION {
            return Ok(());
        }
        let all = format!("BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;");
        self.connection.execute_batch(&all).map_err(self.wrong())
    }

    /// Records on which machine the runs are from now on.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn run_on(&mut self, emulate: Option<&str>) -> Result<(), SweepError> {
        let wrong = self.wrong();
        let mut replace = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute("DELETE FROM machine", [])?;
            transaction.execute("INSERT INTO machine (emulate) VALUES (?1)", [emulate])?;
            transaction.commit()
        };
        replace().map_err(wrong)
    }

    /// The machine of the last call; `None` if that is not recorded.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn machine(&self) -> Result<Option<Option<String>>, SweepError> {
        if self.version()? == 0 {
            return Ok(None);
        }
        let found = self.connection.query_row("SELECT emulate FROM machine", [], |row| row.get(0));
        found.optional().map_err(self.wrong())
    }

    /// Adds the runs of groups that are not there yet.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn adopt<'g>(&mut self, groups: impl Iterator<Item = &'g Group>) -> Result<(), SweepError> {
        let wrong = self.wrong();
        let add = move |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut number: i64 =
                transaction.query_row("SELECT coalesce(max(number), 0) FROM runs", [], |row| row.get(0))?;
            for group in groups {
                for (key, run) in group.keys().iter().zip(&group.runs) {
                    let added = transaction.execute(
                        "INSERT INTO runs (key, number, group_name, name, configuration, parameters, repetition,
                                           collocation, profiled, state, attempt)
                         VALUES (:key, :number, :group, :name, :configuration, :parameters, :repetition,
                                 :collocation, :profiled, 'waiting', 0)
                         ON CONFLICT (key) DO NOTHING",
                        named_params! {
                            ":key": key, ":number": number + 1, ":group": group.name, ":name": run.name,
                            ":configuration": run.configuration, ":repetition": run.repetition,
                            ":parameters": serde_json::to_string(&run.parameters).unwrap_or_default(),
                            ":collocation": run.collocation.to_string(), ":profiled": run.profiler.is_some(),
                        },
                    )?;
                    number += i64::try_from(added).unwrap_or(0);
                }
            }
            transaction.commit()
        };
        add(&mut self.connection).map_err(wrong)
    }

    /// A run by its key.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn run(&self, key: &str) -> Result<Option<Recorded>, SweepError> {
        let found = self.connection.query_row("SELECT * FROM runs WHERE key = ?1", [key], recorded);
        found.optional().map_err(self.wrong())
    }

    /// All runs by number.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn runs(&self) -> Result<Vec<Recorded>, SweepError> {
        let all = || {
            let mut statement = self.connection.prepare("SELECT * FROM runs ORDER BY number")?;
            statement.query_map([], recorded)?.collect::<rusqlite::Result<_>>()
        };
        all().map_err(self.wrong())
    }

    /// The runs of a plan by number. Those of an earlier version of its file are not among them.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn runs_of(&self, plan: &Plan) -> Result<Vec<Recorded>, SweepError> {
        let runs = |group: &Group| group.keys().into_iter().zip(group.runs.clone()).collect::<Vec<_>>();
        let planned: BTreeMap<String, _> = plan.groups.iter().flat_map(runs).collect();
        let with_devices = |run: Recorded| {
            let devices = planned.get(&run.key)?.devices.clone();
            Some(Recorded { devices, ..run })
        };
        Ok(self.runs()?.into_iter().filter_map(with_devices).collect())
    }

    /// Records that an attempt at a group is about to start; it is on disk when this returns.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn start(&mut self, keys: &[String]) -> Result<(), SweepError> {
        self.each(keys, |transaction, key| {
            let text = "UPDATE runs SET state = 'started', attempt = attempt + 1, tag = NULL WHERE key = ?1";
            transaction.execute(text, [key]).map(|_| ())
        })
    }

    /// Records that a group is to be run again.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn reset(&mut self, keys: &[String]) -> Result<(), SweepError> {
        self.each(keys, |transaction, key| {
            transaction.execute("UPDATE runs SET state = 'waiting' WHERE key = ?1", [key]).map(|_| ())
        })
    }

    /// Records how the members of a group ended, all or none.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn finish(&mut self, keys: &[String], outcomes: &[Outcome]) -> Result<(), SweepError> {
        let mut outcomes = outcomes.iter();
        self.each(keys, |transaction, key| {
            let Some(outcome) = outcomes.next() else { return Ok(()) };
            transaction.execute(
                "UPDATE runs SET state = ?2, started_ms = ?3, duration_ms = ?4, exit_code = ?5, signal = ?6, reason = ?7,
                                 peak_bytes = ?8, gpu_sm_activity = ?9, gpu_sm_origin = ?10, launch_sm_activity = ?11,
                                 emulated = ?12, profile = ?13, steps_per_s = ?14, gpu_energy_j = ?15, metrics = ?16,
                                 others = ?17
                 WHERE key = ?1",
                params![
                    key,
                    outcome.state.key(),
                    signed(outcome.started_ms),
                    signed(outcome.duration_ms),
                    outcome.exit_code,
                    outcome.signal,
                    outcome.reason,
                    outcome.peak_bytes.map(signed),
                    outcome.gpu_sm_activity,
                    outcome.gpu_sm_origin,
                    outcome.launch_sm_activity,
                    outcome.emulated,
                    outcome.profile.as_ref().map(|path| path.to_string_lossy().into_owned()),
                    outcome.steps_per_s,
                    outcome.gpu_energy_j,
                    serde_json::to_string(&outcome.metrics).unwrap_or_default(),
                    outcome.has_others,
                ],
            )?;
            Ok(())
        })
    }

    fn each(
        &mut self,
        keys: &[String],
        mut change: impl FnMut(&rusqlite::Transaction<'_>, &str) -> rusqlite::Result<()>,
    ) -> Result<(), SweepError> {
        let wrong = self.wrong();
        let mut all = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            keys.iter().try_for_each(|key| change(&transaction, key))?;
            transaction.commit()
        };
        all().map_err(wrong)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn recorded(row: &Row<'_>) -> rusqlite::Result<Recorded> {
    let number =
        |name: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(name)?.map(i64::unsigned_abs));
    let parameters: String = row.get("parameters")?;
    let metrics: Option<String> = row.get("metrics")?;
    Ok(Recorded {
        key: row.get("key")?,
        number: number("number")?.unwrap_or(0),
        group: row.get("group_name")?,
        name: row.get("name")?,
        configuration: row.get("configuration")?,
        parameters: serde_json::from_str(&parameters).unwrap_or_default(),
        repetition: row.get("repetition")?,
        collocation: row.get("collocation")?,
        devices: Vec::new(),
        profiled: row.get("profiled")?,
        attempt: row.get("attempt")?,
        submission: jobs::submission(row)?,
        outcome: Outcome {
            state: State::of(&row.get::<_, String>("state")?),
            started_ms: number("started_ms")?.unwrap_or(0),
            duration_ms: number("duration_ms")?.unwrap_or(0),
            exit_code: row.get("exit_code")?,
            signal: row.get("signal")?,
            reason: row.get("reason")?,
            peak_bytes: number("peak_bytes")?,
            gpu_sm_activity: row.get("gpu_sm_activity")?,
            gpu_sm_origin: row.get("gpu_sm_origin")?,
            launch_sm_activity: row.get("launch_sm_activity")?,
            steps_per_s: row.get("steps_per_s")?,
            gpu_energy_j: row.get("gpu_energy_j")?,
            has_others: row.get::<_, Option<bool>>("others")?.unwrap_or(false),
            emulated: row.get::<_, Option<bool>>("emulated")?.unwrap_or(false),
            profile: row.get::<_, Option<String>>("profile")?.map(PathBuf::from),
            metrics: metrics.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        },
    })
}

#[cfg(test)]
mod tests;
