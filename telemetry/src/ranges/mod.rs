//! Ranges and marks: phases of a program that it names itself, and what they took.
//!
//! A *range* has a begin and an end, a *mark* is a moment. Ranges of a thread are open inside each other, like its
//! function calls; others are begun in one thread and ended in any. All of it has a fixed size: what a program does a
//! million times loses single records, never memory, and what is lost is counted.
//!
//! * Figures by name (`figures.rs`) are sums and extremes over all ranges of a name: exact, however many there are.
//!   Names beyond the table go to "(other)".
//! * A ring has the last ranges and marks one by one; a reader that comes often enough gets them all.
//! * What is open lies in the segment too, so that a killed program leaves the ranges in which it was.
//!
//! # Memory in ranges
//!
//! The device total at begin and end of a range is read from the accounts. The largest total inside is kept by a
//! *watermark*: a word for each thread and GPU that every allocation raises to the new total (`watermark.rs`). A range
//! that begins puts the watermark of the range around it aside and sets it to the total now; its end reads its own peak, and
//! raises the watermark around it. So the peak inside is exact for any nesting and any number of threads, without a lock.
//! Ranges that any thread may end have watermarks of their own while there are some left; the ranges without one are
//! counted as those whose peak is not known.
//!
//! An allocation reads one more word of its account's first cache line, and no watermark as long as no thread has had a
//! range.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

mod figures;
mod names;
mod open;
pub mod watermark;

pub use names::{NameId, RangeText};

use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::ring::{Ring, WORDS};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::writer::Writer;

/// A word of the recorder in the slot's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// 1: the tables that every process with ranges needs are allocated.
    Ready = 0,
    /// Names handed out.
    Names = 1,
    /// Pieces of the names that are allocated.
    NamesReady = 2,
    /// Tickets drawn for the ring.
    RingHead = 3,
    /// Records that found their cell taken.
    RingDropped = 4,
    /// GPUs on which anything was allocated, a bit each.
    Gpus = 5,
    /// GPUs whose figures are allocated, a bit each.
    GpusReady = 6,
    /// Lanes whose open ranges are allocated, a bit each.
    LanesReady = 7,
    /// Ranges and marks that are counted as "(other)".
    Other = 8,
    /// Ranges that were open inside too many others, or in too many threads: not kept.
    TooDeep = 9,
    /// Ends without a begin.
    Unbalanced = 10,
    /// Ranges that any thread may end, of which too many were open: not kept.
    NotStarted = 11,
    /// Ranges and marks that were over before the process used a GPU: not kept.
    Early = 12,
}

/// A range that has ended, or a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRecord {
    /// Number of the name.
    pub name: NameId,
    /// Time at which it began, ns of segment time.
    pub start_ns: u64,
    /// Time at which it ended; of a mark the same.
    pub end_ns: u64,
    /// True if it is a mark.
    pub is_mark: bool,
    /// Identifier of its thread within the process; of a range that another thread may have ended, the identifier of
    /// the thread that began it.
    pub lane: u8,
    /// Ranges of its thread that it was in.
    pub depth: u8,
    /// True if it belongs to the nesting of its thread.
    pub is_nested: bool,
    /// Number that the program put into the name of a step.
    pub step: Option<u64>,
    /// The GPU of whose memory it saw most; `None`: no memory was ever allocated.
    pub gpu: Option<GpuIndex>,
    /// Device total there at its beginning.
    pub entry: u64,
    /// At its end.
    pub exit: u64,
    /// Largest inside; `None`: not known.
    pub peak: Option<u64>,
}

/// Set in a record's word of numbers.
const MARK: u64 = 1 << 40;
const NESTED: u64 = 1 << 41;
const HAS_PEAK: u64 = 1 << 42;
const HAS_GPU: u64 = 1 << 43;
/// Steps beyond are recorded as this one.
const MAX_STEP: u64 = u32::MAX as u64 - 1;

impl RangeRecord {
    pub(crate) fn pack(&self) -> [u64; WORDS] {
        let flag = |is: bool, bit: u64| if is { bit } else { 0 };
        let what = u64::from(self.name.number())
            | u64::from(self.lane) << 16
            | u64::from(self.depth) << 24
            | u64::from(self.gpu.map_or(0, GpuIndex::number)) << 32
            | flag(self.is_mark, MARK)
            | flag(self.is_nested, NESTED)
            | flag(self.peak.is_some(), HAS_PEAK)
            | flag(self.gpu.is_some(), HAS_GPU);
        let step = self.step.map_or(0, |step| step.min(MAX_STEP).saturating_add(1));
        [self.start_ns, self.end_ns, what, step, self.entry, self.exit, self.peak.unwrap_or(0)]
    }

    pub(crate) fn unpack(words: [u64; WORDS]) -> Option<Self> {
        let [start_ns, end_ns, what, step, entry, exit, peak] = words;
        let gpu = GpuIndex::from_number((what >> 32) as usize & 0xff)?;
        Some(Self {
            name: NameId::from_number(what & 0xffff),
            start_ns,
            end_ns: end_ns.max(start_ns),
            is_mark: what & MARK != 0,
            lane: (what >> 16) as u8,
            depth: (what >> 24) as u8,
            is_nested: what & NESTED != 0,
            step: step.checked_sub(1),
            gpu: (what & HAS_GPU != 0).then_some(gpu),
            entry,
            exit,
            peak: (what & HAS_PEAK != 0).then_some(peak),
        })
    }
}

/// The GPUs of a set of bits.
fn gpus_of(mut bits: u64) -> impl Iterator<Item = GpuIndex> {
    std::iter::from_fn(move || {
        let number = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        GpuIndex::from_number(number)
    })
}

