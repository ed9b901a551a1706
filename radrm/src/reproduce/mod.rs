//! `radrm reproduce`: a published table, with the figures of a replay beside it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use radrm_scheduler_core::replay::{Interval, Metrics};
use radrm_text::{Table, did_you_mean, left, right};
use serde::Serialize;
use thiserror::Error;

use crate::cli::{self, Command};
use crate::{Failure, print, print_json, replay};

/// The published figures.
const PUBLISHED: &str = include_str!("published.tsv");

#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Table to print; without it, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Folder with the traces (traces/thesis_60.csv, traces/thesis_90.csv) and the measured workloads
    /// (workloads_a100/workloads.csv), which are not part of this project
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Replays with chance
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Error)]
pub(crate) enum ReproduceError {
    #[error("there is no table {name}; there are {tables}{}", did_you_mean(name, tables.split(", ")))]
    NoTable { name: String, tables: String },
    #[error("{} is not there: --data names the folder with the traces and workloads", .0.display())]
    NoData(PathBuf),
}

impl crate::error::CommandError for ReproduceError {}

/// Figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// Makespan, hours.
    Hours,
    /// Makespan against that of `exclusive`, per cent.
    Less,
    /// Attempts that ran out of memory.
    Crashes,
    /// Energy of all GPUs, MJ.
    Megajoules,
}

impl Figure {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "hours" => Some(Self::Hours),
            "less" => Some(Self::Less),
            "crashes" => Some(Self::Crashes),
            "megajoules" => Some(Self::Megajoules),
            _ => None,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Hours => "makespan, h",
            Self::Less => "makespan against exclusive, %",
            Self::Crashes => "out-of-memory crashes",
            Self::Megajoules => "energy, MJ",
        }
    }

    fn of(self, metrics: &Metrics) -> f64 {
        match self {
            Self::Hours | Self::Less => metrics.makespan_s / 3600.0,
            Self::Crashes => metrics.ooms,
            Self::Megajoules => metrics.energy_mj,
        }
    }
}

/// A published figure and how it is replayed.
#[derive(Clone, Debug, PartialEq)]
struct Row<'a> {
    trace: &'a str,
    name: &'a str,
    figure: Figure,
    /// As it is published.
    published: &'a str,
    /// Options of `radrm replay`.
    options: &'a str,
    /// Reason of a difference.
    reason: &'a str,
}

/// A published table.
#[derive(Clone, Debug, PartialEq)]
struct Published<'a> {
    name: &'a str,
    title: &'a str,
    rows: Vec<Row<'a>>,
}

/// The tables of the text; lines that are none are left out, which a test finds.
fn tables(text: &str) -> Vec<Published<'_>> {
    let mut all: Vec<Published<'_>> = Vec::new();
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["title", name, title] => all.push(Published { name, title, rows: Vec::new() }),
            ["row", table, trace, name, figure, published, options, reason] => {
                let figure = Figure::parse(figure);
                let of = all.iter_mut().find(|of| of.name == table);
                if let Some((of, figure)) = of.zip(figure) {
                    of.rows.push(Row { trace, name, figure, published, options, reason });
                }
            }
            _ => {}
        }
    }
    all
}

/// A published figure as a number.
fn number(published: &str) -> f64 {
    published.replace('−', "-").parse().unwrap_or(f64::NAN)
}

/// A row with the replay's figure.
#[derive(Debug, Serialize)]
struct Reproduced<'a> {
    name: &'a str,
    figure: &'static str,
    published: f64,
    replayed: f64,
    /// Half the width of its 95 % interval.
    half: f64,
    least: f64,
    most: f64,
    /// Replayed less published, in the unit of the figure.
    difference: f64,
    reason: &'a str,
    command: String,
}

/// Prints the list, or replays a table.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let all = tables(PUBLISHED);
    let Some(name) = &flags.name else {
        let mut list = Table::new([left("NAME"), right("FIGURES"), left("PUBLISHED BY")]);
        all.iter().for_each(|of| list.row([of.name, &of.rows.len().to_string(), of.title]));
        return print(&list.to_string());
    };
    let found = all.iter().find(|of| of.name == name);
    let found = found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|of| of.name).collect();
        ReproduceError::NoTable { name: name.clone(), tables: names.join(", ") }
    })?;
    let rows = found.rows.iter().map(|row| reproduced(row, flags)).collect::<Result<Vec<_>, _>>()?;
    match flags.json {
        true => print_json(&rows),
        false => print(&text(found, &rows)),
    }
}

