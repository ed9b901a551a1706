//! Command lines that ask for no work: for help, or for something that there is not.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::output;
use crate::run::cli::{Instead, explain};

/// The command line is wrong.
pub const WRONG: u8 = 2;

/// The flags of a command line, the program's own name first. `more` is the command that explains them.
///
/// # Errors
/// How the program ends without them, all being said.
pub fn flags<F: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    program: &str,
    more: &str,
) -> Result<F, ExitCode> {
    F::try_parse_from(arguments).map_err(|error| end(explain(&error), program, more))
}

/// Says what is to be said instead, and gives the exit code.
#[must_use]
pub fn end(instead: Instead, program: &str, more: &str) -> ExitCode {
    match instead {
        Instead::Print(text) => match output::to_stdout(&text) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                output::say(program, &format!("standard output cannot be written: {error}"));
                ExitCode::FAILURE
            }
        },
        Instead::Wrong(sentence) => {
            output::say(program, &format!("{sentence} ({more} tells more)"));
            ExitCode::from(WRONG)
        }
    }
}
