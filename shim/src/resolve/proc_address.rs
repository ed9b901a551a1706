//! `cuGetProcAddress` and `cuGetProcAddress_v2`: the driver answers, then its answer is routed.

use core::ffi::{CStr, c_char, c_int, c_void};

use radrm_cuda_abi::*;

use super::{attach, route};
use crate::entries::{EntryId, Flavour, Library};
use crate::mode;

/// Asks for the functions that work on the calling thread's default stream.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Replaces the address that the driver has given by the wrapper of that address.
///
/// # Safety
/// The arguments of a `cuGetProcAddress` call.
pub(crate) unsafe fn routed(
    _entry: EntryId,
    call: impl FnOnce() -> CUresult,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) -> CUresult {
    let result = call();
    if !result.is_ok() || pfn.is_null() || symbol.is_null() || mode::is_to_be_bypassed() {
        return result;
    }
    // SAFETY: the driver has accepted both pointers.
    let (name, found) = unsafe { (CStr::from_ptr(symbol), *pfn) };
    if !found.is_null()
        && attach::attach(Library::Cuda)
        && let Some(wrapper) = wrapper_for(name, found.cast(), cuda_version, flags)
    {
        // SAFETY: the driver has just written there.
        unsafe { *pfn = wrapper.cast_mut().cast() };
    }
    result
}

/// The wrapper of the address. Where a driver has one function under several names, the form that was
/// asked for is taken.
fn wrapper_for(name: &CStr, found: *mut (), cuda_version: c_int, flags: u64) -> Option<*const ()> {
    let wanted = if flags & PER_THREAD_DEFAULT_STREAM != 0 { Flavour::Ptsz } else { Flavour::Legacy };
    let asked = u32::try_from(cuda_version).unwrap_or(u32::MAX);
    route::entries_at(found)
        .filter_map(|entry| Some((entry, entry.info()?)))
        .filter(|(_, info)| info.base() == name.to_bytes() || info.symbol() == name)
        .max_by_key(|(_, info)| {
            let fits = info.version <= asked;
            (
                fits,
                (info.flavour == Flavour::Legacy) == (wanted == Flavour::Legacy),
                if fits { info.version } else { 0 },
            )
        })
        .map(|(entry, _)| entry.wrapper())
}
