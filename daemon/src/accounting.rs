//! GPU time of users: a row for each attempt that is over, kept when its job is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use radrm_protocol::wire::UsageRow;
use rusqlite::{Connection, Transaction, params};

/// The table. Times are ms since 1970, a share is in thousandths of a GPU's memory.
pub(crate) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS attempts (
    job INTEGER NOT NULL, attempt INTEGER NOT NULL, uid INTEGER NOT NULL, user TEXT NOT NULL, start_ms INTEGER NOT NULL,
    end_ms INTEGER NOT NULL, ran_ms INTEGER NOT NULL, idle_ms INTEGER NOT NULL, gpus INTEGER NOT NULL,
    share INTEGER NOT NULL, out_of_memory INTEGER NOT NULL, PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_end ON attempts(end_ms);
";

/// Rows are kept for two years, ms.
const KEPT_MS: u64 = 2 * 365 * 86_400_000;

/// An attempt on GPUs, over or up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuTime {
    pub(crate) job: u64,
    pub(crate) attempt: u32,
    pub(crate) uid: u32,
    pub(crate) user: String,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
    /// Without suspensions.
    pub(crate) ran_ms: u64,
    /// Time in which its GPUs did nothing, summed over them.
    pub(crate) idle_ms: u64,
    pub(crate) gpus: u16,
    /// Of each GPU's memory, thousandths: 1000 for a job that has its GPUs for itself.
    pub(crate) share: u32,
    pub(crate) out_of_memory: bool,
}

/// Mean share of the devices' memory that a reservation is, thousandths; without a reservation the job has all of it.
pub(crate) fn share(reserved: Option<u64>, totals: &[u64]) -> u32 {
    let Some(reserved) = reserved.filter(|_| !totals.is_empty()) else { return 1000 };
    let part = |total: &u64| (reserved as f64 / (*total).max(1) as f64).min(1.0);
    (totals.iter().map(part).sum::<f64>() / totals.len() as f64 * 1000.0).round() as u32
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Adds an attempt, in place of itself.
pub(crate) fn insert(tx: &Transaction<'_>, of: &GpuTime) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT OR REPLACE INTO attempts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        int(of.job),
        of.attempt,
        of.uid,
        of.user,
        int(of.start_ms),
        int(of.end_ms),
        int(of.ran_ms),
        int(of.idle_ms),
        of.gpus,
        of.share,
        of.out_of_memory
    ])
    .map(|_| ())
}

/// End before which rows are forgotten, ms since 1970. `jump_ms`: by how much the wall clock is ahead. It is not the newest row
/// that counts: one attempt that ended under a wrong clock would take the others with it.
pub(crate) fn kept_since(wall_ms: u64, jump_ms: u64) -> u64 {
    wall_ms.saturating_sub(jump_ms).saturating_sub(KEPT_MS)
}

/// Forgets the rows that ended before a time, ms since 1970.
pub(crate) fn forget_older(tx: &Transaction<'_>, before_ms: u64) -> rusqlite::Result<()> {
    tx.execute("DELETE FROM attempts WHERE end_ms < ?1", [int(before_ms)]).map(|_| ())
}

/// End of an attempt, ms since 1970, its job and its number: the order in which attempts are read.
pub(crate) type AttemptEnd = (u64, u64, u32);

/// The first attempt that ended later than that comes behind this.
pub(crate) const fn later_than(ms: u64) -> AttemptEnd {
    (ms, u64::MAX, u32::MAX)
}

