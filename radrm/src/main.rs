//! `radrm`: shows what was recorded of GPU programs.

use std::process::ExitCode;

use radrm::output;
use radrm::show::cli::{self, Instead};
use radrm::show::{self, NAME};

/// The command line is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
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
