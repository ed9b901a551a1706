//! Whole language models that NeuSight timed, each card left out of the training: looked at once, after everything else.

use std::collections::BTreeMap;
use std::io::Read;

use radrm_clock::train::{self, Sample};
use radrm_clock::{Clock, Kind, Operands, Power, Precision, Shape, Work};

use crate::published;

/// Files of the archive by name, text.
fn labels() -> BTreeMap<String, String> {
    let Some(folder) = published::folder() else { return BTreeMap::new() };
    let packed = std::fs::read(folder.join("neusight/labels.tar.gz")).expect("labels");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("labels");
    let text = |field: &[u8]| {
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).trim().to_owned()
    };
    let mut files = BTreeMap::new();
    let mut at = 0;
    // Headers of 512 bytes with name and length in octal digits, then the file, padded to 512 bytes.
    while at + 512 <= bytes.len() && bytes[at] != 0 {
        let (name, length) = (text(&bytes[at..at + 100]), text(&bytes[at + 124..at + 136]));
        let length = usize::from_str_radix(&length, 8).expect("a length");
        let file = &bytes[at + 512..at + 512 + length];
        files.insert(name, String::from_utf8_lossy(file).into_owned());
        at += 512 + length.next_multiple_of(512);
    }
    files
}

/// Operation of a node of the traced model; `None` for views and the like, `Other` for what has no class.
fn work(target: &str, name: &str, inputs: &[Vec<f64>], output: &[f64]) -> Option<Work> {
    let single = Operands::of(Precision::F32);
    let elements: f64 = output.iter().product();
    let last = |shape: &[f64]| shape.last().copied().unwrap_or(1.0);
    let rows = elements / last(output).max(1.0);
    let has = |words: &[&str]| words.iter().any(|word| target.contains(word) || name.contains(word));
    let shape = if has(&[
        "getitem",
        "getattr",
        "size",
        "view",
        "permute",
        "transpose",
        "dropout",
        "split",
        "expand",
        "dim",
    ]) || elements <= 1.0
    {
        return None;
    } else if target.contains("addmm") {
        Shape::Gemm { batch: 1.0, m: rows, n: last(output), k: last(&inputs[1]) }
    } else if target.contains("matmul") || target.contains("bmm") {
        let [m, k] = [inputs[0].len() - 2, inputs[0].len() - 1].map(|at| inputs[0][at]);
        Shape::Gemm { batch: elements / m / last(output), m, n: last(output), k }
    } else if has(&["LayerNorm", "layer_norm", "ln_"]) {
        Shape::Norm { rows, columns: last(output) }
    } else if has(&["softmax"]) {
        Shape::Softmax { rows, columns: last(output) }
    } else if has(&["dense", "query", "key", "value", "lm_head", "classifier", "outputs"]) {
        Shape::Gemm { batch: 1.0, m: rows, n: last(output), k: last(&inputs[0]) }
    } else if has(&[
        "add",
        "mul",
        "truediv",
        "sub",
        "pow",
        "tanh",
        "gelu",
        "relu",
        "where",
        "contiguous",
        "activation",
    ]) {
        let full = inputs.iter().filter(|shape| shape.iter().product::<f64>() >= elements).count();
        Shape::Elementwise { elements, inputs: full.max(1) as f64 }
    } else {
        Shape::Other
    };
    Some(Work::of(shape, single))
}

/// Predicted time of a model, seconds, its bound, and the part of the measured times of operations that have no class.
fn model(clock: &Clock, card: &radrm_clock::Card, csv: &str, layers: f64) -> ([f64; 3], f64) {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let names = reader.headers().expect("a header").clone();
    let column = |name: &str| names.iter().position(|one| one == name).expect("a column");
    let [target, name, inputs, output, latency] =
        ["target", "Name", "input_shapes", "output_shape", "fw_latency"].map(column);
    let (mut sum, mut unknown, mut all) = ([0.0; 3], 0.0, 0.0);
    let mut within = false;
    for row in reader.records() {
        let row = row.expect("a row");
        let label = &row[name];
        // The traced model has one layer: the nodes from its first operation to the one behind it.
        if label.contains("h_0_") || label.contains("layer_0") {
            within = true;
        }
        if label.contains("ln_f") || label.contains("final_layer") || label.contains("getitem_10") {
            within = false;
        }
        let times = if within { layers } else { 1.0 };
        let measured = times * row[latency].parse::<f64>().unwrap_or(0.0);
        let shapes: Vec<Vec<f64>> = serde_json::from_str(&row[inputs]).unwrap_or_default();
        let shape: Vec<f64> =
            serde_json::from_str(&row[output].replace('(', "[").replace(')', "]")).unwrap_or_default();
        let Some(work) = work(&row[target], label, &shapes, &shape) else { continue };
        all += measured;
        match clock.time(&work.cached(), card) {
            Some(found) => {
                for (sum, time) in sum.iter_mut().zip([found.low, found.time, found.high]) {
                    *sum += times * time;
                }
            }
            None => unknown += measured,
        }
    }
    (sum, unknown / all.max(1e-9))
}