/// Gives `each` the next `most` attempts that are over. Returns the last of them, or `None` if there are no more.
pub(crate) fn read(
    connection: &Connection,
    after: AttemptEnd,
    most: usize,
    mut each: impl FnMut(GpuTime),
) -> rusqlite::Result<Option<AttemptEnd>> {
    let mut statement = connection.prepare_cached(
        "SELECT * FROM attempts WHERE (end_ms, job, attempt) > (?1, ?2, ?3) ORDER BY end_ms, job, attempt LIMIT ?4",
    )?;
    let row = |row: &rusqlite::Row<'_>| {
        let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
        Ok(GpuTime {
            job: number(0)?,
            attempt: row.get(1)?,
            uid: row.get(2)?,
            user: row.get(3)?,
            start_ms: number(4)?,
            end_ms: number(5)?,
            ran_ms: number(6)?,
            idle_ms: number(7)?,
            gpus: row.get(8)?,
            share: row.get(9)?,
            out_of_memory: row.get(10)?,
        })
    };
    let (mut read, mut last) = (0, after);
    for time in statement.query_map(params![int(after.0), int(after.1), after.2, int(most as u64)], row)? {
        let time = time?;
        (read, last) = (read + 1, (time.end_ms, time.job, time.attempt));
        each(time);
    }
    Ok((read == most).then_some(last))
}

/// Sums by user within `from_ms..to_ms`. Of an attempt that reaches beyond it counts the part of its running time that
/// its part of the span is, so that sums over adjacent spans add up. An end is counted where it lies.
#[derive(Clone, Debug)]
pub(crate) struct UsageSums {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    users: BTreeMap<u32, (UsageRow, BTreeSet<u64>)>,
}

