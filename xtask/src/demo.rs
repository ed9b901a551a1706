//! `cargo xtask demo`: the whole path, from an unchanged program to the picture of its memory.

use anyhow::Result;

use xtask::shell;

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

/// Packages of the demonstration: the programs and the libraries that they load.
const PACKAGES: [&str; 4] = ["radrm", "radrm-shim", "radrm-emulator-driver", "radrm-emulator-nvml"];

/// Packages that the demonstration hardly runs, and whose tests are the reason that they are optimized: that would be a good
/// part of the build.
const UNOPTIMIZED: [&str; 3] = ["radrm-scheduler-core", "radrm-estimator", "radrm-lab"];

/// Builds, and runs `radrm demo`.
pub fn run(flags: &Flags) -> Result<()> {
    let mut build = shell::cargo();
    build.args(["build", "--quiet"]);
    for package in PACKAGES {
        build.args(["-p", package]);
    }
    for package in UNOPTIMIZED {
        build.args(["--config", &format!("profile.dev.package.{package}.opt-level=0")]);
    }
    shell::run(&mut build)?;
    let mut demo = shell::command(shell::target_dir().join("debug/radrm"));
    demo.arg("demo").arg("--folder").arg(shell::target_dir().join("demo"));
    match flags.real {
        true => demo.arg("--real"),
        false => demo.args(["--emulate", &flags.emulate]),
    };
    shell::run(&mut demo)
}
