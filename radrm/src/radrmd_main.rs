//! `radrmd`: runs GPU jobs of several users on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    radrm_daemon::main(std::env::args_os())
}
