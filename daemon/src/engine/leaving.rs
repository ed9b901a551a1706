//! Jobs that are stopped by signals.
//!
//! The next state of such a job is on disk before it gets a signal: a daemon that comes back goes on with it, also
//! where the job ended meanwhile. One that gave its place to another goes back to the queue then, whatever it ended
//! with. While nothing can be written no signal is sent, and its grace time does not run.

use radrm_scheduler_core::{After, Event, JobId, Reason, Signal};

use super::Engine;
use super::actions::words;
use super::outbox::Effect;
use crate::attempt::Attempt;

impl Engine {
    /// A job gets a signal as soon as it is written down why.
    pub(super) fn stop_job(&mut self, job: u64, signal: Signal, reason: &Reason) {
        let starts = self.outbox.starts(job);
        if !self.jobs.is_live(job) && !starts {
            // It ended while there was no daemon.
            return;
        }
        let why_not = self.why_not_suspended(JobId(job));
        self.say(job, format!("{}: {reason}{why_not}", words(signal)));
        match starts {
            // It never will: there is nothing to send, and nothing to forget.
            true => self.signal(job, signal),
            false => self.signal_when_written(job, signal),
        }
    }

    /// Sends a signal after what is decided so far is on disk. One that is not sent yet is not needed any more.
    pub(super) fn signal_when_written(&mut self, job: u64, signal: Signal) {
        let Some(entry) = self.jobs.entry(job) else { return };
        let attempt = (job, entry.attempt);
        self.touch(job);
        self.outbox.take_back_signal(attempt);
        self.outbox.effect(Effect::Signal(attempt, signal, false));
    }

    /// A signal whose reason is on disk is sent.
    pub(super) fn send(&mut self, (job, attempt): Attempt, signal: Signal, held: bool) {
        if self.jobs.is_current((job, attempt)) && self.jobs.is_live(job) {
            if held {
                self.say(job, format!("{}: only now, as the queue could not be written", words(signal)));
                self.step(Event::SignalHeld { job: JobId(job), held: false });
            }
            self.signal(job, signal);
        }
    }

    /// While nothing can be written: a job that is to end for good gets its signal all the same, as it ends in any
    /// case. One that would go back to the queue is left alone, as no job could be started in its place.
    pub(super) fn send_for_good(&mut self) {
        let for_good = |(job, _): Attempt| {
            let leaving = self.core.state.job(JobId(job)).and_then(|view| view.leaving);
            leaving.is_some_and(|leaving| matches!(leaving.after, After::End(_)))
        };
        for (attempt, signal, held) in self.outbox.take_signals(for_good) {
            self.send(attempt, signal, held);
        }
    }

    /// While nothing can be written: the time of those that are left alone does not run.
    pub(super) fn hold_signals(&mut self) {
        for job in self.outbox.hold_signals() {
            self.step(Event::SignalHeld { job: JobId(job), held: true });
        }
    }

    /// An attempt has ended: what was not sent to it yet never will be.
    pub(super) fn forget_signal(&mut self, attempt: Attempt) {
        if let Some((signal, true)) = self.outbox.take_back_signal(attempt) {
            let unsent = "not sent before it ended, as the queue could not be written";
            self.say(attempt.0, format!("{}: {unsent}", words(signal)));
        }
    }
}
