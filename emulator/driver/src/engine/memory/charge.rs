//! Accounting for memory on the machine.

use std::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::driver::Driver;
use crate::util::ffi::Answer;

/// Counts a request for device memory and lets it fail if the plan of faults says so.
pub(crate) fn request(driver: &Driver, gpu: usize, bytes: u64) -> Answer {
    if !driver.faulty {
        return Ok(());
    }
    let number = driver.memory.requests.fetch_add(1, Relaxed) + 1;
    let plan = &driver.faults;
    let over = plan.oom_after.is_some_and(|limit| driver.process.held(gpu).saturating_add(bytes) > limit);
    let split = plan.fragment.is_some_and(|largest| bytes > largest);
    if plan.oom_at.contains(&number) || over || split {
        driver.process.failed(gpu, bytes);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    Ok(())
}

/// Charges memory, or notes the failure and answers CUDA_ERROR_OUT_OF_MEMORY. The limit of MPS is one of each process.
pub(crate) fn charge(driver: &Driver, gpu: usize, kind: Kind, requested: u64, held: u64) -> Answer {
    let limit = driver.launches.memory_limit().unwrap_or(u64::MAX);
    if held > 0 && driver.process.held(gpu).saturating_add(held) > limit {
        driver.process.failed(gpu, requested);
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    driver.process.charge(gpu, kind, requested, held).map_err(|_| {
        driver.process.failed(gpu, requested);
        CUDA_ERROR_OUT_OF_MEMORY
    })
}
