//! Arrays and mipmapped arrays: the driver's, described by channels instead of a format.

use core::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use super::memory::Extent;
use super::runtime;
use radrm_cuda_client as driver;

/// cudaErrorInvalidChannelDescriptor.
const INVALID_CHANNELS: CUresult = CUresult(20);

/// `cudaChannelFormatDesc`: bits of each channel and what they mean.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    bits: [c_int; 4],
    kind: c_uint,
}

const SIGNED: c_uint = 0;
const UNSIGNED: c_uint = 1;
const FLOAT: c_uint = 2;
/// The first of twelve normalized kinds: unsigned and signed, of 8 and 16 bits, with one, two and four channels.
const NORMALIZED: c_uint = 5;
const NORMALIZED_FORMAT: u32 = 0xc0;
const NORMALIZED_COUNT: u32 = 12;

/// Number of channels and bits of each, where all have as many and none is missing before the last.
fn uniform(bits: [c_int; 4]) -> Option<(u32, c_int)> {
    let count = bits.iter().take_while(|bits| **bits != 0).count();
    let same = bits[..count].iter().all(|own| *own == bits[0]) && bits[count..].iter().all(|own| *own == 0);
    (same && matches!(count, 1 | 2 | 4)).then_some((count as u32, bits[0]))
}

impl Channels {
    /// Format and number of channels as the driver names them.
    ///
    /// # Errors
    /// cudaErrorInvalidChannelDescriptor, or that the format is not modelled.
    pub(super) fn format(&self) -> Answer<(u32, c_uint)> {
        let (count, bits) = uniform(self.bits).ok_or(INVALID_CHANNELS)?;
        let format = match (self.kind, bits) {
            (UNSIGNED, 8) => 0x01,
            (UNSIGNED, 16) => 0x02,
            (UNSIGNED, 32) => 0x03,
            (SIGNED, 8) => 0x08,
            (SIGNED, 16) => 0x09,
            (SIGNED, 32) => 0x0a,
            (FLOAT, 16) => 0x10,
            (FLOAT, 32) => 0x20,
            (SIGNED..=FLOAT, _) => return Err(INVALID_CHANNELS),
            (kind, bits) => {
                let index = kind.wrapping_sub(NORMALIZED);
                if index >= NORMALIZED_COUNT {
                    return Err(CUDA_ERROR_NOT_SUPPORTED);
                }
                let fits = Self::normalized(index).bits == self.bits;
                debug_assert!(!fits || matches!(bits, 8 | 16));
                if !fits {
                    return Err(INVALID_CHANNELS);
                }
                NORMALIZED_FORMAT + index
            }
        };
        Ok((format, count))
    }

    /// Channels of a format that the driver names.
    ///
    /// # Errors
    /// The format is not modelled.
    pub(super) fn of(format: u32, count: c_uint) -> Answer<Self> {
        let (kind, bits) = match format {
            0x01 => (UNSIGNED, 8),
            0x02 => (UNSIGNED, 16),
            0x03 => (UNSIGNED, 32),
            0x08 => (SIGNED, 8),
            0x09 => (SIGNED, 16),
            0x0a => (SIGNED, 32),
            0x10 => (FLOAT, 16),
            0x20 => (FLOAT, 32),
            _ => {
                let index = format.wrapping_sub(NORMALIZED_FORMAT);
                let known = index < NORMALIZED_COUNT;
                return if known { Ok(Self::normalized(index)) } else { Err(CUDA_ERROR_NOT_SUPPORTED) };
            }
        };
        Ok(Self { bits: Self::bits(count, bits), kind })
    }

    fn normalized(index: u32) -> Self {
        let bits = if index % 6 < 3 { 8 } else { 16 };
        Self { bits: Self::bits(1 << (index % 3), bits), kind: NORMALIZED + index }
    }

    fn bits(count: c_uint, bits: c_int) -> [c_int; 4] {
        std::array::from_fn(|at| if (at as c_uint) < count { bits } else { 0 })
    }
}

/// A shape in the driver's form. The flags are the driver's.
fn shape(channels: In<Channels>, extent: Extent, flags: c_uint) -> Answer<CUDA_ARRAY3D_DESCRIPTOR> {
    let (format, count) = channels.get()?.format()?;
    Ok(CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent.width,
        Height: extent.height,
        Depth: extent.depth,
        Format: format,
        NumChannels: count,
        Flags: flags,
    })
}

/// Shape of an array.
///
/// # Errors
/// There is no such array.
pub(super) fn describe(array: CUarray) -> Answer<CUDA_ARRAY3D_DESCRIPTOR> {
    let mut own = MaybeUninit::zeroed();
    // SAFETY: a place for the shape; all zeros is a value of that structure.
    unsafe {
        driver::cuArray3DGetDescriptor_v2(own.as_mut_ptr(), array)?;
        Ok(own.assume_init())
    }
}

