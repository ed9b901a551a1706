//! What every generated shell does around its logic.

use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::entries::EntryId;
use crate::{resolve, state, tls};

/// The real call of a shell, at most once.
pub(crate) struct Once<'c, C: Fn() -> CUresult> {
    call: &'c C,
    result: Cell<Option<CUresult>>,
}

impl<C: Fn() -> CUresult> Once<'_, C> {
    /// Performs the real call.
    #[inline(always)]
    pub(crate) fn call(&self) -> CUresult {
        let result = (self.call)();
        self.result.set(Some(result));
        result
    }
}

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

/// Runs logic that needs no segment.
#[inline(always)]
pub(crate) fn early<C, L>(entry: EntryId, call: C, logic: L) -> CUresult
where
    C: Fn() -> CUresult,
    L: FnOnce(EntryId, &Once<'_, C>) -> CUresult,
{
    let once = Once { call: &call, result: Cell::new(None) };
    match catch_unwind(AssertUnwindSafe(|| logic(entry, &once))) {
        Ok(result) => result,
        Err(panic) => recovered(&once, panic),
    }
}

/// Runs the logic of a hook around the real call, or only the real call where nothing is observed.
#[inline(always)]
pub(crate) fn hooked<C, L>(entry: EntryId, call: C, logic: L) -> CUresult
where
    C: Fn() -> CUresult,
    L: FnOnce(&Cx<'_>, &Once<'_, C>) -> CUresult,
{
    let tls = tls::get();
    let here = stack_address();
    // A hooked call under way further up this stack: the driver calls itself through its exported
    // names. A mark below us was left by a frame that a longjmp has discarded.
    if tls.guard.get() > here || !valid(tls) {
        return call();
    }
    tls.guard.set(here);
    let cx = Cx::new(entry, state::page(), tls);
    let once = Once { call: &call, result: Cell::new(None) };
    let outcome = catch_unwind(AssertUnwindSafe(|| logic(&cx, &once)));
    tls.guard.set(0);
    match outcome {
        Ok(result) => result,
        Err(panic) => recovered(&once, panic),
    }
}

/// Runs logic after a real call that may have been long and may have been left by a forced unwind.
#[inline(always)]
pub(crate) fn after(entry: EntryId, logic: impl FnOnce(&Cx<'_>)) {
    let tls = tls::get();
    let here = stack_address();
    if tls.guard.get() > here || !valid(tls) {
        return;
    }
    tls.guard.set(here);
    let cx = Cx::new(entry, state::page(), tls);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| logic(&cx))) {
        // Dropping a payload could panic again.
        core::mem::forget(panic);
    }
    tls.guard.set(0);
}

/// Whether the thread's state is valid, made so where possible.
#[inline(always)]
fn valid(tls: &tls::Tls) -> bool {
    let epoch = tls.epoch.get();
    (epoch != 0 && epoch == state::page().epoch()) || state::prepare(tls)
}

/// The program's result after logic of ours has panicked.
#[cold]
#[inline(never)]
fn recovered<C: Fn() -> CUresult>(once: &Once<'_, C>, panic: Box<dyn core::any::Any + Send>) -> CUresult {
    // Dropping a payload could panic again.
    core::mem::forget(panic);
    match once.result.get() {
        Some(result) => result,
        None => once.call(),
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stack_address() -> usize {
    let at: usize;
    // SAFETY: reads the stack pointer.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn stack_address() -> usize {
    let here = 0u8;
    (&raw const here).addr()
}
