//! Writing for people who may have stopped reading.
//!
//! A closed or broken standard stream never changes how a program ends: what
//! cannot be written is dropped.

use std::io::{self, Write};

/// Whether a text reached its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// All of it was handed to the system.
    Complete,
    /// The reader is gone: the pipe is broken or the stream is closed.
    NobodyReads,
}

/// Writes `text` to standard error; a stream that is closed or broken is no error.
pub fn to_stderr(text: &str) -> Delivery {
    // One locked handle, no buffer: what is written here stands even if the
    // process is killed right after.
    let mut err = io::stderr().lock();
    match err.write_all(text.as_bytes()).and_then(|()| err.flush()) {
        Ok(()) => Delivery::Complete,
        Err(_) => Delivery::NobodyReads,
    }
}

/// Writes `text` to standard output.
///
/// # Errors
/// Everything but a broken pipe, which is a reader who has seen enough.
pub fn to_stdout(text: &str) -> io::Result<Delivery> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Delivery::Complete),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Delivery::NobodyReads),
        Err(error) => Err(error),
    }
}

/// One line on standard error that begins with the program's name.
pub fn say(program: &str, line: &str) {
    to_stderr(&format!("{program}: {line}\n"));
}

/// The system's words for an error, without its number.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Columns of a terminal, 100 for anything else, within what can be read.
#[must_use]
pub fn width(stream: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).clamp(60, 160),
        _ => 100,
    }
}
