//! The thesis's metrics over jobs that are over, added up a part at a time.

use radrm_protocol::wire::StatsRow;
use rusqlite::{Connection, Row, params};

use super::integer::int;

/// End, ms since 1970, and number of a job that is over: the order in which they are read.
pub(crate) type Ended = (u64, u64);

/// Sums over jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobSums {
    jobs: u64,
    succeeded: u64,
    refused: u64,
    cancelled: u64,
    ooms: u64,
    first_submitted: Option<u64>,
    last_ended: u64,
    started: u64,
    /// Of those that were started, ms.
    wait: u64,
    execution: u64,
}

/// Facts that count of a job that is over.
struct Job {
    ended: Ended,
    uid: u32,
    submitted_ms: u64,
    has_started: bool,
    ran_ms: u64,
    ooms: u64,
    has_refused: bool,
    has_succeeded: bool,
    is_cancelled: bool,
}

impl JobSums {
    /// The first job that ended at that time or later comes behind this.
    pub(crate) const fn since(since_ms: u64) -> Ended {
        (since_ms, 0)
    }

    /// Adds a user's or all jobs among the next `most` that are over. Returns the last of these, or `None` if there are no more.
    pub(crate) fn read(
        &mut self,
        connection: &Connection,
        uid: Option<u32>,
        after: Ended,
        most: usize,
    ) -> rusqlite::Result<Option<Ended>> {
        let mut statement = connection.prepare_cached(
            "SELECT ended_ms, id, uid, submitted_ms, first_start_ms IS NOT NULL, ran_ms, ooms, refused > 0,
                    coalesce(verdict LIKE '%\"exited\"%' AND verdict LIKE '%\"code\":0}%', 0),
                    coalesce(verdict LIKE '%\"cancelled\"%', 0)
             FROM jobs WHERE stage = 'ended' AND (ended_ms, id) > (?1, ?2) ORDER BY ended_ms, id LIMIT ?3",
        )?;
        let values = params![int(after.0), int(after.1), int(most as u64)];
        let (mut read, mut last) = (0, after);
        for job in statement.query_map(values, job)? {
            let job = job?;
            (read, last) = (read + 1, job.ended);
            if uid.is_none_or(|uid| uid == job.uid) {
                self.add(&job);
            }
        }
        Ok((read == most).then_some(last))
    }

    fn add(&mut self, job: &Job) {
        self.jobs += 1;
        self.succeeded += u64::from(job.has_succeeded);
        self.refused += u64::from(job.has_succeeded && job.has_refused);
        self.cancelled += u64::from(job.is_cancelled);
        self.ooms += job.ooms;
        let first = self.first_submitted.get_or_insert(job.submitted_ms);
        *first = job.submitted_ms.min(*first);
        self.last_ended = self.last_ended.max(job.ended.0);
        if job.has_started {
            self.started += 1;
            self.wait += job.ended.0.saturating_sub(job.submitted_ms).saturating_sub(job.ran_ms);
            self.execution += job.ran_ms;
        }
    }

    /// The figures, without those of GPUs.
    pub(crate) fn stats(&self) -> StatsRow {
        let mean = |sum: u64| if self.started == 0 { 0.0 } else { sum as f64 / self.started as f64 };
        StatsRow {
            jobs: self.jobs,
            succeeded: self.succeeded,
            refused: self.refused,
            failed: self.jobs.saturating_sub(self.succeeded + self.cancelled),
            cancelled: self.cancelled,
            ooms: self.ooms,
            makespan_ms: self.first_submitted.map_or(0, |first| self.last_ended.saturating_sub(first)),
            mean_wait_ms: mean(self.wait),
            mean_execution_ms: mean(self.execution),
            mean_completion_ms: mean(self.wait + self.execution),
            ..StatsRow::default()
        }
    }
}

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(Job {
        ended: (number(0)?, number(1)?),
        uid: row.get(2)?,
        submitted_ms: number(3)?,
        has_started: row.get(4)?,
        ran_ms: number(5)?,
        ooms: number(6)?,
        has_refused: row.get(7)?,
        has_succeeded: row.get(8)?,
        is_cancelled: row.get(9)?,
    })
}

#[cfg(test)]
mod tests {
    use radrm_scheduler_core::{Outcome, Verdict};

    use super::*;
    use crate::store::{Entry, Stage, Store, insert, update};

    #[test]
    fn sums_are_the_same_in_parts_of_any_size_and_of_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        for at in 0..25_u64 {
            let mut entry = Entry { uid: (at % 3) as u32, submitted_ms: 1000 + at, ..Entry::default() };
            store
                .transaction(|tx| {
                    entry.id = insert(tx, &entry, "[]")?;
                    entry.stage = Stage::Ended;
                    // Neither in the order of their numbers nor all at different times.
                    entry.ended_ms = Some(2000 + at * 7 % 10 * 100);
                    entry.first_start_ms = (at % 4 > 0).then_some(1500);
                    (entry.ran_ms, entry.refused) = (100, at % 2);
                    entry.verdict = Some(match at % 5 {
                        0 => Verdict::Cancelled,
                        1 => Verdict::Ended(Outcome::Exited { code: 3 }),
                        _ => Verdict::Ended(Outcome::Exited { code: 0 }),
                    });
                    update(tx, &entry)
                })
                .unwrap();
        }
        let of = |uid, since_ms, most| {
            let (mut sums, mut after) = (JobSums::default(), Some(JobSums::since(since_ms)));
            while let Some(last) = after {
                after = sums.read(&store.connection, uid, last, most).unwrap();
            }
            sums.stats()
        };
        let all = of(None, 0, 1000);
        assert_eq!((all.jobs, all.succeeded, all.failed, all.cancelled, all.refused), (25, 15, 5, 5, 7));
        assert_eq!((all.makespan_ms, all.mean_execution_ms), (1900, 100.0));
        for most in [1, 2, 7, 24, 25] {
            assert_eq!(of(None, 0, most), all, "{most} at a time");
        }
        assert_eq!(of(Some(1), 0, 3).jobs, 8);
        assert_eq!(of(None, 2500, 2).jobs, 12, "an end at that time counts");
        assert_eq!(of(None, 3000, 2), StatsRow::default());
    }
}
