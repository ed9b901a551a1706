//! Physical time of an operation: arithmetic in waves of blocks, or bytes, whichever takes longer.

use crate::Card;
use crate::work::{Collective, Link, Precision, Shape, Work};

/// Clocks of a multiprocessor that the smallest kernel takes in a CUDA graph: 2.8 us on an A100, 1.6 us on an L40S.
const LAUNCH_CLOCKS: f64 = 4000.0;
/// Clocks that the smallest collective operation takes, and the smallest sum over ranks.
const COLLECTIVE_CLOCKS: f64 = 14_000.0;
const ALL_REDUCE_CLOCKS: f64 = 20_000.0;

/// Bytes that a multiprocessor gets from the L2 cache in a clock.
const L2_BYTES_A_CLOCK: f64 = 24.0;

/// Tiles of matrix products, with the part of the peak rate that one multiprocessor reaches with them.
const TENSOR_TILES: [(f64, f64, f64); 5] =
    [(256.0, 128.0, 1.0), (128.0, 128.0, 0.9), (128.0, 64.0, 0.75), (64.0, 64.0, 0.55), (32.0, 64.0, 0.35)];
const SIMT_TILES: [(f64, f64, f64); 4] =
    [(128.0, 128.0, 1.0), (128.0, 64.0, 0.95), (64.0, 64.0, 0.85), (32.0, 32.0, 0.5)];
/// Parts into which sums are split when there are fewer tiles than multiprocessors.
const SPLITS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
/// Length of a sum that costs as much as the start and the end of a block.
const BLOCK_OVERHEAD: f64 = 128.0;

/// Physical times of an operation, seconds, and how it fills the card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Physical {
    /// Arithmetic, with whole waves of blocks.
    pub compute: f64,
    /// Arithmetic at the peak rate.
    pub ideal: f64,
    /// Memory, or links of a collective operation.
    pub memory: f64,
    /// Launch.
    pub floor: f64,
    /// Waves of blocks, a fraction if the first wave is not full.
    pub waves: f64,
    /// Part of the multiprocessors with work, mean over all waves, 0 to 1.
    pub filled: f64,
}

impl Physical {
    /// Physical time, seconds.
    #[must_use]
    pub fn time(&self) -> f64 {
        self.compute.max(self.memory) + self.floor
    }
}

/// Bytes that reach the memory. Cached operands are read from it as far as the L2 cache does not hold them.
#[must_use]
pub fn dram_bytes(work: &Work, card: &Card) -> f64 {
    if !work.cached {
        return work.bytes();
    }
    // Weights were last used a step ago.
    let weights = match work.shape {
        Shape::Gemm { batch: 1.0, n, k, .. } => work.types.operand.bytes() * n * k,
        _ => 0.0,
    };
    let rest = (work.bytes() - weights).max(0.0);
    // Of somewhat more than the cache holds little is found there (least recently used goes first).
    let missed = (rest / card.l2_bytes() / 0.8 - 1.0).clamp(0.0, 1.0);
    weights + rest * missed
}

/// Bandwidth of the L2 cache, bytes/s.
fn l2_bandwidth(card: &Card) -> f64 {
    (card.sm_clocks() * L2_BYTES_A_CLOCK).max(card.bandwidth())
}

/// Arithmetic of a matrix product in whole waves: seconds, waves, filled part.
fn tiles(batch: f64, [m, n, k]: [f64; 3], rate: f64, card: &Card, tensor: bool) -> (f64, f64, f64) {
    let sms = f64::from(card.sms);
    let table: &[(f64, f64, f64)] = if tensor { &TENSOR_TILES } else { &SIMT_TILES };
    let mut best = (f64::INFINITY, 1.0, 1.0);
    for (tall, wide, efficiency) in table {
        for (tall, wide) in [(*tall, *wide), (*wide, *tall)] {
            for split in SPLITS {
                let blocks = batch * (m / tall).ceil() * (n / wide).ceil() * split;
                let depth = k / split + BLOCK_OVERHEAD * if split > 1.0 { 2.0 } else { 1.0 };
                let waves = (blocks / sms).ceil();
                let seconds = waves * 2.0 * tall * wide * depth / (rate / sms * efficiency);
                if seconds < best.0 {
                    best = (seconds, blocks / sms, blocks / (waves * sms));
                }
            }
        }
    }
    best
}

