//! Checks of a launch's configuration.

use radrm_cuda_abi::*;
use radrm_emulator_machine::GpuSpec;

use crate::models::function::{Settings, max_dynamic_shared};
use crate::models::image::KernelInfo;
use crate::models::occupancy::{THREADS_PER_BLOCK, limits};
use crate::util::ffi::{Answer, In};

/// Parts of a launch that its cost depends on.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Description of the kernel in its image.
    pub info: &'a KernelInfo,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared: u32,
}

impl<'a> Shape<'a> {
    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Blocks that a multiprocessor holds at a time.
    pub fn resident(&self, gpu: &GpuSpec) -> u32 {
        let shared = u64::from(self.info.shared) + u64::from(self.shared);
        limits(gpu).blocks_per_sm(self.threads(), self.info.registers, shared)
    }
}

/// Most blocks in each direction of a grid.
const GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Most threads in each direction of a block.
const BLOCK: [u32; 3] = [1024, 1024, 64];
/// Largest cluster that every device with clusters can run, in blocks; twice as much where the kernel
/// allows what is not portable.
const CLUSTER: u32 = 8;

/// Checks that a configuration can be launched.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for shapes beyond the device's limits, the kernel's own bound or its shared
/// memory; CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES where registers do not suffice;
/// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE for a cooperative grid that does not fit at once.
pub fn check(settings: &Settings, shape: &Shape<'_>, cooperative: bool, gpu: &GpuSpec) -> Answer {
    let within =
        |shape: &[u32; 3], most: &[u32; 3]| shape.iter().zip(most).all(|(n, most)| (1..=*most).contains(n));
    if !within(&shape.grid, &GRID) || !within(&shape.block, &BLOCK) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let threads = shape.threads();
    let info = shape.info;
    if threads > THREADS_PER_BLOCK
        || info.max_threads.is_some_and(|bound| threads > bound)
        || info.required_block.is_some_and(|required| shape.block != required)
        || shape.shared > max_dynamic_shared(info, settings)
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if threads > limits(gpu).threads_by_registers(info.registers).max(32) {
        return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    if cooperative && shape.blocks() > u64::from(shape.resident(gpu)) * u64::from(gpu.sms) {
        return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Number of the attribute.
    pub id: u32,
    /// Nothing.
    pub pad: u32,
    /// Its value; 64 bytes of a union.
    pub value: [u32; 16],
}

const _: () = assert!(size_of::<Attribute>() == 72);

/// Numbers of the attributes that mean something here.
pub mod attribute {
    /// All blocks run at the same time.
    pub const COOPERATIVE: u32 = 2;
    /// Shape of a cluster.
    pub const CLUSTER: u32 = 4;
    /// An event that is recorded when blocks say so.
    pub const PROGRAMMATIC_EVENT: u32 = 7;
    /// An event that is recorded when all blocks run.
    pub const COMPLETION_EVENT: u32 = 12;
    /// The kernel node can be changed from the device.
    pub const DEVICE_UPDATABLE: u32 = 13;
    /// The last number that this crate knows.
    pub const LAST: u32 = 18;
}

/// The attributes of a configuration.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for an unknown attribute.
pub fn read_attributes(config: &CUlaunchConfig) -> Answer<Vec<Attribute>> {
    // SAFETY: `In` is a transparent pointer; C callers promise `numAttrs` attributes.
    let list: In<Attribute> = unsafe { std::mem::transmute(config.attrs) };
    let attributes = list.list(config.numAttrs as usize)?;
    if attributes.iter().any(|a| a.id > attribute::LAST) {
        Err(CUDA_ERROR_INVALID_VALUE)
    } else {
        Ok(attributes)
    }
}

/// Blocks of a cluster, if one was asked for.
pub fn cluster_blocks(attributes: &[Attribute]) -> Option<u32> {
    let cluster = attributes.iter().find(|a| a.id == attribute::CLUSTER)?;
    Some(cluster.value[..3].iter().product())
}

/// Checks that a grid can be divided into the requested clusters.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if a direction cannot be divided or the device has no clusters;
/// CUDA_ERROR_INVALID_CLUSTER_SIZE for too large ones.
pub fn check_cluster(attributes: &[Attribute], grid: [u32; 3], settings: &Settings, gpu: &GpuSpec) -> Answer {
    let Some(cluster) = attributes.iter().find(|a| a.id == attribute::CLUSTER) else { return Ok(()) };
    let shape = [cluster.value[0], cluster.value[1], cluster.value[2]];
    let divides = |(n, size): (&u32, &u32)| *size > 0 && n % size == 0;
    if gpu.capability().0 < 9 || !grid.iter().zip(&shape).all(divides) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let beyond_portable = settings.cluster[3].load(std::sync::atomic::Ordering::Relaxed) != 0;
    let most = if beyond_portable { 2 * CLUSTER } else { CLUSTER };
    if shape.iter().product::<u32>() > most { Err(CUDA_ERROR_INVALID_CLUSTER_SIZE) } else { Ok(()) }
}
