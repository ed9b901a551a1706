//! The programs.

mod graphs;
mod memory;
mod streaming;
mod training;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cudarc::driver::{CudaEvent, LaunchConfig, sys::CUevent_flags};

use crate::{Size, code::Gpu, known::Known};

/// A named piece of work.
pub struct Program {
    /// What the user calls it.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Does it. What it says is in words what the returned figures say, for people.
    pub run: fn(&Gpu, Size) -> Result<Known>,
}

/// All programs.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "square",
        about: "squares one element per thread: the micro-benchmark over --blocks and --threads",
        run: streaming::square,
    },
    Program { name: "triad", about: "memory-bound: a = 3 b + c over three arrays", run: streaming::triad },
    Program { name: "spin", about: "compute-bound: many operations for each element", run: streaming::spin },
    Program {
        name: "ladder",
        about: "allocates blocks of doubling size, frees them from the top",
        run: memory::ladder,
    },
    Program { name: "storm", about: "launches of a kernel that does nothing", run: graphs::storm },
    Program {
        name: "replay",
        about: "a graph of --nodes kernels that each add 1, launched again and again",
        run: graphs::replay,
    },
    Program {
        name: "churn",
        about: "stream-ordered allocations and frees of mixed sizes",
        run: memory::churn,
    },
    Program {
        name: "train",
        about: "steps of a small training: copy a batch, forward, backward, update",
        run: training::train,
    },
];

const MIB: usize = 1 << 20;

/// Blocks and threads per block of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
}

impl Shape {
    /// For arrays of about so many bytes, one thread per element, unless --blocks says otherwise.
    fn of(size: Size, bytes: usize) -> Result<Self> {
        let threads = size.threads;
        ensure!((1..=1024).contains(&threads), "a block has 1 to 1024 threads, not {threads}");
        let fitting = ((bytes / 4).max(1) as u64).div_ceil(u64::from(threads));
        let blocks = size.blocks.map_or(fitting, u64::from);
        ensure!(blocks > 0, "a launch has at least 1 block");
        // Elements are numbered in 32 bits.
        ensure!(
            blocks * u64::from(threads) <= u64::from(u32::MAX),
            "{blocks} blocks of {threads} threads are more than {} elements",
            u32::MAX
        );
        Ok(Self { blocks: u32::try_from(blocks)?, threads })
    }

    /// Elements: one for each thread.
    fn elements(self) -> u32 {
        self.blocks * self.threads
    }

    fn config(self) -> LaunchConfig {
        LaunchConfig { grid_dim: (self.blocks, 1, 1), block_dim: (self.threads, 1, 1), shared_mem_bytes: 0 }
    }
}

/// Whether device memory reads back as zeros whatever was written: an emulated GPU.
fn is_hollow(values: &[f32]) -> bool {
    values.iter().all(|v| *v == 0.0)
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Does `step` again and again, `size.rounds` times or, if --seconds is given, for so long, and times it on
/// host and GPU. Gives the number of rounds.
fn repeat(gpu: &Gpu, size: Size, known: &mut Known, mut step: impl FnMut() -> Result<()>) -> Result<u64> {
    let event =
        || -> Result<CudaEvent> { Ok(gpu.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?) };
    gpu.stream.synchronize()?;
    let (began, from) = (monotonic_ns(), event()?);
    let (mut done, mut issuing) = (0_u64, Duration::ZERO);
    loop {
        // So many launches at a time that a look at the clock costs nothing beside them, and so few that the
        // end is not missed by long: what is queued is waited for.
        let batch = match size.seconds {
            Some(_) => 16,
            None => size.rounds,
        };
        let start = Instant::now();
        for _ in 0..batch {
            step()?;
        }
        issuing += start.elapsed();
        done += batch as u64;
        let Some(seconds) = size.seconds else { break };
        gpu.stream.synchronize()?;
        if (monotonic_ns() - began) as f64 * 1e-9 >= seconds {
            break;
        }
    }
    let to = event()?;
    gpu.stream.synchronize()?;
    known.span_ns = Some([began, monotonic_ns()]);
    known.gpu_seconds = Some(f64::from(from.elapsed_ms(&to)?) * 1e-3);
    known.issue_seconds = Some(issuing.as_secs_f64());
    Ok(done)
}
