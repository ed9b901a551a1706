//! Size of an array worked out from its descriptor.
//!
//! An estimate from below: the texels without the padding that the driver's tiling adds.

use crate::abi_traits::ArrayShape;

/// `CUDA_ARRAY3D_SPARSE`: memory is mapped tile by tile, later.
const SPARSE: u32 = 0x40;
/// `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped as a whole, later.
const DEFERRED_MAPPING: u32 = 0x80;

/// Returns true if creating the array takes no memory yet.
pub(crate) fn is_mapped_later(flags: u32) -> bool {
    flags & (SPARSE | DEFERRED_MAPPING) != 0
}

/// Layout of a format's elements: `bytes` for every `block_w` x `block_h` elements.
struct Layout {
    bytes: u64,
    block_w: u64,
    block_h: u64,
}

impl Layout {
    const fn plain(bytes: u64) -> Self {
        Self { bytes, block_w: 1, block_h: 1 }
    }

    const fn compressed(bytes: u64) -> Self {
        Self { bytes, block_w: 4, block_h: 4 }
    }
}

/// Layout of a `CUarray_format`; a format unknown here counts 4 bytes for each channel.
fn layout(format: u32, channels: u32) -> Layout {
    let channels = u64::from(channels.max(1));
    match format {
        // 8, 16 and 32 bits to a channel.
        0x01 | 0x08 => Layout::plain(channels),
        0x02 | 0x09 | 0x10 => Layout::plain(2 * channels),
        0x03 | 0x0a | 0x20 => Layout::plain(4 * channels),
        // 10-10-10-2 in one word.
        0x50 => Layout::plain(4),
        // Block compression: BC1 and BC4 take 8 bytes for 4 x 4 texels, the others 16.
        0x91 | 0x92 | 0x97 | 0x98 => Layout::compressed(8),
        0x93..=0x96 | 0x99..=0x9e => Layout::compressed(16),
        // Luma plane and half-height chroma: NV12 with 8 bits, P010 and P016 with 16.
        0xb0 => Layout { bytes: 3, block_w: 1, block_h: 2 },
        0x9f | 0xa1 => Layout { bytes: 6, block_w: 1, block_h: 2 },
        // Full-height chroma of half width: NV16, YUY2 with 8 bits; P210, P216, Y210, Y216 with 16.
        0xa2 | 0xa5 => Layout::plain(2),
        0xa3 | 0xa4 | 0xa6 | 0xa7 => Layout::plain(4),
        // Four channels of 8 bits, of 10-10-10-2, of 16 bits.
        0xa8 | 0xa9 => Layout::plain(4),
        0xb1 => Layout::plain(8),
        // Three planes of 8 and of 16 bits.
        0xb2 | 0xb4 => Layout::plain(3),
        0xb3 | 0xb5 => Layout::plain(6),
        // Normalised integers: 1, 2 and 4 channels of 8 bits, then of 16.
        0xc0 | 0xc6 => Layout::plain(1),
        0xc1 | 0xc7 => Layout::plain(2),
        0xc2 | 0xc8 => Layout::plain(4),
        0xc3 | 0xc9 => Layout::plain(2),
        0xc4 | 0xca => Layout::plain(4),
        0xc5 | 0xcb => Layout::plain(8),
        _ => Layout::plain(4 * channels),
    }
}

/// Bytes of an array's texels. A dimension of 0 is one that the array does not have.
pub(crate) fn array<D: ArrayShape>(shape: &D) -> u64 {
    level(shape.width(), shape.height(), shape.depth(), &layout(shape.format(), shape.channels()))
}

/// Bytes of a mipmapped array's texels over all its levels.
///
/// `layered` depth stays the same from level to level; that of a volume halves like its sides.
pub(crate) fn mipmap<D: ArrayShape>(shape: &D, levels: u32) -> u64 {
    /// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: depth counts layers.
    const LAYERED: u32 = 0x01 | 0x04;
    let layout = layout(shape.format(), shape.channels());
    let layered = shape.flags() & LAYERED != 0;
    let shrink = |side: u64, level: u32| if side == 0 { 0 } else { (side >> level).max(1) };
    // The driver takes more levels than the sides can be halved as all that there are.
    let volume = if layered { 0 } else { shape.depth() };
    let possible = shape.width().max(shape.height()).max(volume).max(1).ilog2() + 1;
    (0..levels.clamp(1, possible)).fold(0u64, |sum, at| {
        let depth = if layered { shape.depth() } else { shrink(shape.depth(), at) };
        sum.saturating_add(level(shrink(shape.width(), at), shrink(shape.height(), at), depth, &layout))
    })
}

fn level(width: u64, height: u64, depth: u64, layout: &Layout) -> u64 {
    let columns = width.max(1).div_ceil(layout.block_w);
    let rows = height.max(1).div_ceil(layout.block_h);
    columns.saturating_mul(rows).saturating_mul(depth.max(1)).saturating_mul(layout.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_cuda_abi::*;

    fn shape(
        width: usize,
        height: usize,
        depth: usize,
        format: u32,
        channels: u32,
    ) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: channels,
            Flags: 0,
        }
    }

    #[test]
    fn texels_of_plain_formats() {
        assert_eq!(array(&shape(64, 0, 0, 0x01, 1)), 64);
        assert_eq!(array(&shape(64, 32, 0, 0x20, 4)), 64 * 32 * 16);
        assert_eq!(array(&shape(64, 32, 8, 0x10, 2)), 64 * 32 * 8 * 4);
        // One-dimensional and layered: no height, but a depth.
        assert_eq!(array(&shape(64, 0, 8, 0x03, 1)), 64 * 8 * 4);
    }

    #[test]
    fn block_compression_counts_whole_blocks() {
        assert_eq!(array(&shape(5, 5, 0, 0x91, 4)), 4 * 8);
        assert_eq!(array(&shape(8, 8, 0, 0x9d, 4)), 4 * 16);
    }

    #[test]
    fn planes_of_video_formats() {
        assert_eq!(array(&shape(64, 32, 0, 0xb0, 3)), 64 * 32 * 3 / 2);
        assert_eq!(array(&shape(64, 32, 0, 0x9f, 3)), 64 * 32 * 3);
    }

    #[test]
    fn levels_of_a_mipmap_halve_every_side() {
        assert_eq!(mipmap(&shape(4, 4, 0, 0x01, 1), 3), 16 + 4 + 1);
        assert_eq!(mipmap(&shape(4, 2, 0, 0x01, 1), 3), 8 + 2 + 1);
        assert_eq!(mipmap(&shape(4, 4, 4, 0x01, 1), 2), 64 + 8);
        let mut layered = shape(4, 4, 4, 0x01, 1);
        layered.Flags = 1;
        assert_eq!(mipmap(&layered, 2), 64 + 16);
        assert_eq!(mipmap(&shape(4, 4, 0, 0x01, 1), 100), 16 + 4 + 1, "more levels than there can be");
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        assert_eq!(array(&shape(usize::MAX, usize::MAX, 2, 0x20, 4)), u64::MAX);
    }
}
