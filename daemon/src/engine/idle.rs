//! Jobs that hold GPUs and do nothing on them, by the window of SM activity that decides about company.
//!
//! The activity of a GPU is that of all its jobs, so none of them is idle while one works.

use std::time::Duration;

use super::Engine;
use crate::store::{Entry, Stage};
use crate::suspend::Step;

/// The idle time of an attempt is written down at least so often, ms of one GPU.
const WRITTEN_MS: u64 = 60_000;

impl Engine {
    /// GPUs were polled: adds up the idle time of those who hold them.
    pub(super) fn add_idle_time(&mut self) {
        let ms = |added: Duration| u64::try_from(added.as_millis()).unwrap_or(u64::MAX);
        let added = |entry: &Entry| entry.devices.iter().map(|uuid| ms(self.node.idle_added(uuid))).sum();
        let idle: Vec<(u64, u64)> =
            self.jobs.on_gpus().into_iter().map(|entry| (entry.id, added(entry))).collect();
        for (job, added) in idle.into_iter().filter(|(_, added)| *added > 0) {
            let Some(entry) = self.jobs.entry_mut(job) else { continue };
            let before = entry.idle_ms;
            entry.idle_ms += added;
            if before / WRITTEN_MS != entry.idle_ms / WRITTEN_MS {
                self.touch(job);
            }
        }
    }

    /// Time for which a job has done nothing on any of its GPUs, ms; `None`: it works, or that is not known.
    pub(super) fn idle_ms(&self, entry: &Entry) -> Option<u64> {
        if entry.stage != Stage::Running || entry.suspension.step == Step::Suspended {
            return None;
        }
        let all: Option<Vec<u64>> = entry.devices.iter().map(|uuid| self.gpu_idle_ms(uuid)).collect();
        all?.into_iter().min()
    }

    /// Time for which a GPU has done nothing, ms; `None`: it works, or that is not known.
    pub(super) fn gpu_idle_ms(&self, uuid: &str) -> Option<u64> {
        let since = self.node.idle_since(uuid)?;
        u64::try_from(self.now.mono.saturating_duration_since(since).as_millis()).ok()
    }
}
