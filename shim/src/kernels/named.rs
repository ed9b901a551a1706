//! Names learned when a handle is given out, for drivers older than 12.3, which cannot be asked later;
//! and which handles are kernels of libraries rather than functions of modules.

use core::ffi::{CStr, c_char};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use super::Kernels;
use super::learn::NAME_BYTES;
use crate::cx::Cx;
use crate::{arena, bytes};

/// Mark, below the name record's address, of a handle that is a library's kernel.
const KERNEL: u64 = 1;

/// Bytes of names that are kept: of more kernels than have a number of their own.
const INTERNED_BYTES: usize = 4 << 20;

/// Nothing is known of which handles are of no use any more: a full bucket replaces its pairs round robin.
fn never_useless(_word: u64) -> bool {
    false
}

/// A kept name: its length, then its bytes. Never freed or changed once it is reachable.
#[repr(C)]
struct Name {
    length: u32,
    bytes: [u8; 0],
}

impl Kernels {
    /// Returns true if the handle was given out as a library's kernel.
    pub(super) fn is_kernel(&self, handle: u64) -> bool {
        self.names.get(handle).is_some_and(|word| word & KERNEL != 0)
    }

    /// Notes that a handle is a library's kernel.
    pub(crate) fn mark_kernel(&self, handle: u64) {
        if !self.is_kernel(handle) {
            self.names.insert(handle, self.names.get(handle).unwrap_or(0) | KERNEL, never_useless);
        }
    }

    /// The name with which the handle was asked for.
    pub(super) fn name_of<'r>(&self, handle: u64, room: &'r mut [u8]) -> Option<&'r [u8]> {
        let name = read((self.names.get(handle)? & !KERNEL) as *const Name)?;
        let room = room.get_mut(..name.len())?;
        bytes::copy(room, name);
        Some(room)
    }

    fn note(&self, handle: u64, name: *const Name, mark: u64) {
        self.names.insert(handle, name.addr() as u64 | mark, never_useless);
    }

    /// The record of a name, made when it is first seen.
    fn interned(&self, name: &[u8]) -> *const Name {
        let name = name.get(..NAME_BYTES).unwrap_or(name);
        let key = hash(name);
        if let Some(there) = self.interned.get(key) {
            let there = there as *const Name;
            // Two names with one hash: the second stays unknown.
            return if read(there) == Some(name) { there } else { core::ptr::null() };
        }
        let bytes = size_of::<Name>() + name.len();
        if self.interned_bytes.fetch_add(bytes, Ordering::Relaxed) > INTERNED_BYTES {
            return core::ptr::null();
        }
        let Some(room) = arena::alloc(bytes) else { return core::ptr::null() };
        let room = room.cast::<Name>();
        // SAFETY: the block is ours alone and large enough for the length and the bytes.
        unsafe {
            (*room.as_ptr()).length = name.len() as u32;
            (&raw mut (*room.as_ptr()).bytes)
                .cast::<u8>()
                .copy_from_nonoverlapping(name.as_ptr(), name.len());
        }
        // The map publishes the record with its own release.
        self.interned.insert(key, room.as_ptr().addr() as u64);
        room.as_ptr()
    }
}

fn read<'n>(name: *const Name) -> Option<&'n [u8]> {
    let name = NonNull::new(name.cast_mut())?;
    // SAFETY: a record is complete before it is reachable and is never freed.
    unsafe {
        let length = name.as_ref().length as usize;
        Some(core::slice::from_raw_parts((&raw const (*name.as_ptr()).bytes).cast::<u8>(), length))
    }
}

fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// After `cuModuleGetFunction`.
///
/// # Safety
/// The arguments of that call.
pub(crate) unsafe fn function(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: *mut CUfunction,
    _module: CUmodule,
    name: *const c_char,
) -> CUresult {
    let result = call();
    if result.is_ok() && !function.is_null() && !name.is_null() && cx.driver().func_get_name().is_none() {
        // SAFETY: the driver has accepted both pointers.
        let (function, name) = unsafe { (*function, CStr::from_ptr(name)) };
        let kernels = &cx.page.kernels;
        kernels.note(function.addr(), kernels.interned(name.to_bytes()), 0);
    }
    result
}

/// After `cuLibraryGetKernel`.
///
/// # Safety
/// The arguments of that call.
pub(crate) unsafe fn kernel(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    kernel: *mut CUkernel,
    _library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    let result = call();
    if result.is_ok() && !kernel.is_null() && !name.is_null() {
        // SAFETY: the driver has accepted both pointers.
        let (kernel, name) = unsafe { (*kernel, CStr::from_ptr(name)) };
        let kernels = &cx.page.kernels;
        let name = match cx.driver().kernel_get_name() {
            Some(_) => core::ptr::null(),
            None => kernels.interned(name.to_bytes()),
        };
        kernels.note(kernel.addr(), name, KERNEL);
    }
    result
}

/// After `cuKernelGetFunction`: the function has its kernel's name.
///
/// # Safety
/// The arguments of that call.
pub(crate) unsafe fn of_kernel(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: *mut CUfunction,
    kernel: CUkernel,
) -> CUresult {
    let result = call();
    if result.is_ok() && !function.is_null() && cx.driver().func_get_name().is_none() {
        // SAFETY: the driver has written there.
        let function = unsafe { *function };
        let kernels = &cx.page.kernels;
        if let Some(word) = kernels.names.get(kernel.addr()).filter(|w| w & !KERNEL != 0) {
            kernels.names.insert(function.addr(), word & !KERNEL, never_useless);
        }
    }
    result
}

/// After `cuFuncSetBlockShape`: what the launches of the old interface will use.
///
/// # Safety
/// The arguments of that call.
pub(crate) unsafe fn block_shape(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    function: CUfunction,
    x: i32,
    y: i32,
    z: i32,
) -> CUresult {
    let result = call();
    if result.is_ok() {
        let threads = [x, y, z].into_iter().map(|n| u64::try_from(n).unwrap_or(0)).product();
        cx.page.kernels.shapes.insert(function.addr(), threads, never_useless);
    }
    result
}

impl Kernels {
    /// Threads per block that `cuFuncSetBlockShape` has set; 0 where it was not called.
    pub(crate) fn block_threads(&self, function: CUfunction) -> u64 {
        self.shapes.get(function.addr()).unwrap_or(0)
    }
}
