//! Phases of the program as the page has them: a picture of single ranges and marks, and a table by name.

use crate::model::Summary;
use crate::model::ranges::{event_name, thread_numbers};
use crate::view::flame::{micros, number};
use crate::view::phrases::counted;
use crate::view::text::ranges::{left_out, per_second};
use radrm_profile::model::{ProcessKey, Profile, RangeEvent};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use radrm_text::number::grouped;
use serde::Serialize;
use std::collections::BTreeMap;

/// Ranges in the picture: the longest.
const RANGES: usize = 2_500;
/// Marks in the picture: the first.
const MARKS: usize = 400;
/// Threads that have rows of their own in the picture: those with the most ranges.
const THREADS: usize = 6;
/// Rows of a thread: ranges inside more than that are left out of the picture.
const DEPTH: u32 = 5;
/// Names in the table.
const NAMES: usize = 200;

/// Phases that are drawn. Times are whole microseconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Phases {
    /// Names, by number.
    names: Vec<String>,
    /// Names of the threads with their first rows.
    threads: Vec<(String, u32)>,
    /// Rows of all threads.
    rows: u32,
    /// Number of the name, row, begin, length, most memory inside (-1: not known), step (-1: none).
    ranges: Vec<(usize, u32, u64, u64, i64, i64)>,
    /// Number of the name, moment.
    marks: Vec<(usize, u64)>,
    /// Ranges and marks that are left out of the picture.
    left_out: u64,
}

/// A row of the table.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) count: String,
    pub(super) counted: u64,
    /// All together, mean, longest.
    pub(super) times: Option<[Nanos; 3]>,
    pub(super) peak: Option<(String, Bytes)>,
    pub(super) entry: Option<Bytes>,
    pub(super) exit: Option<Bytes>,
}

/// A process's thread; `true`: what it began and any thread may end.
type Thread = (ProcessKey, u32, bool);

impl Phases {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut counts = BTreeMap::<Thread, usize>::new();
        for event in profile.range_events.iter().filter(|event| !event.is_mark) {
            *counts.entry(thread(event)).or_default() += 1;
        }
        let mut threads: Vec<(Thread, usize)> = counts.into_iter().collect();
        threads.sort_by_key(|(thread, count)| (std::cmp::Reverse(*count), *thread));
        threads.truncate(THREADS);
        threads.sort();
        let mut found = Self::default();
        let mut first = BTreeMap::new();
        for (thread, _) in &threads {
            let deepest = profile.range_events.iter().filter(|event| self::thread(event) == *thread);
            let rows = deepest.map(|event| event.depth.min(DEPTH - 1) + 1).max().unwrap_or(1);
            first.insert(*thread, found.rows);
            let pid = profile.processes.iter().find(|process| process.key == thread.0);
            let pid = pid.map_or(0, |process| process.identity.pid);
            let number = thread_numbers(profile, thread.0).get(&thread.1).copied().unwrap_or_default();
            let beside = if thread.2 { ", apart from its nesting" } else { "" };
            found.threads.push((format!("pid {pid}, thread {number}{beside}"), found.rows));
            found.rows += rows;
        }
        let mut names = BTreeMap::new();
        let mut longest: Vec<&RangeEvent> = profile.range_events.iter().collect();
        longest.sort_by_key(|event| (std::cmp::Reverse(event.length), event.start));
        for event in longest {
            let row = first.get(&thread(event)).map(|row| row + event.depth);
            let has_room = if event.is_mark {
                found.marks.len() < MARKS
            } else {
                found.ranges.len() < RANGES && event.depth < DEPTH && row.is_some()
            };
            if !has_room {
                found.left_out += 1;
                continue;
            }
            let name = *names.entry((event.process, event.name)).or_insert_with(|| {
                found.names.push(clean(&event_name(profile, event)).into_owned());
                found.names.len() - 1
            });
            if event.is_mark {
                found.marks.push((name, micros(event.start)));
            } else {
                let known =
                    |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok()).unwrap_or(-1);
                found.ranges.push((
                    name,
                    row.unwrap_or(0),
                    micros(event.start),
                    micros(event.length).max(1),
                    known(event.peak.map(number)),
                    known(event.step.map(|step| step.min(1 << 53))),
                ));
            }
        }
        found.ranges.sort_by_key(|range| (range.2, range.1));
        found.marks.sort_by_key(|mark| mark.1);
        found
    }

    /// Returns true if there is nothing to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.marks.is_empty()
    }
}

