//! Start-up, look-up, devices, contexts and streams.

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr::null_mut,
};

use radrm_cuda_abi::*;

use crate::{event, generated::find, memory};

/// Version that the driver claims: CUDA 13.5.
const VERSION: c_int = 13050;
/// Memory of the one device.
pub const TOTAL_BYTES: usize = 141 << 30;
/// A context, as good as any other.
const CONTEXT: CUcontext = CUcontext(0x1000 as *mut c_void);

/// Sets `*out` where there is somewhere to set it.
///
/// # Safety
/// `out` is null or valid for a write.
pub unsafe fn put<T>(out: *mut T, value: T) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { out.write(value) };
    CUDA_SUCCESS
}

/// Copies `text` with its terminator into `len` bytes at `out`.
///
/// # Safety
/// `out` is valid for `len` bytes.
unsafe fn put_text(out: *mut c_char, len: c_int, text: &CStr) -> CUresult {
    let bytes = text.to_bytes_with_nul();
    let take = bytes.len().min(usize::try_from(len).unwrap_or(0));
    // SAFETY: `take` is within both.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, take) };
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(_flags: c_uint) -> CUresult {
    unlike_others!("cuInit");
    memory::read_options();
    event::read_event_options();
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    unlike_others!("cuDriverGetVersion");
    // SAFETY: the caller's out-parameter.
    unsafe { put(version, VERSION) }
}

/// Looks a name up; a null pointer and `CUDA_ERROR_NOT_FOUND` where there is no such entry.
///
/// # Safety
/// `symbol` is a C string; `pfn` is valid for a write; `status` is null or valid for a write.
unsafe fn look_up(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut u32,
) -> CUresult {
    // SAFETY: a C string by this function's contract.
    let name = unsafe { CStr::from_ptr(symbol) };
    let found = find(name, version, flags & 2 != 0);
    let state = match found {
        Some(_) => 0,
        None if find(name, c_int::MAX, false).is_some() => 2,
        None => 1,
    };
    if !status.is_null() {
        // SAFETY: not null, and valid by this function's contract.
        unsafe { status.write(state) };
    }
    let function = found.map_or(null_mut(), |e| e.function.cast_mut().cast());
    // SAFETY: the caller's out-parameter.
    let put = unsafe { put(pfn, function) };
    if found.is_some() { put } else { CUDA_ERROR_NOT_FOUND }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    unlike_others!("cuGetProcAddress");
    // SAFETY: the caller's arguments; no status asked for.
    unsafe { look_up(symbol, pfn, version, flags, null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_void,
) -> CUresult {
    unlike_others!("cuGetProcAddress_v2");
    // SAFETY: the caller's arguments; the status is a 32-bit enumeration.
    unsafe { look_up(symbol, pfn, version, flags, status.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const CUuuid) -> CUresult {
    unlike_others!("cuGetExportTable");
    CUDA_ERROR_NOT_FOUND
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_error: CUresult, text: *mut *const c_char) -> CUresult {
    unlike_others!("cuGetErrorName");
    // SAFETY: the caller's out-parameter.
    unsafe { put(text, c"CUDA_ERROR".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_error: CUresult, text: *mut *const c_char) -> CUresult {
    unlike_others!("cuGetErrorString");
    // SAFETY: the caller's out-parameter.
    unsafe { put(text, c"an error".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    unlike_others!("cuDeviceGetCount");
    // SAFETY: the caller's out-parameter.
    unsafe { put(count, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    unlike_others!("cuDeviceGet");
    // SAFETY: the caller's out-parameter.
    unsafe { put(device, ordinal) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceGetName");
    // SAFETY: the caller's buffer and its length.
    unsafe { put_text(name, len, c"Instant GPU") }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut CUuuid, _device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceGetUuid");
    // SAFETY: the caller's out-parameter.
    unsafe { put(uuid, CUuuid { bytes: *b"instant-gpu-0000" }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceGetUuid_v2");
    // SAFETY: the caller's out-parameter.
    unsafe { cuDeviceGetUuid(uuid, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceTotalMem_v2");
    // SAFETY: the caller's out-parameter.
    unsafe { put(bytes, TOTAL_BYTES) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, _device: CUdevice) -> CUresult {
    unlike_others!("cuDeviceGetPCIBusId");
    // SAFETY: the caller's buffer and its length.
    unsafe { put_text(text, len, c"0000:01:00.0") }
}

/// Attributes are all 1: present, supported, one of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    _attribute: c_uint,
    _device: CUdevice,
) -> CUresult {
    unlike_others!("cuDeviceGetAttribute");
    // SAFETY: the caller's out-parameter.
    unsafe { put(value, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, _device: CUdevice) -> CUresult {
    unlike_others!("cuDevicePrimaryCtxRetain");
    // SAFETY: the caller's out-parameter.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(
    context: *mut CUcontext,
    _flags: c_uint,
    _device: CUdevice,
) -> CUresult {
    unlike_others!("cuCtxCreate_v2");
    // SAFETY: the caller's out-parameter.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    unlike_others!("cuCtxGetCurrent");
    // SAFETY: the caller's out-parameter.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> CUresult {
    unlike_others!("cuCtxPopCurrent_v2");
    if context.is_null() {
        return CUDA_SUCCESS;
    }
    // SAFETY: the caller's out-parameter.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    unlike_others!("cuCtxGetDevice");
    // SAFETY: the caller's out-parameter.
    unsafe { put(device, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice_v2(device: *mut CUdevice, _context: CUcontext) -> CUresult {
    unlike_others!("cuCtxGetDevice_v2");
    // SAFETY: the caller's out-parameter.
    unsafe { put(device, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetApiVersion(_context: CUcontext, version: *mut c_uint) -> CUresult {
    unlike_others!("cuCtxGetApiVersion");
    // SAFETY: the caller's out-parameter.
    unsafe { put(version, 3020) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut CUstream, _flags: c_uint) -> CUresult {
    unlike_others!("cuStreamCreate");
    // SAFETY: the caller's out-parameter.
    unsafe { put(stream, CUstream(0x2000 as *mut c_void)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(_stream: CUstream, context: *mut CUcontext) -> CUresult {
    unlike_others!("cuStreamGetCtx");
    // SAFETY: the caller's out-parameter.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(
    _stream: CUstream,
    status: *mut CUstreamCaptureStatus,
) -> CUresult {
    unlike_others!("cuStreamIsCapturing");
    // SAFETY: the caller's out-parameter.
    unsafe { put(status, CU_STREAM_CAPTURE_STATUS_NONE) }
}
