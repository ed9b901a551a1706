//! Reads the environment without libc's functions, so that no lock of theirs can be in the way.
//!
//! Two environments count: the initial one, which the program cannot lose, and the present one, which is all that is
//! left in a program that has overwritten the initial one with a title of its own (setproctitle).

use core::ffi::{CStr, c_char};

use crate::bytes;

mod initial;
mod kept;

pub(crate) use kept::keep;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The value of an environment variable: of the initial environment, and of the present one where the initial one has
/// none or an empty one. A program that changes its environment thus leaves no limit.
///
/// The bytes are copied at once into `buffer`; a value that does not fit counts as absent.
pub(crate) fn value<'b>(name: &[u8], buffer: &'b mut [u8]) -> Option<&'b CStr> {
    let initial = at_start(name);
    let value = initial.filter(|value| !value.is_empty()).or_else(|| present(name)).or(initial)?;
    let room = buffer.get_mut(..value.len().checked_add(1)?)?;
    let (last, text) = room.split_last_mut()?;
    bytes::copy(text, value);
    *last = 0;
    CStr::from_bytes_until_nul(room).ok()
}

/// Returns true if the variable is set, in either environment, to anything but the empty string and `0`.
pub(crate) fn is_set(name: &[u8]) -> bool {
    is_set_initially(name) || present(name).is_some_and(is_true)
}

/// As [`is_set`], of the initial environment alone.
pub(crate) fn is_set_initially(name: &[u8]) -> bool {
    at_start(name).is_some_and(is_true)
}

/// The value in the initial environment, or in the copy of it where the program has overwritten that since.
fn at_start(name: &[u8]) -> Option<&'static [u8]> {
    initial::value(name).or_else(|| kept::value(name))
}

fn is_true(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0")
}

/// The value of a variable as the process's memory has it now.
fn present(name: &[u8]) -> Option<&'static [u8]> {
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
        if let Some(value) = value_of(unsafe { CStr::from_ptr(entry) }.to_bytes(), name) {
            return Some(value);
        }
        // SAFETY: the entry was not the terminating null.
        at = unsafe { at.add(1) };
    }
}

/// The value in an entry of this name.
fn value_of<'e>(entry: &'e [u8], name: &[u8]) -> Option<&'e [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}