/// A model that was timed on a card, and its time by a clock that has not seen the card.
pub struct Label {
    /// The card.
    pub card: String,
    /// Model, mode, length of a sequence and sequences.
    pub model: String,
    /// Measured time, s.
    pub measured: f64,
    /// Lower end, expected time and upper end, s.
    pub predicted: [f64; 3],
    /// Part of the measured times of its operations that have no class.
    pub unknown: f64,
}

impl Label {
    /// Predicted time against the measured one.
    pub fn error(&self) -> f64 {
        self.predicted[1] / self.measured - 1.0
    }

    /// Returns true if the measured time lies within the bound.
    pub fn is_within(&self) -> bool {
        self.predicted[0] <= self.measured && self.measured <= self.predicted[2]
    }
}

/// All models, each card left out of the training.
pub fn predicted(samples: &[Sample]) -> Vec<Label> {
    let files = labels();
    let cards = published::cards();
    let mut clocks: BTreeMap<String, Clock> = BTreeMap::new();
    let mut found = Vec::new();
    for (name, csv) in files.iter().filter(|(name, _)| name.ends_with(".csv") && name.contains("-inf-")) {
        let Some((device, model_name)) = name.split_once('/') else { continue };
        let Some(card) = cards.find(&device.replace('_', " ")) else { continue };
        let clock = clocks.entry(card.id.clone()).or_insert_with(|| {
            let others: Vec<Sample> =
                samples.iter().filter(|sample| sample.card.id != card.id).cloned().collect();
            let kinds = [Kind::GemmSimt, Kind::Elementwise, Kind::Norm, Kind::Softmax];
            let kinds = kinds.iter().filter_map(|kind| train::learn(*kind, &others).ok()).collect();
            Clock::new("a card left out", kinds, Power { busy: [0.5, 0.7, 0.9], exponent: 2.0 })
        });
        let facts: serde_json::Value =
            serde_json::from_str(&files[&name.replace(".csv", ".json")]).expect("a model's facts");
        let (layers, measured) =
            (facts["num_layer"].as_f64().unwrap_or(1.0), facts["e2e_latency"].as_f64().unwrap_or(f64::NAN));
        let (predicted, unknown) = model(clock, card, csv, layers);
        found.push(Label {
            card: card.id.clone(),
            model: model_name.trim_end_matches(".csv").to_owned(),
            measured: measured * 1e-3,
            predicted,
            unknown,
        });
    }
    found
}

/// Prints a line for each model and card.
pub fn run(samples: &[Sample]) {
    println!(
        "| card left out | model | measured, ms | predicted, ms | bound | error | operations without class |"
    );
    println!("|---|---|--:|--:|---|--:|--:|");
    let all = predicted(samples);
    for label in &all {
        let [low, time, high] = label.predicted.map(|seconds| seconds * 1e3);
        println!(
            "| {} | {} | {:.1} | {time:.1} | {low:.1} to {high:.1} | {:+.1} % | {:.1} % |",
            label.card,
            label.model,
            label.measured * 1e3,
            100.0 * label.error(),
            100.0 * label.unknown
        );
    }
    let mut errors: Vec<f64> = all.iter().map(|label| label.error().abs()).collect();
    let count = errors.len().max(1);
    let mean = errors.iter().sum::<f64>() / count as f64;
    errors.sort_unstable_by(f64::total_cmp);
    println!(
        "{count} models: mean {:.1} %, median {:.1} %, within the bound {}",
        100.0 * mean,
        100.0 * errors.get(count / 2).copied().unwrap_or(0.0),
        all.iter().filter(|label| label.is_within()).count()
    );
}
