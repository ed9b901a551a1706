//! The programs.

use std::time::Instant;

use anyhow::{Result, ensure};
use cudarc::driver::{LaunchConfig, PushKernelArg as _, result};

use crate::{Size, code::Gpu};

/// A named piece of work.
pub struct Program {
    /// What the user calls it.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Does it and says in a line what was done.
    pub run: fn(&Gpu, Size) -> Result<String>,
}

/// All programs.
pub const PROGRAMS: &[Program] = &[
    Program { name: "square", about: "squares an array once and checks it", run: square },
    Program { name: "triad", about: "memory-bound: a = 3 b + c over three arrays", run: triad },
    Program { name: "spin", about: "compute-bound: many operations for each element", run: spin },
    Program {
        name: "ladder",
        about: "allocates blocks of doubling size, frees them from the top",
        run: ladder,
    },
    Program { name: "storm", about: "launches of a kernel that does nothing", run: storm },
    Program { name: "churn", about: "stream-ordered allocations and frees of mixed sizes", run: churn },
];

const MIB: usize = 1 << 20;

/// Whether device memory reads back as zeros whatever was written: an emulated GPU.
fn is_hollow(values: &[f32]) -> bool {
    values.iter().all(|v| *v == 0.0)
}

fn elements(bytes: usize) -> Result<(usize, u32)> {
    let n = (bytes / 4).max(1);
    Ok((n, u32::try_from(n)?))
}

fn square(gpu: &Gpu, size: Size) -> Result<String> {
    let (n, n32) = elements(size.mib * MIB)?;
    let input: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 + 1.0).collect();
    let mut x = gpu.stream.clone_htod(&input)?;
    let kernel = gpu.kernel("square")?;
    // SAFETY: the arguments are those of the kernel, and it stays within `n`.
    unsafe {
        gpu.stream.launch_builder(&kernel).arg(&mut x).arg(&n32).launch(LaunchConfig::for_num_elems(n32))?
    };
    let output = gpu.stream.clone_dtoh(&x)?;
    gpu.stream.synchronize()?;
    if is_hollow(&output) || output == input {
        return Ok(format!("{n} elements, kernels do not execute on this GPU"));
    }
    let wrong = output.iter().zip(&input).filter(|(o, i)| **o != **i * **i).count();
    ensure!(wrong == 0, "{wrong} of {n} elements are wrong");
    Ok(format!("{n} elements, all right"))
}

fn triad(gpu: &Gpu, size: Size) -> Result<String> {
    let (n, n32) = elements(size.mib * MIB / 3)?;
    let b = gpu.stream.alloc_zeros::<f32>(n)?;
    let c = gpu.stream.alloc_zeros::<f32>(n)?;
    let mut a = gpu.stream.alloc_zeros::<f32>(n)?;
    let kernel = gpu.kernel("triad")?;
    let start = Instant::now();
    for _ in 0..size.rounds {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut a).arg(&b).arg(&c).arg(&n32);
        // SAFETY: as in `square`.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n32))? };
    }
    gpu.stream.synchronize()?;
    let moved = (3 * a.num_bytes() * size.rounds) as f64;
    Ok(format!("{} launches, {:.1} GB/s", size.rounds, moved / start.elapsed().as_secs_f64() / 1e9))
}

fn spin(gpu: &Gpu, size: Size) -> Result<String> {
    let (n, n32) = elements(size.mib * MIB)?;
    let mut x = gpu.stream.alloc_zeros::<f32>(n)?;
    let kernel = gpu.kernel("spin")?;
    let rounds = 4096_u32;
    let start = Instant::now();
    for _ in 0..size.rounds {
        let mut launch = gpu.stream.launch_builder(&kernel);
        launch.arg(&mut x).arg(&n32).arg(&rounds);
        // SAFETY: as in `square`.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n32))? };
    }
    gpu.stream.synchronize()?;
    let done = 2.0 * f64::from(rounds) * n as f64 * size.rounds as f64;
    Ok(format!("{} launches, {:.1} GFLOP/s", size.rounds, done / start.elapsed().as_secs_f64() / 1e9))
}

fn ladder(gpu: &Gpu, size: Size) -> Result<String> {
    gpu.context.bind_to_thread()?;
    let mut blocks = Vec::new();
    let (mut bytes, mut sum) = (1024, 0);
    while sum + bytes <= size.mib * MIB {
        // SAFETY: a context is current; every block is freed below.
        blocks.push(unsafe { result::malloc_sync(bytes)? });
        sum += bytes;
        bytes *= 2;
    }
    let count = blocks.len();
    while let Some(block) = blocks.pop() {
        // SAFETY: allocated above and not used since.
        unsafe { result::free_sync(block)? };
    }
    Ok(format!("{count} blocks, {sum} bytes at the top"))
}

fn storm(gpu: &Gpu, size: Size) -> Result<String> {
    let kernel = gpu.kernel("nothing")?;
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    let start = Instant::now();
    for _ in 0..size.rounds {
        // SAFETY: the kernel has no arguments.
        unsafe { gpu.stream.launch_builder(&kernel).launch(config)? };
    }
    let issued = start.elapsed();
    gpu.stream.synchronize()?;
    let each = issued.as_secs_f64() * 1e6 / size.rounds.max(1) as f64;
    Ok(format!("{} launches, {each:.2} us each on the host", size.rounds))
}

fn churn(gpu: &Gpu, size: Size) -> Result<String> {
    if !gpu.context.has_async_alloc() {
        return Ok("this GPU has no stream-ordered allocator".to_owned());
    }
    gpu.context.bind_to_thread()?;
    const KEPT: usize = 16;
    let most = (size.mib * MIB / KEPT).max(4096);
    let mut kept = [None; KEPT];
    let mut seed = 12345_u32;
    for _ in 0..size.rounds {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let (at, bytes) = ((seed >> 8) as usize % KEPT, (seed >> 12) as usize % most + 1);
        // SAFETY: a context is current; every block is freed once, here or below, in the stream that
        // it was allocated in.
        unsafe {
            if let Some(block) = kept[at].take() {
                result::free_async(block, gpu.stream.cu_stream())?;
            }
            kept[at] = Some(result::malloc_async(gpu.stream.cu_stream(), bytes)?);
        }
    }
    for block in kept.into_iter().flatten() {
        // SAFETY: as above.
        unsafe { result::free_async(block, gpu.stream.cu_stream())? };
    }
    gpu.stream.synchronize()?;
    Ok(format!("{} allocations of up to {most} bytes, {KEPT} alive", size.rounds))
}
