//! Eligibility of a job for suspension: concluded from what the shim counts, before anything is frozen.

use std::path::Path;
use std::sync::OnceLock;

use radrm_cuda_abi::table::rows;
use radrm_limits::mps::control::{DEFAULT_PIPE, PIPE_VARIABLE};
use radrm_os::Process;
use radrm_scheduler_core::SuspendRefusal;
use radrm_telemetry::{Liveness, Segment, SlotInfo, Uses};

use super::driver::FIRST;

/// Entry points after which a process cannot be suspended, or not be brought back. Every form of a name counts.
/// The shim counts a call before it is made.
const CALLS: &[(&str, SuspendRefusal)] = &[
    ("cuMemAllocManaged", SuspendRefusal::ManagedMemory),
    ("cuIpcGetMemHandle", SuspendRefusal::Ipc),
    ("cuIpcOpenMemHandle", SuspendRefusal::Ipc),
    ("cuIpcGetEventHandle", SuspendRefusal::Ipc),
    ("cuIpcOpenEventHandle", SuspendRefusal::Ipc),
    ("cuMemExportToShareableHandle", SuspendRefusal::Ipc),
    ("cuMemPoolExportToShareableHandle", SuspendRefusal::Ipc),
    ("cuMemPoolExportPointer", SuspendRefusal::Ipc),
    ("cuMemGetHandleForAddressRange", SuspendRefusal::Ipc),
    ("cuLogicalEndpointExport", SuspendRefusal::Ipc),
    ("cuMulticastCreate", SuspendRefusal::Multicast),
    ("cuMulticastAddDevice", SuspendRefusal::Multicast),
    ("cuMemImportFromShareableHandle", SuspendRefusal::ImportedHandles),
    ("cuMemPoolImportFromShareableHandle", SuspendRefusal::ImportedHandles),
    ("cuMemPoolImportPointer", SuspendRefusal::ImportedHandles),
    ("cuLogicalEndpointImport", SuspendRefusal::ImportedHandles),
    ("cuImportExternalMemory", SuspendRefusal::ImportedHandles),
    ("cuImportExternalSemaphore", SuspendRefusal::ImportedHandles),
];

/// [`CALLS`] by id in the driver's table, which is how the segment knows entry points.
fn refusal_of(id: u16) -> Option<SuspendRefusal> {
    static ROWS: OnceLock<Vec<(u16, SuspendRefusal)>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| {
        let refused = |base: &str| CALLS.iter().find(|(name, _)| *name == base).map(|(_, refusal)| *refusal);
        rows().iter().filter_map(|row| Some((row.id, refused(&row.base)?))).collect()
    });
    rows.iter().find(|(known, _)| *known == id).map(|(_, refusal)| *refusal)
}

/// Checks that what one process uses lets it be suspended.
fn of_uses(uses: &Uses) -> Result<(), SuspendRefusal> {
    if uses.driver_version.is_none_or(|version| version < FIRST) {
        return Err(SuspendRefusal::Unsupported);
    }
    if uses.managed {
        return Err(SuspendRefusal::ManagedMemory);
    }
    uses.calls.iter().find_map(|(id, _)| refusal_of(*id)).map_or(Ok(()), Err)
}

/// Returns true if it finds a daemon of MPS where it expects one.
fn is_mps_client(process: Process, has_daemon: fn(&Path) -> bool) -> bool {
    let pipe = process.variable(PIPE_VARIABLE).unwrap_or_else(|| DEFAULT_PIPE.into());
    has_daemon(Path::new(&pipe))
}

/// A job's processes that use the driver and live, if all of them can be suspended. `has_mps`: whether a daemon of
/// MPS is in a pipe directory, whose path is the job's choice: only who is the job's user may follow it.
///
/// # Errors
/// Why not.
pub(crate) fn processes(
    segment: &Segment,
    has_mps: fn(&Path) -> bool,
) -> Result<Vec<SlotInfo>, SuspendRefusal> {
    let slots = segment.slots().map_err(|_| SuspendRefusal::NoShim)?;
    let living: Vec<SlotInfo> = slots.into_iter().filter(|slot| slot.liveness == Liveness::Running).collect();
    if living.is_empty() {
        return Err(SuspendRefusal::NoShim);
    }
    for slot in &living {
        of_uses(&segment.uses(slot).map_err(|_| SuspendRefusal::NoShim)?)?;
        if slot.pid.is_some_and(|pid| is_mps_client(Process(pid), has_mps)) {
            return Err(SuspendRefusal::Mps);
        }
    }
    Ok(living)
}

