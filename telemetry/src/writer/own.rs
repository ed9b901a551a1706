//! Figures that a process may read of itself.

use super::Writer;
use crate::gpu_index::GpuIndex;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed};

/// Memory that a process holds on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMemory {
    /// GPU.
    pub gpu: GpuIndex,
    /// Device total now, bytes.
    pub now: u64,
    /// Largest device total, bytes.
    pub peak: u64,
    /// Memory of the GPU, bytes.
    pub total: u64,
    /// Allocations.
    pub allocations: u64,
    /// Releases.
    pub releases: u64,
    /// Failed requests.
    pub refused: u64,
    /// The driver's uuid.
    pub uuid: [u8; 16],
    /// Name, padded with zeros.
    pub name: [u8; 64],
}

impl Writer {
    /// Memory that this process holds, by GPU that it has allocated on or been refused by.
    pub fn own_memory(&self) -> impl Iterator<Item = OwnMemory> {
        let base = self.base();
        base.accounts.iter().zip(&self.area().gpus).enumerate().filter_map(|(number, (account, cell))| {
            let gpu = GpuIndex::from_number(number)?;
            let (allocations, releases) = self.counted(gpu, |_| true);
            let own = OwnMemory {
                gpu,
                now: account.total_now.load(Acquire),
                peak: account.total_peak.load(Relaxed),
                total: cell.total_bytes.load(Relaxed),
                allocations,
                releases,
                refused: account.failed.load(Relaxed),
                uuid: text(&cell.uuid),
                name: text(&cell.name),
            };
            (own.peak > 0 || own.allocations > 0 || own.refused > 0).then_some(own)
        })
    }
}

/// The bytes of words.
fn text<const N: usize>(words: &[AtomicU64]) -> [u8; N] {
    let mut bytes = [0; N];
    let words = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes());
    for (to, from) in bytes.iter_mut().zip(words) {
        *to = from;
    }
    bytes
}
