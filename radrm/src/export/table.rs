//! `radrm export csv` and `radrm export parquet`.

use std::path::PathBuf;

use clap::Args;
use radrm_export::Run;
use radrm_export::table::{Table, TableError};
use radrm_launcher::report_file;
use radrm_text::output::bytes_to_stdout;

use super::chosen::Files;
use crate::error::UsageError;
use crate::{Failure, print};

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    files: Files,
    /// A row for each point of a curve: GPU memory, utilization and power over time
    #[arg(long)]
    curves: bool,
    /// The file [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Writes a table.
pub(super) fn run(flags: &Flags, encode: fn(&Table) -> Result<Vec<u8>, TableError>) -> Result<(), Failure> {
    let out = flags.output.as_deref().filter(|out| out.as_os_str() != "-");
    if let Some(out) = out {
        report_file::spares_profile(out).map_err(UsageError::Overwrites)?;
    }
    let runs = flags.files.chosen()?.into_iter().map(|chosen| Ok(chosen.read()?.run));
    let runs = runs.collect::<Result<Vec<Run>, Failure>>()?;
    let table = if flags.curves { Table::of_curves(&runs) } else { Table::of_runs(&runs) };
    let bytes = encode(&table)?;
    match out {
        None => bytes_to_stdout(&bytes).map(|_| ()).map_err(Failure::Output),
        Some(out) => {
            report_file::write(out, bytes)?;
            print(&format!("{}\n", out.display()))
        }
    }
}
