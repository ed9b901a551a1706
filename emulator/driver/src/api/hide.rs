//! Takes entry points out of the library's own symbol table, for drivers that lack them.
//!
//! `cuGetProcAddress` alone cannot play a driver that lacks entry points: many programs ask `dlsym`.
//! A symbol whose value is 0 is not found by the loader, so that is what those symbols get, when the
//! library is loaded and only where `RADRM_EMULATOR_FAULTS` asks for it.

use std::ffi::c_void;

use radrm_emulator_machine::{ENV_FAULTS, FaultPlan};

use crate::api::exports::TABLE;

/// `RTLD_DL_SYMENT`: dladdr1 gives the symbol's entry.
const SYMBOL_ENTRY: i32 = 1;

unsafe extern "C" {
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: i32) -> i32;
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let Some(text) = std::env::var_os(ENV_FAULTS) else { return };
    let Some(Ok(plan)) = text.to_str().map(FaultPlan::parse) else { return };
    for entry in &TABLE {
        let newer = plan.driver.is_some_and(|driver| entry.version > driver);
        if newer || plan.missing.contains(entry.base) || plan.missing.contains(entry.symbol) {
            hide(entry.address.cast());
        }
    }
}

/// Makes the symbol at an address one that the loader does not find.
fn hide(address: *const c_void) {
    // SAFETY: plain old data, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut entry: *mut c_void = std::ptr::null_mut();
    // SAFETY: both places are valid; the address is one of this library's functions.
    let found = unsafe { dladdr1(address, &mut info, &mut entry, SYMBOL_ENTRY) } != 0;
    if !found || entry.is_null() || info.dli_saddr != address.cast_mut() {
        return;
    }
    // SAFETY: the call has no precondition, and cannot fail for this name.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let first = entry as usize & !(page - 1);
    let end = (entry as usize + size_of::<libc::Elf64_Sym>()).next_multiple_of(page);
    // SAFETY: the symbol table lies in pages of this library that stay mapped; they are made writable
    // for one store of a size and alignment that the loader reads, and read-only again.
    unsafe {
        if libc::mprotect(first as *mut c_void, end - first, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        (*entry.cast::<libc::Elf64_Sym>()).st_value = 0;
        libc::mprotect(first as *mut c_void, end - first, libc::PROT_READ);
    }
}
