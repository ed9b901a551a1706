//! Launches that were timed, one by one: a sample of them, in a ring of its own.
//!
//! The totals are in the strata; this shows single launches over time. The ring is allocated with
//! the first record, so that processes whose launches are only counted have none.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::gpu_index::GpuIndex;
use crate::kernels::KernelId;
use crate::layout::*;
use crate::ring::{Ring, WORDS};
use crate::strata::{Stratum, of_key};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use crate::writer::Writer;

/// A launch that was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSample {
    /// The host's time before the launch, ns of segment time: it did not begin earlier.
    pub launched_ns: u64,
    /// The host's time at which it was found to be over, ns of segment time.
    pub seen_ns: u64,
    /// Time on the GPU, ns.
    pub duration_ns: u64,
    /// Its end on the GPU's clock, ns since the first timing in its context; `None`: not known.
    pub end_ns: Option<u64>,
    /// The context, by the lower bits of its number: clocks of two contexts begin at different times.
    pub context: u16,
    /// GPU.
    pub gpu: GpuIndex,
    /// Identifier of the stream within the process: its handle, or for a default stream a word of its context and,
    /// where each thread has one, of its thread.
    pub stream: u64,
    /// The kernel; [`KernelId::OTHER`] for a graph.
    pub kernel: KernelId,
    /// True if a graph was launched: the time is that of all its kernels.
    pub is_graph: bool,
    /// Blocks.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u16,
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u32,
}

/// Blocks take this many bits; more are put down as this many.
const BLOCK_BITS: u32 = 48;
const MAX_BLOCKS: u64 = (1 << BLOCK_BITS) - 1;
/// Dynamic shared memory likewise.
const MAX_SHARED: u64 = (1 << 23) - 1;

impl LaunchSample {
    pub(crate) fn pack(&self) -> [u64; WORDS] {
        let what = u64::from(self.kernel.number())
            | u64::from(self.gpu.number()) << 16
            | u64::from(self.threads) << 24
            | u64::from(self.is_graph) << 40
            | u64::from(self.dynamic_shared).min(MAX_SHARED) << 41;
        [
            self.launched_ns,
            self.seen_ns,
            self.duration_ns,
            // 0: not known.
            self.end_ns.map_or(0, |ns| ns.saturating_add(1)),
            what,
            self.stream,
            self.blocks.min(MAX_BLOCKS) | u64::from(self.context) << BLOCK_BITS,
        ]
    }

    pub(crate) fn unpack(words: [u64; WORDS]) -> Option<Self> {
        let [launched_ns, seen_ns, duration_ns, end, what, stream, blocks] = words;
        Some(Self {
            launched_ns,
            seen_ns,
            duration_ns,
            end_ns: end.checked_sub(1),
            context: (blocks >> BLOCK_BITS) as u16,
            gpu: GpuIndex::from_number((what >> 16) as usize & 0xff)?,
            stream,
            kernel: KernelId::from_number(what & 0xffff),
            is_graph: what >> 40 & 1 == 1,
            blocks: blocks & MAX_BLOCKS,
            threads: (what >> 24) as u16,
            dynamic_shared: (what >> 41) as u32,
        })
    }
}

impl Writer {
    /// Keeps a launch that was timed; false if there was no room for it. Cold the first time.
    pub fn launch_sample(&self, sample: &LaunchSample) -> bool {
        let head = &self.base().head;
        let [tickets, dropped, ready] = &head.samples;
        if !self.grow_upto(ready, SAMPLES_AT, SAMPLES_BYTES, 1) {
            return false;
        }
        // SAFETY: the ring is allocated (just above); SAMPLE_CELLS cells, atomics only.
        let cells = unsafe { self.at::<[Cell; SAMPLE_CELLS]>(SAMPLES_AT).as_ref() };
        Ring::new(tickets, dropped, cells).push(sample.pack())
    }

    /// The kernel of a stratum of this process.
    pub fn kernel_of(&self, stratum: Stratum) -> KernelId {
        let first = self.at::<StratumCell>(STRATA_AT).as_ptr().addr();
        let number = stratum.as_ptr().addr().wrapping_sub(first) / size_of::<StratumCell>();
        if number >= STRATA {
            return KernelId::OTHER;
        }
        // SAFETY: a stratum was handed out, so the keys are allocated; the number is below STRATA.
        let key = unsafe { self.at::<AtomicU64>(STRATA_KEYS_AT + number as u64 * 8).as_ref() };
        KernelId::from_number(of_key(key.load(Relaxed)).0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_back_as_it_was_and_what_does_not_fit_is_cut() {
        let sample = LaunchSample {
            launched_ns: u64::MAX,
            seen_ns: 1,
            duration_ns: 2,
            end_ns: Some(0),
            context: 0xfedc,
            gpu: GpuIndex::from_number(15).unwrap(),
            stream: u64::MAX,
            kernel: KernelId::from_number(4095),
            is_graph: true,
            blocks: MAX_BLOCKS,
            threads: 1024,
            dynamic_shared: 227 << 10,
        };
        assert_eq!(LaunchSample::unpack(sample.pack()), Some(sample));
        let unknown = LaunchSample { end_ns: None, is_graph: false, threads: u16::MAX, ..sample };
        assert_eq!(LaunchSample::unpack(unknown.pack()), Some(unknown));
        let large = LaunchSample { blocks: u64::MAX, dynamic_shared: u32::MAX, ..sample };
        let cut = LaunchSample { blocks: MAX_BLOCKS, dynamic_shared: MAX_SHARED as u32, ..sample };
        assert_eq!(LaunchSample::unpack(large.pack()), Some(cut));
        let mut damaged = sample.pack();
        damaged[4] |= 0xff << 16;
        assert_eq!(LaunchSample::unpack(damaged), None);
    }
}
