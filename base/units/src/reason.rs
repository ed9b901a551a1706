//! Errors of the system in words.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::fmt::Display;

/// The system's words for an error, without its number.
#[must_use]
pub fn reason(error: &impl Display) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_number_of_an_error_is_left_out() {
        assert_eq!(reason(&"No such file or directory (os error 2)"), "No such file or directory");
        assert_eq!(reason(&"timed out"), "timed out");
    }
}
