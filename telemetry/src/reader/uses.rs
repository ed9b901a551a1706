//! Driver use of a process, as far as it decides whether the process can be suspended: so cheap that it can be
//! read often.

use std::mem::offset_of;

use super::raw::Words;
use super::segment::{Segment, SegmentError, SlotInfo};
use crate::layout::*;
use radrm_base::Kind;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Version of its driver as `cuDriverGetVersion` gives it, if it is known.
    pub driver_version: Option<u32>,
    /// Calls by entry point, by id in the driver's table; those that were never made are left out.
    pub calls: Vec<(u16, u64)>,
    /// It has taken managed memory.
    pub managed: bool,
}

impl Segment {
    /// Driver use of a process.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn uses(&self, slot: &SlotInfo) -> Result<Uses, SegmentError> {
        if slot.slot >= SLOTS {
            return Ok(Uses::default());
        }
        let base = |at: usize, bytes: usize| -> Result<Words, SegmentError> {
            self.words(slot_at(slot.slot) + at as u64, bytes as u64)
        };
        let version = base(offset_of!(SlotBase, head) + offset_of!(SlotHead, driver_version), 8)?.at(0);
        let entries = base(offset_of!(SlotBase, entries), ENTRIES * 8)?;
        let accounts = base(offset_of!(SlotBase, accounts), GPUS * size_of::<AccountCell>())?;
        let managed = offset_of!(AccountCell, peak) + Kind::Managed as usize * 8;
        Ok(Uses {
            driver_version: u32::try_from(version).ok().filter(|version| *version > 0),
            calls: (0..ENTRIES)
                .map(|id| (id as u16, entries.at(id * 8)))
                .filter(|(_, calls)| *calls > 0)
                .collect(),
            managed: (0..GPUS).any(|gpu| accounts.at(gpu * size_of::<AccountCell>() + managed) > 0),
        })
    }
}
