//! `nvmlDeviceGetMemoryInfo`: the quota as the device's memory.

use radrm_cuda_abi::*;

use crate::errno;
use crate::quota::View;

type Call<M> = unsafe extern "C-unwind" fn(nvmlDevice_t, *mut M) -> nvmlReturn_t;

/// `nvmlDeviceGetMemoryInfo` in every version.
///
/// # Safety
/// `real` is NVML's own function, and the arguments are the program's of this call.
pub(crate) unsafe fn limited<M: MemoryInfo>(
    real: Call<M>,
    device: nvmlDevice_t,
    memory: *mut M,
) -> nvmlReturn_t {
    // SAFETY: the program's own call, passed on.
    let result = unsafe { real(device, memory) };
    if result.is_ok() && !memory.is_null() {
        errno::keep(|| {
            // SAFETY: not null, and written by NVML, which reported success.
            let info = unsafe { memory.read_unaligned() };
            let view =
                info.figures().and_then(|figures| Some((figures, super::view(device, figures.total)?)));
            if let Some((figures, view)) = view {
                // SAFETY: as above.
                unsafe { memory.write_unaligned(info.with(figures.through(view))) };
            }
        });
    }
    result
}

/// A device's memory in bytes: total = reserved + free + used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Figures {
    total: u64,
    /// Kept by the driver and the firmware.
    reserved: u64,
    free: u64,
    used: u64,
}

impl Figures {
    /// Seen through the quota, with the free memory that `cuMemGetInfo` reports. What the device keeps for
    /// itself comes out of the part that the quota leaves out, as far as that is enough.
    fn through(self, view: View) -> Self {
        let (free, total) = view.through(self.free, self.total);
        let reserved = self.reserved.saturating_sub(self.total - total);
        let free = free.min(total.saturating_sub(reserved));
        Self { total, reserved, free, used: total.saturating_sub(reserved).saturating_sub(free) }
    }
}

/// A form of the structure that NVML fills.
pub(crate) trait MemoryInfo: Copy {
    /// Figures of the structure; `None` for a version that is not known here.
    fn figures(&self) -> Option<Figures>;
    /// The same structure with other figures.
    fn with(self, figures: Figures) -> Self;
}

impl MemoryInfo for nvmlMemory_t {
    fn figures(&self) -> Option<Figures> {
        Some(Figures { total: self.total, reserved: 0, free: self.free, used: self.used })
    }

    fn with(self, Figures { total, reserved, free, used }: Figures) -> Self {
        Self { total, free, used: used + reserved }
    }
}

impl MemoryInfo for nvmlMemory_v2_t {
    fn figures(&self) -> Option<Figures> {
        let Self { version, total, reserved, free, used } = *self;
        (version == nvmlMemory_v2).then_some(Figures { total, reserved, free, used })
    }

    fn with(self, Figures { total, reserved, free, used }: Figures) -> Self {
        Self { total, reserved, free, used, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(total: u64, reserved: u64, free: u64) -> Figures {
        Figures { total, reserved, free, used: total - reserved - free }
    }

    #[test]
    fn the_parts_make_up_the_total_whatever_limit_and_device_say() {
        for total in [0, 1, 40, 80, 100, u64::MAX] {
            for free in [0, 1, 30, 80, 100, u64::MAX] {
                for device in [figures(80, 0, 80), figures(80, 10, 60), figures(80, 80, 0), figures(0, 0, 0)]
                {
                    let seen = device.through(View { total, free });
                    assert_eq!(seen.total, total.min(device.total));
                    assert_eq!(
                        seen.reserved + seen.free + seen.used,
                        seen.total,
                        "{device:?} {total} {free}"
                    );
                    assert!(seen.free <= device.free.min(free) && seen.reserved <= device.reserved);
                }
            }
        }
    }

    #[test]
    fn a_limit_that_is_not_tighter_than_the_device_changes_nothing() {
        let device = figures(80, 10, 60);
        assert_eq!(device.through(View { total: 80, free: 60 }), device);
        assert_eq!(device.through(View { total: 100, free: 100 }), device);
    }

    #[test]
    fn what_the_device_keeps_for_itself_is_taken_from_the_part_outside_of_the_quota() {
        let device = figures(100, 10, 90);
        assert_eq!(device.through(View { total: 50, free: 40 }), figures(50, 0, 40));
        assert_eq!(device.through(View { total: 94, free: 80 }), figures(94, 4, 80));
    }

    #[test]
    fn a_structure_of_an_unknown_version_is_not_read() {
        let info = nvmlMemory_v2_t { version: nvmlMemory_v2, total: 5, ..Default::default() };
        assert!(info.figures().is_some());
        assert_eq!(nvmlMemory_v2_t { version: nvmlMemory_v2 + (1 << 24), ..info }.figures(), None);
    }
}
