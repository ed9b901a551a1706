//! `radrm-run`: runs a program and records what it does with the GPUs.
//!
//! The entry point is C's `main`: Rust's own start-up would ignore SIGPIPE and fill closed
//! standard streams, and the program to be watched has to find both as they were.
#![no_main]

use std::ffi::{OsString, c_char, c_int};
use std::panic;
use std::process;

use radrm_launcher::NAME;
use radrm_launcher::cli;
use radrm_launcher::dry_run::need::AskNode;
use radrm_launcher::ending;
use radrm_launcher::inherited::Inherited;
use radrm_launcher::later;
use radrm_launcher::own_stack;
use radrm_launcher::session::{self, End};
use radrm_text::output;
use radrm_text::usage::Instead;

/// Called by the C library's start-up code.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    match own_stack::run(|| panic::catch_unwind(whole)) {
        Ok(End::Like(ending)) => ending.imitate(),
        Ok(End::Code(code)) => process::exit(code),
        Err(_) => process::exit(ending::FAILED),
    }
}

fn whole() -> End {
    panic::set_hook(Box::new(|what| output::say(NAME, &format!("internal error: {what}"))));
    // Allocates first: a preloaded leak checker initialises itself then, and not at the first call for signals.
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let inherited = match Inherited::take() {
        Ok(inherited) => inherited,
        Err(error) => {
            output::say(NAME, &format!("the signal state cannot be read: {error}"));
            return End::Code(ending::FAILED);
        }
    };
    let arguments = match later::complete(arguments) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return End::Code(0),
        Err(error) => {
            output::say(NAME, &format!("its command line is not complete: {error}"));
            return End::Code(ending::FAILED);
        }
    };
    match cli::parse(arguments) {
        Ok(mut plan) => {
            plan.node = Some(AskNode(radrm::need_by_node));
            session::run(&plan, &inherited)
        }
        Err(Instead::Print(text)) => match output::to_stdout(&text) {
            Ok(_) => End::Code(0),
            Err(error) => {
                output::say(NAME, &format!("standard output cannot be written: {error}"));
                End::Code(ending::FAILED)
            }
        },
        Err(Instead::Wrong(sentence)) => {
            output::say(NAME, &format!("{sentence} (see `radrm-run --help`)"));
            End::Code(ending::FAILED)
        }
    }
}
