//! Attributes of functions and kernels.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use radrm_cuda_abi::*;
use radrm_emulator_machine::GpuSpec;

use crate::models::image::{Image, KernelInfo};
use crate::models::occupancy::{SHARED_PER_BLOCK, limits};
use crate::util::ffi::Answer;

/// Settings of a function or kernel that a program can change.
#[derive(Debug)]
pub struct Settings {
    /// Most dynamic shared memory of a block, bytes; -1: the default.
    pub max_dynamic_shared: AtomicI32,
    /// Preferred share of shared memory, percent; -1: the driver's choice.
    pub carveout: AtomicI32,
    /// Attributes 11 to 15 (clusters), by number - 11.
    pub cluster: [AtomicI32; 5],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_dynamic_shared: AtomicI32::new(-1),
            carveout: AtomicI32::new(-1),
            cluster: Default::default(),
        }
    }
}

/// Most threads of a block of a kernel on a device: what its registers allow, and its own bound.
pub fn max_threads(info: &KernelInfo, gpu: &GpuSpec) -> u32 {
    let by_registers = limits(gpu).threads_by_registers(info.registers);
    info.max_threads.map_or(by_registers, |bound| by_registers.min(bound))
}

/// Dynamic shared memory that a block may have at present, bytes.
pub fn max_dynamic_shared(info: &KernelInfo, settings: &Settings) -> u32 {
    match settings.max_dynamic_shared.load(Relaxed) {
        set @ 0.. => set as u32,
        _ => SHARED_PER_BLOCK.saturating_sub(info.shared),
    }
}

/// Value of a function attribute.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for an unknown attribute.
pub fn attribute(
    info: &KernelInfo,
    image: &Image,
    settings: &Settings,
    gpu: &GpuSpec,
    attribute: CUfunction_attribute,
) -> Answer<i32> {
    let (major, minor) = gpu.capability();
    let here = major * 10 + minor;
    let value = match attribute.0 {
        0 => max_threads(info, gpu),
        1 => info.shared,
        2 => u32::try_from(image.constants).unwrap_or(u32::MAX),
        3 => info.local,
        4 => info.registers,
        5 => {
            if image.is_ptx {
                image.arch
            } else {
                here
            }
        }
        6 => {
            if image.is_ptx || image.arch == 0 {
                here
            } else {
                image.arch
            }
        }
        7 => 0,
        8 => max_dynamic_shared(info, settings),
        9 => return Ok(settings.carveout.load(Relaxed)),
        10 => 0,
        11..=15 => return Ok(settings.cluster[attribute.0 as usize - 11].load(Relaxed)),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    Ok(i32::try_from(value).unwrap_or(i32::MAX))
}

/// Sets a function attribute.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for an attribute that cannot be set, or a value out of its range.
pub fn set_attribute(
    info: &KernelInfo,
    settings: &Settings,
    gpu: &GpuSpec,
    attribute: CUfunction_attribute,
    value: i32,
) -> Answer {
    match attribute {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = (gpu.shared_per_block_optin_kib << 10).saturating_sub(info.shared);
            if value < 0 || value as u32 > most {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            settings.max_dynamic_shared.store(value, Relaxed);
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            if !(-1..=100).contains(&value) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            settings.carveout.store(value, Relaxed);
        }
        CUfunction_attribute(id @ 11..=15) => {
            if gpu.capability().0 < 9 || value < 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            settings.cluster[id as usize - 11].store(value, Relaxed);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}
