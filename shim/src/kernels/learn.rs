//! The first launch of a function handle: its name and attributes are read.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::driver::Driver;
use crate::entries::EntryId;
use crate::telemetry::{KernelAttributes, KernelId, KernelsMode};
use crate::tls::Tls;
use crate::{frameworks, resolve, shell, state};

/// Longest name that is kept, in bytes.
pub(super) const NAME_BYTES: usize = 1023;
const ID_BITS: u32 = 16;
const KERNEL_MASK: u64 = (1 << ID_BITS) - 1;

/// Counts a launch of a function whose counters are not in the thread's cache.
#[inline(always)]
pub(crate) fn count(cx: &Cx<'_>, function: CUfunction, blocks: u64, threads: u64, shared: u64) {
    // By value, so that the context of a launch need not be in memory.
    count_cold(cx.entry, cx.tls(), function, blocks, threads, shared);
}

#[cold]
#[inline(never)]
fn count_cold(entry: EntryId, tls: &Tls, function: CUfunction, blocks: u64, threads: u64, shared: u64) {
    let Some(lane) = tls.lane.get() else { return };
    let cx = Cx::new(entry, state::page(), tls);
    let kernel = shell::caught_cold(|| kernel_of(&cx, function)).unwrap_or(KernelId::OTHER);
    let writer = cx.writer();
    match lane.own_row(writer, kernel) {
        Some(row) => {
            if cx.page.kernels.timing.mode() == KernelsMode::Count && resolve::launches_are_direct() {
                tls.kernels().put(function.addr(), row);
            }
            row.launch(blocks, threads, shared);
        }
        None => lane.launch(writer, kernel, blocks, threads, shared),
    }
}

/// The kernel of a function handle that was met before.
pub(crate) fn known(cx: &Cx<'_>, function: CUfunction) -> Option<KernelId> {
    let word = cx.page.kernels.known.get(function.addr())?;
    (word >> ID_BITS == cx.tls().epoch.get()).then(|| KernelId::from_number(word & KERNEL_MASK))
}

/// The kernel of a function handle.
pub(crate) fn kernel_of(cx: &Cx<'_>, function: CUfunction) -> KernelId {
    let kernels = &cx.page.kernels;
    // The epoch that the thread's cache is valid for: what is learned now must not outlive it.
    let epoch = cx.tls().epoch.get();
    known(cx, function).unwrap_or_else(|| {
        let kernel = crate::errno::keep(|| cx.relaxed_capture(|| learn(cx, function)));
        if kernels.learnt.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            frameworks::report(cx);
        }
        let word = epoch << ID_BITS | u64::from(kernel.number());
        // Those of unloaded modules give way.
        kernels.known.insert(function.addr(), word, |other| other >> ID_BITS != epoch);
        kernel
    })
}

fn learn(cx: &Cx<'_>, function: CUfunction) -> KernelId {
    let driver = cx.driver();
    let kernels = &cx.page.kernels;
    let mut room = [0u8; NAME_BYTES];
    let as_kernel = CUkernel(function.0);
    let is_kernel = kernels.is_kernel(function.addr());
    let name = match is_kernel {
        true => kernel_name(driver, as_kernel).or_else(|| function_name(driver, function)),
        false => function_name(driver, function).or_else(|| kernel_name(driver, as_kernel)),
    };
    let name = match name {
        // SAFETY: the driver's string belongs to a module that is loaded while its function is used.
        Some(name) => unsafe { CStr::from_ptr(name) }.to_bytes(),
        None => match kernels.name_of(function.addr(), &mut room) {
            Some(name) => name,
            None => make_name(module_of(driver, function), function, &mut room),
        },
    };
    let attributes = attributes(driver, function, is_kernel);
    cx.writer().kernel(name, &attributes)
}

fn function_name(driver: &Driver, function: CUfunction) -> Option<*const c_char> {
    let ask = driver.func_get_name()?;
    let mut name = core::ptr::null();
    // SAFETY: the out-parameter lives over the call; the driver checks the handle.
    let answer = unsafe { ask(&raw mut name, function) };
    (answer.is_ok() && !name.is_null()).then_some(name)
}

fn kernel_name(driver: &Driver, kernel: CUkernel) -> Option<*const c_char> {
    let ask = driver.kernel_get_name()?;
    let mut name = core::ptr::null();
    // SAFETY: as in `function_name`.
    let answer = unsafe { ask(&raw mut name, kernel) };
    (answer.is_ok() && !name.is_null()).then_some(name)
}

fn module_of(driver: &Driver, function: CUfunction) -> u64 {
    let mut module = CUmodule::NULL;
    match driver.func_get_module() {
        // SAFETY: as in `function_name`.
        Some(ask) if unsafe { ask(&raw mut module, function) }.is_ok() => module.addr(),
        _ => 0,
    }
}

/// `kernel@MODULE+FUNCTION`: distinguishes functions whose names are unknown, and is the same when one that was
/// forgotten is met again.
fn make_name(module: u64, function: CUfunction, room: &mut [u8]) -> &[u8] {
    use std::io::Write as _;
    let mut rest = &mut room[..];
    let before = rest.len();
    let written = match write!(rest, "kernel@{module:#x}+{:#x}", function.addr()) {
        Ok(()) => before - rest.len(),
        Err(_) => 0,
    };
    room.get(..written).unwrap_or(&[])
}

fn attributes(driver: &Driver, function: CUfunction, is_kernel: bool) -> KernelAttributes {
    let mut function = function;
    if is_kernel || function_attribute(driver, function, CU_FUNC_ATTRIBUTE_NUM_REGS).is_none() {
        function = function_of(driver, CUkernel(function.0)).unwrap_or(function);
    }
    let ask = |attribute| {
        let value = function_attribute(driver, function, attribute)
            .or_else(|| kernel_attribute(driver, CUkernel(function.0), attribute));
        value.and_then(|v| u32::try_from(v).ok()).unwrap_or(0)
    };
    KernelAttributes {
        registers: ask(CU_FUNC_ATTRIBUTE_NUM_REGS),
        static_shared_bytes: ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
        local_bytes: ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
        max_threads: ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    }
}

fn function_of(driver: &Driver, kernel: CUkernel) -> Option<CUfunction> {
    let ask = driver.kernel_get_function()?;
    let mut function = CUfunction::NULL;
    // SAFETY: as in `function_name`.
    let answer = unsafe { ask(&raw mut function, kernel) };
    (answer.is_ok() && !function.is_null()).then_some(function)
}

fn function_attribute(
    driver: &Driver,
    function: CUfunction,
    attribute: CUfunction_attribute,
) -> Option<c_int> {
    let ask = driver.func_get_attribute()?;
    let mut value = 0;
    // SAFETY: as in `function_name`.
    unsafe { ask(&raw mut value, attribute, function) }.is_ok().then_some(value)
}

fn kernel_attribute(driver: &Driver, kernel: CUkernel, attribute: CUfunction_attribute) -> Option<c_int> {
    let ask = driver.kernel_get_attribute()?;
    let device = driver.current_device()?;
    let mut value = 0;
    // SAFETY: as in `function_name`.
    unsafe { ask(&raw mut value, attribute, kernel, device) }.is_ok().then_some(value)
}
