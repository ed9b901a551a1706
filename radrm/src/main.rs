//! `radrm`: shows what was recorded of GPU programs, and asks the daemon.

use std::process::ExitCode;

use radrm::{NAME, cli};
use radrm_console::usage;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(flags) => radrm::run(flags),
        Err(instead) => usage::end(instead, NAME, "radrm --help"),
    }
}
