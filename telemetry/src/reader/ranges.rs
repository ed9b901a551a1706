//! Ranges and marks, as a plain copy.

use super::raw::Words;
use super::segment::{Segment, SegmentError, SlotInfo};
use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::ranges::{NameId, Word};
use std::mem::offset_of;

/// Set in a name's length if the name was longer.
const CUT: u64 = 1 << 32;

/// Memory of one GPU in the ranges of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeGpu {
    /// GPU.
    pub gpu: GpuIndex,
    /// Largest device total inside a range, bytes.
    pub peak: u64,
    /// Device total where that range began.
    pub entry_at_peak: u64,
    /// Device total where it ended.
    pub exit_at_peak: u64,
    /// Device total where the last range began.
    pub last_entry: u64,
    /// Device total where it ended.
    pub last_exit: u64,
    /// Sum of what the ranges ended with less what they began with.
    pub change: i64,
    /// Ranges that are in these figures.
    pub ranges: u64,
}

/// A name, and what its ranges and marks took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeName {
    /// Its number; 0 = "(other)".
    pub id: NameId,
    /// The name, with whatever the program put into it. Empty for "(other)".
    pub name: String,
    /// The name was longer.
    pub truncated: bool,
    /// Ranges that have ended.
    pub ranges: u64,
    /// Marks.
    pub marks: u64,
    /// Time that the ranges took together, ns.
    pub total_ns: u64,
    /// Time of the shortest, ns.
    pub shortest_ns: u64,
    /// Time of the longest, ns.
    pub longest_ns: u64,
    /// Time at which the first one began, ns of segment time.
    pub first_ns: u64,
    /// Time at which the last one began.
    pub last_ns: u64,
    /// Time at which the last one ended.
    pub end_ns: u64,
    /// Ranges of which the peak inside is not known.
    pub unmarked: u64,
    /// Memory, by GPU.
    pub gpus: Vec<RangeGpu>,
}

/// A range that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRange {
    /// Number of the name.
    pub name: NameId,
    /// Time at which it began, ns of segment time.
    pub start_ns: u64,
    /// Lane of the thread that began it.
    pub lane: u8,
    /// Ranges of its thread that it is in.
    pub depth: u8,
    /// True if it belongs to the nesting of its thread.
    pub is_nested: bool,
    /// Number of the step.
    pub step: Option<u64>,
    /// Device total of each GPU at its beginning, bytes.
    pub entry: Vec<(GpuIndex, u64)>,
}

/// The ranges and marks of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSnapshot {
    /// By number; those that were never used are left out.
    pub names: Vec<RangeName>,
    /// Open ranges.
    pub open: Vec<OpenRange>,
    /// Ranges and marks that are counted as "(other)": there were too many names.
    pub other: u64,
    /// Ranges inside too many others, or of too many threads: not kept.
    pub too_deep: u64,
    /// Ranges that any thread may end, of which too many were open: not kept.
    pub not_started: u64,
    /// Ranges and marks from before the process used a GPU: not kept.
    pub early: u64,
    /// Ends without a begin.
    pub unbalanced: u64,
}

