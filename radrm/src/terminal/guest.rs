//! The user's side: connects this terminal to that of a job.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use super::escape::{HELP, Keys, Wish};
use super::frames::{Frame, Incoming};
use super::notebook::Notebook;
use super::{TerminalError, place};

/// The time in which a user who leaves says so.
const FAREWELL: Duration = Duration::from_secs(2);

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The program ended, with its exit code.
    Ended(u8),
    /// It goes on without this terminal.
    Detached,
    /// The user hung up.
    HungUp,
}

/// This terminal without its own handling of keys and lines, until this is dropped.
struct Raw {
    before: Termios,
}

impl Raw {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The end of what is typed, as a terminal says it: at the start of a line.
const END_OF_INPUT: u8 = 4;

/// The connection, and what is still to be sent.
struct Line {
    stream: UnixStream,
    waiting: Vec<u8>,
}

impl Line {
    fn add(&mut self, frame: &Frame) {
        frame.put(&mut self.waiting);
    }

    /// Sends what there is room for. A program that reads nothing holds up what is typed, and never what it prints.
    fn send(&mut self) -> Result<(), TerminalError> {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(written) => _ = self.waiting.drain(..written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The program has ended: its last output and its exit code are still to be read.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
                {
                    self.waiting.clear();
                }
                Err(error) => return Err(TerminalError::Lost(error)),
            }
        }
        Ok(())
    }

    fn add_size(&mut self) {
        if let Ok(size) = tcgetwinsize(io::stdin())
            && size.ws_row > 0
            && size.ws_col > 0
        {
            self.add(&Frame::Size(size.ws_row, size.ws_col));
        }
    }
}

/// Connects and leaves without a word, so that the session ends as it does when its last terminal goes.
pub(crate) fn touch(socket: &Path) -> Result<(), TerminalError> {
    place::connect(socket).map(drop)
}

/// Connects until the program ends or the user leaves. Where standard input is not a terminal, it is what is typed.
pub(crate) fn attach(socket: &Path) -> Result<Left, TerminalError> {
    let stream = place::connect(socket)?;
    stream.set_nonblocking(true).map_err(TerminalError::Lost)?;
    let mut line = Line { stream, waiting: Vec::new() };
    let (told, teller) = UnixStream::pair().map_err(TerminalError::Lost)?;
    told.set_nonblocking(true).map_err(TerminalError::Lost)?;
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ends)).map_err(TerminalError::Lost)?;
    }
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGWINCH] {
        let teller = teller.try_clone().map_err(TerminalError::Lost)?;
        signal_hook::low_level::pipe::register(signal, teller).map_err(TerminalError::Lost)?;
    }
    let is_terminal = io::stdin().is_terminal();
    let _raw = is_terminal.then(Raw::enter).transpose().map_err(TerminalError::Lost)?;
    line.add_size();
    let (mut keys, mut incoming, mut last, mut is_open) = (Keys::default(), Incoming::default(), b'\n', true);
    let mut notebook = if is_terminal { Notebook::of_login() } else { Notebook::default() };
    loop {
        line.send()?;
        let ready = wait(&line, &told, is_open)?;
        if ready.told {
            let mut drained = [0; 64];
            let _ = (&told).read(&mut drained);
            if ends.load(Ordering::Relaxed) {
                return Ok(Left::HungUp);
            }
            line.add_size();
        }
        if ready.output
            && let Some(code) = receive(&mut line.stream, &mut incoming, &mut notebook)?
        {
            return Ok(Left::Ended(code));
        }
        if !ready.input {
            continue;
        }
        let mut bytes = [0; 4096];
        let read = match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(read) => read,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
            // The terminal is gone.
            Err(_) if is_terminal => return Ok(Left::HungUp),
            Err(error) => return Err(TerminalError::Lost(error.into())),
        };
        if read == 0 {
            is_open = false;
            // Behind an unfinished line the first one only hands over that line.
            let ends = if last == b'\n' { vec![END_OF_INPUT] } else { vec![END_OF_INPUT; 2] };
            line.add(&Frame::Data(ends));
            continue;
        }
        last = bytes[read - 1];
        let (typed, wish) = match is_terminal {
            true => keys.read(&bytes[..read]),
            false => (bytes[..read].to_vec(), None),
        };
        line.add(&Frame::Data(typed));
        match wish {
            Some(Wish::HangUp) => return Ok(Left::HungUp),
            Some(Wish::Detach) => {
                line.add(&Frame::Detach);
                let _ = line.stream.set_nonblocking(false);
                let _ = line.stream.set_write_timeout(Some(FAREWELL));
                line.send()?;
                return Ok(Left::Detached);
            }
            Some(Wish::Help) => show(HELP.as_bytes())?,
            None => {}
        }
    }
}

/// Result of a poll.
struct Ready {
    output: bool,
    told: bool,
    input: bool,
}

/// Waits for something to do. Nothing is read of the user while there is something to send.
fn wait(line: &Line, told: &UnixStream, is_open: bool) -> Result<Ready, TerminalError> {
    let stdin = io::stdin();
    let mut of_stream = PollFlags::IN;
    of_stream.set(PollFlags::OUT, !line.waiting.is_empty());
    let mut all = vec![PollFd::new(&line.stream, of_stream), PollFd::new(told, PollFlags::IN)];
    if is_open && line.waiting.is_empty() {
        all.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
    }
    match poll(&mut all, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(TerminalError::Lost(error.into())),
    }
    let found = |at: usize| all.get(at).is_some_and(|one| !one.revents().is_empty());
    let output = all[0].revents().intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
    Ok(Ready { output, told: found(1), input: found(2) })
}

/// Prints what came, and the way to a notebook whose address it has; gives the exit code when the program has ended.
fn receive(
    stream: &mut UnixStream,
    incoming: &mut Incoming,
    notebook: &mut Notebook,
) -> Result<Option<u8>, TerminalError> {
    let mut bytes = [0; 16 << 10];
    match stream.read(&mut bytes) {
        Ok(0) => return Err(TerminalError::Gone),
        Ok(read) => incoming.add(&bytes[..read]),
        Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
            return Ok(None);
        }
        Err(error) => return Err(TerminalError::Lost(error)),
    }
    while let Some(frame) = incoming.next().map_err(TerminalError::Lost)? {
        match frame {
            Frame::Data(bytes) => {
                show(&bytes)?;
                if let Some(sentence) = notebook.read(&bytes) {
                    show(format!("\r\n{sentence}\r\n").as_bytes())?;
                }
            }
            Frame::End(code) => return Ok(Some(code)),
            Frame::Full => return Err(TerminalError::Full),
            Frame::Size(..) | Frame::Detach => {}
        }
    }
    Ok(None)
}

fn show(bytes: &[u8]) -> Result<(), TerminalError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(TerminalError::Lost)
}
