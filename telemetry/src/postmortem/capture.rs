//! Writing a post-mortem. Cold, and bounded in time; makes system calls, allocates nothing.
//!
//! Everything is put together in the post-mortem itself, so that little of the program's stack is needed.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::*;
use crate::QuotaRefusal;
use crate::blocks::{Block, BlockKey};
use crate::gpu_index::GpuIndex;
use crate::kind::EndReason;
use crate::layout::*;
use crate::pids::PidView;
use crate::process;
use crate::stacks::SiteId;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::fence;
use crate::sys;
use crate::writer::Writer;
use rustix::fd::OwnedFd;
use std::mem::offset_of;

/// Buckets of the block table that are read whatever the clock says: 57,000 blocks.
const MIN_BUCKETS: usize = 8192;
/// Buckets between two readings of the clock.
const BUCKETS_PER_CLOCK: usize = 256;
/// Time limit of the search for the largest blocks, ns; checked only after [`MIN_BUCKETS`].
const BLOCKS_NS: u64 = 3_000_000;
/// Processes that are read whatever the clock says.
const MIN_OTHERS: usize = 64;
/// Time limit of reading other processes, ns; checked only after [`MIN_OTHERS`].
const OTHERS_NS: u64 = 2_000_000;
/// A later refusal is written down if so many times as long as writing took have passed since the one before.
const MIN_REST: u64 = 100;
/// Writing is taken to take at least this long, ns.
const MIN_TOOK_NS: u64 = 100_000;

/// A post-mortem that is being written.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'c> {
    cell: &'c PostmortemCell,
    refusal: Option<QuotaRefusal>,
}

impl Draft<'_> {
    /// Returns true if the largest holders under this limit are wanted: those of the limit that refused.
    pub fn wants_holders(&self, quota: QuotaRefusal) -> bool {
        self.refusal.is_some_and(|r| (r.scope, r.limit) == (quota.scope, quota.limit))
    }

    /// Notes a limit that the request had to fit under.
    pub fn quota(&self, quota: QuotaRefusal) {
        let words = [quota.scope as u64, quota.limit, quota.used];
        // Scopes begin at 1: a place with a 0 is free.
        let free = self.cell.quotas.iter().find(|[scope, ..]| scope.load(Relaxed) == 0);
        for (to, word) in free.into_iter().flatten().zip(words) {
            to.store(word, Relaxed);
        }
    }

    /// Notes what a process has reserved under the limit that refused.
    pub fn holder(&self, pid: u32, bytes: u64) {
        self.cell.holders.offer([bytes, pid.into()]);
    }
}

