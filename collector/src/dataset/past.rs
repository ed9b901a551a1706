//! Earlier runs of a program, for the need of the next one, and how many of them are kept.

use super::first_steps::{self, PastCourse};
use super::program::ProgramKey;
use super::row::{Origin, Row};
use radrm_base::{Activity, Bytes, HostUse, Millis, PastRun, Permille};
use rusqlite::{Connection, named_params};

/// Runs of a program that count for a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastRuns<'a> {
    /// Written by these: figures of dry runs and of emulated GPUs are never mixed with measured ones.
    pub origin: Origin,
    /// Of this user.
    pub uid: u32,
    /// On GPUs of this model; `None`: of any.
    pub gpu_model: Option<&'a str>,
    /// Only on emulated GPUs (true) or only on real ones (false).
    pub emulated: bool,
    /// At most so many, the newest.
    pub limit: u32,
}

/// The run of a row, as far as a need follows from it.
fn past_run(sql: &rusqlite::Row<'_>) -> Result<PastRun, rusqlite::Error> {
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let narrow = |value: Option<i64>| value.map(|value| u32::try_from(value).unwrap_or(0));
    let part = |column: &str| -> Result<Option<Permille>, rusqlite::Error> {
        let value: Option<i64> = sql.get(column)?;
        Ok(value.map(|value| Permille(u32::try_from(value).unwrap_or(0))))
    };
    let batch: Option<i64> = sql.get("batch")?;
    Ok(PastRun {
        batch: batch.and_then(|batch| u32::try_from(batch).ok()),
        peak: Bytes(number(sql.get("footprint_bytes")?)),
        ran: Millis(number(sql.get("run_time_ns")?) / 1_000_000),
        activity: activity([part("smact_permille")?, part("smocc_permille")?, part("drama_permille")?]),
        host: host_use(
            narrow(sql.get("host_cpu_milli")?),
            narrow(sql.get("host_threads")?),
            sql.get::<_, Option<i64>>("host_resident_bytes")?.map(number),
            sql.get::<_, Option<i64>>("host_traffic")?.map(number),
            part("host_stalled_permille")?,
        ),
        complete: sql.get("complete")?,
    })
}

impl Row {
    /// The run as later needs follow from it; `None` if it bounds none, by the rule of the column `bounds_need`.
    pub fn past_run(&self) -> Option<PastRun> {
        self.program_key.as_ref()?;
        let part = |part: Option<u32>| part.map(Permille);
        let bounds_need = self.complete || self.out_of_memory;
        self.footprint_bytes.filter(|_| bounds_need).map(|footprint| PastRun {
            batch: self.batch,
            peak: Bytes(footprint),
            ran: Millis(self.run_time_ns / 1_000_000),
            activity: activity([
                part(self.smact_permille),
                part(self.smocc_permille),
                part(self.drama_permille),
            ]),
            host: host_use(
                self.host_cpu_milli,
                self.host_threads,
                self.host_resident_bytes,
                self.host_traffic,
                part(self.host_stalled_permille),
            ),
            complete: self.complete,
        })
    }
}

/// Measured activity of the three, if the first was measured.
fn activity([smact, smocc, drama]: [Option<Permille>; 3]) -> Option<Activity> {
    smact.map(|smact| Activity { smact, smocc: smocc.unwrap_or_default(), drama: drama.unwrap_or_default() })
}

/// Measured use of the host, if its CPU time was measured.
fn host_use(
    cpu_milli: Option<u32>,
    threads: Option<u32>,
    resident: Option<u64>,
    memory_traffic: Option<u64>,
    memory_stalled: Option<Permille>,
) -> Option<HostUse> {
    cpu_milli.map(|cpu_milli| HostUse {
        cpu_milli,
        threads: threads.unwrap_or_default(),
        resident: Bytes(resident.unwrap_or_default()),
        memory_traffic,
        memory_stalled,
    })
}

/// Reads the runs that bound the program's need, the newest first. All that is compared is in one index.
pub(super) fn select(
    connection: &Connection,
    key: &ProgramKey,
    of: &PastRuns<'_>,
) -> Result<Vec<PastRun>, rusqlite::Error> {
    let of_model = if of.gpu_model.is_some() { "AND gpu_model = :model" } else { "AND :model IS NULL" };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT batch, footprint_bytes, run_time_ns, smact_permille, smocc_permille, drama_permille, host_cpu_milli,
             host_threads, host_resident_bytes, host_traffic, host_stalled_permille, complete
         FROM runs WHERE program_key = :key AND origin = :origin AND uid = :uid AND bounds_need = 1 {of_model}
             AND (emulated IS NOT NULL) = :emulated
         ORDER BY id DESC LIMIT :limit",
    ))?;
    let given = named_params! {
        ":key": key.as_str(), ":origin": of.origin.as_str(), ":uid": of.uid, ":model": of.gpu_model,
        ":emulated": of.emulated, ":limit": of.limit,
    };
    statement.query_map(given, past_run)?.collect()
}

/// Reads the runs that ended well and whose first optimizer steps were seen, the newest first.
pub(super) fn select_courses(
    connection: &Connection,
    key: &ProgramKey,
    of: &PastRuns<'_>,
) -> Result<Vec<PastCourse>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT steps, held_bytes, footprint_bytes FROM runs JOIN first_steps ON run = id
         WHERE program_key = :key AND origin = :origin AND uid = :uid AND bounds_need = 1 AND complete
             AND (:model IS NULL OR gpu_model = :model) AND (emulated IS NOT NULL) = :emulated
         ORDER BY id DESC LIMIT :limit",
    )?;
    let given = named_params! {
        ":key": key.as_str(), ":origin": of.origin.as_str(), ":uid": of.uid, ":model": of.gpu_model,
        ":emulated": of.emulated, ":limit": of.limit,
    };
    let course = |sql: &rusqlite::Row<'_>| {
        let peak: i64 = sql.get("footprint_bytes")?;
        Ok(PastCourse { first: first_steps::read(sql)?, peak: Bytes(u64::try_from(peak).unwrap_or(0)) })
    };
    statement.query_map(given, course)?.collect()
}

/// Forgets all but the newest rows like this one: of its program, origin, user and GPU model. Those that bound a
/// need and those that do not are counted apart, so that failures do not push out what is known.
pub(super) fn forget_older_like(
    connection: &Connection,
    row: &Row,
    keep: u32,
) -> Result<(), rusqlite::Error> {
    for bounds in [true, false] {
        connection
            .prepare_cached(
                "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE program_key = :key AND origin = :origin
                     AND uid = :uid AND bounds_need = :bounds AND gpu_model IS :model
                     ORDER BY id DESC LIMIT -1 OFFSET :keep)",
            )?
            .execute(named_params! {
                ":key": row.program_key, ":origin": row.origin.as_str(), ":uid": row.uid, ":bounds": bounds,
                ":model": row.gpu_model, ":keep": keep,
            })?;
    }
    Ok(())
}

/// Forgets all but the newest rows; returns how many it forgot.
pub(super) fn forget_older(connection: &Connection, keep: u32) -> Result<usize, rusqlite::Error> {
    connection.execute(
        "DELETE FROM runs WHERE id <= (SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        [keep],
    )
}
