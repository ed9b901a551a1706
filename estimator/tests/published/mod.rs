//! Readers of the published measurements, which lie beside the project and not in it.

#![allow(dead_code, reason = "each test and the example use some of it")]

use std::io::Read;
use std::path::{Path, PathBuf};

use radrm_estimator::memory::{Program, Run};
use radrm_lab::data::{self, Data};

/// Rows of a file with named columns.
pub struct Rows {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    head: &'a [String],
    values: &'a [String],
}

impl Row<'_> {
    /// A value; empty if the column is missing.
    pub fn text(&self, column: &str) -> &str {
        let at = self.head.iter().position(|name| name == column);
        at.and_then(|at| self.values.get(at)).map_or("", String::as_str)
    }

    /// A number; NaN if it is none.
    pub fn number(&self, column: &str) -> f64 {
        self.text(column).trim().parse().unwrap_or(f64::NAN)
    }
}

impl Rows {
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|values| Row { head: &self.head, values })
    }
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name)
}

/// A file's text, compressed or not. `None`, with a line that says so, where it is missing.
pub fn text(name: &str) -> Option<String> {
    let path = place(name);
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("skipped: {} is missing", path.display());
        return None;
    };
    let mut text = String::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("compressed text");
    } else {
        text = String::from_utf8(bytes).expect("text");
    }
    Some(text)
}

/// Rows of a CSV file.
pub fn rows(name: &str) -> Option<Rows> {
    let text = text(name)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let owned = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
    let head = owned(reader.headers().expect("a head"));
    let rows = reader.records().map(|record| owned(&record.expect("a row"))).collect();
    Some(Rows { head, rows })
}

/// A measured training of a TIMM model, with FakeTensor's figures for it; MiB.
#[derive(Clone, Debug)]
pub struct Timm {
    pub model: String,
    pub family: String,
    pub batch: f64,
    pub peak: f64,
    pub forward: f64,
    pub backward: f64,
    pub total: f64,
}

/// TIMM rows by model, each rising in batch size; MiB.
pub fn timm() -> Option<Vec<Vec<Timm>>> {
    const MIB: f64 = 1_048_576.0;
    let Ok(Data::Programs(programs)) = data::read(&text("gpumemnet/timm_faketensor.csv.gz")?) else {
        panic!("rows of TIMM models")
    };
    let of = |program: &Program, run: &Run| {
        let tensors = run.tensors.expect("FakeTensor's figures");
        let [peak, forward, backward, total] =
            [run.peak, tensors.forward, tensors.backward, tensors.total].map(|bytes| bytes / MIB);
        let (model, family) = (program.name.clone(), program.family.clone());
        Timm { model, family, batch: run.batch, peak, forward, backward, total }
    };
    Some(programs.iter().map(|program| program.runs.iter().map(|run| of(program, run)).collect()).collect())
}

/// Peaks of programs that were measured alone on an A100 at several batch sizes, by program: (batch size, MiB).
pub fn workload_peaks() -> Option<Vec<Vec<(f64, f64)>>> {
    let mut programs: std::collections::BTreeMap<String, Vec<(f64, f64)>> = Default::default();
    for row in rows("workloads_a100/workloads.csv")?.iter().filter(|row| row.text("gpus") == "1") {
        // MODEL_DATASET_bsN_...
        let Some((program, rest)) = row.text("workload").split_once("_bs") else { continue };
        let Ok(batch) = rest.split('_').next().unwrap_or("").parse::<f64>() else { continue };
        let runs = programs.entry(program.to_owned()).or_default();
        // Two rows differ in the number of epochs only.
        if runs.iter().all(|(known, _)| *known != batch) {
            runs.push((batch, row.number("mem_peak_mib")));
        }
    }
    programs.retain(|_, runs| runs.len() > 1);
    Some(programs.into_values().collect())
}

/// The model that a workload's name begins with.
pub fn family_of_workload(name: &str) -> &str {
    name.split("_batch")
        .next()
        .unwrap_or(name)
        .split("_cifar")
        .next()
        .unwrap_or(name)
        .split("_imagenet")
        .next()
        .unwrap_or(name)
        .split("_width")
        .next()
        .unwrap_or(name)
}

/// A series of numbers without pattern, the same each time.
pub fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut order: Vec<usize> = (0..n).collect();
    for at in (1..n).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}
