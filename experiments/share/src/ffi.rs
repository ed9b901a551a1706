//! The functions that the Python package calls through ctypes.
//!
//! A handle is valid from the call that makes it to the one that frees it, in the process that made it: in a forked child
//! every call does nothing. Functions return 0 or more for success, or a negative code; [`radrm_share_error`] then has
//! the words, for each thread its own.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

mod consumer;
mod dlpack;
mod producer;

use crate::message::Refusal;
use crate::ring::Slow;
use crate::{Error, sys};

/// Version of these functions and structures.
const VERSION: u32 = 3;

/// Kinds of errors, as Python distinguishes them.
mod code {
    use std::ffi::c_int;
    pub const OTHER: c_int = -1;
    pub const DIED: c_int = -2;
    pub const NO_PRODUCER: c_int = -3;
    pub const REFUSED: c_int = -4;
    pub const FAILED: c_int = -5;
    pub const TAKEN: c_int = -6;
    pub const GONE: c_int = -7;
    pub const ORDER: c_int = -8;
    pub const PROTOCOL: c_int = -9;
    pub const GPU: c_int = -10;
}

/// A call found nothing in time.
const AGAIN: c_int = 1;
/// No consumer wants the rest of the epoch.
const UNWANTED: c_int = 2;
/// The end of an epoch.
const EPOCH_END: c_int = 3;
/// The producer has ended.
const END: c_int = 4;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

fn failed(error: &Error) -> c_int {
    LAST.with_borrow_mut(|last| *last = error.to_string());
    match error {
        Error::Died => code::DIED,
        Error::NoProducer(_) => code::NO_PRODUCER,
        Error::Refused { code, .. } if *code == Refusal::Gone as u16 => code::GONE,
        Error::Refused { code, .. } if *code == Refusal::Order as u16 => code::ORDER,
        Error::Refused { .. } => code::REFUSED,
        Error::Failed(_) => code::FAILED,
        Error::Taken(_) => code::TAKEN,
        Error::Gpu(_) => code::GPU,
        Error::Message(_) | Error::Description(_) | Error::OtherUser(_) => code::PROTOCOL,
        _ => code::OTHER,
    }
}

/// Runs a call; a panic becomes an error of the program that called.
fn guarded(call: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => failed(&error),
        Err(_) => failed(&Error::Misuse("an error inside of RADRM")),
    }
}

/// A handle, and the process that made it.
pub struct Handle<T> {
    of: T,
    pid: u32,
}

impl<T> Handle<T> {
    fn make(of: T) -> *mut Self {
        Box::into_raw(Box::new(Self { of, pid: sys::pid() }))
    }

    /// # Safety
    /// The handle is null or valid.
    unsafe fn get<'a>(handle: *const Self) -> Result<&'a T, Error> {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle.as_ref() }.ok_or(Error::Misuse("it is closed"))?;
        if handle.pid == sys::pid() {
            Ok(&handle.of)
        } else {
            Err(Error::Misuse("a forked process cannot use it"))
        }
    }

    /// # Safety
    /// The handle is null or valid, and not used again.
    unsafe fn free(handle: *mut Self) {
        // In a forked child it is leaked: its descriptors are closed there already, and its thread does not exist.
        // SAFETY: the caller's promise.
        if unsafe { handle.as_ref() }.is_some_and(|handle| handle.pid == sys::pid()) {
            // SAFETY: `make` made it of a box, and no call uses it again.
            drop(unsafe { Box::from_raw(handle) });
        }
    }
}

/// # Safety
/// Null, or text that ends with a zero.
unsafe fn text(pointer: *const c_char) -> Result<Option<String>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(|text| Some(text.to_owned())).map_err(|_| Error::Misuse("a text is not UTF-8"))
}

fn slow(code: u8) -> Result<Option<Slow>, Error> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Slow::Wait)),
        2 => Ok(Some(Slow::Drop)),
        3 => Ok(Some(Slow::Spill)),
        _ => Err(Error::Misuse("slow is none of wait, drop and spill")),
    }
}

fn millis(timeout: i64) -> Duration {
    Duration::from_millis(u64::try_from(timeout).unwrap_or(0))
}

/// The version of these functions.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_share_version() -> u32 {
    VERSION
}

/// Copies what went wrong last on this thread, with a zero at the end; returns its length.
///
/// # Safety
/// `to` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_error(to: *mut c_char, room: usize) -> usize {
    LAST.with_borrow(|last| {
        let length = last.floor_char_boundary(room.saturating_sub(1));
        if room > 0 {
            // SAFETY: `length` is less than the room.
            unsafe {
                std::ptr::copy_nonoverlapping(last.as_ptr(), to.cast(), length);
                *to.add(length) = 0;
            }
        }
        length
    })
}

/// Closes what a forked child has of its parent's producers and consumers.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_share_forked() {
    sys::forget();
}
