//! The process's memory behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use radrm_emulator_machine::ObjectId;

use crate::engine::device::Device;
use crate::engine::memory::advice::{Advice, Place};
use crate::engine::memory::objects::{Arrays, DevicePools, External, Physical, Pool, SmallChunks};
use crate::engine::memory::space::{AddressSpace, Blocks};
use crate::util::sync::lock;

/// The process's memory.
pub struct Memory {
    pub(crate) state: Mutex<State>,
    pub(crate) requests: AtomicU64,
}

/// Memory state behind the lock.
pub struct State {
    /// Device addresses.
    pub space: AddressSpace,
    /// Blocks by address.
    pub blocks: Blocks,
    /// Chunks for small blocks, by device.
    pub(crate) small: Vec<SmallChunks>,
    /// Pools by handle.
    pub(crate) pools: HashMap<u64, Pool>,
    /// Default and current pool, by device.
    pub(crate) device_pools: Vec<DevicePools>,
    /// Default and current pool of managed memory, by location.
    pub(crate) managed_pools: BTreeMap<Place, DevicePools>,
    /// Advice about managed memory.
    pub(crate) advice: Advice,
    /// Physical memory by handle.
    pub(crate) physical: HashMap<u64, Physical>,
    /// Reserved addresses: base -> size.
    pub(crate) reservations: BTreeMap<u64, u64>,
    /// Arrays and mipmapped arrays by handle.
    pub(crate) arrays: Arrays,
    /// External memory by handle.
    pub(crate) external: HashMap<u64, External>,
    /// Addresses of opened objects.
    pub(crate) opened: HashMap<ObjectId, u64>,
}

impl Memory {
    /// No memory yet.
    pub fn new(devices: &[Device], backed: bool) -> Self {
        let each = || devices.iter();
        Self {
            state: Mutex::new(State {
                space: AddressSpace::new(backed),
                blocks: Blocks::default(),
                small: each().map(|_| SmallChunks::default()).collect(),
                pools: HashMap::new(),
                device_pools: each().map(|_| DevicePools::default()).collect(),
                managed_pools: BTreeMap::new(),
                advice: Advice::default(),
                physical: HashMap::new(),
                reservations: BTreeMap::new(),
                arrays: Arrays::default(),
                external: HashMap::new(),
                opened: HashMap::new(),
            }),
            requests: AtomicU64::new(0),
        }
    }

    /// The lock.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
