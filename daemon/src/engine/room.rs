//! Room on the disk for outputs and profiles: what a user's jobs take, and what they may.

use std::collections::hash_map::Entry;
use std::time::Duration;

use radrm_scheduler_core::Bytes;

use super::Engine;
use crate::error::DaemonError;
use crate::job_output::OutputLimit;
use crate::store::{self, disk};

/// The folders that are measured again once a submission was rejected, the largest first: a user may have made room.
const MAX_MEASURED: u32 = 100;
/// They are asked for once in this time.
const MEASURE_INTERVAL: Duration = Duration::from_secs(2);
/// Room for the output of each job, also of a user who has none left: it says why the job failed.
const MIN_OUTPUT: u64 = 64 << 10;

impl Engine {
    /// Room for the output of a job that starts, where that is not a file of the user's own choice: what the configuration allows
    /// a job, and no more than its part of what is left to its user. Jobs that wait passed their submission's check long ago.
    pub(super) fn output_limit(&self, entry: &store::Entry) -> Option<OutputLimit> {
        let reserve = self.config.disk_reserve;
        let of_user = self.left_to_user(entry).unwrap_or(u64::MAX);
        let of_job = if self.config.max_output > 0 { self.config.max_output } else { u64::MAX };
        // 0: any.
        let max = Some(of_job.min(of_user)).filter(|max| *max < u64::MAX).unwrap_or(0);
        (entry.spec.output.is_none() && (max > 0 || reserve > 0)).then_some(OutputLimit { max, reserve })
    }

    /// The part of a user's room on the disk for one of the jobs that run: other outputs grow beside it. `None`: no limit.
    fn left_to_user(&self, entry: &store::Entry) -> Option<u64> {
        let most = Some(self.config.disk_per_user).filter(|most| *most > 0)?;
        let connection = &self.outbox.store().connection;
        let all = disk::of_user(connection, entry.uid).ok()?;
        // The output of earlier attempts is in the same file.
        let own = disk::of_job(connection, entry.id).ok()?;
        let others =
            self.jobs.entries().begun().filter(|other| other.uid == entry.uid && other.id != entry.id);
        let left = most.saturating_sub(all) / (others.count() as u64 + 1);
        Some(left.max(MIN_OUTPUT) + own)
    }

    /// Has the folder of a job measured that has not ended yet.
    pub(super) fn measure_disk(&self, job: u64) {
        if let Some(entry) = self.jobs.entry(job) {
            self.effects.measure_disk(job, entry.uid);
        }
    }

    /// Checks that there is room for new jobs of so many bytes: outputs leave the reserve, and new jobs half of it, in which the rows
    /// of the jobs that are there change.
    pub(super) fn has_reserve(&self, bytes: u64) -> Result<(), DaemonError> {
        let Some(disk) = self.effects.disk() else { return Ok(()) };
        let configured = self.config.disk_reserve;
        if disk.free_inodes < disk.inode_reserve(configured) / 2 {
            return Err(DaemonError::InodesReserved { free: disk.free_inodes });
        }
        match disk.free.saturating_sub(bytes) < disk.reserve(configured) / 2 {
            true => Err(DaemonError::DiskReserved { free: Bytes(disk.free) }),
            false => Ok(()),
        }
    }

    /// Checks that outputs and profiles of a user's jobs were within their limit when they were last measured: at the end
    /// of an attempt, every minute while a job runs, and soon after a rejection.
    pub(super) fn has_disk(&mut self, uid: u32) -> Result<(), DaemonError> {
        let most = self.config.disk_per_user;
        let connection = &self.outbox.store().connection;
        let bytes = disk::of_user(connection, uid).map_err(DaemonError::QueueRead)?;
        if most == 0 || bytes < most {
            return Ok(());
        }
        let now = self.now.mono;
        self.disk_asked.retain(|_, at| now.saturating_duration_since(*at) < MEASURE_INTERVAL);
        if let Entry::Vacant(first) = self.disk_asked.entry(uid) {
            first.insert(now);
            let largest = disk::largest(connection, uid, MAX_MEASURED).map_err(DaemonError::QueueRead)?;
            largest.into_iter().for_each(|job| self.effects.measure_disk(job, uid));
        }
        Err(DaemonError::NoDisk { bytes: Bytes(bytes), most: Bytes(most) })
    }
}
