//! State of a process that observes, and the segment it writes to.
//!
//! [`mode`] decides whether the process is to observe at all. The join itself happens at the first hooked call. All of
//! it lives in memory that a forked child finds zeroed, so a child joins anew by itself.
//!
//! The state of each part of the shim is a type of that part's lowest module, which knows no context ([`Cx`]): this
//! module puts them together, and what works on them lies above.
//!
//! [`Cx`]: crate::cx::Cx

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::context::Contexts;
use crate::graph::Graphs;
use crate::kernels::Kernels;
use crate::quota::Quota;
use crate::stacks::size;

use crate::telemetry::{self, JoinFailure};
use crate::thread::Known;
use crate::throttle::{self, Throttle};
use crate::tls::Tls;
use crate::{environ, mode, unjoined};

/// Rounds that a thread waits for another one's join before its call passes uncounted.
const JOIN_PATIENCE: u32 = 100_000;

/// The process's state, on memory pages of its own that the kernel zeroes in a forked child. All zeros
/// are a process that has not joined. Kernels of AArch64 have pages of up to 64 KiB.
#[repr(C)]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(align(65536)))]
pub(crate) struct Page {
    /// The epoch while no capture is under way, else 0: what the shells of a launch compare with their thread's.
    fast: AtomicU64,
    /// Epoch that the threads' caches are valid for; 0 before the process has joined. Changes when a module is
    /// unloaded.
    epoch: AtomicU64,
    /// Stream captures under way in the process.
    captures: AtomicU32,
    /// 0, [`JOINED`], or the thread id that is joining.
    join: AtomicU32,
    /// Number of the join: differs between a parent and its forked child.
    generation: AtomicU64,
    /// 1 once the kernel zeroes the page in a forked child: set before anything else is.
    wiped: AtomicU32,
    /// Source of the ids of this process's threads.
    pub(crate) threads: Known,
    /// Kernels and their names.
    pub(crate) kernels: Kernels,
    /// Executable graphs.
    pub(crate) graphs: Graphs,
    /// Contexts.
    pub(crate) contexts: Contexts,
    /// Memberships in quotas.
    pub(crate) quota: Quota,
    /// Launches under a budget.
    pub(crate) throttle: Throttle,
    writer: UnsafeCell<MaybeUninit<telemetry::Writer>>,
}

const JOINED: u32 = u32::MAX;

// SAFETY: atomics, maps of atomics, and a `MaybeUninit`; the writer is written once before `epoch` is
// published and only read after, and is never dropped.
unsafe impl Sync for Page {}

impl Page {
    /// Offset of the word that a launch compares.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "only the assembly of x86-64 reads it")
    )]
    pub(crate) const FAST_OFFSET: usize = core::mem::offset_of!(Page, fast);

    const fn empty() -> Self {
        Self {
            fast: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            captures: AtomicU32::new(0),
            join: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            wiped: AtomicU32::new(0),
            threads: Known::new(),
            kernels: Kernels::new(),
            graphs: Graphs::new(),
            contexts: Contexts::new(),
            quota: Quota::new(),
            throttle: Throttle::new(),
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
        // Acquire pairs with the store in `set_epoch`, which publishes the writer.
        self.epoch.load(Ordering::Acquire)
    }

    /// Number of the join; 0 while not joined.
    #[cfg_attr(test, allow(dead_code, reason = "only exported functions need it, and a test exports none"))]
    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Captures under way.
    #[inline(always)]
    pub(crate) fn captures(&self) -> u32 {
        self.captures.load(Ordering::Relaxed)
    }

    /// Changes the number of captures under way.
    pub(crate) fn change_captures(&self, how: impl FnMut(u32) -> Option<u32>) {
        // SeqCst: see `set_fast`.
        let _ = self.captures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, how);
        self.set_fast();
    }

    /// Makes every thread forget what it has cached about handles.
    pub(crate) fn forget_handles(&self) {
        self.set_epoch(EPOCHS.fetch_add(1, Ordering::Relaxed) + 1);
    }

    fn set_epoch(&self, epoch: u64) {
        // SeqCst, and so release: a thread that sees the epoch sees what was changed before it.
        self.epoch.store(epoch, Ordering::SeqCst);
        self.set_fast();
    }

    /// Brings `fast` in line. The thread that stores last has seen the last change: each checks once more after its
    /// store, and all of it is in one total order.
    fn set_fast(&self) {
        loop {
            let seen = (self.epoch.load(Ordering::SeqCst), self.captures.load(Ordering::SeqCst));
            self.fast.store(if seen.1 == 0 { seen.0 } else { 0 }, Ordering::SeqCst);
            if seen == (self.epoch.load(Ordering::SeqCst), self.captures.load(Ordering::SeqCst)) {
                return;
            }
        }
    }

    /// Asks the kernel to zero the page in a forked child. False: it cannot.
    fn wipe_on_fork(&self) -> bool {
        if self.wiped.load(Ordering::Acquire) != 0 {
            return true;
        }
        let at = (&raw const *self).cast_mut().cast();
        // SAFETY: the static fills whole pages of the library's zero-initialised memory.
        let done = unsafe { rustix::mm::madvise(at, size_of::<Self>(), rustix::mm::Advice::LinuxWipeOnFork) };
        if done.is_ok() {
            self.wiped.store(1, Ordering::Release);
        }
        done.is_ok()
    }
}

