//! Rows that the trees see: sizes relative to the card first, facts of the card last.
//!
//! Trees for cards that were not measured see only the first [`RELATIVE`] columns: with the facts of five cards a tree
//! learns the five cards by heart, and nothing about a sixth.

use crate::Card;
use crate::roofline::Physical;
use crate::work::{Collective, Precision, Shape, Work};

/// Names of the columns.
pub const NAMES: [&str; 24] = [
    "ln_physical",
    "ln_compute_by_memory",
    "ln_waves",
    "filled",
    "ln_compute_by_ideal",
    "floor_share",
    "ln_bytes_by_l2",
    "size_0",
    "size_1",
    "size_2",
    "size_3",
    "alignment",
    "operand_bytes",
    "read_share",
    "ln_flop_by_byte",
    "flag",
    "cached",
    "flop_by_clock",
    "generation",
    "sms",
    "ln_rate",
    "ln_bandwidth",
    "ln_l2",
    "watts_by_rate",
];

/// Columns that are relative to the card.
pub const RELATIVE: usize = 18;

/// Values of the columns for an operation; NaN where a column does not apply.
#[must_use]
pub fn row(work: &Work, card: &Card, physical: &Physical) -> [f64; NAMES.len()] {
    let ln = |value: f64| if value > 0.0 { value.ln() } else { f64::NAN };
    let (sizes, flag) = sizes(work);
    let rate = card.rate(work.types.operand).unwrap_or(card.tflops_fp32 * 1e12);
    let mut row = [f64::NAN; NAMES.len()];
    row[..RELATIVE].copy_from_slice(&[
        ln(physical.compute.max(physical.memory)),
        ln(physical.compute / physical.memory),
        ln(physical.waves),
        physical.filled,
        ln(physical.compute / physical.ideal),
        physical.floor / physical.time(),
        ln(work.bytes() / card.l2_bytes()),
        ln(sizes[0]),
        ln(sizes[1]),
        ln(sizes[2]),
        ln(sizes[3]),
        alignment(work),
        work.types.operand.bytes(),
        work.read / work.bytes().max(1.0),
        ln(work.flop / work.bytes().max(1.0)),
        flag,
        f64::from(u8::from(work.cached)),
        // Operations of a tensor core in a clock; other units differ by their number only.
        if matches!(work.types.operand, Precision::F32 | Precision::F64) {
            f64::NAN
        } else {
            rate / card.sm_clocks()
        },
    ]);
    row[RELATIVE..].copy_from_slice(&[
        card.capability(),
        f64::from(card.sms),
        ln(rate),
        ln(card.bandwidth()),
        ln(card.l2_bytes()),
        card.power_w / rate * 1e12,
    ]);
    for value in &mut row {
        if value.is_infinite() {
            *value = f64::NAN;
        }
    }
    row
}

/// Sizes that matter to the kind, and a mark of its variant.
fn sizes(work: &Work) -> ([f64; 4], f64) {
    const NONE: f64 = f64::NAN;
    match work.shape {
        Shape::Gemm { batch, m, n, k } => ([m, n, k, batch], NONE),
        Shape::Convolution { batch, channels_in, channels_out, pixels_out, groups, window, .. } => {
            ([channels_in / groups * window, channels_out / groups, pixels_out, batch], groups.min(2.0))
        }
        Shape::AttentionPrefill { batch, queries, heads, kv_heads, head_dim, causal, .. } => {
            ([queries, heads / kv_heads, batch * heads, head_dim], f64::from(u8::from(causal)))
        }
        Shape::AttentionDecode { batch, keys, heads, kv_heads, head_dim } => {
            ([keys, heads / kv_heads, batch * kv_heads, head_dim], NONE)
        }
        Shape::Elementwise { elements, inputs } => ([elements, inputs, NONE, NONE], NONE),
        Shape::Reduction { rows, columns }
        | Shape::Norm { rows, columns }
        | Shape::Softmax { rows, columns } => ([rows, columns, NONE, NONE], NONE),
        Shape::Collective { operation, ranks, bytes, .. } => {
            let operation = match operation {
                Collective::AllReduce => 0.0,
                Collective::AllGather => 1.0,
                Collective::ReduceScatter => 2.0,
                Collective::AllToAll => 3.0,
                Collective::SendReceive => 4.0,
            };
            ([bytes, ranks, bytes / ranks, NONE], operation)
        }
        Shape::Copy { .. } | Shape::HostCopy { .. } | Shape::Other => ([NONE; 4], NONE),
    }
}

/// Largest power of two, up to 64 elements, that divides the rows of all operands in memory.
fn alignment(work: &Work) -> f64 {
    let common = |sizes: &[f64]| {
        let divides = |step: &f64| sizes.iter().all(|size| size % step == 0.0);
        [64.0, 32.0, 16.0, 8.0, 4.0, 2.0].into_iter().find(divides).unwrap_or(1.0)
    };
    match work.shape {
        Shape::Gemm { n, k, .. } => common(&[n, k]),
        Shape::Convolution { channels_in, channels_out, .. } => common(&[channels_in, channels_out]),
        Shape::Norm { columns, .. } | Shape::Softmax { columns, .. } => common(&[columns]),
        Shape::Elementwise { elements, .. } => common(&[elements]),
        _ => f64::NAN,
    }
}
