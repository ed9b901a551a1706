//! Copies and memsets as C programs describe them.

use radrm_cuda_abi::*;

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_snake_case, missing_docs)]
pub struct CopyNode {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: u32,
    pub srcHost: u64,
    pub srcDevice: CUdeviceptr,
    pub srcArray: u64,
    pub reserved0: u64,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: u32,
    pub dstHost: u64,
    pub dstDevice: CUdeviceptr,
    pub dstArray: u64,
    pub reserved1: u64,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

const _: () = assert!(size_of::<CopyNode>() == 200);

/// `CU_MEMORYTYPE_HOST` and its siblings.
mod memory_type {
    pub const HOST: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const UNIFIED: u32 = 4;
}

impl CopyNode {
    /// A copy between two addresses.
    pub fn linear(
        target: CUdeviceptr,
        target_pitch: u64,
        source: CUdeviceptr,
        source_pitch: u64,
        width: u64,
        rows: u64,
    ) -> Self {
        Self {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: memory_type::UNIFIED,
            srcHost: 0,
            srcDevice: source,
            srcArray: 0,
            reserved0: 0,
            srcPitch: source_pitch as usize,
            srcHeight: rows as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: memory_type::UNIFIED,
            dstHost: 0,
            dstDevice: target,
            dstArray: 0,
            reserved1: 0,
            dstPitch: target_pitch as usize,
            dstHeight: rows as usize,
            WidthInBytes: width as usize,
            Height: rows as usize,
            Depth: 1,
        }
    }

    /// Returns true if the memory types are known.
    pub fn is_valid(&self) -> bool {
        let known = |kind: u32| (memory_type::HOST..=memory_type::UNIFIED).contains(&kind);
        known(self.srcMemoryType) && known(self.dstMemoryType)
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        (self.WidthInBytes as u64).saturating_mul(self.Height as u64).saturating_mul(self.Depth as u64)
    }

    /// Ends of the copy as (target, pitch, source, pitch, rows) of a plane; `None` where an array is one
    /// of them, because those have no addresses.
    pub fn planes(&self) -> Option<Vec<(u64, u64, u64, u64)>> {
        if self.srcMemoryType == memory_type::ARRAY || self.dstMemoryType == memory_type::ARRAY {
            return None;
        }
        let base = |kind: u32, host: u64, device: u64| if kind == memory_type::HOST { host } else { device };
        let source = base(self.srcMemoryType, self.srcHost, self.srcDevice);
        let target = base(self.dstMemoryType, self.dstHost, self.dstDevice);
        let pitch = |pitch: usize| if pitch == 0 { self.WidthInBytes } else { pitch } as u64;
        let (from, to) = (pitch(self.srcPitch), pitch(self.dstPitch));
        let height = |height: usize| if height == 0 { self.Height } else { height } as u64;
        let at = |base: u64, x: usize, y: u64, z: u64, pitch: u64, rows: u64| {
            base.wrapping_add(x as u64)
                .wrapping_add((z.wrapping_mul(rows).wrapping_add(y)).wrapping_mul(pitch))
        };
        let plane = |z: u64| {
            (
                at(
                    target,
                    self.dstXInBytes,
                    self.dstY as u64,
                    self.dstZ as u64 + z,
                    to,
                    height(self.dstHeight),
                ),
                to,
                at(
                    source,
                    self.srcXInBytes,
                    self.srcY as u64,
                    self.srcZ as u64 + z,
                    from,
                    height(self.srcHeight),
                ),
                from,
            )
        };
        Some((0..self.Depth as u64).map(plane).collect())
    }

    /// For the source and the destination of the copy, true if it is host memory by its type.
    pub fn host_ends(&self) -> (bool, bool) {
        (self.srcMemoryType == memory_type::HOST, self.dstMemoryType == memory_type::HOST)
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_snake_case, missing_docs)]
pub struct SetNode {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

const _: () = assert!(size_of::<SetNode>() == 40);

impl SetNode {
    /// Returns true if the element size is one of 1, 2 and 4, the area is not empty, and rows do not overlap.
    pub fn is_valid(&self) -> bool {
        matches!(self.elementSize, 1 | 2 | 4)
            && self.width > 0
            && self.height > 0
            && (self.height == 1 || self.pitch >= self.width.saturating_mul(self.elementSize as usize))
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> u64 {
        (self.width as u64).saturating_mul(u64::from(self.elementSize)).saturating_mul(self.height as u64)
    }
}
