//! Measures what the shim costs, against the instant driver alone and under the pass-through shim.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use radrm_preload_tests::bench::{Plan, measure, table};

/// Measures what the shim costs per call and per process, beside no shim and a shim that only
/// forwards, all in one run.
#[derive(Parser)]
struct Cli {
    /// File for the table; standard output without it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Few and short rounds: shows that everything works, says little about time.
    #[arg(long)]
    quick: bool,
    /// Rounds; the more, the less the machine's other work is seen.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..))]
    rounds: Option<u16>,
}

/// From this heading on, a table holds what other commands measured: it is taken over as it is.
const KEPT: &str = "\n## Measured by other commands\n";

fn kept(table: &str) -> Option<&str> {
    table.find(KEPT).and_then(|at| table.get(at..))
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let mut plan = if cli.quick { Plan::quick() } else { Plan::full() };
    plan.alternations = cli.rounds.map_or(plan.alternations, usize::from);
    let figures = measure(&plan)?;
    figures.check(&plan)?;
    let text = table(&plan, &figures);
    match cli.out {
        Some(path) => {
            let path = if path.is_absolute() {
                path
            } else {
                radrm_preload_tests::artifacts::workspace().join(path)
            };
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let kept = fs::read_to_string(&path).ok().and_then(|old| kept(&old).map(str::to_owned));
            fs::write(&path, text + kept.as_deref().unwrap_or_default())
                .with_context(|| path.display().to_string())?;
            eprintln!("wrote {}", path.display());
        }
        None => print!("{text}"),
    }
    Ok(())
}
