//! Whether this process observes, and the segment it writes to.
//!
//! States of a process: *unknown* until a hooked call or a look-up needs to know; then *aside* (the
//! kill switch, no segment named, or joining failed: everything passes through for good) or
//! *observing*. The join itself happens at the first hooked call. All of it but the decision to stand
//! aside lives in memory that a forked child finds zeroed, so a child joins anew by itself.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::environ;
use crate::kernels::Kernels;
use crate::graph::Graphs;
use crate::telemetry;
use crate::tls::Tls;
use crate::wiped::{Wiped, Zeroable};

/// Longest path of a segment file that is accepted, with its terminating zero.
const PATH_BYTES: usize = 4096;
/// Rounds that a thread waits for another one's join before its call passes uncounted.
const JOIN_PATIENCE: u32 = 100_000;

/// The process's state.
#[repr(C, align(64))]
pub(crate) struct Page {
    /// What the threads' caches are valid for; 0 before the process has joined. Changes when a
    /// module is unloaded.
    epoch: AtomicU64,
    /// Stream captures under way in the process.
    pub(crate) captures: AtomicU32,
    /// 0, [`JOINED`], or the thread id that is joining.
    join: AtomicU32,
    /// Number of the join: differs between a parent and its forked child.
    generation: AtomicU64,
    /// Kernels and their names.
    pub(crate) kernels: Kernels,
    /// Executable graphs.
    pub(crate) graphs: Graphs,
    writer: UnsafeCell<MaybeUninit<telemetry::Writer>>,
}

const JOINED: u32 = u32::MAX;

// SAFETY: atomics, zeroable members, and a `MaybeUninit`; the writer is written once before `epoch`
// is published and only read after.
unsafe impl Sync for Page {}
// SAFETY: as above; the writer is never dropped.
unsafe impl Zeroable for Page {}

impl Page {
    const fn empty() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            captures: AtomicU32::new(0),
            join: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            kernels: Kernels::new(),
            graphs: Graphs::new(),
            writer: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The segment's writer.
    #[inline(always)]
    pub(crate) fn writer(&self) -> &telemetry::Writer {
        // SAFETY: a `Cx`, through which alone this is reached, exists only after `epoch` was seen
        // non-zero, which happens after the writer was written.
        unsafe { (*self.writer.get()).assume_init_ref() }
    }

    /// The current epoch; 0 while not joined.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        // Acquire pairs with the release in `join_now`, which publishes the writer.
        self.epoch.load(Ordering::Acquire)
    }

    /// Makes every thread forget what it has cached about handles.
    pub(crate) fn forget_handles(&self) {
        let next = EPOCHS.fetch_add(1, Ordering::Relaxed) + 1;
        // Release: a thread that sees the new epoch sees what was changed before.
        self.epoch.store(next, Ordering::Release);
    }
}

static PAGE: Wiped<Page> = Wiped::new();
static EMPTY: Page = Page::empty();
/// What the fast path reads: the empty page until the mapping exists.
static CURRENT: AtomicPtr<Page> = AtomicPtr::new((&raw const EMPTY).cast_mut());
/// Epochs ever used; inherited over fork so that a child's differ from its parent's.
static EPOCHS: AtomicU64 = AtomicU64::new(0);
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

const UNKNOWN: u8 = 0;
const OBSERVE: u8 = 1;
const ASIDE: u8 = 2;

/// The process's state as the fast path sees it: the epoch is 0 where the process has not joined.
#[inline(always)]
pub(crate) fn page() -> &'static Page {
    // Acquire pairs with the release in `prepare`.
    let at = CURRENT.load(Ordering::Acquire);
    // SAFETY: either the static or the mapping, which is never unmapped.
    unsafe { &*at }
}

/// Whether everything passes through in this process.
pub(crate) fn stands_aside() -> bool {
    match MODE.load(Ordering::Relaxed) {
        OBSERVE => false,
        ASIDE => true,
        _ => {
            let mut path = [0u8; PATH_BYTES];
            let aside = environ::is_set(b"RADRM_DISABLE")
                || environ::value(b"RADRM_SEGMENT", &mut path).is_none_or(|p| p.is_empty());
            let mode = if aside { ASIDE } else { OBSERVE };
            // Two threads that get here at once find the same.
            MODE.store(mode, Ordering::Relaxed);
            aside
        }
    }
}

/// Brings the thread up to the process's epoch, joining the segment first where needed. False: the
/// call passes through.
#[cold]
#[inline(never)]
pub(crate) fn prepare(tls: &Tls) -> bool {
    if stands_aside() {
        return false;
    }
    crate::errno::keep(|| {
        let Some(page) = PAGE.get() else {
            MODE.store(ASIDE, Ordering::Relaxed);
            return false;
        };
        // Release: whoever reads the pointer may read the mapping.
        CURRENT.store((&raw const *page).cast_mut(), Ordering::Release);
        if page.epoch() == 0 && !join(page) {
            return false;
        }
        refresh(page, tls);
        true
    })
}

/// Fills the thread's state for the current epoch.
fn refresh(page: &'static Page, tls: &Tls) {
    let epoch = page.epoch();
    let generation = page.generation.load(Ordering::Relaxed);
    if tls.generation.get() != generation {
        // SAFETY: `gettid` cannot fail.
        let tid = unsafe { libc::gettid() };
        let lane = page.writer().lane(tid.cast_unsigned());
        tls.lane.set(Some(lane));
        tls.cache.set(page.kernels.cache_of(lane.index()));
        for word in &tls.memory {
            word.set(0);
        }
        tls.generation.set(generation);
    }
    if let Some(cache) = crate::kernels::cache::of(tls) {
        cache.clear();
    }
    tls.epoch.set(epoch);
}

/// Joins, or waits for the thread that does. False: not joined.
fn join(page: &Page) -> bool {
    // SAFETY: `gettid` cannot fail.
    let tid = unsafe { libc::gettid() }.cast_unsigned();
    match page.join.compare_exchange(0, tid, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let joined = join_now(page);
            if !joined {
                MODE.store(ASIDE, Ordering::Relaxed);
            }
            // Release: a waiting thread that sees the join done may use the writer.
            page.join.store(if joined { JOINED } else { 0 }, Ordering::Release);
            joined
        }
        Err(JOINED) => page.epoch() != 0,
        // A signal handler on top of our own join.
        Err(owner) if owner == tid => false,
        Err(_) => wait_for_join(page),
    }
}

fn wait_for_join(page: &Page) -> bool {
    for _ in 0..JOIN_PATIENCE {
        // Acquire pairs with the release in `join`.
        match page.join.load(Ordering::Acquire) {
            JOINED => return page.epoch() != 0,
            0 => return false,
            // SAFETY: plain system call.
            _ => unsafe { libc::sched_yield() },
        };
    }
    false
}

fn join_now(page: &Page) -> bool {
    let mut path = [0u8; PATH_BYTES];
    let Some(path) = environ::value(b"RADRM_SEGMENT", &mut path) else { return false };
    let Ok(writer) = telemetry::Writer::join(path) else { return false };
    // SAFETY: only the thread that holds `join` gets here, and readers wait for `epoch`.
    unsafe { (*page.writer.get()).write(writer) };
    let epoch = EPOCHS.fetch_add(1, Ordering::Relaxed) + 1;
    page.generation.store(epoch, Ordering::Relaxed);
    // Release pairs with the Acquire in `Page::epoch`: the writer is complete.
    page.epoch.store(epoch, Ordering::Release);
    true
}
