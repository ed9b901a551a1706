//! Library that a call comes from.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

/// `_URC_NO_REASON` and `_URC_NORMAL_STOP`: go on, or enough.
const ON: c_int = 0;
const ENOUGH: c_int = 4;
/// Libraries that are preloaded and pass calls on.
const OWN: &str = "libradrm";

unsafe extern "C" {
    fn _Unwind_Backtrace(look: extern "C" fn(*mut c_void, *mut c_void) -> c_int, found: *mut c_void)
    -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// Base address and name of the file that the code at an address comes from.
fn file_of(address: usize) -> Option<(usize, String)> {
    // SAFETY: a place for the answer, which is read only if there is one.
    let (base, path) = unsafe {
        let mut about: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(ptr::with_exposed_provenance(address), &raw mut about) == 0
            || about.dli_fname.is_null()
        {
            return None;
        }
        (about.dli_fbase.addr(), CStr::from_ptr(about.dli_fname).to_string_lossy().into_owned())
    };
    Some((base, path.rsplit('/').next().unwrap_or_default().to_owned()))
}

/// Search for the first file that is neither this one nor one that passes calls on.
struct Search {
    own: usize,
    found: String,
}

extern "C" fn look(frame: *mut c_void, search: *mut c_void) -> c_int {
    // SAFETY: the unwinder's own frame, and the place that `library` hands over for this walk alone.
    let (address, search) = unsafe { (_Unwind_GetIP(frame), &mut *search.cast::<Search>()) };
    match file_of(address) {
        Some((base, name)) if base != search.own && !name.starts_with(OWN) => {
            search.found = name;
            ENOUGH
        }
        _ => ON,
    }
}

/// The library that called into the driver, without its folder.
pub(crate) fn library() -> String {
    let own = file_of(library as *const () as usize).map_or(0, |(base, _)| base);
    let mut search = Search { own, found: String::from("unknown") };
    // SAFETY: walks this thread's frames; the place outlives the walk.
    unsafe { _Unwind_Backtrace(look, (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_its_file() {
        let of = |address: usize| file_of(address).map(|(_, name)| name);
        assert!(of(libc::dladdr as *const () as usize).is_some_and(|name| name.starts_with("libc.so")));
        assert_eq!(of(16), None);
        // Called from this very file, so the next one is what started the thread.
        assert!(library().starts_with("libc.so"), "{}", library());
    }
}
