//! `radrm evaluate`: estimators of memory beside what programs really took, and KACE's predictors on pairs of workloads.

mod kace;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use radrm_collector::dataset;
use radrm_estimator::evaluate::Scores;
use radrm_estimator::memory::{MemoryModel, Program, compare, network};
use radrm_lab::{estimated, gpumemnet};
use radrm_text::{Table, left, right};
use serde_json::json;

use crate::error::FileProblem;
use crate::replay::input;
use crate::train::Measurements;
use crate::{Failure, print, print_json};

/// The flags as written.
#[derive(Args, Debug)]
pub struct Flags {
    /// Evaluate this model; without it, one that is trained on the other families of each file
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Measured runs, a dataset or CSV as for `radrm train`, GPUMemNet's table of real models, or KACE's tables: pairs with
    /// features and labels, pairs and triples by partition
    /// [default: the user's dataset]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Line {
    /// Name of the estimator, or of what was known.
    pub(crate) known: String,
    pub(crate) scores: Scores,
    /// Part of the rows whose bucket is right, and its MiB.
    pub(crate) bucket: Option<(f64, f64)>,
}

/// Scores from one file.
#[derive(Debug)]
enum Report {
    Memory(Vec<Line>),
    Pairs(kace::Pairs),
    Partitions(kace::Partitions),
}

/// Evaluates and prints.
///
/// # Errors
/// [`Failure`]: a file cannot be read or has too few rows.
pub(crate) fn run(flags: Flags) -> Result<(), Failure> {
    let Flags { model, json, mut files } = flags;
    let model = match &model {
        None => None,
        Some(path) => {
            let parsed = MemoryModel::parse(&input::text(path)?);
            Some(parsed.map_err(|error| FileProblem::from(error).of(path))?)
        }
    };
    if files.is_empty() {
        files.push(dataset::default_path().ok_or(Failure::NoDataset)?);
    }
    let mut found = Vec::new();
    for file in &files {
        let measured = Measurements::of(file)?;
        let report = match (measured.pairs.is_empty(), measured.partitions.is_empty()) {
            (false, _) => Report::Pairs(kace::Pairs::of(&measured.pairs)),
            (_, false) => Report::Partitions(kace::Partitions::of(&measured.partitions)),
            _ => Report::Memory(memory(file, measured, model.as_ref())?),
        };
        found.push((file, report));
    }
    if json {
        let of = |(file, report): &(&PathBuf, Report)| {
            let line = |line: &Line| json!({"known": line.known, "scores": line.scores, "bucket_mib": line.bucket.map(|of| of.1), "bucket_right": line.bucket.map(|of| of.0)});
            match report {
                Report::Memory(lines) => {
                    json!({"file": file, "rows": lines.iter().map(line).collect::<Vec<_>>()})
                }
                Report::Pairs(pairs) => with_file(pairs.json(), file),
                Report::Partitions(partitions) => with_file(partitions.json(), file),
            }
        };
        return print_json(&found.iter().map(of).collect::<Vec<_>>());
    }
    let mut text = String::new();
    for (file, report) in &found {
        let _ = match report {
            Report::Memory(lines) => writeln!(text, "{}\n{}", file.display(), table(lines)),
            Report::Pairs(pairs) => writeln!(text, "{}\n{}", file.display(), pairs.text()),
            Report::Partitions(partitions) => writeln!(text, "{}\n{}", file.display(), partitions.text()),
        };
    }
    print(&text)
}

/// A report's figures beside the name of its file.
fn with_file(mut of: serde_json::Value, file: &Path) -> serde_json::Value {
    of["file"] = json!(file);
    of
}

fn table(lines: &[Line]) -> Table {
    let heads = ["ESTIMATE", "CASES", "TOO LOW", "MEAN OVER", "MEDIAN ERROR", "MAPE", "BUCKETS RIGHT"];
    let aligned = heads.iter().enumerate().map(|(at, head)| if at == 0 { left(*head) } else { right(*head) });
    let mut table = Table::new(aligned.collect::<Vec<_>>());
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    for Line { known, scores, bucket } in lines {
        let Scores { rows, under, over, median, mape } = *scores;
        let bucket =
            bucket.map_or_else(String::new, |(right, mib)| format!("{} of {mib} MiB", percent(right)));
        table.row([
            known.clone(),
            rows.to_string(),
            percent(under),
            format!("{:+.1} %", 100.0 * over),
            percent(median),
            percent(mape),
            bucket,
        ]);
    }
    table
}

/// The scores on a file: of this model, or of models that did not see the family.
///
/// # Errors
/// [`Failure`]: it cannot be read or has too few rows.
#[cfg(test)]
pub(crate) fn report(file: &Path, model: Option<&MemoryModel>) -> Result<Vec<Line>, Failure> {
    memory(file, Measurements::of(file)?, model)
}

fn memory(file: &Path, measured: Measurements, model: Option<&MemoryModel>) -> Result<Vec<Line>, Failure> {
    const LEVEL: f64 = 0.95;
    let Measurements { programs, networks, estimated, .. } = measured;
    if !estimated.is_empty() {
        let line = |(name, scores): (&str, Scores)| Line { known: name.to_owned(), scores, bucket: None };
        return Ok(estimated::scores_by_estimator(&estimated).into_iter().map(line).collect());
    }
    let wrong = |error: radrm_estimator::Error| FileProblem::from(error).of(file);
    if !networks.is_empty() {
        let bucket = network::bucket(&networks);
        let of = |held_out: network::HeldOut| Line {
            known: held_out.name.to_owned(),
            scores: held_out.scores,
            bucket: held_out.right.map(|right| (right, bucket / f64::from(1 << 20))),
        };
        let all = gpumemnet::held_out(&networks, LEVEL, bucket).map_err(wrong)?;
        return Ok(all.into_iter().map(of).collect());
    }
    let outcomes = match model {
        Some(model) => compare::outcomes(model, &programs.iter().collect::<Vec<&Program>>()),
        None => compare::held_out(&programs, 5, LEVEL).map_err(wrong)?,
    };
    let line = |((runs, what), scores): (compare::Case, Scores)| {
        let known = match runs {
            0 => format!("{what}, no own run"),
            1 => format!("1 own run: {what}"),
            runs => format!("{runs} own runs: {what}"),
        };
        Line { known, scores, bucket: None }
    };
    Ok(compare::scores(&outcomes).into_iter().map(line).collect())
}
