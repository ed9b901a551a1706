//! Blocks and threads of launches.

use anyhow::{Result, ensure};
use cudarc::driver::LaunchConfig;

use crate::size::Size;

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
    pub fn of(size: Size, bytes: usize) -> Result<Self> {
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
    pub fn elements(self) -> u32 {
        self.blocks * self.threads
    }

    /// One dimension of each.
    pub fn config(self) -> LaunchConfig {
        LaunchConfig { grid_dim: (self.blocks, 1, 1), block_dim: (self.threads, 1, 1), shared_mem_bytes: 0 }
    }
}
