//! Sets of events. One thing happens to an emulated GPU: it falls off the bus, which drivers report as Xid 79.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use radrm_emulator_machine::Machine;

use crate::api::*;
use crate::state::Device;

/// Errors of memory (with error correction only), performance state, critical Xid, clocks.
const ECC: u64 = 0x3;
const PERFORMANCE_STATE: u64 = 0x4;
const CRITICAL_XID: u64 = 0x8;
const CLOCK: u64 = 0x10;
/// "GPU has fallen off the bus".
const OFF_THE_BUS: u64 = 79;
/// Interval at which a wait reads the machine's state.
const INTERVAL: Duration = Duration::from_millis(20);

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Device.
    pub device: Device,
    /// Kind.
    pub kind: u64,
    /// Number of the Xid.
    pub data: u64,
    /// GPU and compute instance: none.
    pub instances: [u32; 2],
}

/// `nvmlEventData_t` before it had instances.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OldEvent {
    /// Device.
    pub device: Device,
    /// Kind.
    pub kind: u64,
    /// Number of the Xid.
    pub data: u64,
}

/// `nvmlEventSet_t`: a number that is not 0.
pub type Set = usize;

/// Devices that a set listens to: what for, and whether their loss was reported.
type Listened = Vec<(Device, u64, bool)>;

static SETS: Mutex<(Set, BTreeMap<Set, Listened>)> = Mutex::new((0, BTreeMap::new()));

fn sets() -> MutexGuard<'static, (Set, BTreeMap<Set, Listened>)> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn supported(machine: &Machine, device: Device) -> Answer<u64> {
    let ecc = if device.spec(machine)?.ecc { ECC } else { 0 };
    Ok(ecc | PERFORMANCE_STATE | CRITICAL_XID | CLOCK)
}

/// The next loss that a set listens to and did not report.
fn next(machine: &Machine, set: Set) -> Answer<Option<Device>> {
    let mut sets = sets();
    for (device, kinds, reported) in sets.1.get_mut(&set).ok_or(ERROR_INVALID_ARGUMENT)? {
        let lost = device.gpu(machine) == Err(ERROR_GPU_IS_LOST);
        if lost && !*reported && *kinds & CRITICAL_XID != 0 {
            *reported = true;
            return Ok(Some(*device));
        }
        *reported &= lost;
    }
    Ok(None)
}

fn wait(machine: &Machine, set: Set, timeout_ms: c_uint) -> Answer<Event> {
    let end = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        if let Some(device) = next(machine, set)? {
            return Ok(Event { device, kind: CRITICAL_XID, data: OFF_THE_BUS, instances: [u32::MAX; 2] });
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ERROR_TIMEOUT);
        }
        std::thread::sleep(left.min(INTERVAL));
    }
}

entry_points! {
    /// Kinds of events that a device can report.
    fn nvmlDeviceGetSupportedEventTypes(device: Device, out: Out<u64>) |machine| {
        out.set(supported(machine, device)?)
    }

    /// Makes a set.
    fn nvmlEventSetCreate(out: Out<Set>) |_machine| {
        out.required()?;
        let mut sets = sets();
        sets.0 += 1;
        let set = sets.0;
        sets.1.insert(set, Vec::new());
        out.set(set)
    }

    /// Lets a set listen to a device.
    fn nvmlDeviceRegisterEvents(device: Device, kinds: u64, set: Set) |machine| {
        if kinds & !supported(machine, device)? != 0 {
            return Err(ERROR_NOT_SUPPORTED);
        }
        sets().1.get_mut(&set).ok_or(ERROR_INVALID_ARGUMENT)?.push((device, kinds, false));
        Ok(())
    }

    /// Waits for the next event.
    fn nvmlEventSetWait_v2(set: Set, out: Out<Event>, timeout_ms: c_uint) |machine| {
        out.required()?;
        out.set(wait(machine, set, timeout_ms)?)
    }

    /// Waits for the next event; the structure has no instances.
    fn nvmlEventSetWait(set: Set, out: Out<OldEvent>, timeout_ms: c_uint) |machine| {
        out.required()?;
        let Event { device, kind, data, .. } = wait(machine, set, timeout_ms)?;
        out.set(OldEvent { device, kind, data })
    }

    /// Forgets a set.
    fn nvmlEventSetFree(set: Set) |_machine| {
        sets().1.remove(&set).map(drop).ok_or(ERROR_INVALID_ARGUMENT)
    }
}