impl Writer {
    /// Writes down the memory holders on the GPU of a refused request, if it is the first one there or the first in
    /// a while, and counts it by its cause if it is not the first. `site`: who asked. `ledgers` adds what stands in ledgers.
    ///
    /// Cold: takes up to some milliseconds. Leaves `errno` alone.
    pub fn postmortem(&self, request: &FailedRequest, site: SiteId, ledgers: impl FnOnce(&Draft<'_>)) {
        let gpu = usize::from(request.gpu.number());
        let Some(account) = self.base().accounts.get(gpu) else { return };
        // One piece: the first and the latest.
        if !self.grow_upto(&account.postmortems, postmortem_at(gpu, false), POSTMORTEMS_BYTES, 1) {
            return;
        }
        // SAFETY: both are allocated (just above) and lie inside the slot's mapping; atomics only.
        let [first, latest] = unsafe { self.at::<[PostmortemCell; 2]>(postmortem_at(gpu, false)).as_ref() };
        if first.seq.load(Relaxed) == 0 && first.begin(0) {
            self.fill(first, request, account, ledgers);
            return;
        }
        first.count(request);
        // Acquire: pairs with the Release in `finish`. One that another thread is writing is of this moment.
        if first.seq.load(Acquire) & 1 == 1 {
            return;
        }
        let seq = latest.seq.load(Acquire);
        let before = if seq == 0 { first } else { latest };
        let took = before.took_ns.load(Relaxed).max(MIN_TOOK_NS);
        let [ns, ..] = &before.request;
        let due = ns.load(Relaxed).saturating_add(took.saturating_mul(MIN_REST));
        if seq & 1 == 0 && request.ns >= due && latest.begin(seq) {
            self.refused_latest(site, request);
            self.fill(latest, request, account, ledgers);
        }
    }

    /// Fills a post-mortem that was begun.
    fn fill(
        &self,
        cell: &PostmortemCell,
        request: &FailedRequest,
        account: &AccountCell,
        ledgers: impl FnOnce(&Draft<'_>),
    ) {
        for (to, word) in cell.request.iter().zip(request.pack()) {
            to.store(word, Relaxed);
        }
        // What changes fastest comes first, and what takes longest last.
        for (to, now) in cell.kinds.iter().zip(&account.now) {
            to.store(now.load(Relaxed), Relaxed);
        }
        ledgers(&Draft { cell, refusal: request.quota });
        let mut flags = self.others(cell, request.gpu);
        flags |= self.largest(cell, request);
        cell.flags.store(flags, Relaxed);
        cell.took_ns.store(self.now().saturating_sub(request.ns), Relaxed);
        cell.finish();
    }

    /// Lists the largest blocks on the request's GPU.
    fn largest(&self, cell: &PostmortemCell, request: &FailedRequest) -> u64 {
        let until = self.now().saturating_add(BLOCKS_NS);
        let is_host = request.kind == Kind::PinnedHost;
        let wanted = |block: &Block| {
            block.gpu == request.gpu
                && block.kind != Kind::Imported
                && (block.kind == Kind::PinnedHost) == is_host
        };
        // Acquire: pairs with the Release with which a level is published.
        let levels = (self.base().head.levels.load(Acquire) as usize).min(LEVELS);
        let (mut read, mut threshold) = (0usize, 0);
        for level in 0..levels {
            let table = self.at::<BlockBucket>(level_at(level));
            for index in 0..level_buckets(level) {
                read += 1;
                if read > MIN_BUCKETS && read.is_multiple_of(BUCKETS_PER_CLOCK) && self.now() > until {
                    return BLOCKS_CUT;
                }
                // SAFETY: the level is in use, so mapped and allocated, and has more buckets than `index`;
                // atomics only.
                let bucket = unsafe { table.add(index).as_ref() };
                for (key, block) in bucket.keys.iter().zip(&bucket.blocks) {
                    let Some((key, block)) = stable(key, block).filter(|(_, block)| wanted(block)) else {
                        continue;
                    };
                    if threshold > 0 && block.bytes <= threshold {
                        cell.blocks.left_out(block.bytes);
                    } else {
                        threshold = cell.blocks.offer([block.bytes, key, block.pack(), block.ns]);
                    }
                }
            }
        }
        0
    }

    /// Lists the other processes of the job that hold most of a GPU, as their slots say.
    fn others(&self, cell: &PostmortemCell, gpu: GpuIndex) -> u64 {
        let Ok(segment) = self.reopen() else { return OTHERS_UNKNOWN };
        let until = self.now().saturating_add(OTHERS_NS);
        let area = self.area();
        let used = area.header.next_slot.load(Relaxed).min(SLOTS as u64) as usize;
        let slots = area.directory.iter().enumerate().take(used).filter(|(slot, _)| *slot != self.slot());
        let (pids, launchers) = (PidView::now(), area.header.namespace.load(Relaxed));
        let (mut read, mut threshold) = (0, 0);
        for (slot, entry) in slots {
            // Acquire: pairs with the Release with which a slot is published.
            let state = SlotState(entry.state.load(Acquire));
            if !may_hold(&segment, slot, state) {
                continue;
            }
            read += 1;
            if read > MIN_OTHERS && self.now() > until {
                return OTHERS_CUT;
            }
            let Some((bytes, kinds)) = holds(&segment, slot, gpu) else { continue };
            let namespace = SlotNamespace(entry.namespace.load(Relaxed)).inode().unwrap_or(launchers);
            let lives = |exactly: bool| match namespace == 0 || pids.sees(namespace) {
                true if exactly => process::is_running(state.pid(), entry.start.load(Relaxed)),
                true => sys::process_exists(state.pid()),
                // As far as can be known, until the launcher has saved it.
                false => entry.harvested.load(Relaxed) != u64::from(state.generation()),
            };
            // Whether a process lives takes longer to find out than the rest together.
            if threshold > 0 && bytes <= threshold {
                if lives(false) {
                    cell.others.left_out(bytes);
                }
            } else if lives(true) {
                let owner = (slot as u64) << 32 | u64::from(state.generation());
                let mut words = [0; OTHER_WORDS];
                for (to, word) in
                    words.iter_mut().zip([bytes, owner, state.pid().into()].into_iter().chain(kinds))
                {
                    *to = word;
                }
                threshold = cell.others.offer(words);
            }
        }
        0
    }
}

/// Key and block of an entry, if it did not change meanwhile.
fn stable(place: &AtomicU64, cell: &BlockCell) -> Option<(u64, Block)> {
    // Acquire: pairs with the Release that publishes the entry.
    let key = place.load(Acquire);
    BlockKey::from_raw(key)?;
    let block = Block::unpack(cell.what.load(Relaxed), cell.ns.load(Relaxed), cell.aux.load(Relaxed))?;
    // Pairs with the Release with which an entry is changed: a change is seen below.
    fence(Acquire);
    (place.load(Relaxed) == key).then_some((key, block))
}

/// Returns true if the process of a slot can hold memory: it has joined, and if it has left, then not for another
/// program.
fn may_hold(segment: &OwnedFd, slot: usize, state: SlotState) -> bool {
    match state.state() {
        SlotState::LIVE => true,
        SlotState::ENDED => {
            let at = slot_at(slot) + offset_of!(SlotHead, end_reason) as u64;
            let mut word = [0; 8];
            sys::read_at(segment, at, &mut word).is_ok()
                && u64::from_ne_bytes(word) == EndReason::Exited as u64
        }
        _ => false,
    }
}

/// Returns the bytes that the process of a slot holds of a GPU, managed memory included, and the same by kind; `None`
/// if it holds nothing.
fn holds(segment: &OwnedFd, slot: usize, gpu: GpuIndex) -> Option<(u64, [u64; KIND_COUNT])> {
    let account = offset_of!(SlotBase, accounts) + usize::from(gpu.number()) * size_of::<AccountCell>();
    let at = slot_at(slot) + (account + offset_of!(AccountCell, now)) as u64;
    let mut bytes = [0u8; KIND_COUNT * 8];
    sys::read_at(segment, at, &mut bytes).ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    let now = |kind: usize| words.get(kind).map_or(0, |word| u64::from_ne_bytes(*word));
    let kinds: [u64; KIND_COUNT] = std::array::from_fn(now);
    let held = Kind::ALL.iter().zip(kinds).filter(|(kind, _)| kind.in_quota());
    let sum = held.fold(0u64, |sum, (_, bytes)| sum.saturating_add(bytes));
    (sum > 0).then_some((sum, kinds))
}

impl PostmortemCell {
    /// Makes the post-mortem the caller's, and empty.
    fn begin(&self, seq: u64) -> bool {
        // Acquire: pairs with the Release in `finish`, so that an earlier writer's stores are not ordered after.
        if self.seq.compare_exchange(seq, seq.wrapping_add(1), AcqRel, Relaxed).is_err() {
            return false;
        }
        // A reader that sees one of the words sees the odd number too.
        fence(Release);
        self.flags.store(0, Relaxed);
        self.quotas.iter().flatten().for_each(|word| word.store(0, Relaxed));
        self.holders.clear();
        self.blocks.clear();
        self.others.clear();
        true
    }

    fn finish(&self) {
        // Pairs with the reader, which takes an even number for a complete one.
        self.seq.fetch_add(1, Release);
    }

    /// Counts a later refusal.
    fn count(&self, request: &FailedRequest) {
        if let Some(count) = self.later.get(Cause::of(request) as usize) {
            count.fetch_add(1, Relaxed);
        }
        let [largest, smallest] = &self.later_sizes;
        largest.fetch_max(request.bytes, Relaxed);
        smallest.fetch_max(!request.bytes, Relaxed);
        self.later_ns.fetch_max(request.ns, Relaxed);
    }
}