impl Writer {
    #[inline]
    pub(crate) fn range_word(&self, word: Word) -> &AtomicU64 {
        let head = &self.base().head;
        head.ranges.get(word as usize).unwrap_or(&head.spare0)
    }

    pub(crate) fn count_range(&self, word: Word) {
        self.range_word(word).fetch_add(1, Relaxed);
    }

    /// Counts a range or mark that was over before the process joined.
    pub fn early_ranges(&self, count: u64) {
        self.range_word(Word::Early).fetch_add(count, Relaxed);
    }

    /// Returns true if the tables are there; allocates them where they were not.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        // Acquire: pairs with the Release in `grow_upto`.
        self.range_word(Word::Ready).load(Acquire) == 1
            || self.grow_upto(self.range_word(Word::Ready), RANGE_KEYS_AT, RANGE_FIRST_BYTES, 1)
    }

    /// Returns true if a part of a region is allocated, as a bit of a word records; allocates the part where it was
    /// not.
    #[inline]
    fn has_part(&self, word: Word, number: u8, at: u64, bytes: u64) -> bool {
        let (word, bit) = (self.range_word(word), 1u64 << (number & 63));
        // Acquire and Release: a thread that sees the bit sees the pages.
        if word.load(Acquire) & bit != 0 {
            return true;
        }
        let made = self.make_present(at + u64::from(number) * bytes, bytes);
        if made {
            word.fetch_or(bit, Release);
        }
        made
    }

    /// A mark at this moment in a thread's lane, inside so many ranges.
    pub fn mark(&self, name: NameId, step: Option<u64>, lane: u32, depth: u32) {
        if !self.has_ranges() {
            return;
        }
        let now = self.now();
        if let Some(cell) = self.range_name_cell(name) {
            cell.marked(now);
        }
        let gpus = self.range_word(Word::Gpus).load(Acquire);
        let most = gpus_of(gpus)
            .filter_map(|gpu| Some((gpu, self.account(gpu)?.total_now.load(Relaxed))))
            .max_by_key(|(_, total)| *total);
        let total = most.map_or(0, |(_, total)| total);
        self.keep_range(&RangeRecord {
            name,
            start_ns: now,
            end_ns: now,
            is_mark: true,
            lane: lane.min(0xff) as u8,
            depth: depth.min(0xff) as u8,
            is_nested: false,
            step,
            gpu: most.map(|(gpu, _)| gpu),
            entry: total,
            exit: total,
            peak: None,
        });
    }

    /// Writes a record into the ring, which is allocated.
    fn keep_range(&self, record: &RangeRecord) {
        let (tickets, dropped) = (self.range_word(Word::RingHead), self.range_word(Word::RingDropped));
        // SAFETY: the ring is allocated (`has_ranges`); RANGE_CELLS cells, atomics only.
        let cells = unsafe { self.at::<[Cell; RANGE_CELLS]>(RANGE_RING_AT).as_ref() };
        Ring::new(tickets, dropped, cells).push(record.pack());
    }

    /// A GPU's first allocation: from now on ranges read its memory. Cold.
    #[cold]
    #[inline(never)]
    pub(crate) fn gpu_of_ranges(&self, gpu: GpuIndex) {
        self.range_word(Word::Gpus).fetch_or(1 << (gpu.number() & 63), AcqRel);
    }

    /// Raises the watermarks of a GPU to the total that an allocation has reached.
    #[inline]
    pub(crate) fn reached_in_ranges(&self, gpu: GpuIndex, account: &AccountCell, total: u64) {
        watermark::barrier();
        let [lanes, starts] = &account.watermarks;
        // Acquire: pairs with the Release of the thread that set a bit, after which its watermarks are allocated.
        let bits = [lanes.load(Acquire), starts.load(Acquire)];
        if bits != [0, 0] {
            self.raise_watermarks(gpu, bits, total);
        }
    }

    #[inline(never)]
    fn raise_watermarks(&self, gpu: GpuIndex, bits: [u64; 2], total: u64) {
        for (group, mut bits) in bits.into_iter().enumerate() {
            while bits != 0 {
                let number = group * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                watermark::reached(self.watermark(gpu, number), total);
            }
        }
    }

    /// A watermark of a GPU; allocated once anything has set a bit of an account's watermarks.
    #[inline]
    fn watermark(&self, gpu: GpuIndex, number: usize) -> &AtomicU64 {
        let at = (usize::from(gpu.number()) * RANGE_WATERMARKS + number % RANGE_WATERMARKS) * 8;
        // SAFETY: inside the region, which is allocated (`has_ranges`); atomics only.
        unsafe { self.at::<AtomicU64>(RANGE_WATERMARKS_AT + at as u64).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let record = RangeRecord {
            name: NameId::from_number(1023),
            start_ns: 5,
            end_ns: u64::MAX,
            is_mark: false,
            lane: 64,
            depth: 51,
            is_nested: true,
            step: Some(0),
            gpu: GpuIndex::from_number(15),
            entry: 7,
            exit: u64::MAX,
            peak: Some(0),
        };
        assert_eq!(RangeRecord::unpack(record.pack()), Some(record));
        let other =
            RangeRecord { is_mark: true, is_nested: false, step: None, gpu: None, peak: None, ..record };
        assert_eq!(RangeRecord::unpack(other.pack()), Some(other));
        let mut damaged = record.pack();
        damaged[2] |= 0xff << 32;
        assert_eq!(RangeRecord::unpack(damaged), None);
    }
}
