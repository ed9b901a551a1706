//! The functions of the unwinder, found when they are first called.
//!
//! The standard library links libgcc_s for them, which the loader would load into every program of a job: a third of
//! what the shim costs a program that never touches the driver. Only a panic of ours, or an exception or cancellation
//! that passes through our frames, calls them. The library is the one that the program would use, not a copy of it,
//! since its versions need not agree on what a context of it looks like.
//!
//! Each name is hidden, so that no other library binds to it.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::resolve;

type Function = unsafe extern "C-unwind" fn(usize, usize, usize) -> usize;

macro_rules! functions {
    ($($index:literal: $name:literal,)*) => {
        const NAMES: &[&CStr] = &[$(match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!(),
        },)*];
        $(core::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {call}",
            #[cfg(target_arch = "aarch64")]
            "b {call}",
            ".popsection",
            call = sym call::<$index>,
        );)*
    };
}

functions! {
    0: "_Unwind_Backtrace",
    1: "_Unwind_DeleteException",
    2: "_Unwind_GetDataRelBase",
    3: "_Unwind_GetIP",
    4: "_Unwind_GetIPInfo",
    5: "_Unwind_GetLanguageSpecificData",
    6: "_Unwind_GetRegionStart",
    7: "_Unwind_GetTextRelBase",
    8: "_Unwind_RaiseException",
    9: "_Unwind_Resume",
    10: "_Unwind_SetGR",
    11: "_Unwind_SetIP",
    12: "_Unwind_GetCFA",
    13: "_Unwind_FindEnclosingFunction",
}

static FOUND: [AtomicPtr<()>; NAMES.len()] = [const { AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

/// Passes a call on: no function of the unwinder has more than three arguments, all of them in registers.
unsafe extern "C-unwind" fn call<const INDEX: usize>(a: usize, b: usize, c: usize) -> usize {
    // Every index is in the list above.
    let (Some(found), Some(name)) = (FOUND.get(INDEX), NAMES.get(INDEX)) else { std::process::abort() };
    let mut real = found.load(Ordering::Acquire);
    if real.is_null() {
        real = find(name);
        found.store(real, Ordering::Release);
    }
    // SAFETY: the unwinder's function of this name; it ignores registers beyond its arguments.
    unsafe { core::mem::transmute::<*mut (), Function>(real)(a, b, c) }
}

#[cold]
fn find(name: &CStr) -> *mut () {
    match resolve::function_of(c"libgcc_s.so.1", name) {
        Some(real) => real,
        // Without an unwinder nothing can catch what is on its way.
        None => std::process::abort(),
    }
}
