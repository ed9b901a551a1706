//! Memory figures that the program sees: under a quota the quota is the device's memory. Null out-parameters
//! reach the driver unread, and what it leaves unwritten stays unwritten.

use radrm_cuda_abi::*;

use super::{gpu, place};
use crate::abi_traits::ByteSize;
use crate::cx::Cx;
use crate::quota::deny;
use crate::{driver, errno};

/// `cuMemGetInfo`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn memory<S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    free: *mut S,
    total: *mut S,
) -> CUresult {
    let result = call();
    if !result.is_ok() {
        return result;
    }
    let Some(view) = place::current(cx).and_then(|place| cx.page.quota.view(place.gpu, cx.writer().now()))
    else {
        return result;
    };
    // SAFETY: null, or written by the driver, which reported success.
    let (free, total) = unsafe { (free.as_mut(), total.as_mut()) };
    let bytes = |figure: &Option<&mut S>| figure.as_ref().map_or(u64::MAX, |f| f.bytes());
    let (seen_free, seen_total) = view.through(bytes(&free), bytes(&total));
    if let Some(free) = free {
        *free = S::from_bytes(seen_free);
    }
    if let Some(total) = total {
        *total = S::from_bytes(seen_total);
    }
    result
}

/// `cuDeviceTotalMem`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn device_total<S: ByteSize>(
    cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    bytes: *mut S,
    device: CUdevice,
) -> CUresult {
    let result = call();
    if !result.is_ok() {
        return result;
    }
    let view = gpu::of_device(cx, device).and_then(|gpu| cx.page.quota.view(gpu, cx.writer().now()));
    // SAFETY: null, or written by the driver, which reported success.
    if let (Some(view), Some(bytes)) = (view, unsafe { bytes.as_mut() }) {
        *bytes = S::from_bytes(view.total.min(bytes.bytes()));
    }
    result
}

/// `cuMemGetInfo` of a process that cannot join: nothing is free.
///
/// # Safety
/// The arguments are the program's own of this call, which has been made.
pub(crate) unsafe fn memory_denied<S: ByteSize>(result: CUresult, free: *mut S, total: *mut S) {
    if !result.is_ok() {
        return;
    }
    // SAFETY: null, or written by the driver, which reported success.
    let (free, total) = unsafe { (free.as_mut(), total.as_mut()) };
    if let Some(free) = free {
        *free = S::from_bytes(0);
    }
    if let Some(total) = total {
        *total = S::from_bytes(limited(driver::get().current_device(), total.bytes()));
    }
}

/// `cuDeviceTotalMem` of a process that cannot join.
///
/// # Safety
/// As for [`memory_denied`].
pub(crate) unsafe fn device_total_denied<S: ByteSize>(result: CUresult, bytes: *mut S, device: CUdevice) {
    // SAFETY: null, or written by the driver, which reported success.
    if let (true, Some(bytes)) = (result.is_ok(), unsafe { bytes.as_mut() }) {
        *bytes = S::from_bytes(limited(Some(device), bytes.bytes()));
    }
}

/// The limit on a device where the environment states it, else its memory.
fn limited(device: Option<CUdevice>, total: u64) -> u64 {
    errno::keep(|| {
        let uuid = device.and_then(|device| driver::get().uuid(device));
        deny::view(uuid, total).total.min(total)
    })
}
