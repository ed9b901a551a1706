//! Runs small CUDA programs through cudarc: known work for profiles, tests and calibration.
//!
//! `radrm-kernels list` names them; `radrm-kernels run NAME...` runs them on one GPU, real or
//! emulated, and checks their results where kernels really execute.

mod code;
mod known;
mod nvrtc;
mod say;
mod size;
mod work;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};

use crate::{known::Checked, nvrtc::Nvrtc, size::Size, work::PROGRAMS};

#[derive(Parser)]
#[command(
    name = "radrm-kernels",
    about = "Runs small CUDA programs: known work for profiles, tests and calibration",
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
        /// Prints what was done as JSON, one object in a line: first the GPU, then each program's work as it
        /// is known exactly (launches, blocks, threads, operations, bytes) and its measured times.
        #[arg(long)]
        json: bool,
        /// Fails where kernels do not execute.
        #[arg(long)]
        must_execute: bool,
    },
    /// Prints the kernels as PTX, compiled by NVRTC.
    Ptx {
        /// Target of the code.
        #[arg(default_value = "compute_50")]
        target: String,
    },
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
        Command::Run { names, size, json, must_execute } => {
            let all = names.iter().any(|n| n == "all");
            for name in names.iter().filter(|n| *n != "all") {
                if !PROGRAMS.iter().any(|p| p.name == name) {
                    bail!("there is no program `{name}`; `radrm-kernels list` names them");
                }
            }
            let gpu = code::Gpu::open(size.device)?;
            let name = gpu.context.name()?;
            if json {
                println!("{}", serde_json::json!({ "gpu": name, "kernels_from": gpu.origin.to_string() }));
            } else {
                println!("{name} (kernels from {})", gpu.origin);
            }
            for program in PROGRAMS.iter().filter(|p| all || names.iter().any(|n| n == p.name)) {
                let known = (program.run)(&gpu, size).with_context(|| program.name.to_owned())?;
                if json {
                    println!("{}", serde_json::to_string(&known)?);
                } else {
                    println!("{}: {}", program.name, say::in_words(&known));
                }
                ensure!(
                    !must_execute || known.checked != Checked::NotExecuted,
                    "{}: kernels do not execute on this GPU",
                    program.name
                );
            }
            Ok(())
        }
        Command::Ptx { target } => {
            ensure!(target.starts_with("compute_"), "PTX is for compute_50, compute_90..., not {target}");
            let nvrtc = Nvrtc::find()?.context("there is no NVRTC here (RADRM_NVRTC names one)")?;
            let ptx = nvrtc.compile(code::SOURCE, &target)?;
            println!("{}", String::from_utf8_lossy(&ptx).trim_end());
            Ok(())
        }
    }
}
