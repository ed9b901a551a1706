//! The driver's entry points for programs that call it, found as most frameworks find them: by `dlopen` and `dlsym`.
//!
//! There is a function for each entry point of the list in `radrm-cuda-abi`, with its name and its prototype. An entry
//! point is looked up when it is called for the first time.
#![allow(non_snake_case)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use radrm_cuda_abi::*;

/// The driver, once it is loaded. It stays: functions of it are called until the process ends.
fn library() -> Result<*mut c_void, &'static str> {
    static LIBRARY: OnceLock<Result<usize, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        // SAFETY: a C string; loading the driver runs its own code only.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok(handle as usize);
        }
        // SAFETY: null, or a C string that stays until the next call of this thread.
        let why = unsafe {
            let why = libc::dlerror();
            if why.is_null() { c"libcuda.so.1" } else { CStr::from_ptr(why) }
        };
        Err(why.to_string_lossy().into_owned())
    });
    found.as_ref().map(|handle| *handle as *mut c_void).map_err(String::as_str)
}

/// Loads the driver, as the first call of an entry point does.
///
/// # Errors
/// The loader's sentence if there is no driver.
pub fn load() -> Result<(), &'static str> {
    library().map(|_| ())
}

/// An entry point that is looked up when it is first called.
pub struct Entry {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Entry {
    /// The entry point of that name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_SUPPORTED if the driver does not have it, CUDA_ERROR_STUB_LIBRARY if there is no driver.
    pub fn get(&self) -> Result<*const c_void, CUresult> {
        // Relaxed: the value is the same for every thread, and what it points to was there before.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return Ok(known);
        }
        let library = library().map_err(|_| CUDA_ERROR_STUB_LIBRARY)?;
        // SAFETY: the handle of a loaded library and a C string.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        if found.is_null() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        self.address.store(found, Ordering::Relaxed);
        Ok(found)
    }
}

/// A driver call's result as an answer.
///
/// # Errors
/// What the driver said.
pub fn checked(result: CUresult) -> Result<(), CUresult> {
    if result.is_ok() { Ok(()) } else { Err(result) }
}

macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the driver.")]
        ///
        /// # Errors
        /// What the driver says.
        ///
        /// # Safety
        /// Pointers are what the driver's documentation asks for.
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $ty),*) -> Result<(), CUresult> {
            static AT: Entry = {
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                Entry::new(NAME)
            };
            let entry = AT.get()?;
            // SAFETY: the entry point of that name has these arguments.
            let call = unsafe {
                core::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> CUresult>(entry)
            };
            // SAFETY: as the caller promises.
            checked(unsafe { call($($arg),*) })
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_entry_point_is_told_from_a_missing_driver() {
        let expected = if load().is_ok() { CUDA_ERROR_NOT_SUPPORTED } else { CUDA_ERROR_STUB_LIBRARY };
        assert_eq!(Entry::new(c"cuNoSuchCall").get(), Err(expected));
        assert!(load().is_ok() || load().is_err_and(|why| why.contains("libcuda.so.1")));
    }
}
