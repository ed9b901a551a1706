//! Functions for the program itself: what the Python module `radrm` calls, and any other language can.
//!
//! They are found by name in the program's global scope (`dlsym(RTLD_DEFAULT, "radrm_mark")`); where this library is not
//! preloaded they are not there, and the caller does nothing. Names, arguments and the layout of [`Memory`] are stable:
//! what is added gets a new function, or follows at the end of the structure.

use core::ffi::{c_char, c_int};

use super::text;
use super::{end, guarded, mark, pop, push, start};
use crate::{mode, state};

/// Domain of these ranges, so that a program's NVTX ranges end on their own: no handle has this number.
const DOMAIN: u64 = u64::MAX;

/// Memory that the process holds on one GPU.
#[repr(C)]
struct Memory {
    /// Number of the GPU within the job.
    gpu: u64,
    /// Device memory now, bytes.
    now: u64,
    /// Most device memory, bytes.
    peak: u64,
    /// Memory of the GPU, bytes.
    total: u64,
    /// Requests that were granted.
    allocations: u64,
    /// Blocks that were released.
    releases: u64,
    /// Requests that were refused.
    refused: u64,
    /// The driver's uuid.
    uuid: [u8; 16],
    /// Name, padded with zeros.
    name: [u8; 64],
}

/// 1: the process is recorded as soon as it uses a GPU; 0: it is not.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn radrm_is_recording() -> c_int {
    guarded(0, |_| c_int::from(!mode::is_to_be_bypassed() && !mode::is_denied()))
}

/// Opens a range of the calling thread.
///
/// # Safety
/// A C string, or null.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn radrm_push(name: *const c_char) {
    // SAFETY: the caller's promise.
    guarded((), |tls| _ = push(tls, DOMAIN, unsafe { text::narrow(name) }.alone()));
}

/// Closes the calling thread's innermost range of [`radrm_push`].
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn radrm_pop() {
    guarded((), |tls| _ = pop(tls, DOMAIN));
}

/// Opens a range that any thread may end; gives its number, 0 if it is not kept.
///
/// # Safety
/// As for [`radrm_push`].
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn radrm_start(name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    guarded(0, |tls| start(tls, unsafe { text::narrow(name) }.alone()))
}

/// Ends a range of [`radrm_start`].
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn radrm_end(number: u64) {
    guarded((), |tls| end(tls, number));
}

/// Notes a moment.
///
/// # Safety
/// As for [`radrm_push`].
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn radrm_mark(name: *const c_char) {
    // SAFETY: the caller's promise.
    guarded((), |tls| mark(tls, unsafe { text::narrow(name) }.alone()));
}

/// Fills `memory` with what the process holds on the GPUs that it has used, at most `places` of them, of `bytes` bytes
/// each; gives the number of those GPUs, -1 if the process is not recorded.
///
/// # Safety
/// So many places of so many bytes may be written.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn radrm_memory(memory: *mut u8, places: usize, bytes: usize) -> c_int {
    guarded(-1, |_| {
        if mode::is_to_be_bypassed() || mode::is_denied() {
            return -1;
        }
        let page = state::page();
        if page.epoch() == 0 {
            return 0;
        }
        let mut count: usize = 0;
        for own in page.writer().own_memory() {
            if count < places && !memory.is_null() {
                let found = Memory {
                    gpu: own.gpu.number().into(),
                    now: own.now,
                    peak: own.peak,
                    total: own.total,
                    allocations: own.allocations,
                    releases: own.releases,
                    refused: own.refused,
                    uuid: own.uuid,
                    name: own.name,
                };
                // SAFETY: the caller's promise; no more than the structure has.
                unsafe {
                    let from = (&raw const found).cast::<u8>();
                    let to = memory.wrapping_add(count.wrapping_mul(bytes));
                    core::ptr::copy_nonoverlapping(from, to, bytes.min(size_of::<Memory>()));
                }
            }
            count += 1;
        }
        c_int::try_from(count).unwrap_or(c_int::MAX)
    })
}
