//! Shapes of arrays.

use core::ffi::c_uint;

use radrm_cuda_abi::*;
use radrm_emulator_machine::HOLD_GRANULE;

use crate::util::ffi::Answer;

pub(crate) const LAYERED: c_uint = 0x01;
pub(crate) const CUBEMAP: c_uint = 0x04;
/// Sparse and deferred arrays have no memory of their own; the device's attributes say that there
/// are none.
const NOT_MODELLED: c_uint = 0x40 | 0x80;
const KNOWN_FLAGS: c_uint = 0xff;

/// Bytes of one element; `None` for a format that is not known.
pub fn element_bytes(format: u32, channels: u32) -> Option<u64> {
    let bytes = match format {
        // 8, 16 and 32 bits, integers and floats.
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        // Normalised: the format names the channels too.
        0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0xc3..=0xc5 | 0xc9..=0xcb => 2,
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then_some(bytes * u64::from(channels))
}

pub(crate) fn extent(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> [u64; 3] {
    [desc.Width, desc.Height, desc.Depth].map(|n| (n as u64).max(1))
}

/// Bytes of an array; `None` if it is too large to say.
pub(crate) fn bytes_of(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    let element = element_bytes(desc.Format, desc.NumChannels)?;
    extent(desc).into_iter().try_fold(element, u64::checked_mul)
}

pub(crate) fn checked(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer<u64> {
    if desc.Flags & NOT_MODELLED != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let cube_fits = desc.Width == desc.Height
        && if desc.Flags & LAYERED != 0 { desc.Depth.is_multiple_of(6) } else { desc.Depth == 6 };
    let flat = desc.Height == 0 && desc.Depth > 0 && desc.Flags & LAYERED == 0;
    if desc.Width == 0
        || desc.Flags & !KNOWN_FLAGS != 0
        || flat
        || (desc.Flags & CUBEMAP != 0 && !cube_fits)
        || (desc.Flags & LAYERED != 0 && desc.Depth == 0)
        || extent(desc).into_iter().zip([131_072, 65536, 16384]).any(|(n, most)| n > most)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    element_bytes(desc.Format, desc.NumChannels).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    bytes_of(desc).ok_or(CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn requirements(bytes: u64) -> CUDA_ARRAY_MEMORY_REQUIREMENTS {
    let granule = HOLD_GRANULE as usize;
    CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: (bytes as usize).next_multiple_of(granule),
        alignment: granule,
        reserved: [0; 4],
    }
}

pub(crate) fn widen(desc: CUDA_ARRAY_DESCRIPTOR) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: desc.Width,
        Height: desc.Height,
        Depth: 0,
        Format: desc.Format,
        NumChannels: desc.NumChannels,
        Flags: 0,
    }
}
