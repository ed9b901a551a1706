//! An amount that is read from the driver rather than added up.

use core::sync::atomic::{AtomicU64, Ordering};

use super::ledger;
use crate::cx::Cx;
use crate::telemetry::{GpuIndex, Kind};

/// Readings per change before the figure is left to the next change.
const ROUNDS: u32 = 8;

/// Relation of the call under way to an amount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Caller {
    /// It made the driver reserve more, if there is more.
    Asked,
    /// It may only have found out.
    Found,
}

/// Bytes charged for an amount that the driver reports. All zeros is "nothing".
pub(super) struct Level {
    charged: AtomicU64,
    /// Times that something happened which may have changed the amount.
    changes: AtomicU64,
}

impl Level {
    /// Bytes charged at present.
    pub(super) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Charges what `read` reports, after something that may have changed it.
    ///
    /// Two threads may read and charge at once; the one that finds a change meanwhile reads
    /// again, so that the last charge is never older than the last change. False: `read` failed.
    pub(super) fn follow(
        &self,
        cx: &Cx<'_>,
        gpu: GpuIndex,
        kind: Kind,
        caller: Caller,
        read: impl Fn() -> Option<u64>,
    ) -> bool {
        // SeqCst throughout: the readings of all threads have one order with the changes.
        self.changes.fetch_add(1, Ordering::SeqCst);
        for _ in 0..ROUNDS {
            let before = self.changes.load(Ordering::SeqCst);
            let Some(now) = read() else { return false };
            self.charge(cx, gpu, kind, caller, now);
            if self.changes.load(Ordering::SeqCst) == before {
                break;
            }
        }
        true
    }

    /// Charges the difference to a new amount.
    pub(super) fn charge(&self, cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, caller: Caller, now: u64) {
        // As it mostly is; a swap of equal amounts would change nothing.
        if self.charged.load(Ordering::SeqCst) == now {
            return;
        }
        let before = self.charged.swap(now, Ordering::SeqCst);
        if now > before {
            ledger::raise(cx, gpu, kind, caller, now - before);
        } else if now < before {
            ledger::lower(cx, gpu, kind, before - now);
        }
    }
}
