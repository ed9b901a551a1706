//! Remaining libraries: random numbers, compilers, profilers, files, symmetric memory.

use core::ffi::{CStr, c_char, c_int, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, Out};

use crate::handles::{OwnMemory, Registry, library};
use crate::runtime;

/// Generators of cuRAND, with the states that they keep on the device.
static GENERATORS: Registry<OwnMemory> = Registry::new();

/// A driver's code as a status of cuRAND.
fn status(code: u32) -> c_int {
    match CUresult(code) {
        CUDA_ERROR_OUT_OF_MEMORY => 102,
        CUDA_ERROR_INVALID_VALUE => 104,
        CUDA_ERROR_INVALID_HANDLE | CUDA_ERROR_NOT_INITIALIZED => 101,
        _ => 999,
    }
}

/// States of a generator by its kind (`curandRngType`): XORWOW and MRG32k3a keep 48 and 72 bytes for each of
/// 64 blocks of 64 threads, the Mersenne Twisters 200 states of their recurrence, Philox and the
/// quasi-random ones nothing to speak of.
fn states(kind: c_int) -> usize {
    match kind {
        100 | 101 => 64 * 64 * 48,
        121 => 64 * 64 * 72,
        141 => 200 * 352 * 4,
        142 => 8192 * 624 * 4,
        _ => 0,
    }
}

fn generator(out: Out<u64>, bytes: usize) -> Answer {
    out.required()?;
    let mut memory = OwnMemory::default();
    if bytes > 0 {
        runtime::device::ready()?;
        memory.take(bytes)?;
    }
    out.set(GENERATORS.add(memory))
}

library! { status;
    /// Makes a generator, with its states.
    fn radrm_curandCreateGenerator(out: Out<u64>, kind: c_int) {
        generator(out, states(kind))
    }

    /// Makes a generator on the host.
    fn radrm_curandCreateGeneratorHost(out: Out<u64>, _kind: c_int) {
        generator(out, 0)
    }

    /// Destroys a generator.
    fn radrm_curandDestroyGenerator(handle: u64) {
        GENERATORS.remove(handle)?.give_back();
        Ok(())
    }

    /// Version of cuRAND.
    fn radrm_curandGetVersion(out: Out<c_int>) {
        out.set(10405)
    }

    /// A part of the version.
    fn radrm_curandGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| [10, 4, 5].get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Version of CUPTI's interface.
    fn radrm_cuptiGetVersion(out: Out<u32>) {
        out.set(130_500)
    }

    /// Names of results and callbacks of CUPTI.
    fn radrm_cupti_name(_what: usize, out: Out<*const c_char>) {
        out.set(c"not available in a dry run".as_ptr())
    }

    /// Names of callbacks of CUPTI: `(domain, callback, name)`.
    fn radrm_cuptiGetCallbackName(_domain: usize, _callback: u32, out: Out<*const c_char>) {
        out.set(c"not available in a dry run".as_ptr())
    }

    /// The next record of a profile: there is none (12: the limit is reached).
    fn radrm_cuptiActivityGetNextRecord(_buffer: *mut u8, _bytes: usize, record: Out<*mut c_void>) {
        record.set_if_wanted(core::ptr::null_mut());
        Err(CUDA_ERROR_NOT_FOUND)
    }

    /// Records that were lost: none.
    fn radrm_cuptiActivityGetNumDroppedRecords(_context: u64, _stream: u32, out: Out<usize>) {
        out.set(0)
    }

    /// A subscriber, who will hear nothing.
    fn radrm_cuptiSubscribe(out: Out<u64>, _callback: u64, _data: u64) {
        out.set(1)
    }

    /// The external id that was pushed last.
    fn radrm_cuptiActivityPopExternalCorrelationId(_kind: c_int, out: Out<u64>) {
        out.set_if_wanted(0);
        Ok(())
    }

    /// Version of the compiler that is not there.
    fn radrm_nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) {
        major.set(13)?;
        minor.set(2)
    }
}

/// A result of the compiler in words.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_nvrtcGetErrorString(result: c_int) -> *const c_char {
    const NAMES: [(c_int, &CStr); 2] =
        [(0, c"NVRTC_SUCCESS"), (11, c"NVRTC_ERROR_INTERNAL_ERROR (NVRTC is not installed)")];
    NAMES.iter().find(|(code, _)| *code == result).map_or(c"NVRTC_ERROR", |(_, name)| name).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generators_with_states_take_memory() {
        assert_eq!(states(161), 0);
        assert_eq!(states(100), 196_608);
    }
}
