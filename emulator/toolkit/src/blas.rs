//! cuBLAS and cuBLASLt.
//!
//! Multiplications are not computed. What shapes memory is the workspace: cuBLAS takes one when a handle
//! is made, of the size that its documentation names for the architecture (section "cublasSetWorkspace"),
//! and gives it back with the handle; a caller who brings its own, as PyTorch does, has both. cuBLASLt uses
//! only what the caller brings.

use core::ffi::{CStr, c_char, c_int, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use crate::handles::{Attributes, OwnMemory, Registry, library};
use crate::runtime;

/// A handle of cuBLAS.
#[derive(Default)]
struct Handle {
    memory: OwnMemory,
    stream: u64,
    math_mode: c_int,
    pointer_mode: c_int,
    atomics_mode: c_int,
    sm_count: c_int,
}

static HANDLES: Registry<Handle> = Registry::new();
static DESCRIPTORS: Registry<Attributes> = Registry::new();

const VERSION: [c_int; 3] = [13, 4, 0];
const VERSION_12: [c_int; 3] = [12, 9, 1];

/// A driver's code as a status of cuBLAS.
fn status(code: u32) -> c_int {
    match CUresult(code) {
        CUDA_ERROR_OUT_OF_MEMORY => 3,
        CUDA_ERROR_INVALID_VALUE => 7,
        CUDA_ERROR_INVALID_HANDLE | CUDA_ERROR_NOT_INITIALIZED | CUDA_ERROR_NO_DEVICE => 1,
        CUDA_ERROR_NOT_SUPPORTED => 15,
        _ => 14,
    }
}

/// Workspace that a handle brings with it, by compute capability.
fn workspace(major: c_int) -> usize {
    match major {
        9..=11 => 32 << 20,
        12.. => 12 << 20,
        _ => 4 << 20,
    }
}

fn create(out: Out<u64>) -> Answer {
    out.required()?;
    let mut handle = Handle::default();
    let device = runtime::memory::device_now()?;
    handle.memory.take(workspace(runtime::device::attribute(device, 75)?))?;
    out.set(HANDLES.add(handle))
}

fn version_number([major, minor, patch]: [c_int; 3]) -> c_int {
    major * 10000 + minor * 100 + patch
}

library! { status;
    /// Makes a handle, with its workspace.
    fn radrm_cublasCreate_v2(out: Out<u64>) {
        create(out)
    }

    /// Destroys a handle.
    fn radrm_cublasDestroy_v2(handle: u64) {
        HANDLES.remove(handle)?.memory.give_back();
        Ok(())
    }

    /// Version of the library.
    fn radrm_cublasGetVersion_v2(_handle: u64, out: Out<c_int>) {
        out.set(version_number(VERSION))
    }

    /// Version of the library, in CUDA 12.
    fn radrm_12_cublasGetVersion_v2(_handle: u64, out: Out<c_int>) {
        out.set(version_number(VERSION_12))
    }

    /// A part of the version.
    fn radrm_cublasGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| VERSION.get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// A part of the version, in CUDA 12.
    fn radrm_12_cublasGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| VERSION_12.get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Sets the stream. As with the library itself, the workspace is the handle's own again.
    fn radrm_cublasSetStream_v2(handle: u64, stream: u64) {
        HANDLES.with(handle, |handle| handle.stream = stream)
    }

    /// The stream.
    fn radrm_cublasGetStream_v2(handle: u64, out: Out<u64>) {
        out.set(HANDLES.with(handle, |handle| handle.stream)?)
    }

    /// Takes the caller's workspace; it stays the caller's.
    fn radrm_cublasSetWorkspace_v2(handle: u64, _workspace: u64, _bytes: usize) {
        HANDLES.with(handle, |_| ())
    }

    /// Sets the precision.
    fn radrm_cublasSetMathMode(handle: u64, mode: c_int) {
        HANDLES.with(handle, |handle| handle.math_mode = mode)
    }

    /// The precision.
    fn radrm_cublasGetMathMode(handle: u64, out: Out<c_int>) {
        out.set(HANDLES.with(handle, |handle| handle.math_mode)?)
    }

    /// Says where scalars are.
    fn radrm_cublasSetPointerMode_v2(handle: u64, mode: c_int) {
        HANDLES.with(handle, |handle| handle.pointer_mode = mode)
    }

    /// Pointer mode: location of scalars.
    fn radrm_cublasGetPointerMode_v2(handle: u64, out: Out<c_int>) {
        out.set(HANDLES.with(handle, |handle| handle.pointer_mode)?)
    }

    /// Allows atomic additions.
    fn radrm_cublasSetAtomicsMode(handle: u64, mode: c_int) {
        HANDLES.with(handle, |handle| handle.atomics_mode = mode)
    }

    /// Atomics mode: permission of atomic additions.
    fn radrm_cublasGetAtomicsMode(handle: u64, out: Out<c_int>) {
        out.set(HANDLES.with(handle, |handle| handle.atomics_mode)?)
    }

    /// Limits the multiprocessors.
    fn radrm_cublasSetSmCountTarget(handle: u64, count: c_int) {
        HANDLES.with(handle, |handle| handle.sm_count = count)
    }

    /// That limit.
    fn radrm_cublasGetSmCountTarget(handle: u64, out: Out<c_int>) {
        out.set(HANDLES.with(handle, |handle| handle.sm_count)?)
    }

    /// Reductions of one vector to 4 bytes: `(handle, n, x, incx, result)`. A result on the host is 0.
    fn radrm_cublas_reduction_4(handle: u64, _n: i64, _x: u64, _step: i64, result: Out<u64>) {
        scalar(handle, result, 4)
    }

    /// Products of two vectors to 4 bytes: `(handle, n, x, incx, y, incy, result)`.
    fn radrm_cublas_dot_4(
        handle: u64, _n: i64, _x: u64, _step_x: i64, _y: u64, _step_y: i64, result: Out<u64>,
    ) {
        scalar(handle, result, 4)
    }

    /// Reductions of one vector to 8 bytes: `(handle, n, x, incx, result)`. A result on the host is 0.
    fn radrm_cublas_reduction_8(handle: u64, _n: i64, _x: u64, _step: i64, result: Out<u64>) {
        scalar(handle, result, 8)
    }

    /// Products of two vectors to 8 bytes: `(handle, n, x, incx, y, incy, result)`.
    fn radrm_cublas_dot_8(
        handle: u64, _n: i64, _x: u64, _step_x: i64, _y: u64, _step_y: i64, result: Out<u64>,
    ) {
        scalar(handle, result, 8)
    }

    /// Products of two vectors to 16 bytes: `(handle, n, x, incx, y, incy, result)`.
    fn radrm_cublas_dot_16(
        handle: u64, _n: i64, _x: u64, _step_x: i64, _y: u64, _step_y: i64, result: Out<u64>,
    ) {
        scalar(handle, result, 16)
    }

    /// `cublasDotEx`: `(handle, n, x, type, incx, y, type, incy, result, type, type)`.
    fn radrm_cublasDotEx(
        handle: u64, _n: c_int, _x: u64, _xt: c_int, _step_x: c_int, _y: u64, _yt: c_int, _step_y: c_int,
        result: Out<u64>, _result_type: c_int, _compute: c_int,
    ) {
        scalar(handle, result, 2)
    }

    /// `cublasNrm2Ex`: `(handle, n, x, type, incx, result, type, type)`.
    fn radrm_cublasNrm2Ex(
        handle: u64, _n: c_int, _x: u64, _xt: c_int, _step: c_int, result: Out<u64>, _rt: c_int, _compute: c_int,
    ) {
        scalar(handle, result, 2)
    }

    /// Makes a handle of cuBLASLt, which takes no memory.
    fn radrm_cublasLtCreate(out: Out<u64>) {
        out.required()?;
        out.set(DESCRIPTORS.add(Attributes::default()))
    }

    /// Destroys it.
    fn radrm_cublasLtDestroy(handle: u64) {
        DESCRIPTORS.remove(handle).map(|_| ())
    }

    /// Makes a description of a multiplication.
    fn radrm_cublasLtMatmulDescCreate(out: Out<u64>, _compute: c_int, _scale: c_int) {
        out.required()?;
        out.set(DESCRIPTORS.add(Attributes::default()))
    }

    /// Makes a description of a matrix.
    fn radrm_cublasLtMatrixLayoutCreate(out: Out<u64>, _kind: c_int, _rows: u64, _columns: u64, _lead: i64) {
        out.required()?;
        out.set(DESCRIPTORS.add(Attributes::default()))
    }

    /// Makes a description of a transformation.
    fn radrm_cublasLtMatrixTransformDescCreate(out: Out<u64>, _scale: c_int) {
        out.required()?;
        out.set(DESCRIPTORS.add(Attributes::default()))
    }

    /// Makes preferences.
    fn radrm_cublasLtMatmulPreferenceCreate(out: Out<u64>) {
        out.required()?;
        out.set(DESCRIPTORS.add(Attributes::default()))
    }

    /// Destroys a description of any kind.
    fn radrm_cublasLt_destroy(descriptor: u64) {
        DESCRIPTORS.remove(descriptor).map(|_| ())
    }

    /// Sets an attribute of a description. One that the caller keeps on its own stack is not known here,
    /// and nothing about it matters to memory.
    fn radrm_cublasLt_set(descriptor: u64, id: c_int, value: In<u8>, bytes: usize) {
        DESCRIPTORS.with(descriptor, |own| own.set(id, value, bytes)).unwrap_or(Ok(()))
    }

    /// An attribute of a description.
    fn radrm_cublasLt_get(descriptor: u64, id: c_int, out: Out<u8>, bytes: usize, written: Out<usize>) {
        let own = DESCRIPTORS.with(descriptor, |own| own.clone()).unwrap_or_default();
        own.get(id, out, bytes, written)
    }

    /// Ways to multiply: one, which needs no workspace.
    fn radrm_cublasLtMatmulAlgoGetHeuristic(
        _handle: u64, _operation: u64, _a: u64, _b: u64, _c: u64, _d: u64, _preference: u64, wanted: c_int,
        results: Out<Heuristic>, found: Out<c_int>,
    ) {
        heuristic(wanted, results, found)
    }

    /// As `cublasLtMatmulAlgoGetHeuristic`.
    fn radrm_cublasLtMatmulAlgoGetHeuristicForStream(
        _handle: u64, _operation: u64, _a: u64, _b: u64, _c: u64, _d: u64, _preference: u64, wanted: c_int,
        results: Out<Heuristic>, found: Out<c_int>, _stream: u64,
    ) {
        heuristic(wanted, results, found)
    }

    /// Checks that an algorithm is possible: each is, without workspace.
    fn radrm_cublasLtMatmulAlgoCheck(
        _handle: u64, _operation: u64, _a: u64, _b: u64, _c: u64, _d: u64, _way: In<u8>, result: Out<Heuristic>,
    ) {
        result.required()?;
        result.set(Heuristic::FOUND)
    }

    /// Numbers of the ways: one.
    fn radrm_cublasLtMatmulAlgoGetIds(
        _handle: u64, _compute: c_int, _scale: c_int, _a: c_int, _b: c_int, _c: c_int, _d: c_int, wanted: c_int,
        ids: Out<c_int>, found: Out<c_int>,
    ) {
        if wanted > 0 {
            ids.set(0)?;
        }
        found.set(wanted.min(1))
    }

    /// Makes a way of its number.
    fn radrm_cublasLtMatmulAlgoInit(
        _handle: u64, _compute: c_int, _scale: c_int, _a: c_int, _b: c_int, _c: c_int, _d: c_int, id: c_int,
        way: Out<[u64; 8]>,
    ) {
        way.set([u64::from(id.cast_unsigned()), 0, 0, 0, 0, 0, 0, 0])
    }

    /// A setting of a way: zeros.
    fn radrm_cublasLt_get_of_way(_way: In<u8>, id: c_int, out: Out<u8>, bytes: usize, written: Out<usize>) {
        Attributes::default().get(id, out, bytes, written)
    }
}

/// A result that the caller wants at once is 0.
fn scalar(handle: u64, result: Out<u64>, bytes: usize) -> Answer {
    if HANDLES.with(handle, |handle| handle.pointer_mode)? == 0 {
        result.required()?;
        for index in 0..bytes {
            result.cast::<u8>().set_at(index, 0)?;
        }
    }
    Ok(())
}

fn heuristic(wanted: c_int, results: Out<Heuristic>, found: Out<c_int>) -> Answer {
    found.required()?;
    if wanted > 0 {
        results.set(Heuristic::FOUND)?;
    }
    found.set(wanted.min(1))
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Heuristic {
    way: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

impl Heuristic {
    const FOUND: Self = Self { way: [0; 8], workspace: 0, state: 0, waves: 1.0, reserved: [0; 4] };
}

const _: () = assert!(size_of::<Heuristic>() == 96);

/// Statuses by number.
const NAMES: &[(c_int, &CStr)] = &[
    (0, c"CUBLAS_STATUS_SUCCESS"),
    (1, c"CUBLAS_STATUS_NOT_INITIALIZED"),
    (3, c"CUBLAS_STATUS_ALLOC_FAILED"),
    (7, c"CUBLAS_STATUS_INVALID_VALUE"),
    (8, c"CUBLAS_STATUS_ARCH_MISMATCH"),
    (11, c"CUBLAS_STATUS_MAPPING_ERROR"),
    (13, c"CUBLAS_STATUS_EXECUTION_FAILED"),
    (14, c"CUBLAS_STATUS_INTERNAL_ERROR"),
    (15, c"CUBLAS_STATUS_NOT_SUPPORTED"),
    (16, c"CUBLAS_STATUS_LICENSE_ERROR"),
];

/// Name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cublasGetStatusName(status: c_int) -> *const c_char {
    NAMES.iter().find(|(code, _)| *code == status).map_or(c"CUBLAS_STATUS_UNKNOWN", |(_, name)| name).as_ptr()
}

/// A status in words: its name says it.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cublasGetStatusString(status: c_int) -> *const c_char {
    radrm_cublasGetStatusName(status)
}

/// Version of cuBLASLt.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cublasLtGetVersion() -> usize {
    version_number(VERSION).unsigned_abs() as usize
}

