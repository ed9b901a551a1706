//! Figures of a process, as a plain copy.

use super::raw::Words;
use super::segment::{Liveness, Segment, SegmentError, SlotInfo, Throttled};
use super::strata::{Copies, copies};
use crate::blocks::{Block, BlockKey};
use crate::failures::FailedRequest;
use crate::gpu_index::GpuIndex;
use crate::kernels::{KernelAttributes, TRUNCATED};
use crate::kind::Bypass;
use crate::layout::*;
use crate::strata::{KernelsMode, estimate::KernelTime};
use radrm_base::{KIND_COUNT, Kind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::mem::offset_of;
use std::time::Duration;

/// Bytes of tables that are read for one look at a job: 300 processes that launch 400 kernels from 4 threads take half of
/// it.
const MAX_READ: u64 = 256 << 20;
/// Bytes that such a look may keep of names.
const MAX_KEPT: usize = 32 << 20;

/// Figures of one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindFigures {
    /// Bytes now.
    pub now: u64,
    /// Most bytes.
    pub peak: u64,
    /// Allocations.
    pub allocs: u64,
    /// Releases.
    pub frees: u64,
}

impl KindFigures {
    /// Blocks alive.
    pub fn live_blocks(&self) -> u64 {
        self.allocs.saturating_sub(self.frees)
    }
}

/// The peak of a device total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Largest device total, bytes.
    pub total: u64,
    /// Time of the peak, ns of segment time.
    pub ns: u64,
    /// Bytes by kind at that moment.
    pub kinds: [u64; KIND_COUNT],
    /// The kinds (and perhaps the time) were written while other threads allocated, so they do not add
    /// up to the total, which is exact all the same.
    pub approximate: bool,
}

/// Figures of a process on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// GPU.
    pub gpu: GpuIndex,
    /// Device total now, bytes.
    pub total_now: u64,
    /// Peak of the total.
    pub peak: Peak,
    /// By kind, in the order of [`Kind`].
    pub kinds: [KindFigures; KIND_COUNT],
    /// Failed requests.
    pub failed: u64,
    /// Requests for the GPU's memory that were granted after one was last refused for lack of it; `None`: none was.
    pub granted_since_refusal: Option<u64>,
    /// Contexts now.
    pub contexts: u64,
    /// Time on the GPU from the first timed launch to the end of the latest, ns; 0 if none was timed.
    pub timed_span_ns: u64,
}

/// A kernel and its launches, summed over all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSnapshot {
    /// Number in the process's table; 0 = "(other)".
    pub id: u16,
    /// Name, mangled as the driver gives it. Empty if it is not known.
    pub name: String,
    /// The name was longer.
    pub truncated: bool,
    /// Attributes that the driver reports.
    pub attributes: KernelAttributes,
    /// Launches.
    pub launches: u64,
    /// Sum of blocks.
    pub blocks: u64,
    /// Sum of threads.
    pub threads: u64,
    /// Sum of dynamic shared memory per block, bytes; launches as a node of a graph included.
    pub dynamic_shared_bytes: u64,
    /// Launches as a node of a graph.
    pub graph_launches: u64,
    /// Sum of their blocks.
    pub graph_blocks: u64,
    /// Sum of their threads.
    pub graph_threads: u64,
    /// Time on the GPU, if any launch was timed.
    pub time: Option<KernelTime>,
}

/// A block that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its key.
    pub key: BlockKey,
    /// Record of the block.
    pub block: Block,
}

