//! Amount of work of a program.

use clap::Args;

/// Bytes of a MiB.
pub const MIB: usize = 1 << 20;

/// Amount of work of a program.
#[derive(Args, Clone, Copy)]
pub struct Size {
    /// GPU to run on.
    #[arg(long, default_value_t = 0)]
    pub device: usize,
    /// Memory that a program takes at its most, in MiB, roughly.
    #[arg(long, default_value_t = 64)]
    pub mib: usize,
    /// Launches, steps or allocations that a program makes.
    #[arg(long, default_value_t = 100)]
    pub rounds: usize,
    /// Go on for so long instead of --rounds.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Blocks of a launch; without it as many as --mib takes, one thread for each element.
    #[arg(long)]
    pub blocks: Option<u32>,
    /// Threads of a block.
    #[arg(long, default_value_t = 256)]
    pub threads: u32,
    /// Operations of `spin` for each element: how long it takes.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(4096..))]
    pub spins: u32,
    /// Kernels in the graph of `replay`.
    #[arg(long, default_value_t = 20)]
    pub nodes: usize,
}
