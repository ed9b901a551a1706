//! Texture and surface objects: how kernels read memory. They have no memory of their own.

use std::collections::HashMap;

use radrm_cuda_abi::*;

use crate::engine::memory::state::State;
use crate::models::array::element_bytes;
use crate::util::ffi::Answer;

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    kind: u32,
    padding: u32,
    body: [u64; 16],
    flags: u32,
    end: u32,
}

/// `CUDA_TEXTURE_DESC`: three address modes, filter mode, flags and what is not looked at here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    address_modes: [u32; 3],
    filter_mode: u32,
    rest: [u32; 22],
}

/// `CUDA_RESOURCE_VIEW_DESC`, which is not looked at.
pub type View = [u64; 14];

const _: () = assert!(size_of::<Resource>() == 144 && size_of::<Sampling>() == 104);

/// A texture or surface object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Number of its context.
    pub context: u64,
    /// The memory.
    pub resource: Resource,
    /// Sampling parameters; `None` for a surface.
    pub sampling: Option<Sampling>,
    /// Another shape of the memory.
    pub view: Option<View>,
}

/// Texture and surface objects by handle.
pub type Objects = HashMap<u64, Object>;

const ARRAY: u32 = 0;
const MIPMAPPED_ARRAY: u32 = 1;
const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;

impl Resource {
    /// Returns true for an array of any kind.
    pub fn is_array(&self) -> bool {
        matches!(self.kind, ARRAY | MIPMAPPED_ARRAY)
    }

    /// Returns true for an array of which surfaces can be made.
    pub fn is_plain_array(&self) -> bool {
        self.kind == ARRAY
    }

    /// Checks it against what there is.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn check(&self, state: &State) -> Answer {
        let [first, shape, third, fourth, fifth, ..] = self.body;
        let element = || element_bytes(shape as u32, (shape >> 32) as u32).ok_or(CUDA_ERROR_INVALID_VALUE);
        let bytes = match self.kind {
            ARRAY if state.arrays.arrays.contains_key(&first) => None,
            MIPMAPPED_ARRAY if state.arrays.mipmaps.contains_key(&first) => None,
            // Address, format and channels, bytes.
            LINEAR => element().map(|_| Some(third))?,
            // Address, format and channels, width in elements, height, bytes of a row.
            PITCH_2D if fifth >= third.saturating_mul(element()?) => Some(fifth.saturating_mul(fourth)),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let Some(bytes) = bytes else { return self.check_flags() };
        let end = first.checked_add(bytes).filter(|_| bytes > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match state.blocks.find(first) {
            Some(block) if end <= block.end() => self.check_flags(),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn check_flags(&self) -> Answer {
        if self.flags == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}

impl Sampling {
    /// Checks its modes.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE.
    pub fn check(&self) -> Answer {
        const MAX_ADDRESS_MODE: u32 = 3;
        const MAX_FILTER_MODE: u32 = 1;
        let known = self.address_modes.iter().all(|mode| *mode <= MAX_ADDRESS_MODE);
        if known && self.filter_mode <= MAX_FILTER_MODE { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }
}
