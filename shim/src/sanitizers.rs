//! Lets programs start that are built with a sanitizer.

use core::ffi::{CStr, c_char};

/// The runtime need not be the first library: what it replaces, this library does not.
const ANY_ORDER: &CStr = c"verify_asan_link_order=0";

/// Options of AddressSanitizer's shared runtime, which ends a program where another library comes before it, as a preloaded
/// one does. A program's own function of this name comes before this one, and `ASAN_OPTIONS` holds above both.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(dead_code, reason = "a test exports nothing"))]
extern "C" fn __asan_default_options() -> *const c_char {
    ANY_ORDER.as_ptr()
}
