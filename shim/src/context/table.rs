//! The process's contexts.

use core::sync::atomic::AtomicU64;

use radrm_cuda_abi::*;

use crate::map::HandleMap;

/// Device ordinals that are followed.
const DEVICES: usize = 64;

/// The process's contexts.
pub(crate) struct Contexts {
    /// Contexts that the program has created -> device ordinal + 1.
    pub(super) created: HandleMap,
    /// Green contexts -> device ordinal + 1.
    pub(super) greens: HandleMap,
    /// The handles that stand for green contexts where a context is asked for -> device ordinal + 1.
    pub(super) views: HandleMap,
    /// Primary context of each device; 0: none that is known.
    primary: [AtomicU64; DEVICES],
}

impl Contexts {
    /// None known.
    pub(crate) const fn new() -> Self {
        Self {
            created: HandleMap::new(),
            greens: HandleMap::new(),
            views: HandleMap::new(),
            primary: [const { AtomicU64::new(0) }; DEVICES],
        }
    }

    /// The primary context of a device; 0: none that is known.
    pub(super) fn primary(&self, device: CUdevice) -> Option<&AtomicU64> {
        self.primary.get(usize::try_from(device).ok()?)
    }
}
