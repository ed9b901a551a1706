//! cuSOLVER: handles, and the workspaces of `data/workspaces.tsv` (those of cuSPARSE too).

use core::ffi::c_int;

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, Out};

use crate::handles::{Registry, library, library_call};
use crate::notes;

static HANDLES: Registry<u64> = Registry::new();

/// A driver's code as a status of cuSOLVER; cuSPARSE counts alike as far as these go.
pub(crate) fn status(code: u32) -> c_int {
    match CUresult(code) {
        CUDA_ERROR_NOT_INITIALIZED | CUDA_ERROR_NO_DEVICE => 1,
        CUDA_ERROR_OUT_OF_MEMORY => 2,
        CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_HANDLE => 3,
        CUDA_ERROR_NOT_SUPPORTED => 9,
        _ => 7,
    }
}

/// Letters of the table.
mod sizes {
    use crate::sparse;

    /// A 32-bit count.
    pub fn i(argument: usize) -> u64 {
        u64::try_from(argument as i32).unwrap_or(0)
    }

    /// A 64-bit count.
    pub fn l(argument: usize) -> u64 {
        u64::try_from(argument as i64).unwrap_or(0)
    }

    /// Bytes of a `cudaDataType`.
    pub fn t(argument: usize) -> u64 {
        super::cuda_type(argument as i32)
    }

    /// Elements that a sparse matrix stores.
    pub fn n(argument: usize) -> u64 {
        sparse::stored(argument as u64)
    }

    /// Rows of a sparse matrix.
    pub fn r(argument: usize) -> u64 {
        sparse::rows(argument as u64)
    }
}

/// Bytes of an element of a `cudaDataType`.
pub(crate) fn cuda_type(kind: i32) -> u64 {
    match kind {
        // Real and complex double, 64-bit integers.
        1 | 24 | 26 => 8,
        5 | 25 | 27 => 16,
        // Complex single.
        4 => 8,
        // Half and bfloat16, 16-bit integers.
        2 | 14 | 20 | 22 => 2,
        // 8-bit integers and floats.
        3 | 8 | 28 | 29 => 1,
        _ => 4,
    }
}

/// A size in the type of the result.
fn checked<T: TryFrom<u64>>(size: u64) -> Answer<T> {
    T::try_from(size).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

/// Writes a result at an address that the caller handed over.
fn out<T>(address: usize, value: T) -> Answer {
    // SAFETY: a C caller promises a place for the result, or null.
    unsafe { Out::at(address as *mut T) }.set(value)
}

include!(concat!(env!("OUT_DIR"), "/workspaces.rs"));

library! { status;
    /// Makes a handle or a set of parameters.
    fn radrm_cusolver_create(out: Out<u64>) {
        out.required()?;
        out.set(HANDLES.add(0))
    }

    /// Destroys a handle or a set of parameters.
    fn radrm_cusolver_destroy(handle: u64) {
        if handle == 0 {
            return Ok(());
        }
        HANDLES.remove(handle).map(|_| ())
    }

    /// Sets the stream.
    fn radrm_cusolverDnSetStream(handle: u64, stream: u64) {
        HANDLES.with(handle, |own| *own = stream)
    }

    /// The stream.
    fn radrm_cusolverDnGetStream(handle: u64, out: Out<u64>) {
        out.set(HANDLES.with(handle, |own| *own)?)
    }

    /// Version of the library.
    fn radrm_cusolverGetVersion(out: Out<c_int>) {
        out.set(12401)
    }

    /// A part of the version.
    fn radrm_cusolverGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| [12, 4, 1].get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_results_of_a_query_are_written() {
        let (mut device, mut host) = (usize::MAX, usize::MAX);
        let (a, b) = (&raw mut device as usize, &raw mut host as usize);
        // n = 10, double precision.
        assert_eq!(radrm_cusolverDnXsyevd_bufferSize(0, 0, 1, 0, 10, 1, 0, 10, 1, 0, 1, a, b), 0);
        assert_eq!((device, host), (2 * 10 * 10 * 8, 0));
    }

    #[test]
    fn counts_of_32_bits_ignore_what_stands_above_them() {
        let mut size = -1_i32;
        let place = &raw mut size as usize;
        assert_eq!(radrm_cusolverDnSgetrf_bufferSize(0, 0xdead_0000_0003, 5, 0, 3, place), 0);
        assert_eq!(size, 15);
    }

    #[test]
    fn a_missing_place_is_an_error_and_not_a_crash() {
        assert_eq!(radrm_cusolverDnSgetrf_bufferSize(0, 3, 5, 0, 3, 0), 3);
    }
}
