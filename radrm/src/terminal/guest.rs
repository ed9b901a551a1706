//! The user's side: connects this terminal to that of a job.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};

use super::escape::{HELP, Keys, Wish};
use super::frames::{Frame, Incoming};
use super::{TerminalError, place};

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

/// The end of what is typed, as a terminal says it.
const END_OF_INPUT: u8 = 4;

/// Connects until the program ends or the user leaves. Where standard input is not a terminal, it is what is typed.
pub(crate) fn attach(socket: &Path) -> Result<Left, TerminalError> {
    let mut stream = place::connect(socket)?;
    let (told, teller) = UnixStream::pair().map_err(TerminalError::Lost)?;
    told.set_nonblocking(true).map_err(TerminalError::Lost)?;
    for signal in [SIGHUP, SIGTERM, SIGWINCH] {
        let teller = teller.try_clone().map_err(TerminalError::Lost)?;
        signal_hook::low_level::pipe::register(signal, teller).map_err(TerminalError::Lost)?;
    }
    let is_told_to_end = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [SIGHUP, SIGTERM] {
        signal_hook::flag::register(signal, is_told_to_end.clone()).map_err(TerminalError::Lost)?;
    }
    let is_terminal = io::stdin().is_terminal();
    let _raw = is_terminal.then(Raw::enter).transpose().map_err(TerminalError::Lost)?;
    send_size(&mut stream)?;
    let (mut keys, mut incoming, mut is_open) = (Keys::default(), Incoming::default(), true);
    loop {
        let stdin = io::stdin();
        let mut all = vec![PollFd::new(&stream, PollFlags::IN), PollFd::new(&told, PollFlags::IN)];
        if is_open {
            all.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
        }
        match poll(&mut all, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(TerminalError::Lost(error.into())),
        }
        let found: Vec<bool> = all.iter().map(|one| !one.revents().is_empty()).collect();
        if found[1] {
            let mut drained = [0; 64];
            let _ = (&told).read(&mut drained);
            if is_told_to_end.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(Left::HungUp);
            }
            send_size(&mut stream)?;
        }
        if found[0]
            && let Some(code) = receive(&mut stream, &mut incoming)?
        {
            return Ok(Left::Ended(code));
        }
        if found.get(2) == Some(&true) {
            let mut bytes = [0; 4096];
            let read = match rustix::io::read(&stdin, &mut bytes) {
                Ok(read) => read,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                // The terminal is gone.
                Err(_) if is_terminal => return Ok(Left::HungUp),
                Err(error) => return Err(TerminalError::Lost(error.into())),
            };
            if read == 0 {
                is_open = false;
                send(&mut stream, &Frame::Data(vec![END_OF_INPUT]))?;
                continue;
            }
            let (typed, wish) = match is_terminal {
                true => keys.read(&bytes[..read]),
                false => (bytes[..read].to_vec(), None),
            };
            send(&mut stream, &Frame::Data(typed))?;
            match wish {
                Some(Wish::HangUp) => return Ok(Left::HungUp),
                Some(Wish::Detach) => {
                    send(&mut stream, &Frame::Detach)?;
                    return Ok(Left::Detached);
                }
                Some(Wish::Help) => show(HELP.as_bytes())?,
                None => {}
            }
        }
    }
}

/// Prints what came; gives the exit code when the program has ended.
fn receive(stream: &mut UnixStream, incoming: &mut Incoming) -> Result<Option<u8>, TerminalError> {
    let mut bytes = [0; 16 << 10];
    match stream.read(&mut bytes) {
        Ok(0) => return Err(TerminalError::Gone),
        Ok(read) => incoming.add(&bytes[..read]),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
        Err(error) => return Err(TerminalError::Lost(error)),
    }
    while let Some(frame) = incoming.next().map_err(TerminalError::Lost)? {
        match frame {
            Frame::Data(bytes) => show(&bytes)?,
            Frame::End(code) => return Ok(Some(code)),
            Frame::Size(..) | Frame::Detach => {}
        }
    }
    Ok(None)
}

fn show(bytes: &[u8]) -> Result<(), TerminalError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(TerminalError::Lost)
}

fn send_size(stream: &mut UnixStream) -> Result<(), TerminalError> {
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
            send(stream, &Frame::Size(size.ws_row, size.ws_col))
        }
        _ => Ok(()),
    }
}

fn send(stream: &mut UnixStream, frame: &Frame) -> Result<(), TerminalError> {
    let mut bytes = Vec::new();
    frame.put(&mut bytes);
    match stream.write_all(&bytes) {
        // The program has ended: its last output and its exit code are still to be read.
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            Ok(())
        }
        sent => sent.map_err(TerminalError::Lost),
    }
}