impl UsageSums {
    pub(crate) const fn new(from_ms: u64, to_ms: u64) -> Self {
        Self { from_ms, to_ms, users: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, of: &GpuTime) {
        const HOUR_MS: f64 = 3_600_000.0;
        let (from_ms, to_ms) = (self.from_ms, self.to_ms);
        let inside = of.end_ms.min(to_ms).saturating_sub(of.start_ms.max(from_ms));
        if inside == 0 {
            return;
        }
        let part = inside as f64 / of.end_ms.saturating_sub(of.start_ms) as f64;
        let hours = of.ran_ms as f64 * part * f64::from(of.gpus) / HOUR_MS;
        let (row, jobs) = self.users.entry(of.uid).or_default();
        row.user.clone_from(&of.user);
        row.uid = of.uid;
        row.gpu_hours += hours;
        row.idle_gpu_hours += of.idle_ms as f64 * part / HOUR_MS;
        row.weighted_gpu_hours += hours * f64::from(of.share) / 1000.0;
        row.attempts += 1;
        row.out_of_memory += u64::from(of.out_of_memory && (from_ms..to_ms).contains(&of.end_ms));
        jobs.insert(of.job);
    }

    pub(crate) fn rows(self) -> Vec<UsageRow> {
        self.users.into_values().map(|(row, jobs)| UsageRow { jobs: jobs.len() as u64, ..row }).collect()
    }
}

/// Attempts that are over and ran in `from_ms..to_ms`, by job.
#[cfg(test)]
pub(crate) fn select(connection: &Connection, uid: Option<u32>, from_ms: u64, to_ms: u64) -> Vec<GpuTime> {
    let (mut all, mut after) = (Vec::new(), Some(later_than(from_ms)));
    while let Some(last) = after {
        // Two at a time: also reading in parts is tested.
        after = read(connection, last, 2, |time| all.push(time)).unwrap();
    }
    all.retain(|time| time.start_ms < to_ms && uid.is_none_or(|uid| uid == time.uid));
    all.sort_by_key(|time| (time.job, time.attempt));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    const HOUR: u64 = 3_600_000;

    fn attempt(job: u64, attempt: u32, uid: u32, hours: (u64, u64)) -> GpuTime {
        let (start_ms, end_ms) = (hours.0 * HOUR, hours.1 * HOUR);
        let user = format!("u{uid}");
        let ran_ms = end_ms - start_ms;
        GpuTime {
            job,
            attempt,
            uid,
            user,
            start_ms,
            end_ms,
            ran_ms,
            idle_ms: 0,
            gpus: 1,
            share: 1000,
            out_of_memory: false,
        }
    }

    fn history() -> Vec<GpuTime> {
        vec![
            GpuTime { gpus: 2, idle_ms: 15 * HOUR, ..attempt(1, 1, 7, (0, 10)) },
            GpuTime { share: 250, out_of_memory: true, ..attempt(2, 1, 7, (10, 14)) },
            GpuTime { share: 500, ran_ms: HOUR, ..attempt(2, 2, 7, (14, 16)) },
            attempt(3, 1, 8, (2, 3)),
        ]
    }

    fn sums(attempts: &[GpuTime], from_ms: u64, to_ms: u64) -> Vec<UsageRow> {
        let mut sums = UsageSums::new(from_ms, to_ms);
        attempts.iter().for_each(|of| sums.add(of));
        sums.rows()
    }

    #[test]
    fn sums_are_those_of_a_known_history() {
        let rows = sums(&history(), 0, u64::MAX);
        let expected = UsageRow {
            user: "u7".to_owned(),
            uid: 7,
            gpu_hours: 20.0 + 4.0 + 1.0,
            idle_gpu_hours: 15.0,
            weighted_gpu_hours: 20.0 + 1.0 + 0.5,
            jobs: 2,
            attempts: 3,
            out_of_memory: 1,
            energy_mj: None,
        };
        assert_eq!(rows[0], expected);
        assert_eq!((rows[1].user.as_str(), rows[1].gpu_hours, rows[1].jobs), ("u8", 1.0, 1));
    }

    #[test]
    fn adjacent_spans_add_up() {
        let all = sums(&history(), 0, u64::MAX);
        for cut in [1, 5, 12, 15] {
            let halves = [sums(&history(), 0, cut * HOUR), sums(&history(), cut * HOUR, u64::MAX)];
            let hours = |rows: &[UsageRow]| rows.iter().map(|row| row.gpu_hours).sum::<f64>();
            let ooms = |rows: &[UsageRow]| rows.iter().map(|row| row.out_of_memory).sum::<u64>();
            assert!((hours(&halves[0]) + hours(&halves[1]) - hours(&all)).abs() < 1e-9, "{cut}");
            let idle = |rows: &[UsageRow]| rows.iter().map(|row| row.idle_gpu_hours).sum::<f64>();
            assert!((idle(&halves[0]) + idle(&halves[1]) - 15.0).abs() < 1e-9, "{cut}");
            assert_eq!(ooms(&halves[0]) + ooms(&halves[1]), 1, "{cut}");
        }
    }

    #[test]
    fn rows_survive_the_store_and_are_selected_by_user_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("queue.db")).unwrap();
        let history = history();
        for _ in 0..2 {
            store.transaction(|tx| history.iter().try_for_each(|of| insert(tx, of))).unwrap();
        }
        drop(store);
        let mut store = Store::open(&dir.path().join("queue.db")).unwrap();
        let found = |uid, from, to| select(&store.connection, uid, from * HOUR, to * HOUR);
        assert_eq!(found(None, 0, 1000), history);
        assert_eq!(found(Some(8), 0, 1000), history[3..]);
        assert_eq!(found(None, 11, 14), history[1..2]);
        let newest = GpuTime { job: 9, ..attempt(9, 1, 7, (17_600, 17_601)) };
        let before = kept_since(17_601 * HOUR, 0);
        store.transaction(|tx| insert(tx, &newest).and_then(|()| forget_older(tx, before))).unwrap();
        assert_eq!(select(&store.connection, None, 0, u64::MAX), [newest]);
    }

    #[test]
    fn a_share_is_that_of_the_devices_memory() {
        assert_eq!(share(None, &[40]), 1000);
        assert_eq!(share(Some(10), &[40]), 250);
        assert_eq!(share(Some(10), &[40, 20]), 375);
        assert_eq!(share(Some(50), &[40]), 1000);
    }
}
