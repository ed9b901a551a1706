//! The GPUs of a ledger: their rows, limits in bytes, and what the driver itself takes.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::layout::{self, LedgerArea, LedgerGpu};
use super::words;
use crate::layout::GPUS;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sync::{AtomicU64, store_load_barrier};

/// Charges a member what the driver itself was last said to take for it.
pub(super) fn settle_overhead(area: &LedgerArea, row: usize, member: usize, generation: u32) {
    fn word(rows: &[layout::Row; GPUS], row: usize, member: usize) -> Option<&AtomicU64> {
        rows.get(row)?.get(member)
    }
    if let (Some(said), Some(charged), Some(reserved)) = (
        word(&area.overhead, row, member),
        word(&area.charged, row, member),
        word(&area.reserved, row, member),
    ) {
        words::settle(said, charged, reserved, generation);
    }
}

/// The number of a GPU's row, entered where it was not known.
pub(super) fn enter(area: &LedgerArea, uuid: &[u8; 16], total_bytes: u64) -> Option<usize> {
    let tag = tag(uuid);
    let (words, _) = uuid.as_chunks::<8>();
    for (number, cell) in area.gpus.iter().enumerate() {
        let seen = match cell.tag.compare_exchange(0, tag, AcqRel, Acquire) {
            Ok(_) => tag,
            Err(seen) => seen,
        };
        if seen != tag {
            continue;
        }
        // The process that set the tag may have died before it wrote the rest: all write the same.
        for (place, word) in cell.uuid.iter().zip(words) {
            place.store(u64::from_ne_bytes(*word), Relaxed);
        }
        if total_bytes != 0 {
            cell.total_bytes.store(total_bytes, Relaxed);
        }
        settle_limit(area, cell);
        return Some(number);
    }
    None
}

/// By which a GPU's row is known.
pub(super) fn tag(uuid: &[u8; 16]) -> u64 {
    crate::kernels::hash(uuid, &crate::KernelAttributes::default())
}

/// Works out a GPU's limit in bytes. Repeated until the amount that it comes from has not changed meanwhile.
pub(super) fn settle_limit(area: &LedgerArea, cell: &LedgerGpu) {
    loop {
        let amount = area.amount_of(cell);
        let total = cell.total_bytes.load(Relaxed);
        cell.limit.store(amount.bytes(total), Relaxed);
        store_load_barrier();
        if area.amount_of(cell) == amount && cell.total_bytes.load(Relaxed) == total {
            return;
        }
    }
}
