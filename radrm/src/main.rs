//! `radrm`: shows what was recorded of GPU programs, and asks the daemon.

use std::process::ExitCode;

use radrm::{NAME, cli, overview};
use radrm_text::usage;

fn main() -> ExitCode {
    let help = || overview::help_of(cli::command(), std::env::args_os());
    match cli::parse(std::env::args_os()) {
        Ok(flags) => radrm::run(flags, help),
        Err(instead) => usage::end(instead, NAME, &help()),
    }
}
