//! Reads the environment without libc's functions, so that no lock of theirs can be in the way.

use core::ffi::{CStr, c_char};

use crate::bytes;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The value of an environment variable, as the process's memory has it now.
///
/// The bytes are copied at once into `buffer`; a value that does not fit counts as absent.
pub(crate) fn value<'b>(name: &[u8], buffer: &'b mut [u8]) -> Option<&'b CStr> {
    // SAFETY: libc keeps `environ` a null-terminated array of strings.
    let mut at = unsafe { environ };
    if at.is_null() {
        return None;
    }
    loop {
        // SAFETY: `at` has not passed the terminating null.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // SAFETY: every entry is a C string.
        let entry = unsafe { CStr::from_ptr(entry) };
        if let Some(value) = entry.to_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            let room = buffer.get_mut(..value.len().checked_add(1)?)?;
            let (last, text) = room.split_last_mut()?;
            bytes::copy(text, value);
            *last = 0;
            return CStr::from_bytes_until_nul(room).ok();
        }
        // SAFETY: the entry was not the terminating null.
        at = unsafe { at.add(1) };
    }
}

/// Whether the variable is set to anything but the empty string and `0`.
pub(crate) fn is_set(name: &[u8]) -> bool {
    let mut buffer = [0u8; 64];
    match value(name, &mut buffer) {
        Some(text) => !matches!(text.to_bytes(), b"" | b"0"),
        None => is_present_long(name),
    }
}

/// Whether the variable is there with a value too long for [`is_set`]'s buffer.
fn is_present_long(name: &[u8]) -> bool {
    let mut buffer = [0u8; 4096];
    value(name, &mut buffer).is_some()
}
