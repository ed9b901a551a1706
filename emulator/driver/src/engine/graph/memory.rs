//! Memory of allocation nodes.
//!
//! A node's address is fixed when the node is made, and valid for copies from then on; memory is charged
//! for it from the launch of its graph until it is freed: by a free node of the same or another graph,
//! or by the program. At its
//! launch a graph takes as much as its nodes have allocated at a time at most (in the order of the
//! nodes), and keeps what is not freed inside of it. It belongs to the device, so that nothing goes with a context.

use std::collections::BTreeMap;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::NodeKind;
use crate::engine::graph::pool::rounded;
use crate::engine::graph::state::{Allocation, Graphs};
use crate::engine::memory::special::{special_map, special_release, special_reserve_on};
use crate::engine::memory::state::Memory;
use crate::engine::stream::state::Sched;
use crate::util::ffi::Answer;

/// Takes an address for a node that is about to be made.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for 0 bytes.
pub fn reserve(
    state: &mut Sched,
    driver: &'static Driver,
    device: CUdevice,
    bytes: u64,
) -> Answer<CUdeviceptr> {
    let address = special_reserve_on(driver, device, bytes)?;
    // Copies that are captured behind the allocation name the address before any launch.
    special_map(&driver.memory, address);
    state.graphs.allocations.insert(address, Allocation { device, bytes, holders: 0, live: false });
    Ok(address)
}

impl Graphs {
    /// A node or executable graph no longer refers to an allocation.
    pub fn let_go(&mut self, memory: &Memory, address: CUdeviceptr) {
        if let Some(allocation) = self.allocations.get_mut(&address) {
            allocation.holders = allocation.holders.saturating_sub(1);
        }
        self.forget_if_unused(memory, address);
    }

    fn forget_if_unused(&mut self, memory: &Memory, address: CUdeviceptr) {
        if self.allocations.get(&address).is_some_and(|a| a.holders == 0 && !a.live) {
            self.allocations.remove(&address);
            special_release(memory, address);
        }
    }

    /// Returns true if an address belongs to an allocation node.
    pub fn is_allocation(&self, address: CUdeviceptr) -> bool {
        self.allocations.contains_key(&address)
    }

    /// Memory of an allocation is not needed any more.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if there is none behind it.
    pub fn free(&mut self, memory: &Memory, address: CUdeviceptr) -> Answer {
        let allocation =
            self.allocations.get_mut(&address).filter(|a| a.live).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        allocation.live = false;
        let (device, bytes) = (allocation.device, rounded(allocation.bytes));
        self.pools.release(device, bytes);
        self.forget_if_unused(memory, address);
        Ok(())
    }

