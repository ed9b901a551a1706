//! What the program is told about memory. The driver's answers pass through unchanged: null
//! out-parameters reach it unread, and what it leaves unwritten stays unwritten.

use radrm_cuda_abi::*;

use crate::abi_traits::ByteSize;
use crate::cx::Cx;

/// `cuMemGetInfo`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn memory<S: ByteSize>(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _free: *mut S,
    _total: *mut S,
) -> CUresult {
    call()
}

/// `cuDeviceTotalMem`.
///
/// # Safety
/// The arguments are the program's own of this call.
pub(crate) unsafe fn device_total<S: ByteSize>(
    _cx: &Cx<'_>,
    call: impl FnOnce() -> CUresult,
    _bytes: *mut S,
    _device: CUdevice,
) -> CUresult {
    call()
}
