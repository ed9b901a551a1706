//! Writing for people who may have stopped reading.
//!
//! A closed or broken standard stream never changes how a program ends: what
//! cannot be written is dropped.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;

use crate::printable;

/// Outcome of writing a text to its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// All of it was handed to the system.
    Complete,
    /// The reader is gone: the pipe is broken or the stream is closed.
    Closed,
}

/// Writes `text` to standard error, [`printable`]; a stream that is closed or broken is not an error.
pub fn to_stderr(text: &str) -> Delivery {
    screen_to_stderr(&printable(text))
}

/// As [`to_stderr`], with the sequences of a program that draws: no text of others is in it that did not pass
/// [`crate::fit`] or [`crate::clean`].
pub fn screen_to_stderr(text: &str) -> Delivery {
    // One locked handle, no buffer: what is written here stands even if the
    // process is killed right after.
    let mut err = io::stderr().lock();
    match err.write_all(text.as_bytes()).and_then(|()| err.flush()) {
        Ok(()) => Delivery::Complete,
        Err(_) => Delivery::Closed,
    }
}

/// Writes `text` to standard output, [`printable`].
///
/// # Errors
/// Everything but a broken pipe, which is a reader who has seen enough.
pub fn to_stdout(text: &str) -> io::Result<Delivery> {
    bytes_to_stdout(printable(text).as_bytes())
}

/// As [`to_stdout`], with the sequences of a program that draws: no text of others is in it that did not pass
/// [`crate::fit`] or [`crate::clean`].
///
/// # Errors
/// As for [`to_stdout`].
pub fn screen_to_stdout(text: &str) -> io::Result<Delivery> {
    bytes_to_stdout(text.as_bytes())
}

/// Draws the first `most` lines of a text over the last ones, line by line so that nothing flickers, and removes what is
/// left of them.
///
/// # Errors
/// As for [`to_stdout`].
pub fn redraw(text: &str, most: usize) -> io::Result<Delivery> {
    let lines: Vec<_> = text.lines().take(most).map(printable).collect();
    screen_to_stdout(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n")))
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

/// Priority of a line, in syslog's numbers.
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
    let mut text = format!("{mark}{program}: ");
    for (at, part) in line.split('\n').enumerate() {
        // A further line stands back, so that a text of others is no message of its own.
        let _ = writeln!(text, "{}{part}", if at > 0 { "  " } else { "" });
    }
    to_stderr(&text);
}

/// Returns true if standard error is the stream that `JOURNAL_STREAM` names by device and inode, see systemd.exec(5).
/// Children inherit the variable also where their standard error is another one.
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
