//! `radrm stats`: the metrics by which schedulers are compared.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use radrm_launcher::report_file;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::wire::{GpuStats, Request, Response, StatsRow};
use radrm_text::{Table, fit, left, right};

use super::stats_page;
use super::stats_users::{self, WithUsers};
use super::text::{bytes, span, time};
use crate::error::UsageError;
use crate::{Failure, print, print_json};

#[derive(Args, Debug)]
pub struct Flags {
    /// Jobs of all users (administrators; it is what they see anyhow)
    #[arg(long, hide = true)]
    all: bool,
    /// Only your own jobs (administrators see those of all users)
    #[arg(long, conflicts_with = "all")]
    mine: bool,
    /// Only jobs that ended in this time until now: 30m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<u64>,
    /// Write one page with these figures, and curves of each GPU's memory, SM activity, power and energy
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    if let Some(page) = &flags.html {
        report_file::spares_profile(page).map_err(UsageError::Overwrites)?;
    }
    let now_ms = radrm_os::time::epoch_ms();
    let since_ms = flags.since.map_or(0, |span| now_ms.saturating_sub(span));
    let stats = match connection.ask(&Request::Stats { all: flags.all || !flags.mine, since_ms })? {
        Response::Stats(stats) => *stats,
        other => return Err(odd(&other).into()),
    };
    if let Some(path) = &flags.html {
        let curves = match connection.ask(&Request::Curves { from_ms: since_ms, to_ms: now_ms })? {
            Response::Curves(curves) => *curves,
            other => return Err(odd(&other).into()),
        };
        report_file::write(path, stats_page::page(&stats, &curves, now_ms, flags.since))?;
    }
    let users = stats_users::ask(connection, flags.mine, since_ms)?;
    if flags.json {
        return print_json(&WithUsers { stats: &stats, users: &users });
    }
    let mut text = String::new();
    for (name, value) in figures(&stats) {
        let _ = writeln!(text, "{name:<24} {value}");
    }
    let mut columns = vec![left("GPU")];
    columns.extend(["MEAN MEMORY", "MEAN SMACT", "MEAN POWER", "ENERGY"].map(right));
    let mut table = Table::new(columns);
    stats.gpus.iter().for_each(|gpu| {
        table.row(gpu_cells(gpu));
    });
    if !table.is_empty() {
        let _ = write!(text, "\n{table}");
    }
    text.push_str(&stats_users::table(users));
    if let Some(spec) = &stats.emulated {
        let _ = writeln!(
            text,
            "\nGPUs are emulated ({}), their kernels' time is modelled: no SM activity, power and energy is reported.",
            fit(spec, 40)
        );
    }
    print(&text)
}

/// Figures of jobs with their names.
pub(super) fn figures(stats: &StatsRow) -> Vec<(&'static str, String)> {
    let succeeded = match stats.refused {
        0 => stats.succeeded.to_string(),
        refused => format!("{} ({refused} after a refused request for GPU memory)", stats.succeeded),
    };
    let mut figures = vec![
        ("jobs that are over", stats.jobs.to_string()),
        ("  succeeded", succeeded),
        ("  failed", stats.failed.to_string()),
        ("  cancelled", stats.cancelled.to_string()),
        ("out-of-memory crashes", stats.ooms.to_string()),
        ("trace total time", time(stats.makespan_ms)),
        ("mean waiting time", time(stats.mean_wait_ms as u64)),
        ("mean execution time", time(stats.mean_execution_ms as u64)),
        ("mean completion time", time(stats.mean_completion_ms as u64)),
    ];
    let energy: Vec<f64> = stats.gpus.iter().filter_map(|gpu| gpu.energy_mj).collect();
    if !energy.is_empty() {
        let sum = format!("{:.3} MJ", energy.iter().sum::<f64>());
        figures.push(match (energy.len(), stats.gpus.len()) {
            (some, all) if some < all => {
                ("energy", format!("{sum} of the {some} of {all} GPUs that report it"))
            }
            _ => ("energy of all GPUs", sum),
        });
    }
    figures
}

/// A GPU, its mean memory, SM activity and power, and its energy.
pub(super) fn gpu_cells(gpu: &GpuStats) -> [String; 5] {
    let cell = |value: Option<f64>, unit: &str, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    let mut smact = cell(gpu.mean_smact.map(|part| part * 100.0), "%", 1);
    if gpu.mean_smact.is_some() && gpu.smact_samples < gpu.samples {
        // The other means are over all of the time.
        let known = gpu.smact_samples as f64 / gpu.samples as f64 * 100.0;
        let _ = write!(smact, " (known {known:.0}% of the time)");
    }
    [
        gpu.gpu.clone(),
        bytes(gpu.mean_used as u64),
        smact,
        cell(gpu.mean_power_w, " W", 0),
        cell(gpu.energy_mj, " MJ", 3),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_or_a_sum_of_a_part_names_the_part() {
        let gpu =
            GpuStats { samples: 400, mean_smact: Some(0.25), smact_samples: 100, ..GpuStats::default() };
        assert_eq!(gpu_cells(&gpu)[2], "25.0% (known 25% of the time)");
        assert_eq!(gpu_cells(&GpuStats { smact_samples: 400, ..gpu.clone() })[2], "25.0%");
        assert_eq!(gpu_cells(&GpuStats { mean_smact: None, smact_samples: 0, ..gpu.clone() })[2], "-");
        let metered = GpuStats { energy_mj: Some(1.5), ..gpu.clone() };
        let energy = |gpus| figures(&StatsRow { gpus, ..StatsRow::default() }).pop().unwrap();
        assert_eq!(
            energy(vec![metered.clone(), gpu]),
            ("energy", "1.500 MJ of the 1 of 2 GPUs that report it".into())
        );
        assert_eq!(energy(vec![metered]), ("energy of all GPUs", "1.500 MJ".into()));
    }
}
