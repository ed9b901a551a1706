//! Jobs that are told to stop.
//!
//! What is to become of such a job is on disk before it gets a signal: a daemon that comes back goes on with it,
//! also where the job ended meanwhile. One that gave its place to another goes back to the queue then, whatever it
//! ended with.

use radrm_scheduler_core::{After, JobId, Reason, Signal};

use super::{Engine, Todo};
use crate::daemon::watch::Attempt;

impl Engine {
    /// A job gets a signal as soon as it is written down why.
    pub(super) fn told_to_stop(&mut self, job: u64, signal: Signal, reason: &Reason) {
        let starts = self.todo.iter().any(|todo| matches!(todo, Todo::Start((id, _)) if *id == job));
        if !self.live.contains_key(&job) && !starts {
            // It ended while there was no daemon.
            return;
        }
        let why_not = self.why_not_suspended(JobId(job));
        self.say(job, format!("{}: {reason}{why_not}", super::actions::words(signal)));
        match starts {
            // It never will: there is nothing to send, and nothing to forget.
            true => self.signal(job, signal),
            false => self.signal_when_written(job, signal),
        }
    }

    /// Sends a signal after what is decided so far is on disk.
    pub(super) fn signal_when_written(&mut self, job: u64, signal: Signal) {
        let Some(entry) = self.entries.get(&job) else { return };
        let attempt = (job, entry.attempt);
        self.touch(job);
        self.todo.push_back(Todo::Signal(attempt, signal));
    }

    /// A signal whose reason is on disk is sent.
    pub(super) fn send(&mut self, (job, attempt): Attempt, signal: Signal) {
        let there = self.entries.get(&job).is_some_and(|entry| entry.attempt == attempt);
        if there && self.live.contains_key(&job) {
            self.signal(job, signal);
        }
    }

    /// While nothing can be written: a job that is to end for good is told so all the same, as it ends in any
    /// case. One that would go back to the queue is left alone, as nobody could be started in its place.
    pub(super) fn send_for_good(&mut self) {
        let for_good = |todo: &Todo| match todo {
            Todo::Signal((job, _), _) => {
                let leaving = self.state.job(JobId(*job)).and_then(|view| view.leaving);
                leaving.is_some_and(|leaving| matches!(leaving.after, After::End(_)))
            }
            _ => false,
        };
        let (now, later): (Vec<_>, Vec<_>) = self.todo.iter().copied().partition(for_good);
        self.todo = later.into();
        for todo in now {
            if let Todo::Signal(attempt, signal) = todo {
                self.send(attempt, signal);
            }
        }
    }
}
