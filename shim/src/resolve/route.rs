//! From a real function's address to its wrapper: an open-addressing table with lock-free reads.
//!
//! It is filled when a library is first seen. Several threads may fill it at once: they insert the
//! same pairs. Where a driver has one function under several names, the entries form a chain.

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::entries::{ENTRY_COUNT, EntryId};

const SLOTS: usize = 1024;
const ADDRESS_BITS: u32 = 48;
const _: () = assert!(SLOTS >= 2 * ENTRY_COUNT && SLOTS.is_power_of_two());

/// Slot: entry id + 1 above the address; 0: free.
static TABLE: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Next entry (id + 1) with the same address; 0: none.
static CHAIN: [AtomicU16; ENTRY_COUNT] = [const { AtomicU16::new(0) }; ENTRY_COUNT];

fn start(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

fn slots(address: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = start(address);
    (0..SLOTS).filter_map(move |n| TABLE.get(first.wrapping_add(n) % SLOTS))
}

/// Records that `real` is the function of `entry`.
pub(super) fn add(real: *mut (), entry: EntryId) {
    let address = real.addr() as u64;
    if address == 0 || address >> ADDRESS_BITS != 0 {
        return;
    }
    let packed = (u64::from(entry.0) + 1) << ADDRESS_BITS | address;
    for slot in slots(address) {
        // Relaxed suffices: readers are ordered by the library's publication in `attach`.
        match slot.compare_exchange(0, packed, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(there) if there == packed => return,
            Err(there) if address_of(there) == address => return append(entry_of(there), entry),
            Err(_) => {}
        }
    }
}

fn append(mut at: EntryId, entry: EntryId) {
    for _ in 0..ENTRY_COUNT {
        if at == entry {
            return;
        }
        let Some(next) = CHAIN.get(usize::from(at.0)) else { return };
        match next.compare_exchange(0, entry.0 + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(there) => at = EntryId(there - 1),
        }
    }
}

fn address_of(packed: u64) -> u64 {
    packed & ((1 << ADDRESS_BITS) - 1)
}

fn entry_of(packed: u64) -> EntryId {
    EntryId(((packed >> ADDRESS_BITS) as u16).wrapping_sub(1))
}

/// All entries whose real function is at `real`.
pub(super) fn entries_at(real: *mut ()) -> impl Iterator<Item = EntryId> {
    let address = real.addr() as u64;
    let first = slots(address)
        .map(|slot| slot.load(Ordering::Relaxed))
        .take_while(|packed| *packed != 0)
        .find(|packed| address_of(*packed) == address)
        .map(entry_of);
    core::iter::successors(first, |at| {
        let next = CHAIN.get(usize::from(at.0))?.load(Ordering::Relaxed);
        next.checked_sub(1).map(EntryId)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_under_several_names_keeps_all_of_them() {
        let at = 0x7000_1234_5678usize as *mut ();
        for _ in 0..2 {
            for id in [3, 9, 5] {
                add(at, EntryId(id));
            }
        }
        assert_eq!(entries_at(at).collect::<Vec<_>>(), [EntryId(3), EntryId(9), EntryId(5)]);
        assert_eq!(entries_at(0x7000_1234_5679usize as *mut ()).count(), 0);
    }
}
