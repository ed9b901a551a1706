//! Published figures, and how each is reproduced.

use radrm_scheduler_core::replay::Metrics;

/// The published figures.
pub(super) const PUBLISHED: &str = include_str!("published.tsv");

/// Figure of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// A replay's.
    Replayed(Replayed),
    /// Share of networks in the right bucket by GPUMemNet's classifier, per cent.
    Buckets,
    /// Estimates of real models that are below the measured peak.
    TooLow,
    /// Part of the best partner's summed throughput that the partner picked by a predictor gives, per cent.
    Sum,
    /// Workloads whose best partner is picked.
    Found,
    /// A figure that is not reproduced.
    None,
}

/// Figure of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replayed {
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
        Some(match name {
            "hours" => Self::Replayed(Replayed::Hours),
            "less" => Self::Replayed(Replayed::Less),
            "crashes" => Self::Replayed(Replayed::Crashes),
            "megajoules" => Self::Replayed(Replayed::Megajoules),
            "buckets" => Self::Buckets,
            "too-low" => Self::TooLow,
            "sum" => Self::Sum,
            "found" => Self::Found,
            "none" => Self::None,
            _ => return None,
        })
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Replayed(Replayed::Hours) => "makespan, h",
            Self::Replayed(Replayed::Less) => "makespan against exclusive, %",
            Self::Replayed(Replayed::Crashes) => "out-of-memory crashes",
            Self::Replayed(Replayed::Megajoules) => "energy, MJ",
            Self::Buckets => "networks in the right bucket, %",
            Self::TooLow => "estimates below the measured peak",
            Self::Sum => "summed throughput beside the picked partner, % of the best",
            Self::Found => "workloads whose best partner is picked",
            Self::None => "not reproduced",
        }
    }
}

impl Replayed {
    pub(super) fn of(self, metrics: &Metrics) -> f64 {
        match self {
            Self::Hours | Self::Less => metrics.makespan_s / 3600.0,
            Self::Crashes => metrics.ooms,
            Self::Megajoules => metrics.energy_mj,
        }
    }
}

/// A published figure and how it is reproduced.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row<'a> {
    /// Files that have the data: the first that is there is read.
    pub(super) data: Vec<&'a str>,
    pub(super) name: &'a str,
    pub(super) figure: Figure,
    /// As it is published.
    pub(super) published: &'a str,
    /// Options of `radrm replay`, MiB of a bucket, name of an estimator or predictor.
    pub(super) options: &'a str,
    /// Reason of a difference.
    pub(super) reason: &'a str,
}

impl Row<'_> {
    /// The published figure as a number.
    pub(super) fn number(&self) -> f64 {
        self.published.replace('−', "-").parse().unwrap_or(f64::NAN)
    }
}

/// A published table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Published<'a> {
    pub(super) name: &'a str,
    pub(super) title: &'a str,
    /// Where its data are published.
    pub(super) source: &'a str,
    pub(super) rows: Vec<Row<'a>>,
}

/// The tables of the text; lines that are none are left out, which a test finds.
pub(super) fn tables(text: &str) -> Vec<Published<'_>> {
    let mut all: Vec<Published<'_>> = Vec::new();
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["title", name, title, source] => all.push(Published { name, title, source, rows: Vec::new() }),
            ["row", table, data, name, figure, published, options, reason] => {
                let figure = Figure::parse(figure);
                let of = all.iter_mut().find(|of| of.name == table);
                if let Some((of, figure)) = of.zip(figure) {
                    let data = data.split('|').collect();
                    of.rows.push(Row { data, name, figure, published, options, reason });
                }
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::*;
    use crate::cli::{self, Command};

    #[test]
    fn every_line_of_the_published_figures_is_a_figure_of_a_table() {
        let all = tables(PUBLISHED);
        let lines = PUBLISHED.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(all.len() + all.iter().map(|of| of.rows.len()).sum::<usize>(), lines);
        for row in all.iter().flat_map(|of| &of.rows) {
            assert!(row.number().is_finite() && row.data.iter().all(|file| !file.is_empty()), "{row:?}");
            if let Figure::Replayed(_) = row.figure {
                let words = format!("radrm replay t.csv {}", row.options);
                let parsed = cli::parse(words.split_whitespace().map(OsString::from));
                assert!(parsed.is_ok_and(|flags| matches!(flags.command, Command::Replay(_))), "{row:?}");
            }
        }
    }

    /// The pages have their own sentences around them.
    #[test]
    fn the_pages_of_results_have_the_same_published_figures() {
        let page = |name: &str| {
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
        };
        let [replays, others] = ["replay-results.md", "published-tables.md"].map(page);
        for table in tables(PUBLISHED) {
            assert!(others.contains(&format!("`{}`", table.name)), "{}", table.name);
            for row in &table.rows {
                let page = if table.name.starts_with("carma-") { &replays } else { &others };
                let is_in_text = page.contains(&format!("{} h", row.published));
                let is_in_table = page.lines().any(|line| {
                    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                    cells.get(1) == Some(&row.name)
                        && cells.get(2).is_some_and(|cell| cell.split(' ').any(|word| word == row.published))
                });
                assert!(is_in_text || is_in_table, "{row:?}");
            }
        }
    }
}
