//! The thread's last error, and names of errors.

use core::ffi::{CStr, c_char, c_int};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

use radrm_cuda_abi::{CUDA_ERROR_NOT_READY, CUresult};
use radrm_emulator_ffi::Answer;

use radrm_cuda_client as driver;

const TABLE: &str = include_str!("../../data/errors.tsv");

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

static NAMES: LazyLock<HashMap<c_int, CString>> = LazyLock::new(|| {
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (code, name) = line.split_once('\t')?;
            Some((code.parse().ok()?, CString::new(name).ok()?))
        })
        .collect()
});

/// The code for the caller; a failure is also what `cudaGetLastError` will say. The runtime's codes are
/// the driver's: both count alike since CUDA 10.1.
pub(super) fn remember(answer: Answer) -> c_int {
    let code = match answer {
        Ok(()) => return 0,
        Err(code) => code.0.cast_signed(),
    };
    // Work that is not done yet is an answer, not an error.
    if code != CUDA_ERROR_NOT_READY.0.cast_signed() {
        LAST.set(code);
    }
    code
}

/// The thread's last error, which is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudaGetLastError() -> c_int {
    LAST.replace(0)
}

/// The thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudaPeekAtLastError() -> c_int {
    LAST.get()
}

/// Name of a code.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudaGetErrorName(code: c_int) -> *const c_char {
    crate::guarded(c"unrecognized error code".as_ptr(), || {
        NAMES.get(&code).map_or(c"unrecognized error code", |name| name.as_c_str()).as_ptr()
    })
}

/// A code in words: the driver's words for the same code.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudaGetErrorString(code: c_int) -> *const c_char {
    const UNKNOWN: &CStr = c"unrecognized error code";
    crate::guarded(UNKNOWN.as_ptr(), || {
        let mut text = std::ptr::null();
        // SAFETY: a place for the text, which the driver keeps.
        let answer = unsafe { driver::cuGetErrorString(CUresult(code.cast_unsigned()), &raw mut text) };
        match answer {
            Ok(()) if !text.is_null() => text,
            _ => NAMES.get(&code).map_or(UNKNOWN, |name| name.as_c_str()).as_ptr(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_cuda_abi::{CUDA_ERROR_OUT_OF_MEMORY, RESULTS};

    /// Contexts, modules and links of the driver alone: no call of the runtime meets them.
    const DRIVER_ONLY: [u32; 6] = [47, 202, 227, 916, 918, 919];

    #[test]
    fn the_last_error_is_told_once() {
        assert_eq!(remember(Err(CUDA_ERROR_OUT_OF_MEMORY)), 2);
        assert_eq!(remember(Err(CUDA_ERROR_NOT_READY)), 600);
        assert_eq!(radrm_cudaPeekAtLastError(), 2);
        assert_eq!(radrm_cudaGetLastError(), 2);
        assert_eq!(radrm_cudaGetLastError(), 0);
    }

    #[test]
    fn codes_of_the_driver_have_names_in_the_runtime() {
        let missing: Vec<u32> = RESULTS
            .iter()
            .map(|(code, ..)| code.0)
            .filter(|code| !NAMES.contains_key(&code.cast_signed()))
            .collect();
        assert_eq!(missing, DRIVER_ONLY);
        // SAFETY: the name is a C string that stays.
        let name = unsafe { CStr::from_ptr(radrm_cudaGetErrorName(2)) };
        assert_eq!(name, c"cudaErrorMemoryAllocation");
    }
}
