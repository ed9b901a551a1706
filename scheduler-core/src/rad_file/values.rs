//! Values of lines that several forms have.

use super::RadError;
use super::file::wrong;

/// A set-up or command line that the shell would read on after its end.
pub(super) fn one_line(at: usize, line: &str) -> Result<(), RadError> {
    if line.ends_with('\\') {
        return wrong(at, "a set-up and a command have one line each, and this one ends in a backslash");
    }
    Ok(())
}

pub(super) fn policy(line: usize, value: &str) -> Result<bool, RadError> {
    match value {
        "exclusive" => Ok(true),
        "collocation" | "collocate" => Ok(false),
        other => wrong(line, format!("the policy is \"{other}\"; there are exclusive and collocation")),
    }
}

pub(super) fn batch(line: usize, value: &str) -> Result<u32, RadError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => wrong(line, format!("the batch size is \"{value}\", which is not a whole number above 0")),
    }
}
