//! GPUs that fall off the bus, and come back, and the jobs that this concerns.

use std::time::Instant;

use radrm_console::output::say;
use radrm_scheduler_core::{Event, JobId, Outcome, Phase, Reason};

use super::monitor::{Change, Doubtful};
use super::{Engine, needs};
use crate::gpus::Look;
use crate::status::{End, Status};
use crate::store::{Entry, Stage};
use crate::watch::Attempt;

/// Whether a GPU that is gone may be the cause.
fn may_be_the_gpus(end: Option<&End>) -> bool {
    let outcome = end.map(End::outcome);
    matches!(outcome, Some(Outcome::Exited { code: 1.. } | Outcome::Signalled { .. }))
}

impl Engine {
    /// Keeps a failed attempt until a poll of its GPUs; false if there is no doubt.
    pub(super) fn doubt(&mut self, attempt: Attempt, status: &Status, told: bool) -> bool {
        let on_gpus = self.jobs.entries.get(&attempt.0).is_some_and(|entry| !entry.devices.is_empty());
        // What it comes to is decided already.
        let stopping =
            self.core.state.job(JobId(attempt.0)).is_some_and(|view| view.phase == Phase::Stopping);
        if !on_gpus || stopping || !may_be_the_gpus(status.end.as_ref()) {
            return false;
        }
        // The attempt had failed when this batch began.
        self.node.doubt(attempt, status, told, self.now.mono)
    }

    /// What a poll says of GPUs that are gone or back.
    pub(super) fn come_and_gone(&mut self, look: &Look) {
        for change in self.node.changes(look) {
            match change {
                Change::Lost(device) => {
                    let uuid = self.node.uuid(device);
                    say(crate::NAME, &format!("{uuid} is gone; its jobs go back to the queue"));
                    self.step(Event::DeviceLost { device });
                }
                Change::Back(device) => {
                    say(crate::NAME, &format!("{} is back", self.node.uuid(device)));
                    self.step(Event::DeviceAdded { device: self.node.description(device) });
                    self.submit_again();
                }
            }
        }
        self.settle_doubts(Some(look.begun));
    }

    /// Whether a job for which nothing is there would find what it needs with all GPUs there. The scheduler ends
    /// such a job; it stays in the queue, and is submitted again when a GPU is back.
    pub(super) fn waits_for_lost(&mut self, job: u64) -> bool {
        let Some(entry) = self.jobs.entries.get(&job).filter(|_| self.node.any_lost()) else { return false };
        let waits = entry.stage == Stage::Waiting && self.can_ever_start(&needs::job(entry)).is_ok();
        if waits {
            self.say(job, "waits for a GPU that is gone for now".to_owned());
        }
        waits
    }

    /// Whether an earlier daemon took the job, with the same machine in front of it: what is missing now may be a GPU
    /// that was lost before this daemon came, so the job stays in the queue for the next one, whatever it is tried for.
    pub(super) fn was_possible(&mut self, job: u64, reason: &Reason) -> bool {
        let waits = (self.recovering || self.jobs.missing.contains(&job))
            && self.jobs.entries.get(&job).is_some_and(|entry| entry.stage == Stage::Waiting);
        if waits {
            self.jobs.missing.insert(job);
            self.say(job, format!("waits, as a GPU may be missing since the daemon was started: {reason}"));
        }
        waits
    }

    /// Remembers a job of an earlier daemon that could not start now, and is not tried yet: it is held, or runs.
    pub(super) fn find_missing(&mut self, job: u64) {
        let Some(entry) = self.jobs.entries.get(&job) else { return };
        if self.can_ever_start(&needs::job(entry)).is_err() {
            self.jobs.missing.insert(job);
        }
    }

    /// Those that wait and of which the scheduler knows nothing.
    fn submit_again(&mut self) {
        let unknown = |entry: &&Entry| {
            entry.stage == Stage::Waiting && !entry.held && self.core.state.job(JobId(entry.id)).is_none()
        };
        let jobs: Vec<_> = self.jobs.entries.values().filter(unknown).map(needs::job).collect();
        for job in jobs {
            self.step(Event::Submitted { job: Box::new(job) });
        }
    }

    /// Ends doubts that a poll has settled, or that are old.
    pub(super) fn settle_doubts(&mut self, begun: Option<Instant>) {
        for Doubtful { attempt, mut status, told, .. } in self.node.settled(begun, self.now.mono) {
            let entry = self.jobs.entries.get(&attempt.0);
            let gone = entry.is_some_and(|entry| entry.devices.iter().any(|uuid| self.node.is_lost(uuid)));
            if let Some(end) = &mut status.end {
                end.lost = gone;
            }
            self.attempt_ended(attempt, &status, told);
        }
    }
}
