//! Address space: where device addresses come from, and what stands at each.

use std::collections::BTreeMap;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{HOLD_GRANULE, ObjectId};

use crate::engine::context::Context;
use crate::util::ffi::Answer;
use crate::util::ranges::Ranges;

/// Address space taken from the kernel at a time: far more than any device has, because it costs
/// nothing.
const ARENA: u64 = 1 << 40;
/// Smallest arena that is tried where the process may not have that much.
const SMALLEST_ARENA: u64 = 1 << 32;

/// Device address space of the process. Nothing stands behind it unless the memory is backed.
pub struct AddressSpace {
    pub(crate) free: Ranges,
    pub(crate) arenas: Vec<(u64, u64)>,
    pub(crate) backed: bool,
}

impl AddressSpace {
    /// None yet: the first request takes it.
    pub fn new(backed: bool) -> Self {
        Self { free: Ranges::default(), arenas: Vec::new(), backed }
    }

    /// Takes a range; size and alignment are rounded up to 2 MiB.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY if the kernel gives no more.
    pub fn take(&mut self, size: u64, align: u64) -> Answer<u64> {
        let size = size.checked_next_multiple_of(HOLD_GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let align = align.max(HOLD_GRANULE);
        if let Some(base) = self.free.take(size, align) {
            return Ok(base);
        }
        self.grow(size.checked_add(align).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?)?;
        self.free.take(size, align).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Takes a certain range if it is free.
    pub fn take_at(&mut self, base: u64, size: u64) -> Option<u64> {
        self.free.take_at(base, size.next_multiple_of(HOLD_GRANULE))
    }

    /// Gives a range back, and its pages to the kernel.
    pub fn give(&mut self, base: u64, size: u64) {
        let size = size.next_multiple_of(HOLD_GRANULE);
        if self.backed {
            // SAFETY: the range lies in an arena of ours and is in no use any more.
            unsafe { libc::madvise(base as *mut libc::c_void, size as usize, libc::MADV_DONTNEED) };
        }
        self.free.give(base, size);
    }

    /// Returns true if an address belongs to this space, whatever it is used for.
    pub fn contains(&self, address: u64) -> bool {
        self.arenas.iter().any(|(base, size)| address >= *base && address - base < *size)
    }

    fn grow(&mut self, at_least: u64) -> Answer {
        let wanted = at_least.checked_next_multiple_of(HOLD_GRANULE).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut size = wanted.max(ARENA);
        let smallest = wanted.max(SMALLEST_ARENA);
        loop {
            if let Some(base) = self.map(size) {
                self.arenas.push((base, size));
                self.free.add_chunk(base, size);
                return Ok(());
            }
            if size <= smallest {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            size = (size / 4).next_multiple_of(HOLD_GRANULE).max(smallest);
        }
    }

    /// Maps one granule more than is wanted, to begin at a multiple of it.
    fn map(&self, size: u64) -> Option<u64> {
        let protection = if self.backed { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let whole = usize::try_from(size.checked_add(HOLD_GRANULE)?).ok()?;
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        (address != libc::MAP_FAILED).then(|| (address as u64).next_multiple_of(HOLD_GRANULE))
    }
}

/// Use of an address range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc`, `cuMemAllocHost`.
    Host,
    /// `cuMemHostRegister`.
    Registered,
    /// Of a pool (its handle).
    Pool(u64),
    /// Physical memory (its handle) that is mapped; on a device or on the host.
    Mapped {
        /// Handle of the physical memory.
        handle: u64,
        /// True for host memory.
        host: bool,
    },
    /// Another process's memory.
    Imported(ObjectId),
    /// Memory of an external object (its handle).
    External(u64),
    /// An address for an allocation node or a module's variable.
    Special,
}

/// An address range that the driver knows.
#[derive(Clone, Debug)]
pub struct Block {
    /// First byte.
    pub base: u64,
    /// Bytes that the program asked for.
    pub size: u64,
    /// Use of the range.
    pub kind: Use,
    /// Device ordinal.
    pub device: CUdevice,
    /// GPU on the machine.
    pub gpu: usize,
    /// Context that it was made in: handle and id. Zeros for memory that belongs to none.
    pub context: (u64, u64),
    /// Number that no other allocation of the process had.
    pub id: u64,
    /// Flags that it was made with.
    pub flags: u32,
    /// Name under which other processes know it.
    pub offered: Option<ObjectId>,
    /// Times that it was opened (imports), access rights of devices (mappings), whether it is mapped (special), or
    /// the pool that it is from (managed).
    pub count: u64,
    /// True if copies of it are always synchronous.
    pub sync_memops: bool,
}

impl Block {
    /// Describes a range; the rest is as it mostly is.
    pub fn new(
        base: u64,
        size: u64,
        kind: Use,
        context: Option<&Context>,
        device: CUdevice,
        gpu: usize,
    ) -> Self {
        Self {
            base,
            size,
            kind,
            device,
            gpu,
            context: context.map_or((0, 0), |c| (c.handle.addr(), c.id)),
            id: 0,
            flags: 0,
            offered: None,
            count: 0,
            sync_memops: false,
        }
    }

    /// Returns true if the host can read and write the block in every memory mode.
    pub fn is_host_readable(&self) -> bool {
        matches!(self.kind, Use::Managed | Use::Host | Use::Registered | Use::Mapped { host: true, .. })
    }

    /// Returns true if the block is memory of a device: no allocated, registered or mapped memory of the host.
    pub fn is_device_memory(&self) -> bool {
        !matches!(self.kind, Use::Host | Use::Registered | Use::Mapped { host: true, .. })
    }

    /// One past the last byte. A block of a pool that has 0 bytes is found by its address all the same.
    pub fn end(&self) -> u64 {
        self.base + self.size.max(1)
    }
}

/// All ranges that the driver knows, by address.
#[derive(Default)]
pub struct Blocks {
    pub(crate) by_base: BTreeMap<u64, Block>,
    pub(crate) made: u64,
}

impl Blocks {
    /// Keeps a block and numbers it.
    pub fn insert(&mut self, mut block: Block) {
        self.made += 1;
        block.id = self.made;
        self.by_base.insert(block.base, block);
    }

    /// The block that begins at an address.
    pub fn at(&mut self, base: u64) -> Option<&mut Block> {
        self.by_base.get_mut(&base)
    }

    /// Takes out the block that begins at an address.
    pub fn remove(&mut self, base: u64) -> Option<Block> {
        self.by_base.remove(&base)
    }

    /// The block that an address lies in.
    pub fn find(&self, address: u64) -> Option<&Block> {
        let (_, block) = self.by_base.range(..=address).next_back()?;
        (address < block.end()).then_some(block)
    }

    /// As [`Self::find`], to change it.
    pub fn find_mut(&mut self, address: u64) -> Option<&mut Block> {
        let (_, block) = self.by_base.range_mut(..=address).next_back()?;
        (address < block.end()).then_some(block)
    }

    /// Returns true if a range touches any block.
    pub fn overlaps(&self, base: u64, size: u64) -> bool {
        self.by_base.range(..base.saturating_add(size)).next_back().is_some_and(|(_, b)| b.end() > base)
    }

    /// Blocks that begin in a range, in order.
    pub fn within(&self, base: u64, size: u64) -> impl Iterator<Item = &Block> {
        self.by_base.range(base..base.saturating_add(size)).map(|(_, block)| block)
    }

    /// All blocks, in order.
    pub fn all(&self) -> impl Iterator<Item = &Block> {
        self.by_base.values()
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.by_base.len()
    }

    /// Returns true if there is no block.
    pub fn is_empty(&self) -> bool {
        self.by_base.is_empty()
    }
}
