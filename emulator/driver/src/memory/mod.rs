//! Everything that takes, copies or describes memory.
//!
//! One lock guards all of it: [`State`]. What is charged to the machine is charged under that lock
//! and before the memory is handed out.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use radrm_cuda_abi::*;
use radrm_emulator_machine::{Kind, ObjectId};

use crate::context::Context;
use crate::device::Device;
use crate::ffi::Answer;
use crate::state::{Driver, lock};

pub mod array;
pub mod attributes;
pub mod copy;
mod copy_api;
pub mod device;
pub mod external;
pub mod host;
pub mod ipc;
pub mod managed;
pub mod pool;
pub mod ranges;
pub mod set;
pub mod space;
pub mod special;
pub mod vmm;

pub use special::{special_map, special_release, special_reserve, special_reserve_on, special_unmap};

use space::{AddressSpace, Block, Blocks, Use};

/// The process's memory.
pub struct Memory {
    state: Mutex<State>,
    requests: AtomicU64,
}

/// What the lock guards.
pub struct State {
    /// Device addresses.
    pub space: AddressSpace,
    /// What stands at each address.
    pub blocks: Blocks,
    /// Chunks for small blocks, by device.
    small: Vec<device::SmallChunks>,
    /// Pools by handle.
    pools: HashMap<u64, pool::Pool>,
    /// Default and current pool, by device.
    device_pools: Vec<pool::DevicePools>,
    /// Physical memory by handle.
    physical: HashMap<u64, vmm::Physical>,
    /// Reserved addresses: base -> size.
    reservations: BTreeMap<u64, u64>,
    /// Arrays and mipmapped arrays by handle.
    arrays: array::Arrays,
    /// External memory by handle.
    external: HashMap<u64, external::External>,
    /// Addresses of opened objects.
    opened: HashMap<ObjectId, u64>,
}

impl Memory {
    /// No memory yet.
    pub fn new(devices: &[Device], backed: bool) -> Self {
        let each = || devices.iter();
        Self {
            state: Mutex::new(State {
                space: AddressSpace::new(backed),
                blocks: Blocks::default(),
                small: each().map(|_| device::SmallChunks::default()).collect(),
                pools: HashMap::new(),
                device_pools: each().map(|_| pool::DevicePools::default()).collect(),
                physical: HashMap::new(),
                reservations: BTreeMap::new(),
                arrays: array::Arrays::default(),
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

/// Charges memory, or notes the failure and answers CUDA_ERROR_OUT_OF_MEMORY.
pub(crate) fn charge(driver: &Driver, gpu: usize, kind: Kind, requested: u64, held: u64) -> Answer {
    driver.process.charge(gpu, kind, requested, held).map_err(|_| {
        driver.process.failed(gpu, requested);
        CUDA_ERROR_OUT_OF_MEMORY
    })
}

/// Frees whatever stands at a block's address, by its kind.
fn free_block(driver: &Driver, state: &mut State, block: &Block) {
    if let Some(id) = block.offered {
        driver.process.withdraw(id);
    }
    match block.kind {
        Use::Device => {
            let range = (block.base, block.size);
            device::give_range(driver, state, block.device, block.gpu, Kind::Device, range);
        }
        Use::Managed => host::unmap(driver, block, Kind::Managed),
        Use::Host => host::unmap(driver, block, Kind::PinnedHost),
        Use::Registered => driver.process.discharge(block.gpu, Kind::PinnedHost, block.size, block.size),
        Use::Pool(handle) => pool::give(driver, state, block, handle),
        Use::Imported(_) | Use::External(_) => {
            driver.process.discharge(block.gpu, Kind::Imported, block.size, 0);
            state.space.give(block.base, block.size);
        }
        Use::Mapped { .. } | Use::Special => {}
    }
}

/// All memory of a context goes with it; pools are emptied when a device has no context left.
pub fn context_destroyed(driver: &Driver, context: &Arc<Context>) {
    let mut state = driver.memory.lock();
    let state = &mut *state;
    let mine = |b: &&Block| b.context.1 == context.id && !matches!(b.kind, Use::Mapped { .. } | Use::Special);
    let bases: Vec<u64> = state.blocks.all().filter(mine).map(|b| b.base).collect();
    for base in bases {
        if let Some(block) = state.blocks.remove(base) {
            if let Use::Imported(id) = block.kind {
                state.opened.remove(&id);
            }
            free_block(driver, state, &block);
        }
    }
    array::context_destroyed(driver, state, context);
    if !driver.contexts.all().iter().any(|other| other.device == context.device) {
        pool::trim_device(driver, state, context.device, |_| 0);
    }
}

/// Pools give back what is above their release threshold: called after every synchronisation of a
/// stream, event or context of a device.
pub fn synchronized(driver: &Driver, device: CUdevice) {
    let mut state = driver.memory.lock();
    pool::trim_device(driver, &mut state, device, |pool| pool.threshold);
}
