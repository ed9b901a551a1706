//! The writer's side: what the shim calls from inside a program.
//!
//! Nothing here allocates, locks or panics. Only `join`, `gpu`, `kernel`, `lane` and the growth of a table
//! make system calls.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::blocks::BlockTable;
use crate::event::Event;
use crate::failures::{self, FailedRequest};
use crate::gpu_index::GpuIndex;
use crate::kernels::{self, KernelAttributes, KernelId, Place};
use crate::kind::{Bypass, EndReason};
use crate::lanes::{self, Lane};
use crate::layout::*;
use crate::ring::Ring;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sys;
use radrm_base::Kind;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr::NonNull;

mod charging;
mod own;
mod timeline;

pub(crate) use charging::Change;
pub use own::OwnMemory;

/// Bytes kept of the segment's path, for kernels that can only allocate through an open file.
const PATH_BYTES: usize = 256;

/// A process's place in a segment.
///
/// Plain data without a destructor: it may lie in memory that is never dropped, and be used from any thread.
/// It belongs to the process that joined; a forked child joins anew.
#[derive(Clone, Copy)]
pub struct Writer {
    area: NonNull<HeaderArea>,
    slot: NonNull<u8>,
    origin: u64,
    index: u16,
    steady: bool,
    pub(crate) records_stacks: bool,
    generation: u32,
    file: (u64, u64),
    path: [u8; PATH_BYTES],
}

// SAFETY: the pointers lead to mappings that are never removed, and everything there is an atomic.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

impl Writer {
    /// A writer over mappings of the header area and of one slot, whose base is allocated.
    pub(crate) fn over(
        area: NonNull<HeaderArea>,
        slot: NonNull<u8>,
        index: usize,
        generation: u32,
        file: (u64, u64),
        at: &CStr,
    ) -> Self {
        let mut path = [0; PATH_BYTES];
        // A path that does not fit whole, with its final zero, is not kept.
        if at.count_bytes() < PATH_BYTES {
            for (to, from) in path.iter_mut().zip(at.to_bytes()) {
                *to = *from;
            }
        }
        // SAFETY: `area` leads to a mapped header area.
        let origin = unsafe { area.as_ref() }.header.created_mono_ns.load(Relaxed);
        let steady = sys::ticks_are_steady();
        Self {
            area,
            slot,
            origin,
            index: index as u16,
            steady,
            records_stacks: false,
            generation,
            file,
            path,
        }
    }

    #[inline]
    pub(crate) fn area(&self) -> &HeaderArea {
        // SAFETY: mapped by `join` and never unmapped; atomics only.
        unsafe { self.area.as_ref() }
    }

    #[inline]
    pub(crate) fn base(&self) -> &SlotBase {
        // SAFETY: the base of the slot is mapped and allocated by `join`; atomics only.
        unsafe { self.slot.cast::<SlotBase>().as_ref() }
    }

    /// An address in the slot.
    #[inline]
    pub(crate) fn at<T>(&self, offset: u64) -> NonNull<T> {
        // SAFETY: all offsets used are constants of the layout or bounded by them, so inside the mapping
        // of SLOT_STRIDE bytes.
        unsafe { self.slot.add(offset as usize) }.cast()
    }

    /// Number of the slot.
    pub fn slot(&self) -> usize {
        self.index.into()
    }

