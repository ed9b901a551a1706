//! Phases of a program that it names itself: ranges and marks.

use super::{GpuIndex, ProcessKey};
use crate::units::{Bytes, Nanos};
use radrm_base::step;
use serde::{Deserialize, Serialize};

/// The ranges and marks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges {
    /// Key of the process.
    pub key: ProcessKey,
    /// Figures by name; the name of number 0 is "(other)".
    pub names: Vec<RangeName>,
    /// Ranges that were open when this was read.
    pub open: Vec<OpenRange>,
    /// Ranges and marks that are not listed one by one; they are in the figures.
    pub unlisted: u64,
    /// Ranges and marks that are counted as "(other)".
    pub other: u64,
    /// Ranges that are in no figure: too many were open, or there were too many threads.
    pub not_kept: u64,
    /// Ranges and marks that were over before the process used a GPU: in no figure either.
    pub early: u64,
    /// Ends without a begin.
    pub unbalanced: u64,
}

/// Figures of the ranges and marks of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeName {
    /// Its number within the process.
    pub id: u32,
    /// The name as the program gave it, with domain and category behind it: `load [io, disk]`.
    pub name: String,
    /// It was longer.
    pub name_cut: bool,
    /// Ranges that have ended.
    pub ranges: u64,
    /// Marks.
    pub marks: u64,
    /// Time that the ranges took together.
    pub total: Nanos,
    /// Time of the shortest.
    pub shortest: Nanos,
    /// Time of the longest.
    pub longest: Nanos,
    /// Time at which the first one began.
    pub first: Nanos,
    /// Time at which the last one began.
    pub last: Nanos,
    /// Time at which the last one ended.
    pub end: Nanos,
    /// Ranges of which the peak inside is not known.
    pub without_peak: u64,
    /// Memory, by GPU.
    pub gpus: Vec<RangeMemory>,
}

/// Device memory of a process on one GPU in the ranges of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeMemory {
    /// The GPU.
    pub gpu: GpuIndex,
    /// Most inside a range.
    pub peak: Bytes,
    /// Device memory at the start of that range.
    pub entry_at_peak: Bytes,
    /// Device memory at the end of that range.
    pub exit_at_peak: Bytes,
    /// Device memory at the start of the last range.
    pub last_entry: Bytes,
    /// Device memory at the end of that range.
    pub last_exit: Bytes,
    /// Sum over the ranges of what they ended with less what they began with, bytes.
    pub change: i64,
    /// Ranges that are in these figures.
    pub ranges: u64,
}

/// A range that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRange {
    /// Number of its name.
    pub name: u32,
    /// Time at which it began.
    pub start: Nanos,
    /// Identifier of its thread within the process.
    pub thread: u32,
    /// Ranges of its thread that it is in.
    pub depth: u32,
    /// Number of the step.
    pub step: Option<u64>,
}

/// One range that has ended, or a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeEvent {
    /// Key of the process.
    pub process: ProcessKey,
    /// Number of its name.
    pub name: u32,
    /// Time at which it began.
    pub start: Nanos,
    /// Duration.
    pub length: Nanos,
    /// True if it is a mark.
    pub is_mark: bool,
    /// Identifier, within the process, of the thread that began it.
    pub thread: u32,
    /// Ranges of its thread that it was in.
    pub depth: u32,
    /// True if it belongs to the nesting of its thread; others may have ended in another one.
    pub is_nested: bool,
    /// Number that the program put into the name of a step.
    pub step: Option<u64>,
    /// The GPU of whose memory the process held most; `None`: it held none.
    pub gpu: Option<GpuIndex>,
    /// Device memory of the process there when it began.
    pub entry: Bytes,
    /// Device memory of the process there when it ended.
    pub exit: Bytes,
    /// Most inside; `None`: not known.
    pub peak: Option<Bytes>,
}

impl RangeName {
    /// Steps per second, from the first one's begin to the last one's; `None` if it does not name steps, or for fewer than
    /// two.
    pub fn steps_per_second(&self) -> Option<f64> {
        let after_first = self.ranges.saturating_add(self.marks).saturating_sub(1);
        let rate = step::per_second(after_first, self.first.0, self.last.0);
        rate.filter(|_| step::is_step(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_per_second_are_counted_between_beginnings() {
        let name = |name: &str, ranges| RangeName {
            name: name.into(),
            ranges,
            first: Nanos::from_secs(1),
            last: Nanos::from_secs(3),
            ..RangeName::default()
        };
        assert_eq!(name("step", 5).steps_per_second(), Some(2.0));
        assert_eq!(name("step", 1).steps_per_second(), None);
        assert_eq!(name("forward", 5).steps_per_second(), None);
        assert_eq!(RangeName { last: Nanos::from_secs(1), ..name("step", 5) }.steps_per_second(), None);
    }
}
