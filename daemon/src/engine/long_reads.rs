//! The next part of an answer that takes long to read.

use radrm_protocol::wire::{PastJob, PastRow, Response, StatsRow, UsageRow};

use super::requests::refused;
use super::{Engine, actions};
use crate::accounting::{self, AttemptEnd, GpuTime, UsageSums};
use crate::error::DaemonError;
use crate::long_read::{LongRead, PART, Progress};
use crate::peer::Peer;
use crate::store::job_sums::{Ended, JobSums};
use crate::store::{curves, energy};

impl Engine {
    /// Reads the next part of an answer.
    pub(super) fn read_on(&self, peer: &Peer, read: LongRead) -> Progress {
        let progress = match read {
            LongRead::Stats { all, since_ms, sums, after } => self.stats(peer, all, since_ms, sums, after),
            LongRead::Usage { user, sums, after } => self.usage(peer, user, sums, after),
            LongRead::Energy { rows, sums } => self.energy(rows, sums),
            LongRead::Past { at_ms, jobs, after } => self.past(peer, at_ms, jobs, after),
        };
        progress.unwrap_or_else(|why| Progress::Done(refused(&why)))
    }

    /// Figures over jobs that are over, then those of GPUs.
    fn stats(
        &self,
        peer: &Peer,
        all: bool,
        since_ms: u64,
        mut sums: JobSums,
        after: Ended,
    ) -> Result<Progress, DaemonError> {
        let store = &self.outbox.store();
        let uid = (!(all && peer.admin)).then_some(peer.uid);
        let last = sums.read(&store.connection, uid, after, PART).map_err(DaemonError::HistoryRead)?;
        if let Some(after) = last {
            return Ok(Progress::More(LongRead::Stats { all, since_ms, sums, after }));
        }
        let gpus = store.gpu_stats(since_ms).map_err(DaemonError::HistoryRead)?;
        let stats = self.of_real_time(StatsRow { gpus, ..sums.stats() });
        Ok(Progress::Done(Response::Stats(Box::new(stats))))
    }

    /// GPU time within a span, running attempts up to now.
    fn usage(
        &self,
        peer: &Peer,
        user: Option<String>,
        mut sums: UsageSums,
        after: AttemptEnd,
    ) -> Result<Progress, DaemonError> {
        if !peer.admin && user.as_ref().is_some_and(|user| *user != peer.name) {
            return Err(DaemonError::OthersGpuTime);
        }
        let span = (sums.from_ms, sums.to_ms);
        let last = self.gpu_times(peer, span, after, |time| {
            if user.as_ref().is_none_or(|user| *user == time.user) {
                sums.add(&time);
            }
        })?;
        Ok(match last {
            Some(after) => Progress::More(LongRead::Usage { user, sums, after }),
            None => Progress::More(LongRead::Energy {
                rows: sums.rows(),
                sums: energy::Sums::new(span.0, span.1),
            }),
        })
    }

    /// Adds the energy of users in a span, as far as it is known.
    fn energy(&self, rows: Vec<UsageRow>, mut sums: energy::Sums) -> Result<Progress, DaemonError> {
        // Others than administrators have one row.
        let uid = match rows.as_slice() {
            [] => return Ok(Progress::Done(Response::Usage(rows))),
            [row] => Some(row.uid),
            _ => None,
        };
        let more = sums.read(&self.outbox.store().connection, uid, PART).map_err(DaemonError::GpuTimeRead)?;
        if more {
            return Ok(Progress::More(LongRead::Energy { rows, sums }));
        }
        let known = |uid: u32| sums.of_users.get(&uid).map(|mj| *mj as f64 / 1e9);
        let rows = rows.into_iter().map(|row| UsageRow { energy_mj: known(row.uid), ..row });
        Ok(Progress::Done(Response::Usage(rows.collect())))
    }

    /// GPUs in the bucket of an earlier time, and the attempts that ran then.
    fn past(
        &self,
        peer: &Peer,
        at_ms: u64,
        mut jobs: Vec<PastJob>,
        after: AttemptEnd,
    ) -> Result<Progress, DaemonError> {
        const BUCKET_MS: u64 = curves::BUCKET_S * 1000;
        let last = self.gpu_times(peer, (at_ms, at_ms.saturating_add(1)), after, |time| {
            if time.start_ms <= at_ms && time.end_ms > at_ms {
                jobs.push(PastJob {
                    job: time.job,
                    user: time.user,
                    gpus: time.gpus,
                    start_ms: time.start_ms,
                    end_ms: time.end_ms,
                });
            }
        })?;
        if let Some(after) = last {
            return Ok(Progress::More(LongRead::Past { at_ms, jobs, after }));
        }
        jobs.sort_by_key(|job| (job.job, job.start_ms));
        let from_ms = at_ms / BUCKET_MS * BUCKET_MS;
        let to_ms = from_ms.saturating_add(BUCKET_MS);
        let gpus = curves::select(&self.outbox.store().connection, from_ms, to_ms);
        let gpus = gpus.map_err(DaemonError::HistoryRead)?;
        let StatsRow { gpus, emulated, .. } = self.of_real_time(StatsRow { gpus, ..StatsRow::default() });
        Ok(Progress::Done(Response::Past(Box::new(PastRow {
            span_ms: (from_ms, to_ms),
            gpus,
            jobs,
            emulated,
        }))))
    }

    /// The next attempts with GPUs that ran in this time, of all users only for administrators; those that run now come last.
    pub(super) fn gpu_times(
        &self,
        peer: &Peer,
        (from_ms, to_ms): (u64, u64),
        after: AttemptEnd,
        mut each: impl FnMut(GpuTime),
    ) -> Result<Option<AttemptEnd>, DaemonError> {
        let uid = (!peer.admin).then_some(peer.uid);
        let is_asked = |of: u32| uid.is_none_or(|uid| uid == of);
        let mut one = |time: GpuTime| {
            if is_asked(time.uid) && time.end_ms > from_ms && time.start_ms < to_ms {
                each(time);
            }
        };
        let last = accounting::read(&self.outbox.store().connection, after, PART, &mut one);
        let last = last.map_err(DaemonError::GpuTimeRead)?;
        if last.is_some() {
            return Ok(last);
        }
        let now = self.now.at.0;
        for entry in self.jobs.entries().begun() {
            // One that is starting has its GPUs too.
            let starting = self.jobs.live(entry.id).filter(|live| !live.reported);
            let since = entry.started_ms.or(starting.map(|live| live.launched_ms));
            let Some(since) = since.filter(|_| !entry.devices.is_empty()) else { continue };
            let totals = self.node.totals(&entry.devices);
            let ran_ms = now.saturating_sub(since);
            one(actions::gpu_time(entry, entry.attempt, (since, now), ran_ms, &totals));
        }
        Ok(None)
    }

    /// Removes what emulated GPUs did in modelled time: it says nothing of the time that passed.
    fn of_real_time(&self, mut stats: StatsRow) -> StatsRow {
        stats.emulated.clone_from(&self.node.gpus().emulated);
        let emulated = |gpu: &str| stats.emulated.is_some() && self.node.device(gpu).is_some();
        for gpu in &mut stats.gpus {
            if emulated(&gpu.gpu) {
                // An earlier daemon may have added them up.
                (gpu.mean_smact, gpu.mean_power_w, gpu.energy_mj) = (None, None, None);
                gpu.smact_samples = 0;
            }
        }
        stats
    }
}
