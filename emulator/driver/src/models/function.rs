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
        // Of PTX its virtual architecture, and of a binary that which it was compiled from: nvcc gives both the same number.
        // CUB looks this number up among those that its kernels were compiled for, so an 8.6 binary on 8.9 must say 86.
        5 if image.arch != 0 => image.arch,
        6 if image.arch != 0 && !image.is_ptx => image.arch,
        5 | 6 => here,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_states_its_own_version_on_a_newer_device() {
        let gpu = &radrm_emulator_machine::Models::known().unwrap().find("L4").unwrap().clone();
        assert_eq!(gpu.capability(), (8, 9));
        let of = |image: &Image, number| {
            attribute(&KernelInfo::default(), image, &Settings::default(), gpu, CUfunction_attribute(number))
        };
        let versions = |image: Image| [of(&image, 5), of(&image, 6)];
        assert_eq!(versions(Image { arch: 86, ..Image::default() }), [Ok(86), Ok(86)]);
        assert_eq!(versions(Image { arch: 80, is_ptx: true, ..Image::default() }), [Ok(80), Ok(89)]);
        assert_eq!(versions(Image::default()), [Ok(89), Ok(89)]);
    }
}
