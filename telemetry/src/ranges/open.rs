//! Ranges that are open: those of a thread, inside each other, and those that any thread may end.

use super::figures::Memory;
use super::{NameId, RangeRecord, Word, gpus_of, watermark};
use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::writer::Writer;

/// Ranges that any thread may end and that have watermarks.
const MARKED_STARTS: usize = RANGE_WATERMARKS - LANES;

/// Data of a range at its end.
struct Ended {
    name: NameId,
    start_ns: u64,
    step: Option<u64>,
    lane: u8,
    depth: u8,
    is_nested: bool,
    has_peak: bool,
}

fn word_of(step: Option<u64>) -> u64 {
    step.map_or(0, |step| step.saturating_add(1))
}

impl Writer {
    /// Opens a range of the calling thread, whose lane has this number and `depth` open ranges; `start_ns` is now, or
    /// a time before the process joined. False: it is not kept, and its end is to be passed over.
    pub fn push_range(
        &self,
        lane: u32,
        depth: u32,
        domain: u64,
        name: NameId,
        step: Option<u64>,
        start_ns: Option<u64>,
    ) -> bool {
        let Some(open) = self.range_lane(lane).filter(|_| (depth as usize) < RANGE_DEPTH) else {
            self.count_range(Word::TooDeep);
            return false;
        };
        let Some(frame) = open.frames.get(depth as usize) else { return false };
        let gpus = self.range_word(Word::Gpus).load(Acquire);
        for gpu in gpus_of(gpus) {
            let Some(account) = self.account(gpu) else { continue };
            let mark = self.watermark(gpu, lane as usize);
            let (around, entry) = match start_ns {
                None => watermark::begin(mark, &account.total_now),
                // Before the process joined it held nothing, and all that it has held since lies in the range.
                Some(_) => {
                    watermark::barrier();
                    watermark::reached(mark, account.total_peak.load(Acquire));
                    (0, 0)
                }
            };
            let at = usize::from(gpu.number());
            for (place, value) in [(frame.entry.get(at), entry), (frame.around.get(at), around)] {
                if let Some(place) = place {
                    place.store(value, Relaxed);
                }
            }
        }
        frame.name.store(name.number().into(), Relaxed);
        frame.domain.store(domain, Relaxed);
        frame.step.store(word_of(step), Relaxed);
        frame.gpus.store(gpus, Relaxed);
        frame.start_ns.store(start_ns.unwrap_or_else(|| self.now()), Relaxed);
        // Release: the reader that sees the depth sees the frame.
        open.depth.store(u64::from(depth) + 1, Release);
        self.area().header.gate.range_changed();
        true
    }

    /// Closes the innermost open range of a domain; false: there is none.
    pub fn pop_range(&self, lane: u32, depth: u32, domain: u64) -> bool {
        let now = self.now();
        let Some(open) = self.range_lane(lane) else { return false };
        let frames = open.frames.get(..depth as usize).unwrap_or(&open.frames);
        let Some(at) = frames.iter().rposition(|frame| frame.domain.load(Relaxed) == domain) else {
            return false;
        };
        let Some((frame, above)) = frames.get(at..).and_then(<[RangeFrame]>::split_first) else {
            return false;
        };
        let then = frame.gpus.load(Relaxed);
        let gpus = self.range_word(Word::Gpus).load(Acquire);
        let memory = gpus_of(gpus).filter_map(|gpu| {
            let number = usize::from(gpu.number());
            let value = |places: &[AtomicU64; GPUS], gpus: u64| {
                let place = places.get(number).filter(|_| gpus >> number & 1 == 1);
                place.map_or(0, |place| place.load(Relaxed))
            };
            // The watermark has the total since the last range began; earlier parts of this one are around those above.
            let inside =
                above.iter().map(|frame| value(&frame.around, frame.gpus.load(Relaxed))).max().unwrap_or(0);
            let around = value(&frame.around, then);
            let mark = self.watermark(gpu, lane as usize);
            let total = &self.account(gpu)?.total_now;
            let (peak, exit) = match above.first() {
                None => watermark::end(mark, total, around),
                Some(next) => {
                    if let Some(place) = next.around.get(number) {
                        let known = value(&next.around, next.gpus.load(Relaxed));
                        place.store(known.max(around), Relaxed);
                    }
                    watermark::end(mark, total, 0)
                }
            };
            let entry = value(&frame.entry, then);
            Some((gpu, Memory { entry, exit, peak: peak.max(inside).max(entry) }))
        });
        let ended = Ended {
            name: NameId::from_number(frame.name.load(Relaxed)),
            start_ns: frame.start_ns.load(Relaxed),
            step: frame.step.load(Relaxed).checked_sub(1),
            lane: lane as u8,
            depth: at as u8,
            is_nested: true,
            has_peak: true,
        };
        self.range_ended(&ended, now, memory);
        let mut to = frame;
        for from in above {
            // What was open above stays open: a domain's ranges nest among themselves only.
            from.copy_to(to, gpus);
            to = from;
        }
        open.depth.store(u64::from(depth).saturating_sub(1), Release);
        self.area().header.gate.range_changed();
        true
    }

