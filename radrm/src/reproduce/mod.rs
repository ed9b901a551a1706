//! `radrm reproduce`: a published table, with our figures beside it.

mod measured;
mod replayed;
mod tables;

use std::path::{Path, PathBuf};

use clap::Args;
use radrm_text::{Table, did_you_mean, left, right};
use serde::Serialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{Failure, print, print_json};
use measured::Measured;
use replayed::Ours;
use tables::{Figure, PUBLISHED, Published, Row, tables};

/// Word for every table.
const ALL: &str = "all";

#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Table to print, or all; without it, they are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Folder with the traces, measured workloads and measurements, which are not part of this project: a copy of the researchers'
    /// repository, or one with the files that docs/published-tables.md names
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Run times of the jobs in CARMA's scripts, which state none: CSV with rad, duration_min
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Replays with chance
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Error)]
pub(crate) enum ReproduceError {
    #[error("there is no table {name}; there are {tables}, or {ALL}{}", did_you_mean(name, tables.split(", ")))]
    UnknownTable { name: String, tables: String },
    #[error("{table} needs {file} in the folder that --data names ({}); it comes from {source_of}", folder.display())]
    MissingData { table: String, file: String, folder: PathBuf, source_of: String },
    #[error("{} states no run times: add them by --times FILE with the columns rad and duration_min", .0.display())]
    WithoutTimes(PathBuf),
    #[error("no table has its data in {}", .0.display())]
    NothingMade(PathBuf),
}

impl crate::error::CommandError for ReproduceError {}

/// A row with our figure.
#[derive(Debug, Serialize)]
struct Reproduced<'a> {
    name: &'a str,
    figure: &'static str,
    published: f64,
    /// `None`: it is not reproduced.
    #[serde(flatten)]
    ours: Option<Ours>,
    /// Ours less the published one, in the unit of the figure.
    difference: Option<f64>,
    reason: &'a str,
}

/// Prints the list, or reproduces tables.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let all = tables(PUBLISHED);
    let Some(name) = &flags.name else {
        let mut list = Table::new([left("NAME"), right("FIGURES"), left("PUBLISHED BY")]);
        all.iter().for_each(|of| list.row([of.name, &of.rows.len().to_string(), of.title]));
        return print(&list.to_string());
    };
    // As papers write it: KACE partners, CARMA Table 6.3.
    let plain = name.to_ascii_lowercase().replace(' ', "-");
    if plain == ALL {
        return every(&all, flags);
    }
    let found = all.iter().find(|of| of.name == plain);
    let found = found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|of| of.name).collect();
        ReproduceError::UnknownTable { name: name.clone(), tables: names.join(", ") }
    })?;
    let rows = reproduced(found, flags)?;
    match flags.json {
        true => print_json(&rows),
        false => print(&text(found, &rows)),
    }
}

/// Prints all tables; of one that cannot be made, such as for want of its data, the reason.
///
/// # Errors
/// None of them could be made.
fn every(all: &[Published<'_>], flags: &Flags) -> Result<(), Failure> {
    let (mut printed, mut values) = (String::new(), Vec::new());
    for of in all {
        let (words, value) = match reproduced(of, flags) {
            Ok(rows) => (text(of, &rows), json!({"table": of.name, "rows": rows})),
            Err(Failure::Command { sentence, .. }) => {
                (format!("{sentence}\n"), json!({"table": of.name, "error": sentence}))
            }
            Err(other) => return Err(other),
        };
        if !printed.is_empty() {
            printed.push('\n');
        }
        printed.push_str(&words);
        values.push(value);
    }
    let is_none_made = values.iter().all(|value| value.get("error").is_some());
    match flags.json {
        true => print_json(&Value::Array(values))?,
        false => print(&printed)?,
    }
    match is_none_made {
        true => Err(ReproduceError::NothingMade(flags.data.clone()).into()),
        false => Ok(()),
    }
}

fn reproduced<'a>(of: &Published<'a>, flags: &Flags) -> Result<Vec<Reproduced<'a>>, Failure> {
    let mut measured = Measured::default();
    let row = |row: &Row<'a>| -> Result<Reproduced<'a>, Failure> {
        let published = row.number();
        let ours = match row.figure {
            Figure::None => None,
            Figure::Replayed(figure) => {
                Some(replayed::ours(figure, row, &file(of, row, &flags.data)?, flags)?)
            }
            _ => {
                let path = file(of, row, &flags.data)?;
                Some(Ours::exact(measured.figure(row, &path)?, format!("radrm evaluate {}", path.display())))
            }
        };
        let difference = ours.as_ref().map(|ours| ours.mean - published);
        let (name, figure, reason) = (row.name, row.figure.unit(), row.reason);
        Ok(Reproduced { name, figure, published, ours, difference, reason })
    };
    of.rows.iter().map(row).collect()
}

