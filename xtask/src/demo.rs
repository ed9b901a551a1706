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

/// Packages that are optimized for what tests do with them, and of which the demonstration does little: that would be half
/// of the build's processor time. The first build of the tests makes them anew.
const UNOPTIMIZED: [&str; 10] = [
    "radrm-scheduler-core",
    "radrm-estimator",
    "radrm-clock",
    "radrm-lab",
    "radrm-symbols",
    "radrm-emulator-machine",
    "radrm-emulator-driver",
    "object",
    "addr2line",
    "gimli",
];

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