    /// Takes memory for a launch of nodes in this order, and notes what is live after it. Gives what the launch needs of
    /// each device.
    ///
    /// # Errors
    /// CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_INVALID_VALUE if memory of a former launch is still live
    /// and `free_first` is not set, or if something is freed that is not live. Nothing is taken then.
    pub fn launch_memory(
        &mut self,
        driver: &'static Driver,
        order: &[&NodeKind],
        free_first: bool,
    ) -> Answer<Vec<(CUdevice, u64)>> {
        let own: Vec<CUdeviceptr> = order
            .iter()
            .filter_map(|kind| if let NodeKind::Alloc { address, .. } = kind { Some(*address) } else { None })
            .collect();
        let still_live: Vec<CUdeviceptr> =
            own.iter().copied().filter(|a| self.allocations.get(a).is_some_and(|a| a.live)).collect();
        if !still_live.is_empty() && !free_first {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let foreign_free = |address: &CUdeviceptr| !own.contains(address);
        let is_live = |address: &CUdeviceptr| self.allocations.get(address).is_some_and(|a| a.live);
        for kind in order {
            if let NodeKind::Free { address } = kind
                && foreign_free(address)
                && !is_live(address)
            {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        for address in still_live {
            self.free(&driver.memory, address)?;
        }
        let levels = Levels::of(order);
        let mut taken: Vec<(CUdevice, u64)> = Vec::new();
        for (device, level) in &levels.0 {
            if let Err(error) = self.pools.acquire(driver, *device, level.peak) {
                for (device, bytes) in taken {
                    self.pools.release(device, bytes);
                }
                return Err(error);
            }
            taken.push((*device, level.peak));
        }
        for (device, level) in &levels.0 {
            self.pools.release(*device, level.peak - level.kept);
        }
        for kind in order {
            match kind {
                NodeKind::Alloc { address, .. } => {
                    if let Some(allocation) = self.allocations.get_mut(address) {
                        allocation.live = true;
                    }
                }
                NodeKind::Free { address } if foreign_free(address) => self.free(&driver.memory, *address)?,
                NodeKind::Free { address } => {
                    if let Some(allocation) = self.allocations.get_mut(address) {
                        allocation.live = false;
                    }
                }
                _ => {}
            }
        }
        Ok(taken)
    }

    /// Memory that is in use, or that an executable graph still has mapped: graphs share it, so the largest counts.
    pub fn used(&self, device: CUdevice) -> u64 {
        let mapped = self.execs.values().filter_map(|exec| exec.mapped.get(&device));
        self.pools.0.get(&device).map(|pool| &pool.used).into_iter().chain(mapped).copied().max().unwrap_or(0)
    }

    /// Gives memory that is not in use back to the device.
    pub fn trim(&mut self, driver: &'static Driver, device: CUdevice) {
        self.execs.values_mut().for_each(|exec| _ = exec.mapped.remove(&device));
        self.pools.trim(driver, device);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    pub(crate) now: u64,
    pub(crate) peak: u64,
    pub(crate) kept: u64,
}

/// Memory that the allocation nodes of one launch need, by device: bytes that the device gives up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Levels(BTreeMap<CUdevice, Level>);

impl Levels {
    fn of(order: &[&NodeKind]) -> Self {
        let mut own: BTreeMap<CUdeviceptr, (CUdevice, u64)> = BTreeMap::new();
        let mut levels = Self::default();
        for kind in order {
            match kind {
                NodeKind::Alloc { device, bytes, address } => {
                    let bytes = rounded(*bytes);
                    own.insert(*address, (*device, bytes));
                    let level = levels.0.entry(*device).or_default();
                    level.now += bytes;
                    level.peak = level.peak.max(level.now);
                }
                NodeKind::Free { address } => {
                    if let Some((device, bytes)) = own.remove(address)
                        && let Some(level) = levels.0.get_mut(&device)
                    {
                        level.now -= bytes;
                    }
                }
                _ => {}
            }
        }
        for level in levels.0.values_mut() {
            level.kept = level.now;
        }
        levels
    }
}

/// `cuMemFree` or `cuMemFreeAsync`, outside of captures, of an address that is no plain or pool
/// block: true if it was memory of an allocation node, which is freed then.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if there is no memory behind the node's address.
pub fn free_outside(driver: &'static Driver, address: CUdeviceptr) -> Answer<bool> {
    let mut state = driver.sched();
    if !state.graphs.is_allocation(address) {
        return Ok(false);
    }
    state.graphs.free(&driver.memory, address).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_needs_what_is_live_at_a_time() {
        let mib = 1 << 20;
        let alloc = |address, bytes| NodeKind::alloc(0, bytes, address);
        let nodes = [
            alloc(1, 4 * mib),
            alloc(2, 6 * mib),
            NodeKind::Free { address: 1 },
            NodeKind::Empty,
            alloc(3, 3 * mib),
            NodeKind::Free { address: 2 },
            NodeKind::Free { address: 99 },
        ];
        let levels = Levels::of(&nodes.iter().collect::<Vec<_>>());
        assert_eq!(levels.0[&0], Level { now: 4 * mib, peak: 10 * mib, kept: 4 * mib });
    }
}