impl Segment {
    /// The ranges and marks of a process; `None` if there was none.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn ranges(&self, slot: &SlotInfo) -> Result<Option<RangeSnapshot>, SegmentError> {
        if slot.slot >= SLOTS {
            return Ok(None);
        }
        let at = slot_at(slot.slot);
        let head = self.words(at + offset_of!(SlotHead, ranges) as u64, (RANGE_WORDS * 8) as u64)?;
        let word = |word: Word| head.at(word as usize * 8);
        let found = RangeSnapshot {
            other: word(Word::Other),
            too_deep: word(Word::TooDeep),
            not_started: word(Word::NotStarted),
            early: word(Word::Early),
            unbalanced: word(Word::Unbalanced),
            ..RangeSnapshot::default()
        };
        if word(Word::Ready) != 1 {
            return Ok((found != RangeSnapshot::default()).then_some(found));
        }
        let names = word(Word::Names).saturating_add(1).min(RANGE_NAMES as u64);
        let cells = self.words(at + RANGE_NAMES_AT, names * 512)?;
        let mut figures = Vec::new();
        for number in (0..GPUS).filter(|number| word(Word::GpusReady) >> number & 1 == 1) {
            let Some(gpu) = GpuIndex::from_number(number) else { continue };
            let words = self.words(at + RANGE_GPUS_AT + number as u64 * RANGE_GPU_BYTES, names * 64)?;
            figures.push((gpu, words));
        }
        let mut open = self.open_in_threads(at, word(Word::LanesReady))?;
        open.extend(self.open_apart(at)?);
        open.sort_by_key(|range| (range.start_ns, range.depth));
        Ok(Some(RangeSnapshot {
            names: (0..names as usize).filter_map(|number| name(&cells, &figures, number)).collect(),
            open,
            ..found
        }))
    }

    /// The open ranges of a process alone: cheap, for a thread that waits for the next one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn open_ranges(&self, slot: &SlotInfo) -> Result<Vec<OpenRange>, SegmentError> {
        if slot.slot >= SLOTS {
            return Ok(Vec::new());
        }
        let at = slot_at(slot.slot);
        let head = self.words(at + offset_of!(SlotHead, ranges) as u64, (RANGE_WORDS * 8) as u64)?;
        if head.at(Word::Ready as usize * 8) != 1 {
            return Ok(Vec::new());
        }
        let mut open = self.open_in_threads(at, head.at(Word::LanesReady as usize * 8))?;
        open.extend(self.open_apart(at)?);
        Ok(open)
    }

    fn open_in_threads(&self, slot: u64, ready: u64) -> Result<Vec<OpenRange>, SegmentError> {
        let mut open = Vec::new();
        for lane in (0..LANES).filter(|lane| ready >> lane & 1 == 1) {
            let at = slot + RANGE_LANES_AT + lane as u64 * RANGE_LANE_BYTES;
            let words = self.words(at, RANGE_LANE_BYTES)?;
            let depth = (words.at(offset_of!(RangeLane, depth)) as usize).min(RANGE_DEPTH);
            for number in 0..depth {
                let frame = offset_of!(RangeLane, frames) + number * size_of::<RangeFrame>();
                let word = |offset: usize| words.at(frame + offset);
                open.push(OpenRange {
                    name: NameId::from_number(word(offset_of!(RangeFrame, name))),
                    start_ns: word(offset_of!(RangeFrame, start_ns)),
                    lane: lane as u8,
                    depth: number as u8,
                    is_nested: true,
                    step: word(offset_of!(RangeFrame, step)).checked_sub(1),
                    entry: entries(
                        &words,
                        frame + offset_of!(RangeFrame, entry),
                        word(offset_of!(RangeFrame, gpus)),
                    ),
                });
            }
        }
        Ok(open)
    }

    fn open_apart(&self, slot: u64) -> Result<Vec<OpenRange>, SegmentError> {
        let words = self.words(slot + RANGE_STARTS_AT, RANGE_STARTS_BYTES)?;
        let open = (0..RANGE_STARTS).filter_map(|number| {
            let cell = number * size_of::<RangeStart>();
            let word = |offset: usize| words.at(cell + offset);
            let state = word(offset_of!(RangeStart, state));
            (state != 0 && state & 1 == 0).then(|| OpenRange {
                name: NameId::from_number(word(offset_of!(RangeStart, name))),
                start_ns: word(offset_of!(RangeStart, start_ns)),
                lane: word(offset_of!(RangeStart, lane)) as u8,
                depth: 0,
                is_nested: false,
                step: word(offset_of!(RangeStart, step)).checked_sub(1),
                entry: entries(
                    &words,
                    cell + offset_of!(RangeStart, entry),
                    word(offset_of!(RangeStart, gpus)),
                ),
            })
        });
        Ok(open.collect())
    }
}

fn entries(words: &Words, at: usize, gpus: u64) -> Vec<(GpuIndex, u64)> {
    let read = (0..GPUS).filter(|gpu| gpus >> gpu & 1 == 1);
    read.filter_map(|gpu| Some((GpuIndex::from_number(gpu)?, words.at(at + gpu * 8)))).collect()
}

/// One name; `None` if it was never used.
fn name(cells: &Words, figures: &[(GpuIndex, Words)], number: usize) -> Option<RangeName> {
    let cell = number * size_of::<RangeNameCell>();
    let word = |offset: usize| cells.at(cell + offset);
    let text = word(offset_of!(RangeNameCell, text_len));
    let len = ((text & (CUT - 1)) as usize).saturating_sub(1).min(RANGE_NAME_BYTES);
    let bytes = cells.bytes(cell + offset_of!(RangeNameCell, text), len);
    let (ranges, marks) = (word(offset_of!(RangeNameCell, ranges)), word(offset_of!(RangeNameCell, marks)));
    if text == 0 && ranges == 0 && marks == 0 {
        return None;
    }
    let gpus = figures.iter().filter_map(|(gpu, words)| {
        let word = |offset: usize| words.at(number * size_of::<RangeGpuCell>() + offset);
        let ranges = word(offset_of!(RangeGpuCell, ranges));
        (ranges > 0).then(|| RangeGpu {
            gpu: *gpu,
            peak: word(offset_of!(RangeGpuCell, peak)),
            entry_at_peak: word(offset_of!(RangeGpuCell, entry_at_peak)),
            exit_at_peak: word(offset_of!(RangeGpuCell, exit_at_peak)),
            last_entry: word(offset_of!(RangeGpuCell, last_entry)),
            last_exit: word(offset_of!(RangeGpuCell, last_exit)),
            change: word(offset_of!(RangeGpuCell, change)) as i64,
            ranges,
        })
    });
    // Words that are zero were never written: the extremes are kept as what they are less than.
    let less = |value: u64| if value == 0 { 0 } else { u64::MAX - value };
    Some(RangeName {
        id: NameId::from_number(number as u64),
        name: String::from_utf8_lossy(&bytes).into_owned(),
        truncated: text & CUT != 0,
        ranges,
        marks,
        total_ns: word(offset_of!(RangeNameCell, total_ns)),
        shortest_ns: less(word(offset_of!(RangeNameCell, shortest_ns))),
        longest_ns: word(offset_of!(RangeNameCell, longest_ns)),
        first_ns: less(word(offset_of!(RangeNameCell, first_ns))),
        last_ns: word(offset_of!(RangeNameCell, last_ns)),
        end_ns: word(offset_of!(RangeNameCell, end_ns)),
        unmarked: word(offset_of!(RangeNameCell, unmarked)),
        gpus: gpus.collect(),
    })
}
