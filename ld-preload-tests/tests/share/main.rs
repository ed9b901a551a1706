//! `radrm.share` with real processes: several trainings, kills at any moment, other users.

mod cases;
mod gpu;
mod jobs;
mod kills;
mod unmodified;
mod users;

use std::path::Path;
use std::process::Command;

use radrm_preload_tests::{artifacts, python};

/// Seconds after which a process is taken to hang.
const PATIENCE: u64 = 300;

/// A program of `clients/` in a runtime folder of its own; none where there is no interpreter.
fn program(runtime: &Path, script: &str, words: &[&str]) -> Option<Command> {
    Some(program_of(&python::interpreter()?, runtime, script, words))
}

/// The same for an interpreter.
fn program_of(python: &Path, runtime: &Path, script: &str, words: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.arg(python::script(script)).args(words);
    artifacts::file("libradrm_share.so");
    command.env("RADRM_LIB_DIR", artifacts::directory()).env("XDG_RUNTIME_DIR", runtime);
    command.env("PYTHONPATH", artifacts::workspace().join("contrib/python")).env_remove("LD_PRELOAD");
    command
}
