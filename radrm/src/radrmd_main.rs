//! `radrmd`: runs GPU jobs of several users on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    radrm::daemon::main(std::env::args_os())
}
