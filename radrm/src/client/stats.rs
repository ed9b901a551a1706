//! `radrm stats`: the metrics by which schedulers are compared.

use std::fmt::Write;

use clap::Args;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::wire::{Request, Response};
use radrm_text::{Table, fit, left, right};

use super::text::{bytes, span, time};
use crate::{Failure, print, print_json};

#[derive(Args, Debug)]
pub struct Flags {
    /// Jobs of all users (administrators)
    #[arg(long)]
    all: bool,
    /// Only jobs that ended in this time until now: 30m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = span)]
    since: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(flags: &Flags, connection: &mut Connection) -> Result<(), Failure> {
    let since_ms = flags.since.map_or(0, |span| radrm_os::time::epoch_ms().saturating_sub(span));
    let stats = match connection.ask(&Request::Stats { all: flags.all, since_ms })? {
        Response::Stats(stats) => *stats,
        other => return Err(odd(&other).into()),
    };
    if flags.json {
        return print_json(&stats);
    }
    let mut text = String::new();
    let succeeded = match stats.refused {
        0 => stats.succeeded.to_string(),
        refused => format!("{} ({refused} after a refused request for GPU memory)", stats.succeeded),
    };
    for (name, value) in [
        ("jobs that are over", stats.jobs.to_string()),
        ("  succeeded", succeeded),
        ("  failed", stats.failed.to_string()),
        ("  cancelled", stats.cancelled.to_string()),
        ("out-of-memory crashes", stats.ooms.to_string()),
        ("trace total time", time(stats.makespan_ms)),
        ("mean waiting time", time(stats.mean_wait_ms as u64)),
        ("mean execution time", time(stats.mean_execution_ms as u64)),
        ("mean completion time", time(stats.mean_completion_ms as u64)),
    ] {
        let _ = writeln!(text, "{name:<24} {value}");
    }
    let energy: Vec<f64> = stats.gpus.iter().filter_map(|gpu| gpu.energy_mj).collect();
    if !energy.is_empty() {
        let _ = writeln!(text, "{:<24} {:.3} MJ", "energy of all GPUs", energy.iter().sum::<f64>());
    }
    let cell = |value: Option<f64>, unit: &str, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    let mut columns = vec![left("GPU")];
    columns.extend(["MEAN MEMORY", "MEAN SMACT", "MEAN POWER", "ENERGY"].map(right));
    let mut table = Table::new(columns);
    for gpu in &stats.gpus {
        table.row([
            gpu.gpu.clone(),
            bytes(gpu.mean_used as u64),
            cell(gpu.mean_smact.map(|part| part * 100.0), "%", 1),
            cell(gpu.mean_power_w, " W", 0),
            cell(gpu.energy_mj, " MJ", 3),
        ]);
    }
    if !table.is_empty() {
        let _ = write!(text, "\n{table}");
    }
    if let Some(spec) = &stats.emulated {
        let _ = writeln!(
            text,
            "\nGPUs are emulated ({}), their kernels' time is modelled: no SM activity, power and energy is reported.",
            fit(spec, 40)
        );
    }
    print(&text)
}
