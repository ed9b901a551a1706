//! Ends of processes, and their reasons.

use radrm_profile::model::{End, Exit, ProcessKey, Reason};
use radrm_profile::{Nanos, ProcessDelta, Record, State};

use super::Watch;
use crate::source::Source;

impl<S: Source> Watch<S> {
    /// Puts down the exits of processes that others have waited for.
    pub(super) fn learn_exits(&mut self, now: Nanos) {
        for (key, exit) in self.others.known() {
            let process = self.output.profile.processes.iter().rfind(|process| process.key == key);
            // One that took its leave and ended well has nothing to add.
            let news = process.is_some_and(|p| p.state.end == End::Vanished || !exit.success());
            if news {
                self.put_down_exit(key, exit, now);
            }
        }
    }

    /// Puts down an exit that is known exactly.
    pub(super) fn put_down_exit(&mut self, key: ProcessKey, exit: Exit, now: Nanos) {
        let end = match exit {
            Exit::Code(code) => End::Exited(Some(code)),
            Exit::Signal(signal) => End::Signal(signal),
            Exit::NotStarted | Exit::Unknown => return,
        };
        let profile = &self.output.profile;
        let Some(process) = profile.processes.iter().rfind(|process| process.key == key) else { return };
        if process.state.end == End::Exec || process.state.end == end {
            return;
        }
        let mut state = process.state.clone();
        state.end = end;
        state.ended = state.ended.or(Some(now));
        let delta = ProcessDelta { key: process.key, state, ..ProcessDelta::default() };
        let record = State {
            t: now,
            processes: vec![delta],
            events: Vec::new(),
            events_thinned: profile.events_thinned,
            processes_not_kept: profile.processes_not_kept,
        };
        self.write(Record::State(record));
    }

    /// A program that ends badly when its last request for memory was refused ended because of that, as
    /// far as can be known from outside.
    pub(super) fn reason(&self, exit: Exit) -> Option<Reason> {
        let refused = || self.output.profile.standing_refusals().next().is_some();
        (!exit.success() && exit != Exit::NotStarted && refused()).then_some(Reason::OutOfGpuMemory)
    }
}
