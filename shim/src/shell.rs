//! Code of every generated shell around its logic.

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::entries::EntryId;
use crate::tls::{self, Tls};
use crate::{memory, mode, quota, resolve, state};

/// The real function of an entry point, resolved now where it was not before.
#[inline(always)]
pub(crate) fn real(entry: EntryId) -> Option<*mut ()> {
    let real = resolve::loaded(entry);
    if real.is_null() { resolve::cold(entry) } else { Some(real) }
}

/// The answer where there is no real function to ask.
#[cold]
pub(crate) fn absent(_entry: EntryId) -> CUresult {
    if resolve::has_driver() { CUDA_ERROR_NOT_FOUND } else { CUDA_ERROR_NOT_INITIALIZED }
}

/// The real function of an entry point that only a quota concerns, where it is known that there is none.
#[inline(always)]
pub(crate) fn unlimited(entry: EntryId) -> Option<*mut ()> {
    let page = state::page();
    let real = resolve::loaded(entry);
    // A process that has joined knows its quotas.
    (page.epoch() != 0 && !page.quota.is_on() && !real.is_null()).then_some(real)
}

/// Runs logic that needs no segment.
#[inline(always)]
pub(crate) fn early<C, L>(entry: EntryId, call: C, logic: L) -> CUresult
where
    C: Fn() -> CUresult + Copy,
    L: FnOnce(EntryId, &dyn Fn() -> CUresult) -> CUresult,
{
    caught(call, |real| logic(entry, &|| real.make()))
}

/// Runs the logic of a hook around the real call, or only the real call where nothing is observed. The logic is one
/// function for all entry points that have it.
#[inline(always)]
pub(crate) fn hooked<C, L>(entry: EntryId, call: C, logic: L) -> CUresult
where
    C: Fn() -> CUresult + Copy,
    L: FnOnce(&Cx<'_>, &dyn Fn() -> CUresult) -> CUresult,
{
    hot(entry, call, |cx, real| logic(cx, &|| real.make()))
}

/// As [`hooked`], with the logic laid into each entry point: for calls that programs make by the thousand.
#[inline(always)]
pub(crate) fn hot<C, L>(entry: EntryId, call: C, logic: L) -> CUresult
where
    C: Fn() -> CUresult + Copy,
    L: FnOnce(&Cx<'_>, Real<'_, C>) -> CUresult,
{
    let (tls, page) = (tls::get(), state::page());
    let here = with_distance();
    // As it mostly is: no call under way, and the thread's state that of the process, which has joined.
    if tls.ready.get() != page.epoch() {
        if nested(tls, here) {
            return call();
        }
        if !valid(tls) {
            return if mode::is_bypassed() { call() } else { quota::deny::outside(entry, call) };
        }
        // The call before this one may have been left by a jump.
        memory::recover(&Cx::new(entry, page, tls));
    }
    tls.enter(here);
    let cx = Cx::new(entry, page, tls);
    let result = caught(call, |real| logic(&cx, real));
    tls.leave();
    result
}

/// Bytes that every shell's frame keeps free below what it marks, and more than the rest of a frame
/// takes. A call made by the driver during a marked call is therefore at least this far below the
/// mark; a mark that a longjmp has left behind by discarding its frame is not, as seen from the next
/// call at the same depth.
pub(crate) const DISTANCE: usize = 2048;

/// Returns true if a hooked call is under way further up this stack: the driver calls itself through its exported
/// names.
#[inline(always)]
fn nested(tls: &Tls, here: u64) -> bool {
    tls.call_under_way() > here.saturating_add(DISTANCE as u64)
}

/// Returns true if the thread's state is valid; makes it so where possible.
#[inline(always)]
pub(crate) fn valid(tls: &Tls) -> bool {
    let epoch = tls.epoch.get();
    (epoch != 0 && epoch == state::page().epoch()) || (!mode::is_bypassed() && state::prepare(tls))
}

/// A real call that keeps its result for the case that the logic around it panics.
#[derive(Clone, Copy)]
pub(crate) struct Real<'m, C> {
    call: C,
    made: &'m Cell<Option<CUresult>>,
}

impl<C: Fn() -> CUresult> Real<'_, C> {
    /// Makes the call.
    #[inline(always)]
    pub(crate) fn make(&self) -> CUresult {
        let result = (self.call)();
        self.made.set(Some(result));
        result
    }
}

/// Runs logic around a real call. After a panic of the logic the program gets the result of the call
/// if it was made, else it is made now.
#[inline(always)]
fn caught<C, L>(call: C, logic: L) -> CUresult
where
    C: Fn() -> CUresult + Copy,
    L: FnOnce(Real<'_, C>) -> CUresult,
{
    let made = Cell::new(None);
    match catch_unwind(AssertUnwindSafe(|| logic(Real { call, made: &made }))) {
        Ok(result) => result,
        Err(panic) => {
            // Dropping a payload could panic again.
            core::mem::forget(panic);
            made.get().unwrap_or_else(call)
        }
    }
}

/// Runs cold work of hot logic; `None` if it panicked.
#[cold]
pub(crate) fn caught_cold<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(core::mem::forget).ok()
}

/// Runs logic after a real call that may have been long and may have been left by a forced unwind.
#[inline(always)]
pub(crate) fn after(entry: EntryId, logic: impl FnOnce(&Cx<'_>)) {
    let tls = tls::get();
    let here = with_distance();
    if nested(tls, here) || !valid(tls) {
        return;
    }
    tls.enter(here);
    let cx = Cx::new(entry, state::page(), tls);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| logic(&cx))) {
        // Dropping a payload could panic again.
        core::mem::forget(panic);
    }
    tls.leave();
}

/// The stack address of the calling frame, which is made to have [`DISTANCE`] bytes to spare.
#[inline(always)]
fn with_distance() -> u64 {
    let spare = core::mem::MaybeUninit::<[u8; DISTANCE]>::uninit();
    keep(spare.as_ptr().cast());
    stack_address()
}

/// Makes the compiler believe that what the pointer points to matters.
#[inline(always)]
fn keep(at: *const u8) {
    // SAFETY: an empty instruction sequence.
    unsafe { core::arch::asm!("/* {} */", in(reg) at, options(readonly, nostack, preserves_flags)) };
}

/// The lower end of the calling frame. The address of a variable would not do: one frame has it above the bytes to
/// spare and another below.
#[inline(always)]
fn stack_address() -> u64 {
    let at: u64;
    // SAFETY: reads the stack pointer.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mov {}, sp", out(reg) at, options(nomem, nostack, preserves_flags));
    }
    at
}
