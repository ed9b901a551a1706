//! Memory layout of a ledger.
//!
//! ```text
//! 0        header
//! 4 KiB    GPUs
//! 8 KiB    members
//! 48 KiB   reserved bytes: a row of words for each GPU, a word for each member
//! 176 KiB  what the driver itself takes for each member, laid out alike
//! 304 KiB  how much of that is part of the reserved bytes
//! ```

use super::Amount;
use super::words::Words;
use crate::layout::GPUS;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};

/// First word of a ledger: "RADRMLDG".
pub const LEDGER_MAGIC: u64 = u64::from_le_bytes(*b"RADRMLDG");
/// Layout version. Any change of this file raises it.
pub const LEDGER_VERSION: u64 = 1;
/// Processes that can share a ledger at a time.
pub const MEMBERS: usize = 1024;
/// Size of a ledger.
pub const LEDGER_BYTES: u64 = size_of::<LedgerArea>() as u64;

/// The first page.
#[repr(C)]
#[derive(Debug)]
pub struct LedgerHeader {
    /// [`LEDGER_MAGIC`]; written last. 0 in a segment whose job has no quota.
    pub magic: AtomicU64,
    /// [`LEDGER_VERSION`].
    pub version: AtomicU64,
    /// Members with this number or a higher one were never used.
    pub high: AtomicU64,
    /// Limit of GPUs that have none of their own, see [`super::Amount`].
    pub amount: AtomicU64,
    /// Context overhead of the driver that is assumed where no better figure is known, bytes.
    pub context: AtomicU64,
    /// 1: its user has set these limits by hand.
    pub by_hand: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 506],
}

/// One GPU.
#[repr(C)]
#[derive(Debug)]
pub struct LedgerGpu {
    /// 0, or a hash of the uuid: the process that sets it owns the row for that uuid.
    pub tag: AtomicU64,
    /// The driver's uuid.
    pub uuid: [AtomicU64; 2],
    /// Memory of the GPU in bytes; 0 until a process has seen it.
    pub total_bytes: AtomicU64,
    /// Limit of this GPU, see [`super::Amount`]; 0: the header's.
    pub amount: AtomicU64,
    /// The limit in bytes; `u64::MAX` where there is none.
    pub limit: AtomicU64,
    /// Context overhead of the driver that is assumed on this GPU, bytes; 0: the header's.
    pub context: AtomicU64,
    /// Requests that the limit refused.
    pub refused: AtomicU64,
    /// 0, or the member that is deciding a contended request; a line of its own.
    pub arbiter: AtomicU64,
    /// Unused.
    pub spare: [AtomicU64; 7],
}

/// One process.
#[repr(C)]
#[derive(Debug)]
pub struct LedgerMember {
    /// State, generation and pid, see [`crate::layout::SlotState`].
    pub state: AtomicU64,
    /// Start time of the process in clock ticks since boot.
    pub start: AtomicU64,
    /// Start address of its stack, another one after `execve`; 0: not known.
    pub stack: AtomicU64,
    /// Its pid namespace: pids mean nothing in another.
    pub namespace: AtomicU64,
    /// 1: it holds the lock of its place for as long as it lives.
    pub lock: AtomicU64,
}

/// A row of words, one for each member.
pub type Row = [AtomicU64; MEMBERS];

/// All of it.
#[repr(C)]
#[derive(Debug)]
pub struct LedgerArea {
    /// The header.
    pub header: LedgerHeader,
    /// The GPUs.
    pub gpus: [LedgerGpu; GPUS],
    /// Unused.
    pub spare: [AtomicU64; 512 - GPUS * 16],
    /// The members.
    pub members: [LedgerMember; MEMBERS],
    /// Bytes that each member has reserved, by GPU.
    pub reserved: [Row; GPUS],
    /// Bytes that the driver itself takes for each member, by GPU, as far as measured or estimated.
    pub overhead: [Row; GPUS],
    /// Bytes of that overhead that are charged: part of `reserved`.
    pub charged: [Row; GPUS],
}

impl LedgerArea {
    /// The rows of words, whatever they hold.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.reserved.iter().chain(&self.overhead).chain(&self.charged)
    }

    /// Members that were ever used, with their numbers.
    pub(super) fn used_members(&self) -> impl Iterator<Item = (usize, &LedgerMember)> {
        let high = self.header.high.load(Acquire) as usize;
        self.members.iter().enumerate().take(high)
    }

    /// Words of the bytes that the members have reserved of the GPU with this number.
    pub(super) fn words(&self, gpu: usize) -> Option<Words<'_>> {
        self.reserved.get(gpu).map(|words| Words { words, high: &self.header.high })
    }

    /// The limit of GPUs that have none of their own.
    pub(super) fn general_amount(&self) -> Amount {
        Amount::from_word(self.header.amount.load(Acquire)).unwrap_or(Amount::Unlimited)
    }

    /// The limit of a GPU.
    pub(super) fn amount_of(&self, gpu: &LedgerGpu) -> Amount {
        Amount::from_word(gpu.amount.load(Acquire)).unwrap_or_else(|| self.general_amount())
    }

    /// Context overhead that is assumed on a GPU until it is measured, bytes.
    pub(super) fn context_of(&self, gpu: &LedgerGpu) -> u64 {
        match gpu.context.load(Relaxed) {
            0 => self.header.context.load(Relaxed),
            bytes => bytes,
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    use crate::layout::{LEDGER_AT, SLOTS_AT};
    assert!(size_of::<LedgerHeader>() == 4096);
    assert!(size_of::<LedgerGpu>() == 128);
    assert!(size_of::<LedgerMember>() == 40);
    assert!(std::mem::offset_of!(LedgerArea, members) == 8192);
    assert!(size_of::<LedgerArea>().is_multiple_of(crate::layout::PAGE));
    assert!(LEDGER_AT + LEDGER_BYTES <= SLOTS_AT);
};
