//! `radrm`: shows what was recorded of GPU programs, and speaks with the daemon.

use std::process::ExitCode;

use radrm::client;
use radrm::output;
use radrm::show::cli::{self, Instead};
use radrm::show::{self, NAME};

/// The command line is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if client::is_ours(&arguments) {
        return client::main(arguments);
    }
    match cli::parse(arguments) {
        Ok(command) => ExitCode::from(u8::try_from(show::run(&command)).unwrap_or(1)),
        Err(Instead::Print(text)) => match output::to_stdout(&text) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                output::say(NAME, &format!("standard output cannot be written: {error}"));
                ExitCode::FAILURE
            }
        },
        Err(Instead::Wrong(sentence)) => {
            output::say(NAME, &format!("{sentence} (radrm --help tells more)"));
            ExitCode::from(USAGE)
        }
    }
}
