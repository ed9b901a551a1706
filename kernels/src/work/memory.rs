//! Memory without kernels.

use anyhow::{Result, bail};
use cudarc::driver::result;

use crate::{
    code::Gpu,
    known::Known,
    size::{MIB, Size},
};

/// Blocks that `churn` keeps at a time.
const KEPT: usize = 16;

pub fn ladder(gpu: &Gpu, size: Size) -> Result<Known> {
    gpu.context.bind_to_thread()?;
    let mut known = Known { program: "ladder", ..Known::default() };
    let mut blocks = Vec::new();
    let (mut bytes, mut sum) = (1024, 0);
    while sum + bytes <= size.mib * MIB {
        // SAFETY: a context is current; every block is freed below.
        blocks.push(unsafe { result::malloc_sync(bytes)? });
        known.holds(bytes);
        sum += bytes;
        bytes *= 2;
    }
    while let Some(block) = blocks.pop() {
        // SAFETY: allocated above and not used since.
        unsafe { result::free_sync(block)? };
    }
    Ok(known)
}

pub fn churn(gpu: &Gpu, size: Size) -> Result<Known> {
    if !gpu.context.has_async_alloc() {
        bail!("this GPU has no stream-ordered allocator");
    }
    gpu.context.bind_to_thread()?;
    let mut known = Known { program: "churn", ..Known::default() };
    let most = (size.mib * MIB / KEPT).max(4096);
    let mut kept = [None; KEPT];
    let mut seed = 12345_u32;
    let mut held = 0;
    for _ in 0..size.rounds {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let (at, bytes) = ((seed >> 8) as usize % KEPT, (seed >> 12) as usize % most + 1);
        // SAFETY: a context is current; every block is freed once, here or below, in the stream that
        // it was allocated in.
        unsafe {
            if let Some((block, bytes)) = kept[at].take() {
                result::free_async(block, gpu.stream.cu_stream())?;
                held -= bytes;
            }
            kept[at] = Some((result::malloc_async(gpu.stream.cu_stream(), bytes)?, bytes));
        }
        held += bytes;
        known.allocations += 1;
        known.peak_bytes = known.peak_bytes.max(held as u64);
    }
    for (block, _) in kept.into_iter().flatten() {
        // SAFETY: as above.
        unsafe { result::free_async(block, gpu.stream.cu_stream())? };
    }
    gpu.stream.synchronize()?;
    Ok(known)
}
