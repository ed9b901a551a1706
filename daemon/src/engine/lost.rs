//! GPUs that fall off the bus, and come back, and the jobs that this concerns.

use radrm_scheduler_core::{Event, JobId, Outcome, Phase};
use radrm_text::output::say;

use super::Engine;
use super::jobs::Over;
use super::monitor::Change;
use crate::gpus::Poll;
use crate::status::End;

/// Returns true if a GPU that is gone may be the cause.
fn may_be_the_gpus(end: Option<&End>) -> bool {
    let outcome = end.map(End::outcome);
    matches!(outcome, Some(Outcome::Exited { code: 1.. } | Outcome::Signalled { .. }))
}

impl Engine {
    /// Keeps an attempt that failed, or of which processes were just killed, until a poll of its GPUs; returns it if
    /// there is no doubt.
    pub(super) fn doubt(&mut self, over: Over) -> Option<Over> {
        let job = over.attempt.0;
        let on_gpus = self.jobs.entry(job).is_some_and(|entry| !entry.devices.is_empty());
        // What it comes to is decided already.
        let stopping = self.core.state.job(JobId(job)).is_some_and(|view| view.phase == Phase::Stopping);
        let may_be_the_gpus = !stopping && !self.recovering && may_be_the_gpus(over.status.end.as_ref());
        if !on_gpus || (over.killed.is_empty() && !may_be_the_gpus) {
            return Some(over);
        }
        // The attempt had failed when this batch began.
        self.node.doubt(over, self.now.mono)
    }

    /// Handles GPUs that a poll shows as gone or back.
    pub(super) fn come_and_gone(&mut self, poll: &Poll) {
        for change in self.node.changes(poll) {
            match change {
                Change::Lost(device) => {
                    let uuid = self.node.uuid(device);
                    say(crate::process::NAME, &format!("{uuid} is gone; its jobs go back to the queue"));
                    self.step(Event::DeviceLost { device });
                }
                Change::Back(device) => {
                    say(crate::process::NAME, &format!("{} is back", self.node.uuid(device)));
                    if let Some(device) = self.node.description(device) {
                        self.step(Event::DeviceAdded { device });
                    }
                }
            }
        }
        self.settle_doubts(Some(poll));
    }

    /// Ends doubts that a poll has settled, or that are old.
    pub(super) fn settle_doubts(&mut self, poll: Option<&Poll>) {
        for mut over in self.node.settled(poll, self.now.mono) {
            let entry = self.jobs.entry(over.attempt.0);
            let gone = entry.is_some_and(|entry| entry.devices.iter().any(|uuid| self.node.is_lost(uuid)));
            if let Some(end) = &mut over.status.end {
                end.lost = gone;
            }
            self.attempt_ended(&over);
        }
    }
}
