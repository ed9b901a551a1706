//! Memory: taken and freed by the driver, in the runtime's forms.

use core::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, Out};

use super::{device, runtime};
use radrm_cuda_client as driver;

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PitchedPtr {
    pub(super) address: u64,
    pub(super) pitch: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `cudaExtent`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

/// `cudaPointerAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
    reserved: [u64; 8],
}

/// `cudaPointerAttributes` of CUDA 12.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PointerAttributes12 {
    kind: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
}

const UNREGISTERED: c_int = 0;
const MANAGED: c_int = 3;
/// Device of a pointer that belongs to none.
const NO_DEVICE: c_int = -2;

/// Takes device memory; 0 bytes are the null pointer.
fn take(out: Out<CUdeviceptr>, bytes: usize) -> Answer {
    out.required()?;
    let mut address = 0;
    if bytes > 0 {
        // SAFETY: a place for the address.
        unsafe { driver::cuMemAlloc_v2(&raw mut address, bytes)? };
    }
    out.set(address)
}

fn take_host(out: Out<*mut c_void>, bytes: usize, flags: c_uint) -> Answer {
    out.required()?;
    let mut address = null_mut();
    if bytes > 0 {
        // SAFETY: a place for the address.
        unsafe { driver::cuMemHostAlloc(&raw mut address, bytes, flags)? };
    }
    out.set(address)
}

fn describe(pointer: u64) -> Answer<PointerAttributes> {
    let get_int = |attribute| -> Option<c_int> {
        let mut value: c_int = 0;
        // SAFETY: the attributes asked for this way are integers of this size.
        unsafe { driver::cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer) }.ok()?;
        Some(value)
    };
    let get_address = |attribute| -> u64 {
        let mut value = 0_u64;
        // SAFETY: the attributes asked for this way are addresses.
        match unsafe { driver::cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer) } {
            Ok(()) => value,
            Err(_) => 0,
        }
    };
    let Some(kind) = get_int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE) else {
        // The driver does not know it: memory of the host that was never registered.
        let unknown = PointerAttributes {
            kind: UNREGISTERED,
            device: NO_DEVICE,
            host_pointer: pointer,
            ..Default::default()
        };
        return Ok(unknown);
    };
    let managed = get_int(CU_POINTER_ATTRIBUTE_IS_MANAGED).is_some_and(|is| is & 0xff != 0);
    Ok(PointerAttributes {
        kind: if managed { MANAGED } else { kind },
        device: get_int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL).unwrap_or(NO_DEVICE),
        device_pointer: get_address(CU_POINTER_ATTRIBUTE_DEVICE_POINTER),
        host_pointer: get_address(CU_POINTER_ATTRIBUTE_HOST_POINTER),
        ..Default::default()
    })
}

/// Returns true if an address is device memory, which the host cannot write to.
pub(super) fn is_device(address: u64) -> bool {
    const DEVICE: c_int = 2;
    describe(address).is_ok_and(|own| own.kind == DEVICE || own.kind == MANAGED)
}