/// Bytes of one element of an array.
///
/// # Errors
/// There is no such array, or its format is not modelled.
pub(super) fn element_bytes(array: CUarray) -> Answer<usize> {
    let own = describe(array)?;
    let bits: c_int = Channels::of(own.Format, own.NumChannels)?.bits.iter().sum();
    Ok(bits as usize / 8)
}

fn create(out: Out<CUarray>, channels: In<Channels>, extent: Extent, flags: c_uint) -> Answer {
    out.required()?;
    let shape = shape(channels, extent, flags)?;
    // SAFETY: as the caller promises.
    unsafe { driver::cuArray3DCreate_v2(out.raw(), &raw const shape) }
}

runtime! {
    /// Makes an array of one or two dimensions.
    with_context radrm_cudaMallocArray(
        out: Out<CUarray>, channels: In<Channels>, width: usize, height: usize, flags: c_uint,
    ) {
        create(out, channels, Extent { width, height, depth: 0 }, flags)
    }

    /// Makes an array of up to three dimensions, or of layers.
    with_context radrm_cudaMalloc3DArray(
        out: Out<CUarray>, channels: In<Channels>, extent: Extent, flags: c_uint,
    ) {
        create(out, channels, extent, flags)
    }

    /// Makes a mipmapped array.
    with_context radrm_cudaMallocMipmappedArray(
        out: Out<CUmipmappedArray>, channels: In<Channels>, extent: Extent, levels: c_uint, flags: c_uint,
    ) {
        out.required()?;
        let shape = shape(channels, extent, flags)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuMipmappedArrayCreate(out.raw(), &raw const shape, levels) }
    }

    /// Frees an array; null is none.
    with_context radrm_cudaFreeArray(array: CUarray) {
        if array.is_null() {
            return Ok(());
        }
        // SAFETY: a handle.
        unsafe { driver::cuArrayDestroy(array) }
    }

    /// Frees a mipmapped array; null is none.
    with_context radrm_cudaFreeMipmappedArray(mipmap: CUmipmappedArray) {
        if mipmap.is_null() {
            return Ok(());
        }
        // SAFETY: a handle.
        unsafe { driver::cuMipmappedArrayDestroy(mipmap) }
    }

    /// Channels, extent and flags of an array, as far as they are asked for.
    with_context radrm_cudaArrayGetInfo(
        channels: Out<Channels>, extent: Out<Extent>, flags: Out<c_uint>, array: CUarray,
    ) {
        let own = describe(array)?;
        channels.set_if_wanted(Channels::of(own.Format, own.NumChannels)?);
        extent.set_if_wanted(Extent { width: own.Width, height: own.Height, depth: own.Depth });
        flags.set_if_wanted(own.Flags);
        Ok(())
    }

    /// Channels of an array.
    with_context radrm_cudaGetChannelDesc(out: Out<Channels>, array: CUarray) {
        out.required()?;
        let own = describe(array)?;
        out.set(Channels::of(own.Format, own.NumChannels)?)
    }

    /// The longest row of elements in plain memory that a texture can be of.
    with_context radrm_cudaDeviceGetTexture1DLinearMaxWidth(
        out: Out<usize>, channels: In<Channels>, device: CUdevice,
    ) {
        let (format, count) = channels.get()?.format()?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuDeviceGetTexture1DLinearMaxWidth(out.raw(), format, count, device) }
    }
}

/// Makes the description of an element, by value.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_uint,
) -> Channels {
    Channels { bits: [x, y, z, w], kind }
}

const _: () = assert!(size_of::<Channels>() == 20 && size_of::<*mut c_void>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_formats_name_each_other() {
        for format in [0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20] {
            for count in [1, 2, 4] {
                assert_eq!(Channels::of(format, count).unwrap().format(), Ok((format, count)));
            }
        }
        for format in NORMALIZED_FORMAT..NORMALIZED_FORMAT + NORMALIZED_COUNT {
            let channels = Channels::of(format, 0).unwrap();
            assert_eq!(channels.format(), Ok((format, 1 << (format % 3))), "{channels:?}");
        }
        let snorm_16x2 = Channels { bits: [16, 16, 0, 0], kind: 15 };
        assert_eq!(snorm_16x2.format(), Ok((0xca, 2)));
    }

    #[test]
    fn channels_that_no_format_has_are_refused() {
        for (bits, kind) in [
            ([8, 8, 8, 0], UNSIGNED),
            ([0, 8, 0, 0], UNSIGNED),
            ([8, 16, 0, 0], UNSIGNED),
            ([64, 0, 0, 0], FLOAT),
            ([16, 0, 0, 0], NORMALIZED),
        ] {
            assert_eq!(Channels { bits, kind }.format(), Err(INVALID_CHANNELS), "{bits:?} {kind}");
        }
        assert_eq!(
            Channels { bits: [8, 8, 8, 8], kind: 17 }.format(),
            Err(CUDA_ERROR_NOT_SUPPORTED),
            "blocks"
        );
    }
}
