//! Records of a process since the last time: its call stacks, ranges, launches and copies.

use radrm_profile::model::{KernelSpan, Process};
use radrm_profile::{Nanos, Record};

use super::Watch;
use crate::source::Source;

impl<S: Source> Watch<S> {
    /// Writes the call stacks of a process: when it has ended, and before that ever more rarely, so that little is lost
    /// if the watch is killed. What they held, and where blocks lay, is written at
    /// states since which anything changed.
    pub(super) fn write_stacks(&mut self, process: &Process, now: Nanos, whole: bool) {
        let Some(watched) = self.processes.get_mut(&process.key) else { return };
        let is_due = whole || watched.stacks.is_due(now);
        let has_news = watched.fine_timeline && watched.stacks.has_news(process);
        if !is_due && !has_news {
            return;
        }
        let Some((stacks, refusals)) = self.source.stacks(process.key) else { return };
        let moments = if has_news { watched.stacks.news(process, &stacks, now) } else { Vec::new() };
        let maps = match has_news || whole {
            true => {
                let source = &mut self.source;
                watched.maps.news(process, now, whole, |gpu| source.block_runs(process.key, gpu))
            }
            false => Vec::new(),
        };
        if is_due {
            watched.stacks.put_off(watched.seen, now);
            self.write(Record::Stacks(Box::new(stacks)));
            if !refusals.refusals.is_empty() {
                self.write(Record::StackRefusals(Box::new(refusals)));
            }
        }
        for moment in moments {
            self.write(Record::StackMoment(Box::new(moment)));
        }
        for map in maps {
            self.write(Record::BlockMap(Box::new(map)));
        }
    }

    /// Writes what a process's ranges and marks took: when it has ended, and before that ever more rarely.
    pub(super) fn write_ranges(&mut self, process: &Process, now: Nanos, whole: bool) {
        let Some(watched) = self.processes.get_mut(&process.key) else { return };
        if !watched.ranges.is_due(now) && !whole {
            return;
        }
        let is_listed = watched.keeps_launches;
        let Some(mut ranges) = self.source.ranges(process.key) else { return };
        let left_out = match is_listed {
            true => self.ranges.left_out(process.key),
            // Of this process none is in the profile one by one.
            false => ranges
                .names
                .iter()
                .fold(0u64, |sum, name| sum.saturating_add(name.ranges).saturating_add(name.marks)),
        };
        ranges.unlisted = ranges.unlisted.saturating_add(left_out);
        self.write(Record::Ranges(Box::new(ranges)));
    }

    /// Launches and copies of a process since the last call; `None`: nothing.
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