/// The first of a row's files that is there.
fn file(of: &Published<'_>, row: &Row<'_>, folder: &Path) -> Result<PathBuf, ReproduceError> {
    let found = row.data.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| missing(of.name, &row.data.join(" or "), folder, of.source))
}

fn missing(table: &str, file: &str, folder: &Path, source: &str) -> ReproduceError {
    ReproduceError::MissingData {
        table: table.to_owned(),
        file: file.to_owned(),
        folder: folder.to_owned(),
        source_of: source.to_owned(),
    }
}

fn text(of: &Published<'_>, rows: &[Reproduced<'_>]) -> String {
    let heads = ["PUBLISHED", "OURS", "LEAST", "MOST", "DIFFERENCE"].map(right);
    let heads = [left("FIGURE")].into_iter().chain(heads).chain([left("REASON")]);
    let mut text = format!("{}: {}\n", of.name, of.title);
    let mut unit = "";
    let mut table: Option<Table> = None;
    let heads: Vec<_> = heads.collect();
    for row in rows {
        if row.figure != unit {
            text.extend(table.take().map(|table| table.to_string()));
            unit = row.figure;
            text.push_str(&format!("\n{unit}\n"));
            table = Some(Table::new(heads.clone()));
        }
        let digits = |value: f64| format!("{value:.2}");
        let some = |value: Option<f64>| value.map_or("-".to_owned(), digits);
        let mean = row.ours.as_ref().map_or("-".to_owned(), |ours| match ours.half {
            Some(half) => format!("{} ±{}", digits(ours.mean), digits(half)),
            None => digits(ours.mean),
        });
        let cells = [
            digits(row.published),
            mean,
            some(row.ours.as_ref().and_then(|ours| ours.least)),
            some(row.ours.as_ref().and_then(|ours| ours.most)),
            row.difference.map_or("-".to_owned(), |difference| format!("{difference:+.2}")),
        ];
        if let Some(table) = &mut table {
            table.row([row.name.to_owned()].into_iter().chain(cells).chain([row.reason.to_owned()]));
        }
    }
    text.extend(table.map(|table| table.to_string()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_ours_the_difference_and_the_reason_beside_the_published_figure() {
        let all = tables(PUBLISHED);
        let of = all.iter().find(|of| of.name == "gpumemnet-table-5.3").unwrap();
        let row = |row: &Row<'static>| {
            let ours = (row.figure != Figure::None).then(|| Ours::exact(97.5, "radrm evaluate f".into()));
            let published = row.number();
            let difference = ours.as_ref().map(|ours| ours.mean - published);
            Reproduced {
                name: row.name,
                figure: row.figure.unit(),
                published,
                ours,
                difference,
                reason: row.reason,
            }
        };
        let rows: Vec<Reproduced<'_>> = of.rows.iter().map(row).collect();
        let shown = text(of, &rows);
        let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line("perceptrons, 1 GB"))[3..8], ["95.42", "97.50", "-", "-", "+2.08"]);
        assert_eq!(words(line("Transformer, 1 GB"))[3..8], ["96.73", "-", "-", "-", "-"]);
        assert!(line("Transformer, 1 GB").contains("is not built"), "{shown}");
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!((&json[0]["ours"], &json[0]["published"]), (&json!(97.5), &json!(95.42)));
        assert_eq!((&json[2]["ours"], &json[2]["difference"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn missing_data_are_named_with_where_they_come_from() {
        let all = tables(PUBLISHED);
        let of = all.iter().find(|of| of.name == "kace-partners").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let why = file(of, &of.rows[0], dir.path()).unwrap_err().to_string();
        let start =
            "kace-partners needs output/dataset/MPS100/MPS100_kernel_labels_targetMPS100.csv or kace/pairs";
        assert!(
            why.starts_with(start) && why.ends_with("it comes from github.com/nba556677go/KACE-artifact"),
            "{why}"
        );
        std::fs::create_dir(dir.path().join("kace")).unwrap();
        std::fs::write(dir.path().join("kace/pairs_mps100_features_labels.csv"), "").unwrap();
        assert!(file(of, &of.rows[0], dir.path()).is_ok());
    }
}
