//! What is recorded of a process since the last time: its call stacks, launches and copies.

use radrm_profile::model::{KernelSpan, Process, ProcessKey};
use radrm_profile::{Nanos, Record};

use super::Watch;
use crate::source::Source;
use crate::stacks;

impl<S: Source> Watch<S> {
    /// Writes the call stacks of a process: when it has ended, and before that ever more rarely, so that little is lost
    /// if the watch is killed.
    pub(super) fn write_stacks(&mut self, key: ProcessKey, now: Nanos, whole: bool) {
        let Some(watched) = self.processes.get_mut(&key) else { return };
        if !whole && now < watched.stacks_due {
            return;
        }
        watched.stacks_due = stacks::next(watched.seen, now);
        if let Some(stacks) = self.source.stacks(key) {
            self.write(Record::Stacks(Box::new(stacks)));
        }
    }

    /// What a process has launched and copied since this was last asked; `None`: nothing.
    pub(super) fn worked(&mut self, process: &Process, now: Nanos) -> Option<KernelSpan> {
        let watched = self.processes.get_mut(&process.key)?;
        let end = process.state.ended.unwrap_or(now).min(now);
        let t = std::mem::replace(&mut watched.worked, end).max(process.identity.joined);
        let known = self.output.profile.processes.iter().rfind(|known| known.key == process.key);
        let work =
            process.kernel_activity.since(known.map(|known| known.kernel_activity).unwrap_or_default());
        let span = end.minus(t).max(Nanos(1));
        (!work.is_none()).then_some(KernelSpan { process: process.key, t, span, kernel_activity: work })
    }
}
