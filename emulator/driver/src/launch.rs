//! Launches.
//!
//! | module | is |
//! |---|---|
//! | [`config`] | checks of a launch's configuration, attributes of `cuLaunchKernelEx` |
//! | [`timing`] | how long work takes |
//! | [`placement`] | what it has at work on the multiprocessors meanwhile |
//! | `mps` | the multiprocessors that MPS leaves to a process |
//! | `api` | entry points, host functions included |
//! | `legacy` | `cuLaunch` and what belongs to it |

mod api;
pub mod config;
mod legacy;
pub mod mps;
pub mod placement;
pub mod timing;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use radrm_cuda_abi::*;

use crate::code::image::KernelInfo;
use crate::code::registry::limits;
use crate::context::Context;
use crate::ffi::Answer;
use crate::graph::KernelNode;
use crate::state::Driver;
use crate::stream::clock::is_real;
use placement::{Phase, phases};
use radrm_emulator_machine::WHOLE;
use timing::{Geometry, KernelCost, KernelTimes};

/// Environment variable that names the table of kernel times.
pub const ENV_KERNEL_TIMES: &str = "RADRM_EMULATOR_KERNEL_TIMES";

/// Kernels launched by this process, those in graphs included.
static LAUNCHED: AtomicU64 = AtomicU64::new(0);

/// What the cost of a launch depends on.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// What the image says.
    pub info: &'a KernelInfo,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared: u32,
}

impl<'a> Shape<'a> {
    /// Shape of a kernel in a graph.
    pub fn of(node: &'a KernelNode) -> Self {
        Self { info: &node.info, grid: node.grid, block: node.block, shared: node.shared }
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Blocks that a multiprocessor holds at a time.
    pub fn resident(&self, gpu: &radrm_emulator_machine::GpuSpec) -> u32 {
        let shared = u64::from(self.info.shared) + u64::from(self.shared);
        limits(gpu).blocks_per_sm(self.threads(), self.info.registers, shared)
    }
}

/// The table of kernel times. One that cannot be read counts as none: a launch has no way to say so.
fn kernel_times() -> &'static KernelTimes {
    static TIMES: OnceLock<KernelTimes> = OnceLock::new();
    TIMES.get_or_init(|| {
        std::env::var_os(ENV_KERNEL_TIMES)
            .and_then(|path| std::fs::read_to_string(path).ok())
            .and_then(|text| KernelTimes::parse(&text).ok())
            .unwrap_or_default()
    })
}

/// CLOCK_MONOTONIC (ns).
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Counts a kernel's launch in the machine's ledger and gives its duration (ns) and what it has at work meanwhile: in the time of its GPU, which
/// other processes slow down, where time is real; else slowed down by what others ask of the GPU at this moment.
///
/// Where time is not real a process counts as busy from its launch for as long as its kernels take, one after
/// another, on the machine's clock.
///
/// # Errors
/// CUDA_ERROR_LAUNCH_FAILED and CUDA_ERROR_ILLEGAL_ADDRESS where faults were asked for or the GPU is lost.
pub fn account(driver: &Driver, context: &Context, shape: &Shape<'_>) -> Answer<(u64, Vec<Phase>)> {
    let number = LAUNCHED.fetch_add(1, Relaxed) + 1;
    if driver.machine.is_lost(context.gpu) {
        context.break_with(CUDA_ERROR_LAUNCH_FAILED);
        return Err(CUDA_ERROR_LAUNCH_FAILED);
    }
    if driver.faults.sticky_at.is_some_and(|at| number >= at) {
        context.break_with(CUDA_ERROR_ILLEGAL_ADDRESS);
        return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if driver.faults.launch_fail_at.contains(&number) {
        return Err(CUDA_ERROR_LAUNCH_FAILED);
    }
    let gpu = driver.gpu_spec(driver.device(context.device)?);
    let geometry = Geometry {
        blocks: shape.blocks(),
        threads: shape.threads(),
        resident: shape.resident(gpu).max(1),
        sms: mps::multiprocessors(gpu.sms),
    };
    let model = timing::kernel(gpu, geometry);
    let ns = kernel_times().get(&shape.info.name).unwrap_or(model.ns);
    let cost = KernelCost { ns, ..model };
    if is_real() {
        driver.process.launched(context.gpu, 1, cost.ns);
        DEMAND.store(cost.demand_permille, Relaxed);
        return Ok((cost.ns, phases(geometry, cost.ns, cost.ns)));
    }
    let now = monotonic_ns();
    let others = driver.machine.load(context.gpu, now, Some(&driver.process));
    let ns = timing::stretch(cost, others.demand_permille);
    driver.process.launched(context.gpu, 1, ns);
    let until = busy_until(context.gpu, now, ns);
    driver.process.set_busy(context.gpu, until, 1, cost.demand_permille);
    Ok((ns, phases(geometry, cost.ns, ns)))
}

/// What the latest kernel asks of its GPU (permille).
static DEMAND: AtomicU32 = AtomicU32::new(1000);

/// Says that this process has kernels on a GPU from its time `now` to `until`. Without MPS they have the GPU to
/// themselves or not at all.
pub fn publish(driver: &Driver, gpu: usize, now: u64, until: u64) {
    let demand = DEMAND.load(Relaxed);
    let weight = if mps::is_client_for_good() { demand } else { WHOLE };
    driver.process.set_work(gpu, until, weight);
    let slow = driver.machine.demand(gpu, now).max(u64::from(WHOLE));
    let left = until.saturating_sub(now).saturating_mul(slow) / u64::from(WHOLE);
    driver.process.set_busy(gpu, monotonic_ns().saturating_add(left), 1, demand);
}

/// Adds `ns` to what this process has still to do on a GPU; gives the moment at which it is done.
fn busy_until(gpu: usize, now: u64, ns: u64) -> u64 {
    static UNTIL: [AtomicU64; radrm_emulator_machine::MAX_GPUS] =
        [const { AtomicU64::new(0) }; radrm_emulator_machine::MAX_GPUS];
    let Some(word) = UNTIL.get(gpu) else { return now + ns };
    let add = |old: u64| Some(old.max(now).saturating_add(ns));
    word.fetch_update(Relaxed, Relaxed, add).map_or(now + ns, |old| old.max(now).saturating_add(ns))
}
