//! Runs small CUDA programs through cudarc: known work for profiles, tests and calibration.
//!
//! `radrm-kernels list` names them; `radrm-kernels run NAME...` runs them on one GPU, real or
//! emulated, and checks their results where kernels really execute.

mod code;
mod work;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::work::PROGRAMS;

#[derive(Parser)]
#[command(
    name = "radrm-kernels",
    about = "Runs small CUDA programs: known work for profiles and tests",
    version
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Names the programs.
    List,
    /// Runs programs one after the other.
    Run {
        /// Programs to run; `all` means all of them.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        size: Size,
    },
}

/// How much a program does.
#[derive(Args, Clone, Copy)]
pub struct Size {
    /// GPU to run on.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Memory that a program takes at its most, in MiB, roughly.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Launches or allocations that a program makes.
    #[arg(long, default_value_t = 100)]
    rounds: usize,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("radrm-kernels: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::parse().command {
        Command::List => {
            for program in PROGRAMS {
                println!("{:<8} {}", program.name, program.about);
            }
            Ok(())
        }
        Command::Run { names, size } => {
            let all = names.iter().any(|n| n == "all");
            for name in names.iter().filter(|n| *n != "all") {
                if !PROGRAMS.iter().any(|p| p.name == name) {
                    bail!("there is no program `{name}`; `radrm-kernels list` names them");
                }
            }
            let gpu = code::Gpu::open(size.device)?;
            println!("{} (kernels from {})", gpu.context.name()?, gpu.origin);
            for program in PROGRAMS.iter().filter(|p| all || names.iter().any(|n| n == p.name)) {
                let said = (program.run)(&gpu, size).with_context(|| program.name.to_owned())?;
                println!("{}: {said}", program.name);
            }
            Ok(())
        }
    }
}
