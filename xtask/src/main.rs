//! Developer commands, run as `cargo xtask COMMAND`.

mod aarch64;
mod bench;
mod debian;
mod demo;
mod fuzz;
mod genuine;
mod models;
mod peers;
mod published;
mod test;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::{gpu, shell, venv};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of this workspace")]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything and run all tests; the last lines are the test runner's summary.
    Test(test::Flags),
    /// Run a small GPU program on two emulated GPUs and show what is recorded of it.
    Demo(demo::Flags),
    /// Build everything for AArch64 and run unit tests under qemu-user.
    Aarch64(aarch64::Flags),
    /// Measure what the shim costs per call and write bench/RESULTS.md.
    Bench(bench::Flags),
    /// Learn clock/data/clock.json from published measurements (train), or print how far off it is (evaluate, report, table).
    #[command(disable_help_flag = true)]
    Clock(Passed),
    /// Make packages in target/dist: a tarball, a wheel, a .deb, an .rpm, checksums.
    #[command(disable_help_flag = true)]
    Dist(Passed),
    /// Build the book in target/book from docs, the command lines and the types of the configuration.
    #[command(disable_help_flag = true)]
    Docs(Passed),
    /// Feed every parser of untrusted bytes with damaged input; `--seconds 3600` for an hour.
    Fuzz(fuzz::Flags),
    /// Fetch NVIDIA's driver libraries and compare the shim and the emulator with them.
    Genuine(genuine::Flags),
    /// Run other projects' test suites with and without the shim and write bench/PEERS.md.
    Peers(peers::Flags),
    /// Dry-run programs whose memory others published, and write bench/PUBLISHED.md.
    Published(published::Flags),
    /// Make the bundle that checks everything on a machine with a GPU; run it; keep its results.
    Gpu(gpu::Flags),
    /// Dry runs of well-known models: the table in docs/dry-run-accuracy.md.
    Models(models::Flags),
    /// Check the conventions that no compiler checks.
    #[command(disable_help_flag = true)]
    Tidy(Passed),
    /// Make the Python environments of the client tests in target.
    Venv(venv::Flags),
}

/// Arguments of a command that is a package of its own.
#[derive(clap::Args)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Passed {
    /// Builds the package and runs the command.
    fn run(&self, package: &str) -> Result<()> {
        self.cargo_run(&["--package", package])
    }

    /// Builds an example of a package and runs it.
    fn example(&self, package: &str, example: &str) -> Result<()> {
        self.cargo_run(&["--package", package, "--example", example])
    }

    fn cargo_run(&self, what: &[&str]) -> Result<()> {
        shell::run(shell::cargo().args(["run", "--quiet"]).args(what).arg("--").args(&self.arguments))
    }
}

fn main() -> ExitCode {
    let done = match Flags::parse().command {
        Command::Test(flags) => test::run(&flags),
        Command::Demo(flags) => demo::run(&flags),
        Command::Aarch64(flags) => aarch64::run(&flags),
        Command::Bench(flags) => bench::run(&flags),
        Command::Clock(flags) => flags.example("radrm-clock", "clock"),
        Command::Dist(flags) => flags.run("xtask-dist"),
        Command::Docs(flags) => flags.run("xtask-docs"),
        Command::Fuzz(flags) => fuzz::run(&flags),
        Command::Genuine(flags) => genuine::run(&flags),
        Command::Peers(flags) => peers::run(&flags),
        Command::Published(flags) => published::run(&flags),
        Command::Gpu(flags) => gpu::run(&flags),
        Command::Models(flags) => models::run(&flags),
        Command::Tidy(flags) => flags.run("xtask-tidy"),
        Command::Venv(flags) => venv::run(&flags).map(|python| match python {
            Some(python) => println!("{}", python.display()),
            None => println!("there are no requirements to install"),
        }),
    };
    xtask::exit_code(done)
}
