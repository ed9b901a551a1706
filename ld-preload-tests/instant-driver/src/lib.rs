//! A CUDA driver whose every call returns at once: the floor under benchmarks.
//!
//! Every entry point of the table is exported. Those whose results a program or an interposer
//! depends on are written by hand in [`entry`], [`memory`], [`code`] and [`event`]; all others are generated
//! and return success without looking at anything. Nothing is checked and nothing is kept that a
//! benchmark does not need: this library says nothing about correctness.
// The entry points are documented by NVIDIA under these very names.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

/// Makes a function's code unlike any other's without adding an instruction: the compiler gives
/// equal functions one address, and interposers tell entry points apart by address.
macro_rules! unlike_others {
    ($name:literal) => {
        // SAFETY: a comment is not an instruction.
        unsafe { core::arch::asm!(concat!("/* ", $name, " */"), options(nomem, nostack, preserves_flags)) }
    };
}

pub mod code;
pub mod entry;
pub mod event;
pub mod generated;
pub mod memory;

/// This driver's own function of a name, past whatever is preloaded, for programs that compare the two. Null
/// where it has none.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_instant_own(name: *const core::ffi::c_char) -> *const () {
    // SAFETY: a C string by this function's contract.
    let name = unsafe { core::ffi::CStr::from_ptr(name) };
    generated::find(name, core::ffi::c_int::MAX, false).map_or(core::ptr::null(), |entry| entry.function)
}
