//! Green contexts: a primary context with a part of the device's multiprocessors.
//!
//! A green context has no memory, code or events of its own; those are the primary context's, which it keeps alive. What
//! it has are streams, whose kernels run on its multiprocessors only.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use radrm_cuda_abi::*;

use crate::models::resource::{QUEUE, QUEUE_CONFIG, Resource, SM};
use crate::util::ffi::Answer;
use crate::util::handles::Registry;

/// A green context.
#[derive(Debug)]
pub struct Green {
    /// Handle.
    pub handle: CUgreenCtx,
    /// The handle that stands for it where a context is asked for.
    pub view: CUcontext,
    /// Number that no other context of this process had.
    pub id: u64,
    /// Ordinal of its device.
    pub device: CUdevice,
    /// Handle of the device's primary context.
    pub context: u64,
    /// Multiprocessors that its kernels run on.
    pub sms: u32,
    pub(crate) resources: Vec<Resource>,
    pub(crate) destroyed: AtomicBool,
}

// SAFETY: the resources' pointers are null and never read.
unsafe impl Send for Green {}
// SAFETY: as above.
unsafe impl Sync for Green {}

impl Green {
    /// Returns true if the green context was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Relaxed)
    }

    /// Its resource of one type.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_RESOURCE_TYPE.
    pub fn resource(&self, kind: u32) -> Answer<Resource> {
        match kind {
            SM => self.resources.iter().find(|r| r.kind == SM).copied(),
            QUEUE_CONFIG => {
                let own = self.resources.iter().find(|r| r.kind == QUEUE_CONFIG).copied();
                Some(own.unwrap_or_else(|| Resource::queue_config(self.device, connections())))
            }
            QUEUE => Some(Resource::queue(self.device, self.id)),
            _ => None,
        }
        .ok_or(CUDA_ERROR_INVALID_RESOURCE_TYPE)
    }
}

/// A descriptor: resources that belong together, and their device.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Ordinal of the device.
    pub device: CUdevice,
    /// The resources.
    pub resources: Vec<Resource>,
}

// SAFETY: the resources' pointers are null and never read.
unsafe impl Send for Descriptor {}

/// All green contexts of the process.
#[derive(Default)]
pub struct Greens {
    /// By their own handle.
    pub by_handle: Registry<Green>,
    /// By the handle of their view as a context.
    pub by_view: Registry<Green>,
    /// Descriptors by handle; they live as long as the process.
    pub descriptors: Mutex<HashMap<u64, Descriptor>>,
    splits: AtomicU32,
}

impl Greens {
    /// A number for a split, never 0.
    pub fn new_split(&self) -> u32 {
        self.splits.fetch_add(1, Relaxed) + 1
    }
}

/// `CUDA_DEVICE_MAX_CONNECTIONS`, 8 if it is not set.
pub fn connections() -> u32 {
    let set = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|text| text.parse().ok());
    set.filter(|number| (1..=32).contains(number)).unwrap_or(8)
}
