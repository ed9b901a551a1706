//! `cargo xtask gpu`: one folder that checks everything on a machine with a GPU, without Rust and without a
//! network, and what becomes of its results.

mod bundle;
pub mod figures;
mod keep;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{shell, venv};

/// Options of `gpu`.
#[derive(clap::Args)]
pub struct Flags {
    /// Run the bundle here, on emulated GPUs.
    #[arg(long, value_name = "GPU", num_args = 0..=1, default_missing_value = "1xH100-80GB", require_equals = true)]
    emulate: Option<String>,
    /// Run the bundle here, on this machine's GPU.
    #[arg(long, conflicts_with = "emulate")]
    run: bool,
    /// Run less of everything.
    #[arg(long)]
    short: bool,
    /// Run only these steps, by name, with commas.
    #[arg(long, value_name = "STEP,...")]
    only: Option<String>,
    /// Folder of the bundle; what is there is replaced.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Folder of a run's results.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take what `cargo build` made, in a bundle beside the other.
    #[arg(long)]
    debug: bool,
    /// Build nothing: take the files that are there.
    #[arg(long)]
    no_build: bool,
    /// Build nothing: keep the results in DIR, of a run on a real GPU, in bench/gpu, and let README tell them.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["emulate", "run"])]
    keep: Option<PathBuf>,
}

/// Assembles the bundle; runs it, or keeps results.
pub fn run(flags: &Flags) -> Result<()> {
    let root = shell::root();
    if let Some(results) = &flags.keep {
        let kept = keep::keep(&root, results)?;
        println!("kept in {}; README tells it", kept.display());
        return Ok(());
    }
    let folder = bundle::assemble(&bundle::Build {
        profile: if flags.debug { "debug" } else { "release" },
        is_built: flags.no_build,
        with_emulator: flags.emulate.is_some(),
        folder: flags.bundle.as_deref().map(std::path::absolute).transpose()?,
    })?;
    if !flags.run && flags.emulate.is_none() {
        let shown = folder.strip_prefix(&root).unwrap_or(&folder).display();
        println!("On a machine with a GPU, in a copy of this folder: bash {shown}/run.sh OUT");
        println!("then, with OUT back here: cargo xtask gpu --keep OUT");
        return Ok(());
    }
    let out = match &flags.out {
        Some(out) => std::path::absolute(out)?,
        None => shell::target_dir().join("gpu-results"),
    };
    let mut command = shell::command("bash");
    command.arg(folder.join("run.sh")).arg(&out);
    if let Some(gpu) = &flags.emulate {
        let libraries = shell::target_dir().join(if flags.debug { "debug" } else { "release" });
        command.args(["--emulate", gpu]).arg("--libraries").arg(libraries);
        // Without a GPU nothing is measured, and a slow machine may take its time.
        command.args(["--budget", "1500"]);
        let [jax, cupy, _] = &venv::FRAMEWORKS;
        for (variable, environment) in [
            ("RADRM_GPU_PYTHON", &venv::CLIENTS),
            ("RADRM_GPU_TORCH_PYTHON", &venv::TORCH),
            ("RADRM_GPU_JAX_PYTHON", jax),
            ("RADRM_GPU_CUPY_PYTHON", cupy),
        ] {
            if let Some(python) = venv::made(environment) {
                command.env(variable, python);
            }
        }
    }
    if flags.short {
        command.arg("--short");
    }
    if let Some(only) = &flags.only {
        command.args(["--only", only]);
    }
    let ended = shell::run(&mut command);
    println!("results: {}", out.display());
    if ended.is_err() && !out.join("result.json").is_file() {
        bail!("the run left no results");
    }
    ended.context("a step failed")
}
