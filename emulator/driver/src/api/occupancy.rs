//! Entry points of occupancy: the model of [`super::occupancy_model`] asked by C callers.

use std::ffi::{c_int, c_uint};

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::models::function::{max_dynamic_shared, max_threads};
use crate::models::launch::{cluster_blocks, read_attributes};
use crate::models::occupancy::{THREADS_PER_BLOCK, limits};
use crate::util::ffi::{Answer, In, Out};

/// Dynamic shared memory of a block, by the size of the block.
type SharedBySize = Option<unsafe extern "C" fn(c_int) -> usize>;

fn blocks(driver: &Driver, function: CUfunction, threads: u32, dynamic: usize) -> Answer<u32> {
    let what = driver.code.launchable(function)?;
    let gpu = driver.gpu_spec(driver.device(driver.device_of(&what)?)?);
    let info = what.info();
    if threads > max_threads(info, gpu) {
        return Ok(0);
    }
    let shared = u64::from(info.shared).saturating_add(dynamic as u64);
    if shared > u64::from(gpu.shared_per_block_optin_kib) << 10 {
        return Ok(0);
    }
    Ok(limits(gpu).blocks_per_sm(threads, info.registers, shared))
}

fn threads(size: c_int) -> Answer<u32> {
    u32::try_from(size).ok().filter(|n| *n > 0).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn set_blocks(driver: &Driver, out: Out<c_int>, function: CUfunction, size: c_int, dynamic: usize) -> Answer {
    out.set(blocks(driver, function, threads(size)?, dynamic)? as c_int)
}

/// The block size, a multiple of a warp, that keeps most threads on a multiprocessor; of several the
/// largest. The grid is as many blocks as the device holds at a time.
fn potential(
    driver: &Driver,
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    by_size: SharedBySize,
    dynamic: usize,
    most: c_int,
) -> Answer {
    grid.required()?;
    block.required()?;
    let what = driver.code.launchable(function)?;
    let gpu = driver.gpu_spec(driver.device(driver.device_of(&what)?)?);
    let most = match u32::try_from(most) {
        Ok(0) => THREADS_PER_BLOCK,
        Ok(most) => most.min(THREADS_PER_BLOCK),
        Err(_) => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    .min(max_threads(what.info(), gpu));
    let mut best = (0, 0, 0);
    for size in (1..=most.div_ceil(32)).map(|warps| (warps * 32).min(most)).rev() {
        let shared = match by_size {
            // SAFETY: the caller's function, called as its type says.
            Some(shared) => unsafe { shared(size as c_int) },
            None => dynamic,
        };
        let count = blocks(driver, function, size, shared)?;
        if count * size > best.0 {
            best = (count * size, size, count);
        }
    }
    grid.set((best.2 * gpu.sms) as c_int)?;
    block.set(best.1 as c_int)
}

entry_points! {
    /// Blocks that a multiprocessor holds at a time.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: Out<c_int>, function: CUfunction, size: c_int, dynamic: usize,
    ) |driver| {
        set_blocks(driver, count, function, size, dynamic)
    }

    /// As without flags: caching is not modelled.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: Out<c_int>, function: CUfunction, size: c_int, dynamic: usize, _flags: c_uint,
    ) |driver| {
        set_blocks(driver, count, function, size, dynamic)
    }

    /// The block size with the best occupancy.
    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: CUfunction, by_size: SharedBySize, dynamic: usize, most: c_int,
    ) |driver| {
        potential(driver, grid, block, function, by_size, dynamic, most)
    }

    /// As without flags: caching is not modelled.
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, function: CUfunction, by_size: SharedBySize, dynamic: usize, most: c_int,
        _flags: c_uint,
    ) |driver| {
        potential(driver, grid, block, function, by_size, dynamic, most)
    }

    /// Dynamic shared memory left for each block when a multiprocessor holds `count` of them: at most what the kernel
    /// may have.
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, function: CUfunction, count: c_int, size: c_int,
    ) |driver| {
        let what = driver.code.launchable(function)?;
        let gpu = driver.gpu_spec(driver.device(driver.device_of(&what)?)?);
        let (count, _) = (threads(count)?, threads(size)?);
        let left = limits(gpu).shared_left(count, what.info().shared.into());
        bytes.set(left.min(max_dynamic_shared(what.info(), what.settings()).into()) as usize)
    }

    /// Clusters that the device holds at a time.
    fn cuOccupancyMaxActiveClusters(count: Out<c_int>, function: CUfunction, config: In<CUlaunchConfig>) |driver| {
        count.required()?;
        let config = config.get()?;
        let what = driver.code.launchable(function)?;
        let gpu = driver.gpu_spec(driver.device(driver.device_of(&what)?)?);
        if gpu.capability().0 < 9 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let size = config.blockDimX.saturating_mul(config.blockDimY).saturating_mul(config.blockDimZ);
        let on_sm = blocks(driver, function, size, config.sharedMemBytes as usize)?;
        let cluster = cluster_blocks(&read_attributes(&config)?).unwrap_or(1);
        count.set((on_sm * gpu.sms / cluster.max(1)) as c_int)
    }

    /// Largest cluster: 8 blocks on every device that has clusters.
    fn cuOccupancyMaxPotentialClusterSize(size: Out<c_int>, function: CUfunction, config: In<CUlaunchConfig>) |driver| {
        config.get()?;
        let what = driver.code.launchable(function)?;
        let gpu = driver.gpu_spec(driver.device(driver.device_of(&what)?)?);
        if gpu.capability().0 < 9 { Err(CUDA_ERROR_NOT_SUPPORTED) } else { size.set(8) }
    }
}