fn thread(event: &RangeEvent) -> Thread {
    // What another thread may end is drawn beside the nesting of the one that began it.
    (event.process, event.thread, !(event.is_nested || event.is_mark))
}

/// The table, and how many names are not in it.
pub(super) fn rows(s: &Summary) -> (Vec<Row>, usize) {
    let Some(ranges) = &s.ranges else { return (Vec::new(), 0) };
    let row = |name: &crate::model::RangeSummary| {
        let memory = name.gpus.iter().max_by_key(|gpu| gpu.peak_bytes);
        let is_several = s.gpus.len() > 1;
        Row {
            name: format!("{}{}", clean(&name.name), if name.name_cut { "…" } else { "" }),
            count: match name.ranges {
                0 => counted(name.marks, "mark", "marks"),
                ranges => grouped(ranges),
            },
            counted: name.ranges.saturating_add(name.marks),
            // A mark is a moment.
            times: (name.ranges > 0).then_some([name.total_ns, name.mean_ns, name.longest_ns]),
            peak: memory.map(|gpu| {
                let bound = if gpu.peak_is_exact { "" } else { "≥ " };
                let place = if is_several { format!(" (GPU {})", gpu.gpu) } else { String::new() };
                (format!("{bound}{}{place}", gpu.peak_bytes), gpu.peak_bytes)
            }),
            entry: memory.map(|gpu| gpu.entry_bytes),
            exit: memory.map(|gpu| gpu.exit_bytes),
        }
    };
    let more = ranges.names.len().saturating_sub(NAMES) + ranges.names_not_listed as usize;
    (ranges.names.iter().take(NAMES).map(row).collect(), more)
}

/// Remarks below the table, a sentence each.
pub(super) fn remarks(s: &Summary) -> Vec<String> {
    let Some(ranges) = &s.ranges else { return Vec::new() };
    let steps = ranges.steps.iter().map(|steps| {
        format!("{} steps ({}): {}", grouped(steps.steps), clean(&steps.name), per_second(steps.per_second))
    });
    let open = ranges.open.iter().map(|range| {
        let step = range.step.map_or(String::new(), |step| format!(" {}", grouped(step)));
        format!("not ended: {}{step} · pid {} · since {}", clean(&range.name), range.pid, range.since_ns)
    });
    steps.chain(open).chain(left_out(ranges)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::perfetto::perfetto;
    use radrm_profile::model::{Job, Process};

    #[test]
    fn a_thread_has_one_number_in_the_page_and_in_the_trace() {
        let event =
            |thread, is_nested| RangeEvent { thread, is_nested, length: Nanos(5), ..RangeEvent::default() };
        let mut profile = Profile::new(Job::default());
        profile.processes.push(Process::default());
        profile.range_events = vec![event(9, false), event(5, true), event(9, true)];
        let threads: Vec<String> = Phases::new(&profile).threads.into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            threads,
            ["pid 0, thread 1", "pid 0, thread 2", "pid 0, thread 2, apart from its nesting"]
        );
        let trace = perfetto(&profile, &Summary::from_profile(&profile));
        for (name, is_there) in
            [("phases of thread 1", true), ("phases of thread 2", true), ("phases of thread 3", false)]
        {
            assert_eq!(trace.contains(name), is_there, "{name} in {trace}");
        }
    }
}