fn reproduced<'a>(row: &Row<'a>, flags: &Flags) -> Result<Reproduced<'a>, Failure> {
    let seeds = metrics(row, row.options, flags)?;
    let mut values: Vec<f64> = seeds.iter().map(|seed| row.figure.of(seed)).collect();
    if row.figure == Figure::Less {
        let alone = metrics(row, "--policy exclusive", flags)?;
        let alone = Interval::of(&alone.iter().map(|seed| row.figure.of(seed)).collect::<Vec<_>>()).mean;
        values.iter_mut().for_each(|value| *value = (*value / alone - 1.0) * 100.0);
    }
    let Interval { mean, half } = Interval::of(&values);
    let published = number(row.published);
    Ok(Reproduced {
        name: row.name,
        figure: row.figure.unit(),
        published,
        replayed: mean,
        half,
        least: values.iter().copied().fold(f64::INFINITY, f64::min),
        most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        difference: mean - published,
        reason: row.reason,
        command: format!("radrm replay {}.csv {} --seeds {}", row.trace, row.options, flags.seeds),
    })
}

/// Metrics of each seed of a replay with these options.
fn metrics(row: &Row<'_>, options: &str, flags: &Flags) -> Result<Vec<Metrics>, Failure> {
    let file = |name: &str| {
        let path = flags.data.join(name);
        if path.is_file() { Ok(path) } else { Err(ReproduceError::NoData(path)) }
    };
    let trace = file(&format!("traces/{}.csv", row.trace))?;
    let profiles = file("workloads_a100/workloads.csv")?;
    let word = |word: &str| OsString::from(word);
    let mut words: Vec<OsString> = vec![word("radrm"), word("replay"), trace.into()];
    words.extend(options.split_whitespace().map(word));
    words.extend([word("--seeds"), flags.seeds.to_string().into(), word("--profiles"), profiles.into()]);
    let Command::Replay(order) = cli::parse(words).map_err(Failure::Line)?.command else {
        return Ok(Vec::new());
    };
    replay::metrics(&order)
}

fn text(of: &Published<'_>, rows: &[Reproduced<'_>]) -> String {
    let heads = ["PUBLISHED", "REPLAYED", "LEAST", "MOST", "DIFFERENCE"].map(right);
    let heads = [left("FIGURE")].into_iter().chain(heads).chain([left("REASON")]);
    let mut text = format!("{}\n", of.title);
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
        let ours = format!("{} ±{}", digits(row.replayed), digits(row.half));
        let cells = [
            digits(row.published),
            ours,
            digits(row.least),
            digits(row.most),
            format!("{:+.2}", row.difference),
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
    use std::path::Path;

    use super::*;

    #[test]
    fn every_line_of_the_published_figures_is_a_figure_of_a_table() {
        let all = tables(PUBLISHED);
        let lines = PUBLISHED.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(all.len() + all.iter().map(|of| of.rows.len()).sum::<usize>(), lines);
        for row in all.iter().flat_map(|of| &of.rows) {
            assert!(number(row.published).is_finite(), "{row:?}");
            let words = format!("radrm replay t.csv {}", row.options);
            let parsed = cli::parse(words.split_whitespace().map(OsString::from));
            assert!(parsed.is_ok_and(|flags| matches!(flags.command, Command::Replay(_))), "{row:?}");
        }
    }

    /// The page has its own sentences around them.
    #[test]
    fn the_page_of_results_has_the_same_published_figures() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/replay-results.md");
        let page = std::fs::read_to_string(page).unwrap();
        for row in tables(PUBLISHED).iter().flat_map(|of| &of.rows) {
            let is_there = match row.figure {
                Figure::Hours => page.contains(&format!("{} h", row.published)),
                _ => page.lines().any(|line| {
                    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                    cells.get(1) == Some(&row.name)
                        && cells.get(2).is_some_and(|cell| cell.split(' ').any(|word| word == row.published))
                }),
            };
            assert!(is_there, "{row:?}");
        }
    }
}