/// Version of cuBLASLt, in CUDA 12.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_12_cublasLtGetVersion() -> usize {
    version_number(VERSION_12).unsigned_abs() as usize
}

/// Version of the runtime that the library was made for.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cublasLtGetCudartVersion() -> usize {
    13020
}

/// Prepares a description that the caller keeps: zeros, as the library's own are before anything is set.
///
/// # Safety
/// `descriptor` is null or points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_cublasLt_init(descriptor: *mut c_void, bytes: usize) -> c_int {
    if descriptor.is_null() {
        return 7;
    }
    // SAFETY: as the caller promises.
    unsafe { core::ptr::write_bytes(descriptor.cast::<u8>(), 0, bytes) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_are_those_of_the_documentation() {
        for (major, mib) in [(7, 4), (8, 4), (9, 32), (10, 32), (12, 12)] {
            assert_eq!(workspace(major), mib << 20, "compute capability {major}");
        }
    }

    #[test]
    fn a_way_is_offered_only_where_there_is_room() {
        let (mut results, mut found) = (Heuristic { workspace: 5, ..Heuristic::FOUND }, -1);
        heuristic(0, Out::of(&mut results), Out::of(&mut found)).unwrap();
        assert_eq!((results.workspace, found), (5, 0));
        heuristic(3, Out::of(&mut results), Out::of(&mut found)).unwrap();
        assert_eq!((results.workspace, found), (0, 1));
    }
}
