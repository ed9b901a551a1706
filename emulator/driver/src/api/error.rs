//! Names and descriptions of error codes.

use core::ffi::c_char;

use radrm_cuda_abi::{CUDA_ERROR_INVALID_VALUE, CUresult, RESULTS};

use crate::util::ffi::Out;

/// Every code with both texts, NUL-terminated, made at the first question.
static TEXTS: std::sync::OnceLock<Vec<(CUresult, [std::ffi::CString; 2])>> = std::sync::OnceLock::new();

fn text(error: CUresult, which: usize, out: Out<*const c_char>) -> CUresult {
    let texts = TEXTS.get_or_init(|| {
        let c = |t: &str| std::ffi::CString::new(t).unwrap_or_default();
        RESULTS.iter().map(|(code, name, description)| (*code, [c(name), c(description)])).collect()
    });
    let found = texts.iter().find(|(code, _)| *code == error);
    let pointer = found.map_or(core::ptr::null(), |(_, texts)| texts[which].as_ptr());
    match (out.set(pointer), found) {
        (Ok(()), Some(_)) => CUresult(0),
        _ => CUDA_ERROR_INVALID_VALUE,
    }
}

/// Name of an error code; null and CUDA_ERROR_INVALID_VALUE for an unknown one.
///
/// # Safety
/// `name` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: CUresult, name: Out<*const c_char>) -> CUresult {
    text(error, 0, name)
}

/// Description of an error code; null and CUDA_ERROR_INVALID_VALUE for an unknown one.
///
/// # Safety
/// `description` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: CUresult, description: Out<*const c_char>) -> CUresult {
    text(error, 1, description)
}
