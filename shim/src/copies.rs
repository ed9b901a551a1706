//! Copies and memsets: how many and how many bytes, by way.
//!
//! A call that returns when its copy is done has also waited for the GPU, so times of launches are queried
//! then.

use core::ffi::c_void;

use radrm_cuda_abi::*;

use crate::abi_traits::ByteSize;
use crate::cx::Cx;
use crate::kernels::timing;
use crate::telemetry::{CopyWay, KernelsMode};

/// Counts `bytes` of a call that succeeded and was not captured.
fn count(cx: &Cx<'_>, result: CUresult, way: CopyWay, bytes: u64, stream: CUstream) {
    if result.is_ok() && !cx.capturing(stream) && cx.page.kernels.timing.mode() != KernelsMode::Off {
        cx.writer().copied(way, bytes);
    }
}

macro_rules! linear {
    ($($(#[$doc:meta])* $name:ident, $in_stream:ident: $way:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The arguments of such a call.
            pub(crate) unsafe fn $name<S: ByteSize>(cx: &Cx<'_>, result: CUresult, bytes: S) {
                count(cx, result, CopyWay::$way, bytes.bytes(), CUstream::NULL);
                if matches!(CopyWay::$way, CopyWay::DeviceToHost | CopyWay::Unspecified) {
                    timing::launch::waited(cx);
                }
            }

            /// The same in a stream.
            ///
            /// # Safety
            /// The arguments of such a call.
            pub(crate) unsafe fn $in_stream<S: ByteSize>(cx: &Cx<'_>, result: CUresult, bytes: S, stream: CUstream) {
                count(cx, result, CopyWay::$way, bytes.bytes(), stream);
            }
        )*
    };
}

linear! {
    /// After a copy from host memory to the device.
    to_device, to_device_in: HostToDevice;
    /// After a copy from the device to host memory.
    to_host, to_host_in: DeviceToHost;
    /// After a copy inside a device.
    inside, inside_in: DeviceToDevice;
    /// After a copy between devices or contexts.
    peer, peer_in: Peer;
    /// After a copy between addresses of any kind.
    any, any_in: Unspecified;
}

macro_rules! sets {
    ($($bytes:literal: $name:ident, $in_stream:ident, $rows:ident, $rows_in_stream:ident;)*) => {
        $(
            /// After a memset of elements.
            ///
            /// # Safety
            /// The arguments of such a call.
            pub(crate) unsafe fn $name<S: ByteSize>(cx: &Cx<'_>, result: CUresult, n: S) {
                count(cx, result, CopyWay::Set, n.bytes().wrapping_mul($bytes), CUstream::NULL);
            }

            /// The same in a stream.
            ///
            /// # Safety
            /// The arguments of such a call.
            pub(crate) unsafe fn $in_stream<S: ByteSize>(cx: &Cx<'_>, result: CUresult, n: S, stream: CUstream) {
                count(cx, result, CopyWay::Set, n.bytes().wrapping_mul($bytes), stream);
            }

            /// After a memset of rows of elements.
            ///
            /// # Safety
            /// The arguments of such a call.
            pub(crate) unsafe fn $rows<S: ByteSize>(cx: &Cx<'_>, result: CUresult, width: S, height: S) {
                let bytes = width.bytes().wrapping_mul(height.bytes()).wrapping_mul($bytes);
                count(cx, result, CopyWay::Set, bytes, CUstream::NULL);
            }

            /// The same in a stream.
            ///
            /// # Safety
            /// The arguments of such a call.
            pub(crate) unsafe fn $rows_in_stream<S: ByteSize>(
                cx: &Cx<'_>,
                result: CUresult,
                width: S,
                height: S,
                stream: CUstream,
            ) {
                let bytes = width.bytes().wrapping_mul(height.bytes()).wrapping_mul($bytes);
                count(cx, result, CopyWay::Set, bytes, stream);
            }
        )*
    };
}

sets! {
    1: set8, set8_in, set_rows8, set_rows8_in;
    2: set16, set16_in, set_rows16, set_rows16_in;
    4: set32, set32_in, set_rows32, set_rows32_in;
}

/// Memory types of copy descriptors.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

fn way(from: u32, to: u32) -> CopyWay {
    match (from, to) {
        (HOST, DEVICE | ARRAY) => CopyWay::HostToDevice,
        (DEVICE | ARRAY, HOST) => CopyWay::DeviceToHost,
        (DEVICE | ARRAY, DEVICE | ARRAY) => CopyWay::DeviceToDevice,
        (HOST, HOST) => CopyWay::HostToHost,
        _ => CopyWay::Unspecified,
    }
}

/// Content of a copy descriptor of any form; `None` for forms that are not known here.
pub(crate) trait Described {
    /// Way and bytes.
    fn described(&self) -> Option<(CopyWay, u64)>;
}

impl Described for CUDA_MEMCPY2D {
    fn described(&self) -> Option<(CopyWay, u64)> {
        let bytes = (self.WidthInBytes as u64).wrapping_mul(self.Height as u64);
        Some((way(self.srcMemoryType, self.dstMemoryType), bytes))
    }
}

impl Described for CUDA_MEMCPY3D {
    fn described(&self) -> Option<(CopyWay, u64)> {
        let bytes =
            (self.WidthInBytes as u64).wrapping_mul(self.Height as u64).wrapping_mul(self.Depth as u64);
        Some((way(self.srcMemoryType, self.dstMemoryType), bytes))
    }
}

impl Described for c_void {
    fn described(&self) -> Option<(CopyWay, u64)> {
        None
    }
}

/// After a copy that a descriptor describes.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn described<D: Described>(cx: &Cx<'_>, result: CUresult, copy: *const D) {
    // SAFETY: the arguments of such a call; there is always a default stream.
    unsafe { described_in(cx, result, copy, CUstream::NULL) };
    timing::launch::waited(cx);
}

/// The same in a stream.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn described_in<D: Described>(
    cx: &Cx<'_>,
    result: CUresult,
    copy: *const D,
    stream: CUstream,
) {
    // SAFETY: null, or what the driver has just read.
    if let Some((way, bytes)) = unsafe { copy.as_ref() }.and_then(Described::described) {
        count(cx, result, way, bytes, stream);
    }
}

/// After a batch of copies.
///
/// # Safety
/// The arguments of such a call.
pub(crate) unsafe fn batch(
    cx: &Cx<'_>,
    result: CUresult,
    sizes: *mut usize,
    copies: usize,
    stream: CUstream,
) {
    if result.is_ok() && !sizes.is_null() {
        for n in 0..copies {
            // SAFETY: the driver has accepted a list of that many.
            let bytes = unsafe { *sizes.wrapping_add(n) };
            count(cx, result, CopyWay::Unspecified, bytes as u64, stream);
        }
    }
}
