//! Small traits over the 32-bit and 64-bit forms of one entry point, so that one logic serves both.

use radrm_cuda_abi::*;

/// A device address: 32 bits wide in the interface before CUDA 3.2, 64 bits since.
pub(crate) trait DevicePtr: Copy {
    /// The address.
    fn addr(self) -> u64;
}

impl DevicePtr for CUdeviceptr {
    fn addr(self) -> u64 {
        self
    }
}

impl DevicePtr for CUdeviceptr_v1 {
    fn addr(self) -> u64 {
        u64::from(self)
    }
}

/// A number of bytes: `unsigned int` in the interface before CUDA 3.2, `size_t` since.
pub(crate) trait ByteSize: Copy {
    /// The number of bytes.
    fn bytes(self) -> u64;
    /// A number of bytes, the largest there is where it does not fit.
    fn from_bytes(bytes: u64) -> Self;
}

impl ByteSize for usize {
    fn bytes(self) -> u64 {
        self as u64
    }

    fn from_bytes(bytes: u64) -> Self {
        usize::try_from(bytes).unwrap_or(Self::MAX)
    }
}

impl ByteSize for u32 {
    fn bytes(self) -> u64 {
        u64::from(self)
    }

    fn from_bytes(bytes: u64) -> Self {
        Self::try_from(bytes).unwrap_or(Self::MAX)
    }
}

/// The shape that an array descriptor of any form describes; a dimension that the form lacks is 0.
pub(crate) trait ArrayShape: Copy {
    /// Width in elements.
    fn width(&self) -> u64;
    /// Height in elements, 0 for one-dimensional arrays.
    fn height(&self) -> u64;
    /// Depth in elements or layers, 0 where there is none.
    fn depth(&self) -> u64;
    /// `CUarray_format`.
    fn format(&self) -> u32;
    /// Channels per element.
    fn channels(&self) -> u32;
    /// `CUDA_ARRAY3D_*` flags.
    fn flags(&self) -> u32;
}

macro_rules! array_shapes {
    ($($ty:ty: $depth:expr, $flags:expr;)*) => {$(
        impl ArrayShape for $ty {
            fn width(&self) -> u64 {
                self.Width as u64
            }
            fn height(&self) -> u64 {
                self.Height as u64
            }
            fn depth(&self) -> u64 {
                let depth: fn(&$ty) -> u64 = $depth;
                depth(self)
            }
            fn format(&self) -> u32 {
                self.Format
            }
            fn channels(&self) -> u32 {
                self.NumChannels
            }
            fn flags(&self) -> u32 {
                let flags: fn(&$ty) -> u32 = $flags;
                flags(self)
            }
        }
    )*};
}

array_shapes! {
    CUDA_ARRAY_DESCRIPTOR: |_| 0, |_| 0;
    CUDA_ARRAY_DESCRIPTOR_v1: |_| 0, |_| 0;
    CUDA_ARRAY3D_DESCRIPTOR: |d| d.Depth as u64, |d| d.Flags;
    CUDA_ARRAY3D_DESCRIPTOR_v1: |d| u64::from(d.Depth), |d| d.Flags;
}