/// A process. The default is one that runs and has done nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSnapshot {
    /// Slot, pid, liveness.
    pub slot: SlotInfo,
    /// Parent's pid.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Command line.
    pub cmdline: Vec<String>,
    /// Time at which it joined, ns of segment time.
    pub joined_ns: u64,
    /// Time at which it left, ns of segment time, if it reported that.
    pub ended_ns: Option<u64>,
    /// Driver version as `cuDriverGetVersion` gives it, if known.
    pub driver_version: Option<u32>,
    /// Bits of [`crate::framework`].
    pub frameworks: u64,
    /// GPUs on which anything was counted.
    pub accounts: Vec<Account>,
    /// Kernels with their launches, in the order of their numbers; "(other)" only if it was used.
    pub kernels: Vec<KernelSnapshot>,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Recording mode of launches, if the process reported it.
    pub kernels_mode: Option<KernelsMode>,
    /// Copies and memsets, by the ways that were used.
    pub copies: Vec<Copies>,
    /// Timed launches whose time was lost.
    pub timings_lost: u64,
    /// Time that the host spent on timing launches, ns.
    pub timing_cost_ns: u64,
    /// Effect of the job's launch budget.
    pub throttled: Throttled,
    /// Failed requests in all.
    pub failures: u64,
    /// The first ones.
    pub first_failures: Vec<FailedRequest>,
    /// The last ones, without those in `first_failures`, oldest first.
    pub last_failures: Vec<FailedRequest>,
    /// Bypasses by reason, where there are any.
    pub bypasses: Vec<(Bypass, u64)>,
    /// Calls by entry point, by id in the driver's table, where there are any.
    pub calls: Vec<(u16, u64)>,
    /// Events begun.
    pub events: u64,
    /// Events that found no place.
    pub events_dropped: u64,
}

impl ProcessSnapshot {
    /// Launches of kernels, those in graphs not counted.
    pub fn launches(&self) -> u64 {
        self.kernels.iter().fold(0, |sum, kernel| sum.saturating_add(kernel.launches))
    }

    /// Returns true if the process is running.
    pub fn is_running(&self) -> bool {
        self.slot.liveness == Liveness::Running
    }
}

