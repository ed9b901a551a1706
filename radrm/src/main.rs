//! `radrm`: shows what was recorded of GPU programs, and speaks with the daemon.

use std::process::ExitCode;

use radrm::show::{self, cli};
use radrm::{NAME, client};
use radrm_console::usage;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if client::is_ours(&arguments) {
        return client::main(arguments);
    }
    match cli::parse(arguments) {
        Ok(command) => ExitCode::from(u8::try_from(show::run(&command)).unwrap_or(1)),
        Err(instead) => usage::end(instead, NAME, "radrm --help"),
    }
}