/// Host memory that the copies of a job's device memory may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Available memory of the host, bytes; `None` where nothing is copied: on emulated GPUs.
    pub(crate) available: Option<u64>,
    /// The most that all suspended jobs may take; 0: as much as there is.
    pub(crate) most: u64,
    /// Host memory of suspended jobs, and of those that are being suspended, bytes.
    pub(crate) taken: u64,
    /// The part of `taken` that is not yet out of `available`.
    pub(crate) pending: u64,
}

/// Host memory that is left for all others, bytes.
const KEPT: u64 = 1 << 30;

impl Room {
    /// Checks that so many bytes more have room.
    pub(crate) fn has(&self, bytes: u64) -> Result<(), SuspendRefusal> {
        let allowed = self.most == 0 || self.taken.saturating_add(bytes) <= self.most;
        let needed = bytes.saturating_add(self.pending).saturating_add(KEPT);
        if allowed && self.available.is_none_or(|available| needed <= available) {
            Ok(())
        } else {
            Err(SuspendRefusal::HostMemory)
        }
    }
}

/// Available memory of the host, bytes.
pub(crate) fn available() -> u64 {
    radrm_os::host::available_memory().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(symbol: &str) -> u16 {
        rows().iter().find(|row| row.symbol == symbol).unwrap().id
    }

    #[test]
    fn every_call_that_rules_it_out_is_known_to_the_table_and_counted_by_the_shim() {
        let all = rows();
        for (base, _) in CALLS {
            let forms: Vec<_> = all.iter().filter(|row| row.base == *base).collect();
            assert!(!forms.is_empty(), "{base}");
            assert!(forms.iter().all(|row| row.need.is_wrapped()), "{base} is not seen");
        }
    }

    #[test]
    fn what_a_process_used_decides() {
        let plain = Uses { driver_version: Some(13_000), ..Uses::default() };
        assert_eq!(of_uses(&plain), Ok(()));
        let harmless = Uses { calls: vec![(id("cuMemAlloc_v2"), 9)], ..plain.clone() };
        assert_eq!(of_uses(&harmless), Ok(()));
        for (symbol, refusal) in [
            ("cuIpcOpenMemHandle_v2", SuspendRefusal::Ipc),
            ("cuMemImportFromShareableHandle", SuspendRefusal::ImportedHandles),
            ("cuMulticastCreate", SuspendRefusal::Multicast),
        ] {
            let uses = Uses { calls: vec![(id("cuMemAlloc_v2"), 9), (id(symbol), 1)], ..plain.clone() };
            assert_eq!(of_uses(&uses), Err(refusal), "{symbol}");
        }
        assert_eq!(of_uses(&Uses { managed: true, ..plain.clone() }), Err(SuspendRefusal::ManagedMemory));
        for version in [None, Some(12_070)] {
            let old = Uses { driver_version: version, ..plain.clone() };
            assert_eq!(of_uses(&old), Err(SuspendRefusal::Unsupported));
        }
    }

    #[test]
    fn the_host_keeps_room_for_others_and_what_is_being_copied_counts() {
        const GIB: u64 = 1 << 30;
        let room = Room { available: Some(10 * GIB), ..Room::default() };
        assert_eq!((room.has(9 * GIB), room.has(9 * GIB + 1)), (Ok(()), Err(SuspendRefusal::HostMemory)));
        assert!(Room { pending: GIB, ..room }.has(9 * GIB).is_err());
        let limited = Room { most: 8 * GIB, taken: 5 * GIB, ..Room::default() };
        assert_eq!((limited.has(3 * GIB), limited.has(4 * GIB)), (Ok(()), Err(SuspendRefusal::HostMemory)));
        assert!(Room::default().has(u64::MAX).is_ok(), "nothing is copied");
        assert!(available() > 0);
    }
}
