//! Room on the disk for outputs and profiles: what a user's jobs take, and what they may.

use std::time::Duration;

use radrm_scheduler_core::Bytes;

use super::Engine;
use super::outbox::Note;
use crate::error::DaemonError;
use crate::job_output::OutputLimit;
use crate::store::disk;

/// The folders that are measured again before a submission is refused, the largest first: a user may have made room.
const MAX_MEASURED: u32 = 100;
/// Running jobs of a user whose folders are measured at a submission.
const MAX_RUNNING: usize = 100;
/// A measurement of running jobs counts for so long.
const FRESH: Duration = Duration::from_secs(5);

impl Engine {
    /// Room for the output of a job, where that is not a file of the user's own choice.
    pub(super) fn output_limit(&self, is_own_file: bool) -> Option<OutputLimit> {
        let (max, reserve) = (self.config.max_output, self.config.disk_reserve);
        (!is_own_file && (max > 0 || reserve > 0)).then_some(OutputLimit { max, reserve })
    }

    /// Keeps what the folder of a job takes, which has made an attempt.
    pub(super) fn measure_disk(&mut self, job: u64) {
        let Some(entry) = self.jobs.entries.get(&job) else { return };
        let uid = entry.uid;
        self.outbox.note(Note::Disk(job, uid, self.effects.disk_use(job)));
    }

    /// Checks that outputs and profiles of a user's jobs are within their limit.
    pub(super) fn has_disk(&mut self, uid: u32) -> Result<(), DaemonError> {
        let most = self.config.disk_per_user;
        if most == 0 {
            return Ok(());
        }
        let stored = |engine: &Self| {
            disk::of_user(&engine.outbox.store.connection, uid).map_err(DaemonError::QueueRead)
        };
        let running = self.running_use(uid);
        if stored(self)?.saturating_add(running) < most {
            return Ok(());
        }
        let largest = disk::largest(&self.outbox.store.connection, uid, MAX_MEASURED);
        let measured: Vec<(u64, u64)> = largest
            .map_err(DaemonError::QueueRead)?
            .into_iter()
            .map(|(job, before)| (job, before, self.effects.disk_use(job)))
            .filter(|(_, before, now)| before != now)
            .map(|(job, _, now)| (job, now))
            .collect();
        let put = |tx: &rusqlite::Transaction<'_>| {
            measured.iter().try_for_each(|(job, bytes)| disk::put(tx, *job, uid, *bytes))
        };
        self.outbox.store.transaction(put).map_err(DaemonError::QueueWrite)?;
        let bytes = stored(self)?.saturating_add(running);
        match bytes < most {
            true => Ok(()),
            false => Err(DaemonError::NoDisk { bytes: Bytes(bytes), most: Bytes(most) }),
        }
    }

    /// Bytes of a user's running jobs beyond what was measured at the end of earlier attempts.
    fn running_use(&mut self, uid: u32) -> u64 {
        let now = self.now.mono;
        if let Some((at, bytes)) = self.disk_seen.get(&uid)
            && now.saturating_duration_since(*at) < FRESH
        {
            return *bytes;
        }
        let own = |job: &&u64| self.jobs.entries.get(job).is_some_and(|entry| entry.uid == uid);
        let jobs = self.jobs.live.keys().filter(own).take(MAX_RUNNING);
        let connection = &self.outbox.store.connection;
        let more = |job: &u64| {
            let stored = disk::of_job(connection, *job).unwrap_or(0);
            self.effects.disk_use(*job).saturating_sub(stored)
        };
        let bytes = jobs.fold(0_u64, |sum, job| sum.saturating_add(more(job)));
        self.disk_seen.retain(|_, (at, _)| now.saturating_duration_since(*at) < FRESH);
        self.disk_seen.insert(uid, (now, bytes));
        bytes
    }
}