    /// Counts an end without a begin.
    pub fn unbalanced_range(&self) {
        self.count_range(Word::Unbalanced);
    }

    /// Opens a range that any thread may end; gives its number, never 0. `None`: too many are open, and it is not kept.
    pub fn start_range(&self, lane: u32, name: NameId, step: Option<u64>) -> Option<u64> {
        let found = self.has_ranges().then(|| self.free_start()).flatten();
        let Some((number, cell)) = found else {
            self.count_range(Word::NotStarted);
            return None;
        };
        let gpus = self.range_word(Word::Gpus).load(Acquire);
        if number < MARKED_STARTS {
            self.watch(1, number);
        }
        for gpu in gpus_of(gpus) {
            let Some(account) = self.account(gpu) else { continue };
            let entry = if number < MARKED_STARTS {
                watermark::begin(self.watermark(gpu, LANES + number), &account.total_now).1
            } else {
                account.total_now.load(Relaxed)
            };
            if let Some(place) = cell.entry.get(usize::from(gpu.number())) {
                place.store(entry, Relaxed);
            }
        }
        cell.name.store(name.number().into(), Relaxed);
        cell.lane.store(lane.into(), Relaxed);
        cell.step.store(word_of(step), Relaxed);
        cell.gpus.store(gpus, Relaxed);
        cell.start_ns.store(self.now(), Relaxed);
        let ticket = cell.tickets.fetch_add(1, Relaxed).wrapping_add(1);
        let state = self.start_number(number, ticket);
        // Release: pairs with the Acquire of the thread that ends it, and with the reader.
        cell.state.store(state, Release);
        self.area().header.gate.range_changed();
        Some(state)
    }

    /// Ends a range by its number. False: no such range is open in this process.
    pub fn end_range(&self, state: u64) -> bool {
        let now = self.now();
        let number = (state >> 1) as usize & (RANGE_STARTS - 1);
        let Some(cell) = self.has_ranges().then(|| self.start_cell(number)) else { return false };
        // Odd: no other thread ends it meanwhile.
        if state == 0
            || state & 1 == 1
            || cell.state.compare_exchange(state, state | 1, AcqRel, Relaxed).is_err()
        {
            return false;
        }
        let has_peak = number < MARKED_STARTS;
        let then = cell.gpus.load(Relaxed);
        let memory = gpus_of(self.range_word(Word::Gpus).load(Acquire)).filter_map(|gpu| {
            let at = usize::from(gpu.number());
            let entry =
                cell.entry.get(at).filter(|_| then >> at & 1 == 1).map_or(0, |place| place.load(Relaxed));
            let total = &self.account(gpu)?.total_now;
            let (peak, exit) = if has_peak {
                watermark::end(self.watermark(gpu, LANES + number), total, 0)
            } else {
                let exit = total.load(Relaxed);
                (exit, exit)
            };
            Some((gpu, Memory { entry, exit, peak: peak.max(entry) }))
        });
        let ended = Ended {
            name: NameId::from_number(cell.name.load(Relaxed)),
            start_ns: cell.start_ns.load(Relaxed),
            step: cell.step.load(Relaxed).checked_sub(1),
            lane: cell.lane.load(Relaxed) as u8,
            depth: 0,
            is_nested: false,
            has_peak,
        };
        self.range_ended(&ended, now, memory);
        if has_peak {
            self.unwatch(number);
        }
        cell.state.store(0, Release);
        self.area().header.gate.range_changed();
        true
    }