/// Physical time of an operation. Returns `None` if the card lacks the types or the operation has no physical model.
#[must_use]
pub fn physical(work: &Work, card: &Card) -> Option<Physical> {
    if !work.is_sound() || card.fault().is_some() {
        return None;
    }
    let floor = LAUNCH_CLOCKS / (card.clock_mhz * 1e6);
    let dram = dram_bytes(work, card);
    let memory = dram / card.bandwidth() + (work.bytes() - dram) / l2_bandwidth(card);
    let sms = f64::from(card.sms);
    let blocks = |blocks: f64, flop_rate: f64| {
        let waves = (blocks / sms).ceil();
        let compute = waves * (work.flop / blocks) / (flop_rate / sms);
        Physical {
            compute,
            ideal: work.flop / flop_rate,
            memory,
            floor,
            waves: blocks / sms,
            filled: blocks / (waves * sms),
        }
    };
    let tensor = !matches!(work.types.operand, Precision::F32 | Precision::F64);
    match work.shape {
        Shape::Gemm { batch, m, n, k } => {
            let rate = card.rate(work.types.operand)?;
            let (compute, waves, filled) = tiles(batch, [m, n, k], rate, card, tensor);
            Some(Physical { compute, ideal: work.flop / rate, memory, floor, waves, filled })
        }
        Shape::Convolution { batch, channels_in, channels_out, pixels_out, window, groups, .. } => {
            let rate = card.rate(work.types.operand)?;
            let sizes = [batch * pixels_out, channels_out / groups, channels_in / groups * window];
            let (compute, waves, filled) = tiles(groups, sizes, rate, card, tensor);
            Some(Physical { compute, ideal: work.flop / rate, memory, floor, waves, filled })
        }
        Shape::AttentionPrefill { batch, queries, heads, .. } => {
            Some(blocks(batch * heads * (queries / 128.0).ceil(), card.rate(work.types.operand)?))
        }
        Shape::AttentionDecode { batch, keys, kv_heads, .. } => {
            Some(blocks(batch * kv_heads * (keys / 256.0).ceil(), card.rate(work.types.operand)?))
        }
        Shape::Elementwise { elements, .. } => {
            Some(blocks((elements / 1024.0).ceil(), card.tflops_fp32 * 1e12))
        }
        Shape::Reduction { rows, columns }
        | Shape::Norm { rows, columns }
        | Shape::Softmax { rows, columns } => {
            // Rows that are short share a block.
            Some(blocks((rows * (columns / 1024.0).clamp(0.125, 1.0)).ceil(), card.tflops_fp32 * 1e12))
        }
        Shape::Collective { operation, ranks, bytes, link: Link::NvLink } if card.nvlink_gbs > 0.0 => {
            let moved = match operation {
                Collective::AllReduce => 2.0 * (ranks - 1.0) / ranks,
                Collective::SendReceive => 1.0,
                _ => (ranks - 1.0) / ranks,
            };
            let links = bytes * moved / (card.nvlink_gbs * 0.5e9);
            // A few channels, each a block, move the data.
            let filled = (24.0 / sms).min(1.0);
            let clocks =
                if operation == Collective::AllReduce { ALL_REDUCE_CLOCKS } else { COLLECTIVE_CLOCKS };
            let floor = clocks / (card.clock_mhz * 1e6);
            Some(Physical { compute: 0.0, ideal: 0.0, memory: links, floor, waves: filled, filled })
        }
        Shape::Collective { .. } | Shape::Copy { .. } | Shape::HostCopy { .. } | Shape::Other => None,
    }
}
