//! Single-precision operations that NeuSight measured with PyTorch 2.1.

use std::collections::BTreeMap;
use std::path::Path;

use radrm_clock::train::Sample;
use radrm_clock::{Cards, Operands, Precision, Shape, Work};

use super::{card_of, tables};

fn types() -> Operands {
    Operands::of(Precision::F32)
}

/// Matrix products, elementwise operations, normalization and softmax.
///
/// A call took 25 microseconds and more however small it was: the least of each operation and card is the overhead of the
/// method, and not of the card.
pub fn operations(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let rows = tables::read(&folder.join("neusight/ops_fp32.csv.gz"));
    let mut least: BTreeMap<(String, String), f64> = BTreeMap::new();
    let key = |row: &tables::Row| (row.text("device").to_owned(), row.text("op").to_owned());
    for row in &rows {
        let seconds = row.number("latency_ms") * 1e-3;
        least.entry(key(row)).and_modify(|least| *least = least.min(seconds)).or_insert(seconds);
    }
    let sample = |row: &tables::Row| {
        let [batch, rows, m, n, k] = ["B", "H", "M", "N", "K"].map(|column| row.number(column));
        let operation = row.text("op");
        let shape = match operation {
            "linear" | "bmm" => Shape::Gemm { batch: batch.max(1.0), m, n, k },
            "ln" => Shape::Norm { rows: batch, columns: rows },
            "softmax" => Shape::Softmax { rows: batch, columns: rows },
            "add" | "div" | "mul" | "pow" => Shape::Elementwise { elements: batch * rows, inputs: 2.0 },
            _ => Shape::Elementwise { elements: batch * rows, inputs: 1.0 },
        };
        let family = match operation {
            "linear" | "bmm" => format!("{operation} {batch} {m} {n} {k}"),
            _ => format!("{batch} {rows}"),
        };
        let work = Work::of(shape, types());
        Sample {
            work: if matches!(operation, "linear" | "bmm") { work } else { work.cached() },
            card: card_of(cards, row.text("device")),
            family,
            seconds: row.number("latency_ms") * 1e-3,
            overhead: least[&key(row)],
        }
    };
    rows.iter().map(sample).collect()
}

/// Convolutions of 3 x 3.
pub fn convolutions(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let rows = tables::read(&folder.join("neusight/conv_fp32.csv.gz"));
    let sample = |row: &tables::Row| {
        let [batch, channels_in, channels_out, size] =
            ["B", "Input_Channel", "Output_Channel", "Input_Size"].map(|column| row.number(column));
        let pixels = size * size;
        let shape = Shape::Convolution {
            batch,
            channels_in,
            channels_out,
            pixels_in: pixels,
            pixels_out: pixels,
            window: 9.0,
            groups: 1.0,
        };
        Sample {
            work: Work::of(shape, types()),
            card: card_of(cards, row.text("device")),
            family: format!("{batch} {channels_in} {channels_out} {size}"),
            seconds: row.number("latency_ms") * 1e-3,
            overhead: 0.0,
        }
    };
    rows.iter().map(sample).collect()
}