    fn range_ended(&self, ended: &Ended, now: u64, memory: impl Iterator<Item = (GpuIndex, Memory)>) {
        if let Some(cell) = self.range_name_cell(ended.name) {
            cell.ended(ended.start_ns, now, ended.has_peak);
        }
        let mut most: Option<(GpuIndex, Memory)> = None;
        for (gpu, memory) in memory {
            self.range_memory(gpu, ended.name, memory);
            if most.is_none_or(|(_, other)| memory.peak > other.peak) {
                most = Some((gpu, memory));
            }
        }
        let (gpu, memory) = most.map_or((None, Memory::default()), |(gpu, memory)| (Some(gpu), memory));
        self.keep_range(&RangeRecord {
            name: ended.name,
            start_ns: ended.start_ns,
            end_ns: now.max(ended.start_ns),
            is_mark: false,
            lane: ended.lane,
            depth: ended.depth,
            is_nested: ended.is_nested,
            step: ended.step,
            gpu,
            entry: memory.entry,
            exit: memory.exit,
            peak: (ended.has_peak && gpu.is_some()).then_some(memory.peak),
        });
    }

    /// The open ranges of a lane; `None` for the shared one, and without memory.
    fn range_lane(&self, lane: u32) -> Option<&RangeLane> {
        let lane = u8::try_from(lane).ok().filter(|lane| usize::from(*lane) < LANES)?;
        let is_new = self.range_word(Word::LanesReady).load(Acquire) >> lane & 1 == 0;
        if is_new
            && !(self.has_ranges() && self.has_part(Word::LanesReady, lane, RANGE_LANES_AT, RANGE_LANE_BYTES))
        {
            return None;
        }
        if is_new {
            self.watch(0, lane.into());
        }
        let at = RANGE_LANES_AT + u64::from(lane) * RANGE_LANE_BYTES;
        // SAFETY: allocated (just above), the number below LANES; atomics only.
        Some(unsafe { self.at::<RangeLane>(at).as_ref() })
    }

    /// From now on allocations raise these watermarks, of all GPUs: also of those that are used later.
    fn watch(&self, group: usize, number: usize) {
        for account in &self.base().accounts {
            if let Some(word) = account.watermarks.get(group) {
                word.fetch_or(1 << (number & 63), AcqRel);
            }
        }
    }

    fn unwatch(&self, number: usize) {
        for account in &self.base().accounts {
            let [_, starts] = &account.watermarks;
            starts.fetch_and(!(1 << (number & 63)), AcqRel);
        }
    }

    /// A free place for a range, marked as being changed.
    fn free_start(&self) -> Option<(usize, &RangeStart)> {
        (0..RANGE_STARTS).map(|number| (number, self.start_cell(number))).find(|(_, cell)| {
            cell.state.load(Relaxed) == 0 && cell.state.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
        })
    }

    fn start_cell(&self, number: usize) -> &RangeStart {
        let at = RANGE_STARTS_AT + (number % RANGE_STARTS) as u64 * 256;
        // SAFETY: allocated (`has_ranges`), the number below RANGE_STARTS; atomics only.
        unsafe { self.at::<RangeStart>(at).as_ref() }
    }

    /// The number of a range: its place, how often that was used, and the process, so that a forked child does not end a
    /// range of its own by a number of its parent.
    fn start_number(&self, number: usize, ticket: u64) -> u64 {
        let process = (self.slot() as u64 + 1) << 8 | u64::from(self.generation()) & 0xff;
        process << 45 | (ticket & 0xf_ffff_ffff) << 9 | (number as u64) << 1
    }
}

impl RangeFrame {
    fn copy_to(&self, to: &Self, gpus: u64) {
        for (from, to) in [
            (&self.name, &to.name),
            (&self.start_ns, &to.start_ns),
            (&self.domain, &to.domain),
            (&self.step, &to.step),
            (&self.gpus, &to.gpus),
        ] {
            to.store(from.load(Relaxed), Relaxed);
        }
        for gpu in gpus_of(gpus) {
            let at = usize::from(gpu.number());
            for (from, to) in [(&self.entry, &to.entry), (&self.around, &to.around)] {
                if let (Some(from), Some(to)) = (from.get(at), to.get(at)) {
                    to.store(from.load(Relaxed), Relaxed);
                }
            }
        }
    }
}