    /// Generation of the slot.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Time since the segment was made, ns of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn now(&self) -> u64 {
        self.base().head.clock.now(self.origin, self.steady)
    }

    /// A time of `CLOCK_MONOTONIC` in ns as [`Writer::now`] gives it.
    pub fn at_monotonic(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.origin)
    }

    // ---- GPUs -------------------------------------------------------------------------------------

    /// The job-wide index of a GPU, by its uuid. `None` if the segment's table is full (counted).
    ///
    /// `name` and `pci` are cut to 64 and 32 bytes. Cold.
    pub fn gpu(&self, uuid: &[u8; 16], name: &[u8], total_bytes: u64, pci: &[u8]) -> Option<GpuIndex> {
        let (words, _) = uuid.as_chunks::<8>();
        let tag = kernels::hash(uuid, &KernelAttributes::default());
        for (number, cell) in self.area().gpus.iter().enumerate() {
            // Acquire/Release: a thread that finds the tag with `ready` set sees the whole record.
            let seen = match cell.tag.compare_exchange(0, tag, AcqRel, Acquire) {
                Ok(_) => tag,
                Err(seen) => seen,
            };
            if seen != tag {
                continue;
            }
            // The process that set the tag may have died before it wrote the rest: all write the same.
            if cell.ready.load(Acquire) == 0 {
                for (place, word) in cell.uuid.iter().zip(words) {
                    place.store(u64::from_ne_bytes(*word), Relaxed);
                }
                store_text(&cell.name, name);
                store_text(&cell.pci, pci);
                cell.total_bytes.store(total_bytes, Relaxed);
                cell.ready.store(1, Release);
            }
            return GpuIndex::from_number(number);
        }
        self.bypass(Bypass::GpuTableFull);
        None
    }

    #[inline]
    pub(crate) fn account(&self, gpu: GpuIndex) -> Option<&AccountCell> {
        self.base().accounts.get(usize::from(gpu.number()))
    }

    /// Counts a context that came (`true`) or went.
    pub fn context(&self, gpu: GpuIndex, came: bool) {
        let Some(account) = self.account(gpu) else { return };
        let update = account
            .contexts
            .fetch_update(Relaxed, Relaxed, |n| if came { n.checked_add(1) } else { n.checked_sub(1) });
        if update.is_err() {
            self.bypass(Bypass::Underflow);
        }
    }

    /// Counts and keeps a failed request.
    pub fn failed(&self, request: &FailedRequest) {
        if let Some(account) = self.account(request.gpu) {
            account.failed.fetch_add(1, Relaxed);
            if request.kind.is_of_gpu() {
                let (granted, _) = self.counted(request.gpu, Kind::is_of_gpu);
                account.granted_at_refusal.store(granted.wrapping_add(1), Relaxed);
            }
        }
        let base = self.base();
        let last = Ring::new(&base.head.failure_head, &base.head.failure_dropped, &base.last_failures);
        failures::record(&base.head.failures, &base.first_failures, &last, request);
    }

    /// The table of live blocks.
    #[inline]
    pub fn blocks(&self) -> BlockTable<'_> {
        BlockTable { writer: self }
    }

    /// Allocates a level of the block table.
    pub(crate) fn grow_blocks(&self, level: usize) -> bool {
        self.make_present(level_at(level), level_buckets(level) as u64 * 256)
    }

    // ---- launches ---------------------------------------------------------------------------------

    /// The number of a kernel; the same name and attributes give the same number. [`KernelId::OTHER`] if the
    /// table is full (counted). Cold: ask once per function and remember the answer.
    pub fn kernel(&self, name: &[u8], attributes: &KernelAttributes) -> KernelId {
        // The hashes and the records lie behind each other; pieces have the size of the hashes.
        let pieces = &self.base().head.kernel_pages;
        if !self.grow_upto(pieces, HASHES_AT, HASHES_BYTES, 1) {
            self.bypass(Bypass::KernelTableFull);
            return KernelId::OTHER;
        }
        // SAFETY: the hashes are allocated (just above); KERNELS words, atomics only.
        let hashes = unsafe { self.at::<[AtomicU64; KERNELS]>(HASHES_AT).as_ref() };
        match kernels::claim(hashes, kernels::hash(name, attributes)) {
            Place::Known(id) => id,
            Place::Full => {
                self.bypass(Bypass::KernelTableFull);
                KernelId::OTHER
            }
            Place::Claimed(id) => {
                let within = u64::from(id.0) * 64;
                if !self.grow_upto(pieces, HASHES_AT, HASHES_BYTES, 2 + within / HASHES_BYTES) {
                    return id; // counted, but without a name
                }
                let kept = kernels::kept(name);
                let at = KERNELS_AT + within;
                // SAFETY: the table is allocated, the number below KERNELS; atomics only.
                let cell = unsafe { self.at::<KernelCell>(at).as_ref() };
                let (name_at, len) = self.store_name(kept).map_or((0, 0), |at| (at, kept.len() as u64));
                cell.publish(name_at, len, len < name.len() as u64, attributes);
                id
            }
        }
    }

    /// Puts a name into the arena.
    fn store_name(&self, name: &[u8]) -> Option<u64> {
        let head = &self.base().head;
        let bytes = name.len().next_multiple_of(8) as u64;
        let at = head.names_used.fetch_add(bytes, Relaxed);
        let end = at.checked_add(bytes).filter(|end| *end <= NAMES_BYTES)?;
        let step = 16 * PAGE as u64;
        if !self.grow_upto(&head.names_ready, NAMES_AT, step, end.div_ceil(step)) {
            return None;
        }
        for (number, piece) in name.chunks(8).enumerate() {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(piece) {
                *to = *from;
            }
            // SAFETY: inside the arena (`end`), allocated; atomics only.
            let place = unsafe { self.at::<AtomicU64>(NAMES_AT + at + number as u64 * 8).as_ref() };
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
        Some(at)
    }

    /// A lane for the calling thread, whose id is `tid`. Cold: ask once per thread and keep it.
    pub fn lane(&self, tid: u32) -> Lane {
        let head = &self.base().head;
        let own = lanes::claim(&head.lane_owner, tid.into(), |tid| sys::thread_exists(tid as u32));
        let number = own.unwrap_or(LANES);
        if own.is_none() {
            self.bypass(Bypass::LaneShared);
        }
        // LANES + 1 words, and `number` is at most LANES.
        let ready = head.lane_rows.get(number).unwrap_or(&head.spare0);
        let lane = Lane {
            rows: self.at(LANES_AT + number as u64 * LANE_BYTES + LANE_COUNTS_BYTES),
            ready: NonNull::from(ready),
            number: number as u32,
            thread: tid,
            shared: own.is_none(),
        };
        self.grow_lane(&lane, LANE_GROWTH);
        lane
    }

    /// Makes the first `rows` rows of a lane present.
    pub(crate) fn grow_lane(&self, lane: &Lane, rows: usize) -> bool {
        let rows = rows.min(KERNELS) as u64;
        // SAFETY: `ready` leads into the slot's head.
        let ready = unsafe { lane.ready.as_ref() };
        let have = ready.load(Acquire);
        if have >= rows {
            return true;
        }
        let at = LANES_AT + u64::from(lane.number) * LANE_BYTES;
        // The counts come with the first rows.
        let start = if have == 0 { 0 } else { LANE_COUNTS_BYTES + have * 64 };
        if !self.make_present(at + start, LANE_COUNTS_BYTES + rows * 64 - start) {
            return false;
        }
        // Release: pairs with the Acquire in `Lane::has`.
        ready.fetch_max(rows, Release);
        true
    }

    // ---- the rest ---------------------------------------------------------------------------------

    /// Writes an event into the ring; if it finds no place it is counted as dropped.
    pub fn event(&self, event: &Event) {
        let base = self.base();
        Ring::new(&base.head.ring_head, &base.head.ring_dropped, &base.ring).push(event.pack());
    }

    /// Counts a bypass.
    #[cold]
    pub fn bypass(&self, reason: Bypass) {
        if let Some(count) = self.base().head.bypass.get(reason as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts a call of an entry point, by its id in the driver's table; those beyond [`ENTRIES`] are not counted.
    #[inline]
    pub fn call(&self, entry: u16) {
        if let Some(count) = self.base().entries.get(usize::from(entry)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Notes the driver's version as `cuDriverGetVersion` gives it.
    pub fn driver_version(&self, version: u32) {
        self.base().head.driver_version.store(version.into(), Relaxed);
    }

    /// Notes frameworks that were seen: bits of [`crate::framework`].
    pub fn framework(&self, bits: u64) {
        self.base().head.frameworks.fetch_or(bits, Relaxed);
    }

    /// Ends the slot. Figures stay, and calls that still come are still counted.
    pub fn leave(&self, reason: EndReason) {
        let head = &self.base().head;
        head.ended_ns.store(self.now(), Relaxed);
        head.end_reason.store(reason as u64, Relaxed);
        let Some(entry) = self.area().directory.get(self.slot()) else { return };
        let seen = SlotState(entry.state.load(Relaxed));
        if seen.state() == SlotState::LIVE && seen.generation() == self.generation {
            let ended = SlotState::new(SlotState::ENDED, seen.generation(), seen.pid());
            // Release: pairs with the reader, which sees the reason with the state.
            let _ = entry.state.compare_exchange(seen.0, ended.0, AcqRel, Relaxed);
        }
    }

    // ---- launch budgets ---------------------------------------------------------------------------

    /// Lays the segment's first page, in which the budget stands, over a page of the process at `at`, to be read
    /// there. The process is counted as one that follows budgets if that worked. `path` is what was joined. Cold.
    ///
    /// # Safety
    ///
    /// `at` is a page of the caller's own, of the kernel's size, which may be replaced for good: of its first bytes
    /// only atomic loads are made.
    pub unsafe fn follow_budget(&self, path: &CStr, at: NonNull<Header>) -> bool {
        let laid = sys::keep_errno(|| {
            let file = sys::open_ro(path)?;
            let stat = rustix::fs::fstat(&file)?;
            if (stat.st_dev, stat.st_ino) != self.file {
                return Err(Errno::STALE);
            }
            // SAFETY: the caller's contract.
            unsafe { sys::map_over(&file, at.cast(), PAGE) }
        });
        let [obeyed, ..] = &self.base().head.budget;
        obeyed.store(laid.is_ok().into(), Relaxed);
        laid.is_ok()
    }

    /// Sleeps until the word of the job's launch budget is set, or for so long (ns) at most; not at all if it is not
    /// `seen` any more. Signals end it early. `errno` is left alone.
    pub fn wait_for_budget(&self, seen: u64, ns: u64) {
        sys::wait_on(&self.area().header.budget, seen, ns);
    }

    /// Counts launches that were let through under a budget.
    pub fn passed(&self, launches: u64) {
        let [_, passed, ..] = &self.base().head.budget;
        passed.fetch_add(launches, Relaxed);
    }

    /// Counts a launch that has to wait.
    pub fn held(&self) {
        let [_, _, held, _] = &self.base().head.budget;
        held.fetch_add(1, Relaxed);
    }

    /// Adds to the time for which launches were held back.
    pub fn held_for(&self, ns: u64) {
        let [.., held_ns] = &self.base().head.budget;
        held_ns.fetch_add(ns, Relaxed);
    }

    /// The gate's word.
    pub fn gate(&self) -> &AtomicU64 {
        &self.area().header.gate.until
    }

    /// Sleeps until the gate is set anew, or for so long (ns) at most; not at all if it is not `seen` any more.
    pub fn wait_for_gate(&self, seen: u64, ns: u64) {
        sys::wait_on(self.gate(), seen, ns);
    }

    // ---- memory for tables ------------------------------------------------------------------------

    /// Makes the first `pieces` of a region present; `have` counts the ones that are.
    pub(crate) fn grow_upto(&self, have: &AtomicU64, at: u64, piece: u64, pieces: u64) -> bool {
        // Acquire and Release: a reader that sees the number sees the pages.
        let present = have.load(Acquire);
        if present >= pieces {
            return true;
        }
        let grown = self.make_present(at + present * piece, (pieces - present) * piece);
        if grown {
            have.fetch_max(pieces, Release);
        }
        grown
    }

    /// Allocates a range of the slot, so that touching it cannot fail. Leaves `errno` alone.
    pub(crate) fn make_present(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes).filter(|end| *end <= SLOT_STRIDE) else { return false };
        debug_assert!(end.is_multiple_of(PAGE as u64));
        // SAFETY: the range lies in the slot's mapping.
        match unsafe { sys::populate(self.at(at), bytes as usize) } {
            Ok(()) => true,
            Err(Errno::INVAL) => self.allocate(slot_at(self.slot()) + at, bytes).is_ok(),
            Err(_) => false,
        }
    }

    /// Allocates through the file, for kernels before 5.14.
    fn allocate(&self, at: u64, bytes: u64) -> Result<(), Errno> {
        sys::allocate(self.reopen()?, at, bytes)
    }

    /// Opens the segment's file once more, if it is still where it was.
    pub(crate) fn reopen(&self) -> Result<OwnedFd, Errno> {
        let path = CStr::from_bytes_until_nul(&self.path).map_err(|_| Errno::NAMETOOLONG)?;
        if path.is_empty() {
            return Err(Errno::NAMETOOLONG);
        }
        let file = sys::open_rw(path)?;
        let stat = rustix::fs::fstat(&file)?;
        if (stat.st_dev, stat.st_ino) != self.file {
            return Err(Errno::STALE);
        }
        Ok(file)
    }
}

/// Stores a text into words, cut to what fits, padded with zeros.
fn store_text(places: &[AtomicU64], text: &[u8]) {
    for (number, place) in places.iter().enumerate() {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(text.iter().skip(number * 8)) {
            *to = *from;
        }
        place.store(u64::from_ne_bytes(word), Relaxed);
    }
}
