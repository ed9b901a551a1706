//! From a device ordinal of this process to the job-wide index of its GPU.
//!
//! Ordinals are what `CUDA_VISIBLE_DEVICES` makes of them, so the driver is asked for the identifier
//! behind each: whichever way a program was pointed at a GPU (index, UUID, MIG name), the same GPU
//! is charged.

use core::sync::atomic::{AtomicU8, Ordering};

use radrm_cuda_abi::*;

use crate::bytes;
use crate::cx::Cx;
use crate::telemetry::GpuIndex;
use crate::wiped::{Wiped, Zeroable};

/// Ordinals that are kept; a process sees far fewer devices.
pub(super) const ORDINALS: usize = 128;
/// Entry of a device that the segment has no room for.
const REFUSED: u8 = u8::MAX;

/// Index of the GPU behind each ordinal, plus one; 0 where it was not asked for yet.
struct Devices {
    index: [AtomicU8; ORDINALS],
}

// SAFETY: zero is "not asked for yet"; atomics have no destructor.
unsafe impl Zeroable for Devices {}

static DEVICES: Wiped<Devices> = Wiped::new();

/// The GPU behind a device ordinal; `None` where the driver does not know the ordinal or the job has
/// more GPUs than the segment has room for.
pub(crate) fn of_device(cx: &Cx<'_>, device: CUdevice) -> Option<GpuIndex> {
    let slot = DEVICES.get()?.index.get(usize::try_from(device).ok()?)?;
    // Relaxed: the value is all there is to see; the segment's own table publishes the rest.
    match slot.load(Ordering::Relaxed) {
        0 => register_upto(cx, device, slot),
        REFUSED => None,
        index => GpuIndex::from_number(usize::from(index - 1)),
    }
}

/// Registers a device, and before it those with lower ordinals: so the job numbers its GPUs as its first
/// process does, whichever of them is used first.
#[cold]
#[inline(never)]
fn register_upto(cx: &Cx<'_>, device: CUdevice, slot: &AtomicU8) -> Option<GpuIndex> {
    if let Some(devices) = DEVICES.get() {
        for (ordinal, slot) in (0..device).zip(&devices.index) {
            if slot.load(Ordering::Relaxed) == 0 {
                register(cx, ordinal, slot);
            }
        }
    }
    register(cx, device, slot)
}

fn register(cx: &Cx<'_>, device: CUdevice, slot: &AtomicU8) -> Option<GpuIndex> {
    crate::errno::keep(|| {
        cx.relaxed_capture(|| {
            let driver = cx.driver();
            let total = driver.total_memory(device).unwrap_or(0);
            let (mut name, mut bus) = ([0u8; 96], [0u8; 32]);
            let name = driver.device_name(device, &mut name);
            let bus = driver.pci_bus_id(device, &mut bus);
            let uuid = driver.uuid(device).or_else(|| named_by_bus(bus))?;
            let index = cx.writer().gpu(&uuid, name, total, bus);
            if let Some(index) = index {
                cx.page.quota.gpu(index, &uuid, total);
            }
            slot.store(index.map_or(REFUSED, |i| i.number().saturating_add(1)), Ordering::Relaxed);
            index
        })
    })
}

/// An identifier for a GPU whose driver reports none: its PCI bus id, which fits.
fn named_by_bus(bus: &[u8]) -> Option<[u8; 16]> {
    let mut name = [0; 16];
    let place = name.get_mut(..bus.len()).filter(|_| !bus.is_empty())?;
    bytes::copy(place, bus);
    Some(name)
}
