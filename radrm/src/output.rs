//! Printing of every command, and the name in its messages.

use radrm_text::output::{self, Delivery};

use crate::error::Failure;

/// The program's name in messages.
pub const NAME: &str = "radrm";

/// Prints to standard output; a reader who stopped reading is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    deliver(text).map(|_| ())
}

/// Prints a part, and returns whether the reader is still there.
pub(crate) fn deliver(text: &str) -> Result<Delivery, Failure> {
    output::to_stdout(text).map_err(Failure::Output)
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}
