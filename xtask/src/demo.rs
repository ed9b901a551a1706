//! `cargo xtask demo`: the whole path, from an unchanged program to the picture of its memory.

use std::fs;

use anyhow::{Context, Result};

use crate::shell;

/// Options of `demo`.
#[derive(clap::Args)]
pub struct Flags {
    /// Emulated GPUs, as `radrm-run --emulate` takes them.
    #[arg(long, default_value = "2xH200")]
    emulate: String,
    /// Use the GPUs of this machine instead.
    #[arg(long)]
    real: bool,
}

/// What the demonstration is built of: the programs and the libraries that they load.
const PACKAGES: [&str; 4] = ["radrm", "radrm-shim", "radrm-emulator-driver", "radrm-emulator-nvml"];

/// Builds, compiles a small C program, watches it, and writes what was seen.
pub fn run(flags: &Flags) -> Result<()> {
    let mut build = shell::cargo();
    build.args(["build", "--quiet"]);
    for package in PACKAGES {
        build.args(["-p", package]);
    }
    shell::run(&mut build)?;

    let programs = shell::target_dir().join("debug");
    let folder = shell::target_dir().join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    let train = folder.join("train");
    let source = shell::root().join("xtask/demo/train.c");
    shell::run(shell::command("gcc").args(["-O1", "-Wall", "-o"]).arg(&train).arg(source).arg("-ldl"))?;

    let profile = folder.join("train.radrm");
    let page = folder.join("train.html");
    let mut watched = shell::command(programs.join("radrm-run"));
    watched.arg("--timeline").arg("-o").arg(&profile).arg("--dataset").arg(folder.join("dataset.db"));
    if !flags.real {
        watched.args(["--emulate", &flags.emulate]);
    }
    shell::run(watched.arg("--").arg(&train))?;
    shell::run(
        shell::command(programs.join("radrm"))
            .arg("report")
            .arg(&profile)
            .arg(format!("--html={}", page.display())),
    )?;
    println!();
    println!("The profile:   {}", profile.display());
    println!("The same page: {}", page.display());
    Ok(())
}
