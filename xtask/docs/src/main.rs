//! `cargo xtask docs`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    xtask::exit_code(xtask_docs::run(&xtask_docs::Flags::parse()))
}
