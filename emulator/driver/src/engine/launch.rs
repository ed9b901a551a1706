//! The accounting of launches: how long a kernel takes, and what it has at work meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;
use radrm_emulator_machine::WHOLE;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::models::launch::Shape;
use crate::models::placement::{Phase, phases};
use crate::models::timing::{self, Geometry, KernelCost};
use crate::util::ffi::Answer;
use crate::util::time::monotonic_ns;

/// Counts a kernel's launch in the machine's ledger and gives its duration (ns) and what it has at work meanwhile: in the time of its GPU, which
/// other processes slow down, where time is real; else slowed down by what others ask of the GPU at this moment.
///
/// `most`: the multiprocessors that the stream's green context has.
///
/// Where time is not real a process counts as busy from its launch for as long as its kernels take, one after
/// another, on the machine's clock.
///
/// # Errors
/// CUDA_ERROR_LAUNCH_FAILED and CUDA_ERROR_ILLEGAL_ADDRESS where faults were asked for or the GPU is lost.
pub fn account(
    driver: &'static Driver,
    context: &Context,
    most: Option<u32>,
    shape: &Shape<'_>,
) -> Answer<(u64, Vec<Phase>)> {
    let number = driver.launches.launched.fetch_add(1, Relaxed) + 1;
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
    let device = driver.device(context.device)?;
    let (gpu, seen) = (driver.gpu_spec(device), driver.multiprocessors(device));
    let geometry = Geometry {
        blocks: shape.blocks(),
        threads: shape.threads(),
        resident: shape.resident(gpu).max(1),
        sms: driver.launches.multiprocessors(seen).min(most.unwrap_or(seen)),
    };
    let model = timing::kernel(gpu, geometry);
    let ns = driver.launches.time_of(&shape.info.name).unwrap_or(model.ns);
    let cost = KernelCost { ns, ..model };
    if driver.launches.real_time {
        driver.process.launched(context.gpu, 1, cost.ns);
        driver.launches.demand.store(cost.demand_permille, Relaxed);
        return Ok((cost.ns, phases(geometry, cost.ns, cost.ns)));
    }
    let now = monotonic_ns();
    let others = driver.machine.load(context.gpu, now, Some(&driver.process));
    let ns = timing::stretch(cost, others.demand_permille);
    driver.process.launched(context.gpu, 1, ns);
    let until = driver.launches.busy_until(context.gpu, now, ns);
    driver.process.set_busy(context.gpu, until, 1, cost.demand_permille);
    Ok((ns, phases(geometry, cost.ns, ns)))
}

/// Says that this process has kernels on a GPU from its time `now` to `until`. Without MPS they have the GPU to
/// themselves or not at all.
pub fn publish(driver: &'static Driver, gpu: usize, now: u64, until: u64) {
    let demand = driver.launches.demand.load(Relaxed);
    let weight = if driver.launches.is_mps_client() { demand } else { WHOLE };
    driver.process.set_work(gpu, until, weight);
    let slow = driver.machine.demand(gpu, now).max(u64::from(WHOLE));
    let left = until.saturating_sub(now).saturating_mul(slow) / u64::from(WHOLE);
    driver.process.set_busy(gpu, monotonic_ns().saturating_add(left), 1, demand);
}
