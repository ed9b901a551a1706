//! Launch budgets: launches wait for the job's launch slot on the GPU.
//!
//! The budget is one word in the first page of the job's segment, which lies over [`CONTROL`] once the process has
//! joined. Where none is set a launch makes one comparison with zero. Under one, a launch that is not
//! captured waits in the thread that makes it, until
//!
//! * no request of another job holds it ([`crate::telemetry::gate`]), which ends at a time that the word itself states,
//! * the clock is in the job's launch slot, and what earlier work took beyond its launch slots has been paid back
//!   ([`crate::telemetry::budget`]), and
//! * fewer launches are under way in its context than the budget allows; a graph counts as many as it has
//!   kernels, and one that is larger than the budget goes alone ([`flight`]). A launch is followed once it was made: of
//!   several threads at the same moment each can be one too many.
//!
//! A process that changes the word wakes the threads that wait. A waiting thread also checks now and then by itself,
//! runs signal handlers, makes no call that is a cancellation point and leaves `errno` alone.
//!
//! | module | is |
//! |---|---|
//! | [`flight`] | the launches that are under way, by events behind them |
//! | [`gate`] | whether a launch may go now, and what is owed |
//! | [`table`] | the words of both |
//! | [`wait`] | a launch that waits until it may go |
//!
//! A launch never waits for ever for work of its own process: a kernel may wait for one that is launched
//! later. Where nothing is done for long ([`gate::PATIENCE_NS`]) a launch goes all the same.

mod flight;
mod gate;
mod table;
mod wait;

pub(crate) use wait::{around, hold};

use core::ffi::CStr;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::telemetry::Writer;
use crate::telemetry::layout::Header;
use table::Context;

/// Contexts whose launches are followed at a time.
const CONTEXTS: usize = 16;
/// Rounds after which a thread does not wait for another one any more that has the table: it goes unheld.
const ROUNDS: u32 = 100_000;

/// A page of zeros, until the segment's first page is laid over it.
#[repr(C)]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(align(65536)))]
pub(crate) struct Control(MaybeUninit<Header>);

// SAFETY: all of a header are atomics, of which only `budget` is read.
unsafe impl Sync for Control {}

/// See [`Control`]. What a forked child finds here is its parent's, and its own: they are of one job.
pub(crate) static CONTROL: Control = Control(MaybeUninit::zeroed());

/// Offset of the budget's word in [`CONTROL`].
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only the assembly of x86-64 reads it"))]
pub(crate) const BUDGET: usize = offset_of!(Header, budget);

/// The budget's word; 0: none.
#[inline(always)]
fn word() -> u64 {
    let at = (&raw const CONTROL).cast::<Header>();
    // SAFETY: a header of zeros or the segment's; the word is an atomic.
    unsafe { &(*at).budget }.load(Ordering::Relaxed)
}

/// Returns true if there is a budget.
#[inline(always)]
pub(crate) fn is_set() -> bool {
    word() != 0
}

/// Brings the job's budget before this process's eyes. Where that cannot be, it has none, and the segment says so.
pub(crate) fn begin(writer: &Writer, path: &CStr) {
    let Some(at) = NonNull::new((&raw const CONTROL).cast_mut().cast()) else { return };
    // SAFETY: the static is one page of this library's zero-initialised memory, made for this.
    unsafe { writer.follow_budget(path, at) };
}

/// The process's launches under budgets. All zeros is none yet.
pub(crate) struct Throttle {
    /// Thread that has the table in hand; 0: no thread. A thread that has it does not sleep.
    owner: AtomicU32,
    /// Number of the last use: the context with the smallest was used least recently.
    uses: AtomicU64,
    contexts: [Context; CONTEXTS],
}

impl Throttle {
    /// Nothing known.
    pub(crate) const fn new() -> Self {
        Self {
            owner: AtomicU32::new(0),
            uses: AtomicU64::new(0),
            contexts: [const { Context::new() }; CONTEXTS],
        }
    }

    /// Runs `work` with the table in hand. `None`: it could not be had.
    fn with<R>(&self, work: impl FnOnce(&Self) -> R) -> Option<R> {
        let own = crate::thread::id();
        for _ in 0..ROUNDS {
            match self.owner.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let result = work(self);
                    self.owner.store(0, Ordering::Release);
                    return Some(result);
                }
                // A signal handler on top of our own work.
                Err(owner) if owner == own => return None,
                // SAFETY: plain system call.
                Err(_) => unsafe { libc::sched_yield() },
            };
        }
        // Its thread may have been ended with the table in hand: the next one takes it.
        self.owner.store(0, Ordering::Release);
        None
    }
}