impl Segment {
    /// All processes of the job, also those that are gone. A slot that cannot be read is left out.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn processes(&self) -> Result<Vec<ProcessSnapshot>, SegmentError> {
        self.processes_by(&mut Budget::default())
    }

    /// The same, in so much processor time at most: for one who has others' segments to read, too. `clock` gives the
    /// processor time that this thread has taken.
    ///
    /// # Errors
    ///
    /// [`SegmentError::TooLong`] where it takes longer; as [`Segment::processes`].
    pub fn processes_within(
        &self,
        time: Duration,
        clock: fn() -> Duration,
    ) -> Result<Vec<ProcessSnapshot>, SegmentError> {
        self.processes_by(&mut Budget { until: Some((clock() + time, clock)), ..Budget::default() })
    }

    fn processes_by(&self, budget: &mut Budget) -> Result<Vec<ProcessSnapshot>, SegmentError> {
        let mut found = Vec::new();
        for slot in self.slots()? {
            found.extend(self.process_within(&slot, budget).ok().flatten());
            if budget.is_over() {
                return Err(SegmentError::TooLong);
            }
        }
        Ok(found)
    }

    /// One process. `None` if its slot has gone to another process meanwhile.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn process(&self, slot: &SlotInfo) -> Result<Option<ProcessSnapshot>, SegmentError> {
        self.process_within(slot, &mut Budget::default())
    }

    fn process_within(
        &self,
        slot: &SlotInfo,
        budget: &mut Budget,
    ) -> Result<Option<ProcessSnapshot>, SegmentError> {
        if slot.slot >= SLOTS || !budget.read(BASE_BYTES) {
            return Ok(None);
        }
        let at = slot_at(slot.slot);
        let base = self.words(at, BASE_BYTES)?;
        let head = |offset: usize| base.at(offset);
        let Lanes { mut kernels, graphs, counts } = self.lanes(at, &base, budget)?;
        self.name_kernels(at, &base, &mut kernels, budget)?;
        self.time_kernels(at, &base, &mut kernels)?;
        let (first_failures, last_failures) = failures(&base);
        let exe_len = (head(offset_of!(SlotHead, exe_len)) as usize).min(TEXT_BYTES);
        let cmdline_len = (head(offset_of!(SlotHead, cmdline_len)) as usize).min(TEXT_BYTES);
        let cmdline = base.bytes(offset_of!(SlotBase, cmdline), cmdline_len);
        let cmdline = cmdline.strip_suffix(&[0]).unwrap_or(&cmdline);
        let counters = |at: usize, n: usize| {
            (0..n)
                .map(move |i| (i, at + i * 8))
                .map(|(i, at)| (i, base.at(at)))
                .filter(|(_, count)| *count > 0)
        };
        let snapshot = ProcessSnapshot {
            slot: *slot,
            ppid: head(offset_of!(SlotHead, ppid)) as u32,
            uid: head(offset_of!(SlotHead, uid)) as u32,
            exe: String::from_utf8_lossy(&base.bytes(offset_of!(SlotBase, exe), exe_len)).into_owned(),
            cmdline: if cmdline.is_empty() {
                Vec::new()
            } else {
                let words = cmdline.split(|byte| *byte == 0);
                words
                    .take_while(|_| budget.keep(size_of::<String>()))
                    .map(|arg| String::from_utf8_lossy(arg).into_owned())
                    .collect()
            },
            joined_ns: head(offset_of!(SlotHead, joined_ns)),
            ended_ns: Some(head(offset_of!(SlotHead, ended_ns))).filter(|ns| *ns > 0),
            driver_version: Some(head(offset_of!(SlotHead, driver_version)) as u32).filter(|v| *v > 0),
            frameworks: head(offset_of!(SlotHead, frameworks)),
            accounts: counts
                .iter()
                .enumerate()
                .filter_map(|(gpu, counts)| account(&base, gpu, counts))
                .collect(),
            kernels: kernels.into_values().collect(),
            graph_launches: graphs,
            kernels_mode: KernelsMode::from_raw(head(offset_of!(SlotHead, kernels_mode))),
            copies: copies(&base),
            timings_lost: head(offset_of!(SlotHead, timing)),
            timing_cost_ns: head(offset_of!(SlotHead, timing) + 8),
            throttled: Throttled::of(base.array(offset_of!(SlotHead, budget))),
            failures: head(offset_of!(SlotHead, failures)),
            first_failures,
            last_failures,
            bypasses: counters(offset_of!(SlotHead, bypass), BYPASSES)
                .filter_map(|(i, count)| Some((Bypass::from_raw(i as u8)?, count)))
                .collect(),
            calls: counters(offset_of!(SlotBase, entries), ENTRIES)
                .map(|(i, count)| (i as u16, count))
                .collect(),
            events: head(offset_of!(SlotHead, ring_head)),
            events_dropped: head(offset_of!(SlotHead, ring_dropped)),
        };
        let still = self.slot(slot.slot).is_some_and(|now| now.generation == slot.generation);
        Ok(still.then_some(snapshot))
    }

    /// The device total now of each GPU on which a process has anything: cheap, for polls.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn totals(&self, slot: &SlotInfo) -> Result<Vec<(GpuIndex, u64)>, SegmentError> {
        if slot.slot >= SLOTS {
            return Ok(Vec::new());
        }
        let at = slot_at(slot.slot) + offset_of!(SlotBase, accounts) as u64;
        let words = self.words(at, (GPUS * size_of::<AccountCell>()) as u64)?;
        let total = |gpu: usize| {
            let total = words.at(gpu * size_of::<AccountCell>() + offset_of!(AccountCell, total_now));
            Some((GpuIndex::from_number(gpu)?, total)).filter(|(_, total)| *total > 0)
        };
        Ok((0..GPUS).filter_map(total).collect())
    }

    /// Bytes of the GPU's and of managed memory that a process holds now, by the number of the GPU: cheap, for polls.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn held(&self, slot: &SlotInfo) -> Result<Vec<(u64, u64)>, SegmentError> {
        let at = slot_at(slot.slot.min(SLOTS - 1)) + offset_of!(SlotBase, accounts) as u64;
        let words = self.words(at, (GPUS * size_of::<AccountCell>()) as u64)?;
        let held = |gpu: usize| {
            let word = |offset: usize| words.at(gpu * size_of::<AccountCell>() + offset);
            let managed = offset_of!(AccountCell, now) + Kind::Managed as usize * 8;
            (word(offset_of!(AccountCell, total_now)), word(managed))
        };
        Ok((0..GPUS).map(held).collect())
    }

    /// Sums the lanes.
    fn lanes(&self, at: u64, base: &Words, budget: &mut Budget) -> Result<Lanes, SegmentError> {
        let mut sums = Lanes::default();
        let Lanes { kernels, graphs, counts } = &mut sums;
        for lane in 0..=LANES {
            let rows = base.at(offset_of!(SlotHead, lane_rows) + lane * 8).min(KERNELS as u64);
            if rows == 0 {
                continue;
            }
            let (at, bytes) = (at + LANES_AT + lane as u64 * LANE_BYTES, LANE_COUNTS_BYTES + rows * 64);
            if !budget.read(bytes) {
                break;
            }
            let words = self.words(at, bytes)?;
            for (gpu, of_gpu) in counts.iter_mut().enumerate() {
                for (kind, sum) in of_gpu.iter_mut().enumerate() {
                    let [allocs, frees] = words.array((gpu * COUNTED_KINDS + kind) * size_of::<KindCounts>());
                    *sum = (sum.0.wrapping_add(allocs), sum.1.wrapping_add(frees));
                }
            }
            for row in 0..rows as usize {
                let [launches, blocks, threads, dynamic, graph_launches, graph_blocks, graph_threads, last] =
                    words.array(LANE_COUNTS_BYTES as usize + row * 64);
                if row == 0 {
                    *graphs = graphs.wrapping_add(last);
                }
                if launches == 0 && graph_launches == 0 {
                    continue;
                }
                let sum = kernels.entry(row as u16).or_default();
                for (sum, more) in [
                    (&mut sum.launches, launches),
                    (&mut sum.blocks, blocks),
                    (&mut sum.threads, threads),
                    (&mut sum.dynamic_shared_bytes, dynamic),
                    (&mut sum.graph_launches, graph_launches),
                    (&mut sum.graph_blocks, graph_blocks),
                    (&mut sum.graph_threads, graph_threads),
                ] {
                    *sum = sum.wrapping_add(more);
                }
            }
        }
        Ok(sums)
    }

    /// Adds names and attributes, and the kernels that have not been launched.
    fn name_kernels(
        &self,
        at: u64,
        base: &Words,
        kernels: &mut BTreeMap<u16, KernelSnapshot>,
        budget: &mut Budget,
    ) -> Result<(), SegmentError> {
        for (id, kernel) in kernels.iter_mut() {
            kernel.id = *id;
            if *id == 0 {
                kernel.name = "(other)".to_owned();
            }
        }
        let pieces = base.at(offset_of!(SlotHead, kernel_pages)).min(1 + KERNELS_BYTES / HASHES_BYTES);
        let Some(bytes) = pieces.checked_sub(1).map(|pieces| pieces * HASHES_BYTES) else { return Ok(()) };
        let used = base.at(offset_of!(SlotHead, names_used)).min(NAMES_BYTES).next_multiple_of(8);
        if !budget.read(bytes + used) {
            return Ok(());
        }
        let words = self.words(at + KERNELS_AT, bytes)?;
        let names = self.words(at + NAMES_AT, used)?;
        for id in 1..(bytes / 64) as usize {
            let at = id * 64;
            if words.at(at + offset_of!(KernelCell, ready)) != 1 {
                continue;
            }
            let length = words.at(at + offset_of!(KernelCell, name_len));
            let kept = (length & (TRUNCATED - 1)).min(KERNEL_NAME_BYTES as u64) as usize;
            let name_at = words.at(at + offset_of!(KernelCell, name_at)).min(NAMES_BYTES) as usize;
            if !budget.keep(size_of::<KernelSnapshot>() + kept) {
                break;
            }
            let kernel = kernels.entry(id as u16).or_default();
            kernel.id = id as u16;
            kernel.name = String::from_utf8_lossy(&names.bytes(name_at, kept)).into_owned();
            kernel.truncated = length & TRUNCATED != 0;
            kernel.attributes = KernelAttributes {
                registers: words.at(at + offset_of!(KernelCell, registers)) as u32,
                static_shared_bytes: words.at(at + offset_of!(KernelCell, static_shared)) as u32,
                local_bytes: words.at(at + offset_of!(KernelCell, local_bytes)) as u32,
                max_threads: words.at(at + offset_of!(KernelCell, max_threads)) as u32,
            };
        }
        Ok(())
    }

    /// The `n` largest live blocks of a process, largest first. Reads the whole table: not for every poll.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn largest_blocks(&self, slot: usize, n: usize) -> Result<Vec<LiveBlock>, SegmentError> {
        let mut largest = BinaryHeap::new();
        self.each_block(slot, |block| {
            largest.push(Reverse((
                block.block.bytes,
                Reverse(block.key),
                block.block.ns,
                block.block.pack(),
                block.block.aux,
            )));
            if largest.len() > n {
                largest.pop();
            }
        })?;
        // Ascending order of the reversed is descending.
        let sorted = largest.into_sorted_vec();
        let block = |Reverse((_, Reverse(key), ns, what, aux))| {
            Some(LiveBlock { key, block: Block::unpack(what, ns, aux)? })
        };
        Ok(sorted.into_iter().filter_map(block).collect())
    }

    /// Calls `visit` for every live block of a process. Of a running process, blocks that come or go meanwhile
    /// may be seen or not.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn each_block(&self, slot: usize, mut visit: impl FnMut(LiveBlock)) -> Result<(), SegmentError> {
        if slot >= SLOTS {
            return Ok(());
        }
        /// Bytes copied at a time: small enough for the cache, large enough for few calls.
        const STEP: u64 = 256 << 10;
        let at = slot_at(slot);
        let levels = self.word(at + offset_of!(SlotHead, levels) as u64).unwrap_or(0).min(LEVELS as u64);
        for level in 0..levels as usize {
            let bytes = level_buckets(level) as u64 * 256;
            for from in (0..bytes).step_by(STEP as usize) {
                let place = at + level_at(level) + from;
                let step = STEP.min(bytes - from);
                let words = self.words(place, step)?;
                for bucket in 0..(step / 256) as usize {
                    let keys: [u64; BUCKET_KEYS] = words.array(bucket * 256);
                    if keys == [0; BUCKET_KEYS] {
                        continue;
                    }
                    for (number, raw) in keys.into_iter().enumerate() {
                        let [what, ns, aux] =
                            words.array(bucket * 256 + 64 + number * size_of::<BlockCell>());
                        if let (Some(key), Some(block)) =
                            (BlockKey::from_raw(raw), Block::unpack(what, ns, aux))
                        {
                            visit(LiveBlock { key, block });
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Budget of one look at a job. Its processes write its segment, and one of them could write that there are 1,024
/// with all tables full; what is left out is that of the last slots.
struct Budget {
    read: u64,
    kept: usize,
    /// Processor time of this thread at which the look is given up, and its clock.
    until: Option<(Duration, fn() -> Duration)>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { read: MAX_READ, kept: MAX_KEPT, until: None }
    }
}

impl Budget {
    /// Returns true if the time is over.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|(until, clock)| clock() >= until)
    }

    /// Returns true if so many bytes more may be read.
    fn read(&mut self, bytes: u64) -> bool {
        if self.is_over() {
            return false;
        }
        let left = self.read.checked_sub(bytes);
        self.read = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns true if so many bytes more may be kept.
    fn keep(&mut self, bytes: usize) -> bool {
        let left = self.kept.checked_sub(bytes);
        self.kept = left.unwrap_or(0);
        left.is_some()
    }
}

/// Sums of what the threads of a process have counted.
#[derive(Default)]
struct Lanes {
    /// Launches by kernel.
    kernels: BTreeMap<u16, KernelSnapshot>,
    /// Launches of graphs.
    graphs: u64,
    /// Allocations and releases by GPU and kind.
    counts: [[(u64, u64); KIND_COUNT]; GPUS],
}

/// Reads one account, to which `counts` belong; `None` if nothing was counted there.
fn account(base: &Words, gpu: usize, counts: &[(u64, u64); KIND_COUNT]) -> Option<Account> {
    let at = offset_of!(SlotBase, accounts) + gpu * size_of::<AccountCell>();
    let word = |offset: usize| base.at(at + offset);
    let mut kinds = [KindFigures::default(); KIND_COUNT];
    for (number, (kind, counts)) in kinds.iter_mut().zip(counts).enumerate() {
        let [allocs, frees] =
            base.array(at + offset_of!(AccountCell, counts) + number * size_of::<KindCounts>());
        *kind = KindFigures {
            now: word(offset_of!(AccountCell, now) + number * 8),
            peak: word(offset_of!(AccountCell, peak) + number * 8),
            allocs: allocs.wrapping_add(counts.0),
            frees: frees.wrapping_add(counts.1),
        };
    }
    let snapshot = at + offset_of!(AccountCell, at_peak);
    let at_peak: [u64; KIND_COUNT] = base.array(snapshot + offset_of!(PeakCell, kinds));
    let of_total = base.at(snapshot + offset_of!(PeakCell, total));
    let sum = Kind::ALL
        .iter()
        .zip(at_peak)
        .filter(|(kind, _)| kind.in_total())
        .fold(0u64, |sum, (_, bytes)| sum.wrapping_add(bytes));
    let total = word(offset_of!(AccountCell, total_peak));
    let writing = base.at(snapshot + offset_of!(PeakCell, seq)) & 1 == 1;
    let account = Account {
        gpu: GpuIndex::from_number(gpu)?,
        total_now: word(offset_of!(AccountCell, total_now)),
        peak: Peak {
            total,
            ns: base.at(snapshot + offset_of!(PeakCell, ns)),
            kinds: at_peak,
            approximate: writing || of_total != total || sum != total,
        },
        kinds,
        failed: word(offset_of!(AccountCell, failed)),
        granted_since_refusal: word(offset_of!(AccountCell, granted_at_refusal)).checked_sub(1).map(|then| {
            let of_gpu = Kind::ALL.iter().zip(&kinds).filter(|(kind, _)| kind.is_of_gpu());
            of_gpu.fold(0u64, |sum, (_, figures)| sum.wrapping_add(figures.allocs)).saturating_sub(then)
        }),
        contexts: word(offset_of!(AccountCell, contexts)),
        timed_span_ns: word(offset_of!(AccountCell, timed_span_ns)),
    };
    let used =
        account.kinds != [KindFigures::default(); KIND_COUNT] || account.failed > 0 || account.contexts > 0;
    used.then_some(account)
}

/// The first and the last failed requests.
fn failures(base: &Words) -> (Vec<FailedRequest>, Vec<FailedRequest>) {
    let list = |at: usize| {
        let cell = move |number: usize| {
            let [seq, words @ ..]: [u64; 8] = base.array(at + number * 64);
            (seq > 0 && seq.is_multiple_of(2)).then_some(())?;
            Some((seq, FailedRequest::unpack(words)?))
        };
        (0..FAILURE_CELLS).filter_map(cell).enumerate().map(|(i, (seq, it))| (seq, i, it))
    };
    let first = list(offset_of!(SlotBase, first_failures)).map(|(_, _, it)| it).collect();
    // By lap, then by place: the order of the tickets.
    let mut last: Vec<_> = list(offset_of!(SlotBase, last_failures)).collect();
    last.sort_by_key(|(seq, place, _)| (*seq, *place));
    (first, last.into_iter().map(|(_, _, it)| it).collect())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SegmentFile;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_segment_whose_tables_are_all_full_is_given_up_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let made = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
        let segment = made.segment().unwrap();
        let file = std::fs::File::options().write(true).open(made.path()).unwrap();
        let own = crate::process::own().unwrap();
        let rows = [KERNELS as u64; LANES + 1].map(u64::to_ne_bytes).concat();
        for slot in 0..SLOTS {
            let state = SlotState::new(SlotState::LIVE, 1, std::process::id()).0;
            let words = [state, own.start].map(u64::to_ne_bytes).concat();
            file.write_all_at(&words, entry_at(slot)).unwrap();
            file.write_all_at(&rows, slot_at(slot) + offset_of!(SlotHead, lane_rows) as u64).unwrap();
        }
        /// A millisecond later at each look.
        fn clock() -> Duration {
            static LOOKS: AtomicU64 = AtomicU64::new(0);
            Duration::from_millis(LOOKS.fetch_add(1, Ordering::Relaxed))
        }
        let within = |time| segment.processes_within(time, clock);
        assert!(matches!(within(Duration::from_millis(50)), Err(SegmentError::TooLong)));
        // One without such tables is read.
        let other = SegmentFile::create_in(&dir.path().join("r"), 8).unwrap().segment().unwrap();
        assert_eq!(other.processes_within(Duration::from_secs(60), clock).unwrap(), []);
    }
}
