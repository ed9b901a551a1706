//! Writing for people who may have stopped reading.
//!
//! A closed or broken standard stream never changes how a program ends: what
//! cannot be written is dropped.

use std::io::{self, Write};
use std::sync::OnceLock;

/// Whether a text reached its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// All of it was handed to the system.
    Complete,
    /// The reader is gone: the pipe is broken or the stream is closed.
    Closed,
}

/// Writes `text` to standard error; a stream that is closed or broken is no error.
pub fn to_stderr(text: &str) -> Delivery {
    // One locked handle, no buffer: what is written here stands even if the
    // process is killed right after.
    let mut err = io::stderr().lock();
    match err.write_all(text.as_bytes()).and_then(|()| err.flush()) {
        Ok(()) => Delivery::Complete,
        Err(_) => Delivery::Closed,
    }
}

/// Writes `text` to standard output.
///
/// # Errors
/// Everything but a broken pipe, which is a reader who has seen enough.
pub fn to_stdout(text: &str) -> io::Result<Delivery> {
    bytes_to_stdout(text.as_bytes())
}

/// Writes what is no text to standard output.
///
/// # Errors
/// As for [`to_stdout`].
pub fn bytes_to_stdout(bytes: &[u8]) -> io::Result<Delivery> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Delivery::Complete),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Delivery::Closed),
        Err(error) => Err(error),
    }
}

/// How important a line is, in syslog's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// The program cannot do its work.
    Error = 3,
    /// It works, and somewhat differs from what was asked for.
    Warning = 4,
    /// It works.
    Info = 6,
}

/// One line on standard error that begins with the program's name: a warning.
pub fn say(program: &str, line: &str) {
    log(Priority::Warning, program, line);
}

/// As [`say`], with its priority in the form that journald reads, where standard error is its stream.
pub fn log(priority: Priority, program: &str, line: &str) {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let mark = match IS_JOURNAL.get_or_init(is_journal) {
        true => format!("<{}>", priority as u8),
        false => String::new(),
    };
    to_stderr(&format!("{mark}{program}: {line}\n"));
}

/// Whether standard error is the stream that `JOURNAL_STREAM` names by device and inode, see systemd.exec(5). Children
/// inherit the variable also where their standard error is another one.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let found = rustix::fs::fstat(io::stderr()).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    !named.is_empty() && found.is_ok_and(|found| found == named)
}

/// Columns of a terminal, 100 for anything else, within what can be read.
#[must_use]
pub fn width(stream: impl std::os::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).clamp(60, 160),
        _ => 100,
    }
}
