//! Shared parts of the developer commands.
//! A command that needs large crates is a package of its own, so that the others do not wait for its build.

pub mod files;
pub mod glibc;
pub mod gpu;
pub mod pages;
pub mod shell;
pub mod sources;
pub mod venv;

use std::process::{Command, ExitCode};

use anyhow::Result;

/// Exit code of a developer command; prints its error.
pub fn exit_code(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command that checks all packages with clippy, which also rejects an unsafe block without its reason.
#[must_use]
pub fn clippy() -> Command {
    let mut command = shell::cargo();
    command.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    command
}
