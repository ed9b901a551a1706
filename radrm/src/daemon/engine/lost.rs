//! GPUs that fall off the bus, and come back.
//!
//! A job whose GPU is lost fails by itself in no time, mostly before the loss was seen. So the failure of a
//! job with GPUs counts only once a look at them that began later has said that they are there: then it is
//! the job's own, else it is the GPU's and the job goes back to the queue.

use std::time::{Duration, Instant};

use radrm_scheduler_core::{Event, JobId, Outcome, Phase, Reason};

use super::Engine;
use crate::daemon::gpus::Look;
use crate::daemon::status::{End, Status};
use crate::daemon::store::{Entry, Stage};
use crate::daemon::watch::Attempt;
use crate::output::say;

/// No doubt lasts longer: the thread that looks may hang in a broken driver.
pub(super) const MOST: Duration = Duration::from_secs(10);

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct Doubtful {
    attempt: Attempt,
    status: Status,
    told: bool,
    since: Instant,
}

/// Whether a GPU that is gone may be the cause.
fn may_be_the_gpus(end: Option<&End>) -> bool {
    let outcome = end.map(End::outcome);
    matches!(outcome, Some(Outcome::Exited { code: 1.. } | Outcome::Signalled { .. }))
}

impl Engine {
    /// Keeps a failed attempt until a look at its GPUs; false if there is no doubt.
    pub(super) fn doubt(&mut self, attempt: Attempt, status: &Status, told: bool) -> bool {
        let on_gpus = self.entries.get(&attempt.0).is_some_and(|entry| !entry.devices.is_empty());
        // What it comes to is decided already.
        let stopping = self.state.job(JobId(attempt.0)).is_some_and(|view| view.phase == Phase::Stopping);
        // Before it is asked for: the look may begin at once.
        let since = Instant::now();
        if !on_gpus || stopping || !may_be_the_gpus(status.end.as_ref()) || self.ask.send(()).is_err() {
            return false;
        }
        self.doubtful.push(Doubtful { attempt, status: status.clone(), told, since });
        true
    }

    /// What a look says of GPUs that are gone or back.
    pub(super) fn come_and_gone(&mut self, look: &Look) {
        for uuid in &look.lost {
            let Some(device) = self.device(uuid).filter(|_| !self.lost.contains(uuid)) else { continue };
            say(crate::daemon::NAME, &format!("{uuid} is gone; its jobs go back to the queue"));
            self.lost.insert(uuid.clone());
            self.step(Event::DeviceLost { device });
        }
        for sample in &look.samples {
            let Some(at) = self.gpus.list.iter().position(|gpu| gpu.uuid == sample.uuid) else { continue };
            if self.lost.remove(&sample.uuid) {
                say(crate::daemon::NAME, &format!("{} is back", sample.uuid));
                let device = self.description(at);
                self.step(Event::DeviceAdded { device });
                self.submit_again();
            }
        }
        self.settle_doubts(Some(look.begun));
    }

    /// Whether a job for which nothing is there would find what it needs with all GPUs there. The scheduler ends
    /// such a job; it stays in the queue, and is submitted again when a GPU is back.
    pub(super) fn waits_for_lost(&mut self, job: u64) -> bool {
        let Some(entry) = self.entries.get(&job).filter(|_| !self.lost.is_empty()) else { return false };
        let waits = entry.stage == Stage::Waiting && self.can_ever_start(&self.job_of(entry)).is_ok();
        if waits {
            self.say(job, "waits for a GPU that is gone for now".to_owned());
        }
        waits
    }

    /// Whether an earlier daemon took the job, with the same machine in front of it: what is missing now may be a GPU
    /// that was lost before this daemon came, so the job stays in the queue for the next one, whatever it is tried for.
    pub(super) fn was_possible(&mut self, job: u64, reason: &Reason) -> bool {
        let waits = (self.recovering || self.missing.contains(&job))
            && self.entries.get(&job).is_some_and(|entry| entry.stage == Stage::Waiting);
        if waits {
            self.missing.insert(job);
            self.say(job, format!("waits, as a GPU may be missing since the daemon was started: {reason}"));
        }
        waits
    }

    /// Remembers a job of an earlier daemon that could not start now, and is not tried yet: it is held, or runs.
    pub(super) fn find_missing(&mut self, job: u64) {
        let Some(entry) = self.entries.get(&job) else { return };
        if self.can_ever_start(&self.job_of(entry)).is_err() {
            self.missing.insert(job);
        }
    }

    /// Those that wait and of which the scheduler knows nothing.
    fn submit_again(&mut self) {
        let unknown = |entry: &&Entry| {
            entry.stage == Stage::Waiting && !entry.held && self.state.job(JobId(entry.id)).is_none()
        };
        let jobs: Vec<_> = self.entries.values().filter(unknown).map(|entry| self.job_of(entry)).collect();
        for job in jobs {
            self.step(Event::Submitted { job: Box::new(job) });
        }
    }

    /// Ends doubts that a look has settled, or that are old.
    pub(super) fn settle_doubts(&mut self, looked: Option<Instant>) {
        let (over, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.doubtful).into_iter().partition(|doubtful| {
                looked.is_some_and(|looked| looked >= doubtful.since) || doubtful.since.elapsed() > MOST
            });
        self.doubtful = open;
        for Doubtful { attempt, mut status, told, .. } in over {
            let gone = self
                .entries
                .get(&attempt.0)
                .is_some_and(|entry| entry.devices.iter().any(|uuid| self.lost.contains(uuid)));
            if let Some(end) = &mut status.end {
                end.lost = gone;
            }
            self.attempt_ended(attempt, &status, told);
        }
    }
}
