//! Exports made from the table, and the list that `cuGetProcAddress` answers from.

use core::ffi::CStr;

use crate::{code::*, entry::*, event::*, memory::*};

/// One entry point as `cuGetProcAddress` knows it.
pub struct Entry {
    /// Name that programs ask for.
    pub base: &'static CStr,
    /// CUDA version of this form.
    pub version: i32,
    /// True if this is the form for the calling thread's default stream.
    pub per_thread: bool,
    /// The function.
    pub function: *const (),
}

// SAFETY: the pointer is a function's address, never written through.
unsafe impl Sync for Entry {}

/// The newest form of `base` that is not newer than `version`; the per-thread form if asked for and
/// there is one.
pub fn find(base: &CStr, version: i32, per_thread: bool) -> Option<&'static Entry> {
    let start = ENTRIES.partition_point(|e| e.base < base);
    let known = || ENTRIES[start..].iter().take_while(|e| e.base == base).filter(|e| e.version <= version);
    let pick = |flavour: bool| known().filter(|e| e.per_thread == flavour).max_by_key(|e| e.version);
    let legacy = pick(false);
    if per_thread { pick(true).or(legacy) } else { legacy }
}

/// An entry point that returns success. Naked, because the compiler would otherwise give all of
/// them one address, and interposers tell entry points apart by address.
macro_rules! instant {
    ($symbol:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("xor eax, eax", "ret");
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("mov w0, 0", "ret");
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/generated.rs"));
