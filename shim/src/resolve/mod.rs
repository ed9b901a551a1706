//! The real functions behind the wrappers, and the ways by which programs come to the wrappers.
//!
//! * [`attach`] finds the driver's library once it is loaded, keeps it loaded, and fills the table of
//!   real functions.
//! * [`early`] is the exported `dlsym` and `dlvsym`.
//! * [`proc_address`] routes `cuGetProcAddress`.
//! * [`route`] maps a real function's address to its wrapper; both of the above replace an address
//!   only if it is in that map.
//! * [`objects`] has the list of loaded objects, [`elf`] reads their symbol tables.

mod attach;
#[cfg_attr(test, allow(dead_code, reason = "the test program keeps libc's own functions"))]
mod early;
mod elf;
mod objects;
pub(crate) mod proc_address;
mod route;

#[cfg(target_arch = "x86_64")]
pub(crate) use attach::RADRM_REAL;
#[cfg(not(test))]
pub(crate) use attach::function_of;
pub(crate) use attach::{
    cold, driver_symbol, has_driver, launches_are_direct, loaded, no_nvml, nvml_symbol, program,
};

pub(crate) use elf::variable;

use crate::entries::EntryId;

/// The driver's own function of an entry point; null where it has none or is not loaded.
#[allow(dead_code, reason = "offered to all hooks")]
pub(crate) fn real(entry: EntryId) -> *mut () {
    let real = loaded(entry);
    if real.is_null() { cold(entry).unwrap_or(core::ptr::null_mut()) } else { real }
}
