//! The layout of a segment: every constant, every structure, every offset.
//!
//! ```text
//! 0            Header, GPU table, directory of slots
//! 64 KiB       reserved for the quota ledger
//! 2 MiB        slot 0: base | kernel hashes | kernels | names | lanes | strata | launch samples | timelines | post-mortems |
//!              block levels | stacks | ranges and marks | stacks at refused requests
//! 2 MiB + S    slot 1 ...
//! ```
//!
//! The file is sparse. The header area is allocated when the segment is made, a slot's base when a process
//! joins, everything else in pieces when it is first needed, always before it is touched.
//! All words are in the machine's byte order: a segment never leaves its machine.

mod account;
mod blocks;
mod cell;
#[cfg(not(loom))]
mod checks;
mod directory;
mod header;
mod kernels;
mod notices;
mod numbers;
mod places;
mod ranges;
mod slot;
mod stacks;

pub use account::{AccountCell, COUNTED_KINDS, KindCounts, LaneCounts, PeakCell};
pub use blocks::{BlockBucket, BlockCell, KEY_BUSY};
pub use cell::{Cell, WORDS};
pub use directory::{DirEntry, SlotNamespace, SlotState, entry_at};
pub use header::{GpuCell, Header, HeaderArea};
pub use kernels::{KernelCell, LaneRow, StratumCell};
pub use notices::{NOTICES, NoticeCell, NoticeTable};
pub use numbers::*;
pub use places::*;
pub use ranges::*;
pub use slot::{ClockCell, SlotBase, SlotHead, TimelineBucket};
pub use stacks::*;