runtime! {
    /// Takes device memory.
    with_context radrm_cudaMalloc(out: Out<CUdeviceptr>, bytes: usize) {
        take(out, bytes)
    }

    /// Takes device memory in rows.
    with_context radrm_cudaMallocPitch(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemAllocPitch_v2(out, pitch, width, height, 4) }
    }

    /// Takes device memory in planes of rows.
    with_context radrm_cudaMalloc3D(out: Out<PitchedPtr>, extent: Extent) {
        out.required()?;
        let rows = extent.height.checked_mul(extent.depth).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let (mut address, mut pitch) = (0, 0);
        // SAFETY: places for the results.
        unsafe { driver::cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, extent.width, rows, 4)? };
        out.set(PitchedPtr { address, pitch, width: extent.width, height: extent.height })
    }

    /// Takes memory that both sides reach.
    with_context radrm_cudaMallocManaged(out: *mut CUdeviceptr, bytes: usize, flags: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemAllocManaged(out, bytes, flags) }
    }

    /// Takes memory of the device's pool.
    with_context radrm_cudaMallocAsync(out: Out<CUdeviceptr>, bytes: usize, stream: CUstream) {
        out.required()?;
        if bytes == 0 {
            return out.set(0);
        }
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemAllocAsync(out.raw(), bytes, stream) }
    }

    /// Takes memory of a pool.
    with_context radrm_cudaMallocFromPoolAsync(
        out: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream,
    ) {
        out.required()?;
        if bytes == 0 {
            return out.set(0);
        }
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemAllocFromPoolAsync(out.raw(), bytes, pool, stream) }
    }

    /// Frees device memory.
    with_context radrm_cudaFree(address: CUdeviceptr) {
        if address == 0 {
            return Ok(());
        }
        // SAFETY: no pointers.
        unsafe { driver::cuMemFree_v2(address) }
    }

    /// Frees memory of a pool.
    with_context radrm_cudaFreeAsync(address: CUdeviceptr, stream: CUstream) {
        if address == 0 {
            return Ok(());
        }
        // SAFETY: no pointers.
        unsafe { driver::cuMemFreeAsync(address, stream) }
    }

    /// Takes page-locked memory.
    with_context radrm_cudaMallocHost(out: Out<*mut c_void>, bytes: usize) {
        take_host(out, bytes, 0)
    }

    /// Takes page-locked memory.
    with_context radrm_cudaHostAlloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) {
        take_host(out, bytes, flags)
    }

    /// Frees page-locked memory.
    with_context radrm_cudaFreeHost(address: *mut c_void) {
        if address.is_null() {
            return Ok(());
        }
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemFreeHost(address) }
    }

    /// Locks the pages of memory that is there.
    with_context radrm_cudaHostRegister(address: *mut c_void, bytes: usize, flags: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemHostRegister_v2(address, bytes, flags) }
    }

    /// Unlocks pages.
    with_context radrm_cudaHostUnregister(address: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemHostUnregister(address) }
    }

    /// Device address of page-locked memory.
    with_context radrm_cudaHostGetDevicePointer(out: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemHostGetDevicePointer_v2(out, host, flags) }
    }

    /// Flags that page-locked memory was taken with.
    with_context radrm_cudaHostGetFlags(flags: *mut c_uint, host: *mut c_void) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuMemHostGetFlags(flags, host) }
    }

    /// Attributes of a pointer.
    with_context radrm_cudaPointerGetAttributes(out: Out<PointerAttributes>, pointer: u64) {
        out.required()?;
        out.set(describe(pointer)?)
    }

    /// Attributes of a pointer, in the form of CUDA 12.
    with_context radrm_12_cudaPointerGetAttributes(out: Out<PointerAttributes12>, pointer: u64) {
        out.required()?;
        let PointerAttributes { kind, device, device_pointer, host_pointer, .. } = describe(pointer)?;
        out.set(PointerAttributes12 { kind, device, device_pointer, host_pointer })
    }

    /// A name for memory that other processes can open.
    with_context radrm_cudaIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuIpcGetMemHandle(handle, address) }
    }

    /// Opens another process's memory.
    with_context radrm_cudaIpcOpenMemHandle(out: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuIpcOpenMemHandle_v2(out, handle, flags) }
    }

    /// Opens another process's event.
    with_context radrm_cudaIpcOpenEventHandle(out: *mut CUevent, handle: CUipcEventHandle) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuIpcOpenEventHandle(out, handle) }
    }
}

/// The thread's device, for handles that belong to one.
///
/// # Errors
/// What the driver says.
pub(crate) fn device_now() -> Answer<CUdevice> {
    device::ready()?;
    device::device()
}

const _: () = assert!(size_of::<PointerAttributes>() == 88);
const _: () = assert!(size_of::<PointerAttributes12>() == 24);