pub(crate) static PAGE: Page = Page::empty();
/// Epochs ever used; inherited over fork so that a child's differ from its parent's.
static EPOCHS: AtomicU64 = AtomicU64::new(0);

/// The process's state: the epoch is 0 where the process has not joined.
#[inline(always)]
pub(crate) fn page() -> &'static Page {
    &PAGE
}

/// Brings the thread up to the process's epoch, joining the segment first where needed. False: the
/// call passes through.
#[cold]
#[inline(never)]
pub(crate) fn prepare(tls: &Tls) -> bool {
    if mode::is_to_be_bypassed() || mode::is_denied() {
        return false;
    }
    crate::errno::keep(|| {
        let page = page();
        if page.epoch() == 0 {
            if !page.wipe_on_fork() {
                unjoined::because(JoinFailure::NoWipe);
                mode::give_up();
                unjoined::report();
                return false;
            }
            if !join(page) {
                return false;
            }
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
        let tid = crate::thread::id();
        let lane = page.writer().lane(tid);
        tls.lane.set(Some(lane));
        tls.counts.set(lane.own_counts());
        tls.cache.set(page.kernels.cache_of(lane.number() as usize));
        for word in &tls.memory {
            word.set(0);
        }
        tls.generation.set(generation);
    }
    tls.kernels().clear();
    // Until something stands there.
    tls.strata.set(&raw const crate::kernels::timing::strata::NONE);
    if let Some(lane) = tls.lane.get() {
        page.kernels.timing.forget(lane.number() as usize);
    }
    tls.epoch.set(epoch);
    tls.ready.set(epoch);
}

/// Joins, or waits for the thread that does. False: not joined.
fn join(page: &Page) -> bool {
    let tid = crate::thread::id();
    match page.join.compare_exchange(0, tid, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let joined = match join_now(page) {
                Ok(()) => true,
                Err(failure) => {
                    unjoined::because(failure);
                    mode::give_up();
                    unjoined::report();
                    false
                }
            };
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

fn join_now(page: &Page) -> Result<(), JoinFailure> {
    let mut path = [0u8; mode::PATH_BYTES];
    let path = environ::value(b"RADRM_SEGMENT", &mut path).ok_or(JoinFailure::NoSegment)?;
    // A panic of ours is caught and prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    page.quota.join(path).inspect_err(|_| mode::deny())?;
    let mut writer = telemetry::Writer::join(path).map_err(JoinFailure::of)?;
    if !size::begin(&mut writer) {
        writer.bypass(telemetry::Bypass::Other);
    }
    // SAFETY: only the thread that holds `join` gets here, and readers wait for `epoch`.
    unsafe { (*page.writer.get()).write(writer) };
    page.kernels.timing.begin(page.writer());
    throttle::begin(page.writer(), path);
    HAS_JOINED.store(true, Ordering::Relaxed);
    let epoch = EPOCHS.fetch_add(1, Ordering::Relaxed) + 1;
    page.generation.store(epoch, Ordering::Relaxed);
    page.set_epoch(epoch);
    if let Some(ask) = crate::driver::get().driver_get_version() {
        let mut version = 0;
        // SAFETY: the out-parameter lives over the call.
        if unsafe { ask(&raw mut version) }.is_ok() {
            page.writer().driver_version(version.cast_unsigned());
        }
    }
    Ok(())
}

/// True once this process has joined, or one that it was forked from. It lies among written data, whose page the loader
/// has touched: a program that never joins does not touch the process's state when it exits.
#[unsafe(link_section = ".data.radrm_has_joined")]
static HAS_JOINED: AtomicBool = AtomicBool::new(false);

/// Says that this process ended by itself; a killed one, or one that called `_exit`, says nothing.
extern "C" fn ended() {
    // A child of a fork that has not joined finds no epoch, and so leaves its parent's slot alone.
    if HAS_JOINED.load(Ordering::Relaxed) && PAGE.epoch() != 0 {
        PAGE.kernels.timing.settle();
        PAGE.writer().leave(telemetry::EndReason::Exited);
    }
}

// SAFETY: the dynamic loader calls every entry of this section once, without arguments that matter,
// when the process exits; nothing runs when the library is loaded.
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;
