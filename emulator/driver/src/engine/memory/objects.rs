//! Objects that memory consists of: chunks, pools, physical memory, arrays.

use core::ffi::c_int;
use std::collections::HashMap;
use std::os::fd::OwnedFd;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{Kind, ObjectId};

use crate::engine::memory::advice::Place;
use crate::models::array::extent;
use crate::util::ranges::Ranges;

/// An array: of its own, or a level of a mipmapped one.
#[derive(Clone)]
pub struct Array {
    /// Shape.
    pub desc: CUDA_ARRAY3D_DESCRIPTOR,
    /// Address of its first element.
    pub base: u64,
    /// Bytes of an element.
    pub element: u64,
    /// Device ordinal.
    pub device: CUdevice,
    pub(crate) gpu: usize,
    pub(crate) context: u64,
    pub(crate) bytes: u64,
    pub(crate) parent: bool,
}

impl Array {
    /// Elements in x, y and z, each at least 1.
    pub fn extent(&self) -> [u64; 3] {
        extent(&self.desc)
    }

    /// Bytes of one row, and of one plane.
    pub fn pitches(&self) -> (u64, u64) {
        let [width, height, _] = self.extent();
        (width * self.element, width * self.element * height)
    }
}

pub(crate) struct Mipmap {
    pub(crate) desc: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) levels: Vec<u64>,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: CUdevice,
    pub(crate) gpu: usize,
    pub(crate) context: u64,
}

/// Arrays and mipmapped arrays by handle.
#[derive(Default)]
pub struct Arrays {
    pub(crate) arrays: HashMap<u64, Array>,
    pub(crate) mipmaps: HashMap<u64, Mipmap>,
}

/// Chunks that small blocks share, by kind: a chunk is charged to the kind that it was taken for.
#[derive(Default)]
pub struct SmallChunks {
    pub(crate) plain: Ranges,
    pub(crate) arrays: Ranges,
}

impl SmallChunks {
    pub(crate) fn of(&mut self, kind: Kind) -> &mut Ranges {
        if kind == Kind::Array { &mut self.arrays } else { &mut self.plain }
    }
}

/// Memory that another interface took.
pub struct External {
    pub(crate) size: u64,
}

/// A pool.
pub struct Pool {
    pub(crate) device: CUdevice,
    pub(crate) gpu: usize,
    pub(crate) ranges: Ranges,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Bytes that it keeps at a synchronisation.
    pub threshold: u64,
    pub(crate) reuse: [c_int; 3],
    pub(crate) max_size: u64,
    pub(crate) access: HashMap<CUdevice, u32>,
    pub(crate) handle_types: u32,
    /// Preferred location of the memory, if it is a pool of managed memory.
    pub(crate) managed: Option<Place>,
    pub(crate) blocks: u64,
    pub(crate) destroyed: bool,
    /// Name of the pool that it stands for, if it is another process's.
    pub(crate) imported: Option<ObjectId>,
    /// Name under which other processes know it.
    pub(crate) offered: Option<ObjectId>,
}

/// A device's pools.
#[derive(Default)]
pub struct DevicePools {
    pub(crate) default: Option<u64>,
    pub(crate) current: Option<u64>,
}

impl Pool {
    pub(crate) fn new(device: CUdevice, gpu: usize, max_size: u64, handle_types: u32) -> Self {
        Self {
            device,
            gpu,
            ranges: Ranges::default(),
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            threshold: 0,
            reuse: [1; 3],
            max_size,
            access: HashMap::new(),
            handle_types,
            managed: None,
            blocks: 0,
            destroyed: false,
            imported: None,
            offered: None,
        }
    }

    /// Device ordinal.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    pub(crate) fn gpu(&self) -> usize {
        self.gpu
    }

    pub(crate) fn handle_types(&self) -> u32 {
        self.handle_types
    }
}

/// Physical memory.
pub struct Physical {
    pub(crate) size: u64,
    pub(crate) gpu: usize,
    pub(crate) device: CUdevice,
    pub(crate) host: bool,
    pub(crate) prop: CUmemAllocationProp,
    pub(crate) references: u64,
    pub(crate) mappings: u64,
    pub(crate) imported: bool,
    pub(crate) offered: Option<ObjectId>,
    /// Its pages, where memory is backed and other processes may map it.
    pub(crate) pages: Option<OwnedFd>,
}

// SAFETY: the pointer in the properties is only ever handed back to the program.
unsafe impl Send for Physical {}

impl Physical {
    pub(crate) fn kind(&self) -> Kind {
        match (self.imported, self.host) {
            (true, _) => Kind::Imported,
            (_, true) => Kind::PinnedHost,
            _ => Kind::Vmm,
        }
    }
}
