//! The job's side: opens the terminal, starts the program on it, and serves who connects.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::termios::{Winsize, tcsetwinsize};
use signal_hook::consts::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::frames::{Frame, Incoming};
use super::{Flags, TerminalError, place};

/// A program to which no user connects within this time is hung up: who submitted it is gone.
const FIRST_GUEST: Duration = Duration::from_secs(60);

/// The time in which guests get the last output.
const FAREWELL: Duration = Duration::from_secs(2);

/// Interval at which a terminal that no program has open is looked at.
const CLOSED_INTERVAL: Duration = Duration::from_millis(100);

/// Time between the signals that end what a hang-up did not.
const GRACE: Duration = Duration::from_secs(10);

/// Bytes that wait for a guest or for the program before nothing more is read for it.
const MAX_WAITING: usize = 256 << 10;

/// Most guests at a time.
pub(super) const MAX_GUESTS: usize = 16;

/// Runs the program; gives its exit code.
pub(crate) fn run(flags: &Flags) -> Result<u8, TerminalError> {
    let listener = place::listen(&flags.socket)?;
    let (master, slave) = open_terminal().map_err(TerminalError::NoTerminal)?;
    let (told, teller) = UnixStream::pair().map_err(TerminalError::NoTerminal)?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let teller = teller.try_clone().map_err(TerminalError::NoTerminal)?;
        signal_hook::low_level::pipe::register(signal, teller).map_err(TerminalError::NoTerminal)?;
    }
    // A signal that asks the job for a checkpoint is for the program. A handler, since what a program inherits as ignored
    // stays ignored.
    for signal in [SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT, SIGCONT] {
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, ignored).map_err(TerminalError::NoTerminal)?;
    }
    let child = start(&flags.command, &slave)?;
    drop(slave);
    let host = Host {
        child,
        master: Some(master),
        is_closed: false,
        typed: Vec::new(),
        guests: Vec::new(),
        missed: Vec::new(),
        had_guest: false,
        is_left: false,
        deadline: Some(Instant::now() + FIRST_GUEST),
        is_hung_up: false,
        is_told: false,
    };
    let code = host.serve(&listener, &told).map_err(TerminalError::NoTerminal);
    place::remove(&flags.socket);
    code
}

/// A terminal: this program's end, and that of the program which runs on it.
fn open_terminal() -> io::Result<(File, OwnedFd)> {
    let (mut master, mut slave) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both outputs are writable, no name is asked for, and the size is a valid one.
    let got = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened both, and nothing else has them.
    let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    // The program gets its end by number; neither is for what it starts.
    for end in [&master, &slave] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
    }
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((File::from(master), slave))
}

/// Starts the program in a session of its own, whose terminal this is.
fn start(command: &[OsString], slave: &OwnedFd) -> Result<Child, TerminalError> {
    let [program, arguments @ ..] = command else { return Err(TerminalError::Gone) };
    let end = || slave.try_clone().map(Stdio::from).map_err(TerminalError::NoTerminal);
    let mut command = Command::new(program);
    command.args(arguments).stdin(end()?).stdout(end()?).stderr(end()?);
    // SAFETY: plain system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn().map_err(|problem| TerminalError::NotStarted { program: PathBuf::from(program), problem })
}

/// A connected terminal.
struct Guest {
    stream: UnixStream,
    incoming: Incoming,
    /// Bytes that it is still to get.
    waiting: Vec<u8>,
}

struct Host {
    child: Child,
    /// `None` once it is hung up.
    master: Option<File>,
    /// No program had it open when it was read last.
    is_closed: bool,
    /// Typed bytes that the program has not taken.
    typed: Vec<u8>,
    guests: Vec<Guest>,
    /// The last output that no guest was there for: the next one gets it.
    missed: Vec<u8>,
    had_guest: bool,
    /// The last guest left the program running.
    is_left: bool,
    /// Time at which it is hung up if no guest has come, or ended by the next signal if a hang-up did not end it.
    deadline: Option<Instant>,
    is_hung_up: bool,
    /// It had SIGTERM.
    is_told: bool,
}

/// Result of a poll.
#[derive(Default)]
struct Ready {
    listener: bool,
    told: bool,
    has_ended: bool,
    output: bool,
    input: bool,
    guests: Vec<PollFlags>,
}

impl Host {
    fn serve(mut self, listener: &UnixListener, told: &UnixStream) -> io::Result<u8> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        loop {
            let ready = self.poll(listener, told, &ended)?;
            self.is_closed = false;
            let is_due = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if ready.told {
                let mut drained = [0; 64];
                let _ = (&*told).read(&mut drained);
            }
            match self.is_hung_up {
                true if is_due => self.end(pid),
                false if ready.told || is_due => self.hang_up(),
                _ => {}
            }
            if ready.listener {
                self.admit(listener);
            }
            if ready.output {
                self.pass_output();
            }
            self.hear(&ready.guests);
            if ready.input || !self.typed.is_empty() {
                self.pass_input();
            }
            self.dismiss();
            if ready.has_ended {
                let code = exit_code(self.child.wait()?);
                self.farewell(code, listener);
                return Ok(code);
            }
        }
    }

    fn poll(&self, listener: &UnixListener, told: &UnixStream, ended: &OwnedFd) -> io::Result<Ready> {
        let is_full = self.guests.iter().any(|guest| guest.waiting.len() > MAX_WAITING)
            || (!self.had_guest && self.missed.len() > MAX_WAITING);
        let accepts = self.typed.len() <= MAX_WAITING;
        let mut all = vec![
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(told, PollFlags::IN),
            PollFd::new(ended, PollFlags::IN),
        ];
        for guest in &self.guests {
            let mut wants = PollFlags::empty();
            wants.set(PollFlags::IN, accepts);
            wants.set(PollFlags::OUT, !guest.waiting.is_empty());
            all.push(PollFd::new(&guest.stream, wants));
        }
        let mut of_master = PollFlags::empty();
        of_master.set(PollFlags::IN, !is_full);
        of_master.set(PollFlags::OUT, !self.typed.is_empty());
        // One that asks for nothing would be answered at once and for ever when the program's end is closed.
        let has_master = !of_master.is_empty();
        if let Some(master) = self.master.as_ref().filter(|_| has_master && !self.is_closed) {
            all.push(PollFd::from_borrowed_fd(master.as_fd(), of_master));
        }
        let wait = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let again = self.is_closed.then_some(CLOSED_INTERVAL);
        let wait = wait.into_iter().chain(again).min();
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut all, wait.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let found: Vec<PollFlags> = all.iter().map(PollFd::revents).collect();
        let master = found.get(3 + self.guests.len()).copied().unwrap_or(PollFlags::empty());
        Ok(Ready {
            listener: !found[0].is_empty(),
            told: !found[1].is_empty(),
            has_ended: !found[2].is_empty(),
            output: master.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            input: master.contains(PollFlags::OUT),
            guests: found[3..3 + self.guests.len()].to_vec(),
        })
    }

    /// Takes the terminal away: the kernel tells the program, and what stands in its foreground.
    fn hang_up(&mut self) {
        self.master = None;
        self.typed.clear();
        self.is_hung_up = true;
        self.deadline = Some(Instant::now() + GRACE);
    }

    /// Ends a program that a hang-up does not end. What it has started otherwise is ended with the job.
    fn end(&mut self, pid: Pid) {
        let signal = if self.is_told { Signal::KILL } else { Signal::TERM };
        // The program leads its group, and has not been waited for: the number is its own.
        let _ = kill_process_group(pid, signal);
        self.is_told = true;
        self.deadline = Some(Instant::now() + GRACE);
    }

    fn admit(&mut self, listener: &UnixListener) {
        let Ok((stream, _)) = listener.accept() else { return };
        if !place::is_own(&stream) || stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut guest = Guest { stream, incoming: Incoming::default(), waiting: Vec::new() };
        if self.guests.len() >= MAX_GUESTS {
            Frame::Full.put(&mut guest.waiting);
            // A new connection has room for it.
            let _ = guest.stream.write(&guest.waiting);
            return;
        }
        Frame::Data(std::mem::take(&mut self.missed)).put(&mut guest.waiting);
        self.guests.push(guest);
        (self.had_guest, self.is_left) = (true, false);
        if !self.is_hung_up {
            self.deadline = None;
        }
    }

    /// From the program to the job's output and to all guests. Returns false if there was nothing.
    fn pass_output(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        let Some(master) = &mut self.master else { return false };
        match master.read(&mut bytes) {
            Ok(read) if read > 0 => {
                let bytes = &bytes[..read];
                let _ = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush());
                for guest in &mut self.guests {
                    Frame::Data(bytes.to_vec()).put(&mut guest.waiting);
                }
                if self.guests.is_empty() {
                    self.missed.extend(bytes);
                }
                // Until the first guest comes the program waits; without one that will come it does not.
                if self.had_guest {
                    let excess = self.missed.len().saturating_sub(MAX_WAITING);
                    self.missed.drain(..excess);
                }
                true
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                false
            }
            // No program has the terminal open at the moment. It is not hung up: one that is just ending would get SIGHUP.
            Ok(_) | Err(_) => {
                self.is_closed = true;
                false
            }
        }
    }

    fn pass_input(&mut self) {
        let Some(master) = &mut self.master else { return };
        if let Ok(written) = master.write(&self.typed) {
            self.typed.drain(..written);
        }
    }

    /// Reads what guests send and writes what waits for them.
    fn hear(&mut self, ready: &[PollFlags]) {
        // Who came in this turn has not been asked.
        for at in (0..self.guests.len().min(ready.len())).rev() {
            let mut stays = true;
            if ready[at].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                stays = self.listen_to(at);
            }
            if stays {
                let guest = &mut self.guests[at];
                match guest.stream.write(&guest.waiting) {
                    Ok(written) => _ = guest.waiting.drain(..written),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => {
                        self.is_left = false;
                        stays = false;
                    }
                }
            }
            if !stays {
                self.guests.swap_remove(at);
            }
        }
    }

    /// Returns false for a guest that is gone.
    fn listen_to(&mut self, at: usize) -> bool {
        let mut bytes = [0; 16 << 10];
        // Who goes without a word now is the last who went.
        self.is_left = false;
        let guest = &mut self.guests[at];
        match guest.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(read) => guest.incoming.add(&bytes[..read]),
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
        loop {
            match guest.incoming.next() {
                Ok(Some(Frame::Data(bytes))) => self.typed.extend(bytes),
                Ok(Some(Frame::Size(rows, columns))) => {
                    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
                    let _ = self.master.as_ref().map(|master| tcsetwinsize(master, size));
                }
                Ok(Some(Frame::Detach)) => {
                    self.is_left = true;
                    return false;
                }
                Ok(Some(Frame::End(_) | Frame::Full)) | Err(_) => return false,
                Ok(None) => return true,
            }
        }
    }

    /// Ends the session when its last guest has gone without a word.
    fn dismiss(&mut self) {
        if self.guests.is_empty() && self.had_guest && !self.is_left && !self.is_hung_up {
            self.hang_up();
        }
    }

    /// Gives guests the last output and the exit code.
    fn farewell(mut self, code: u8, listener: &UnixListener) {
        // No more than a terminal keeps: what the program left running may write for ever.
        let _ = (0..256).any(|_| !self.pass_output());
        if !self.had_guest {
            // A short program ends before the terminal that it was submitted from has come.
            let wait = Timespec::try_from(FAREWELL).ok();
            let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], wait.as_ref());
            self.admit(listener);
        }
        let until = Instant::now() + FAREWELL;
        for guest in &mut self.guests {
            Frame::End(code).put(&mut guest.waiting);
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let _ = guest.stream.set_nonblocking(false);
            let _ = guest.stream.set_write_timeout(Some(left));
            let _ = guest.stream.write_all(&guest.waiting);
        }
    }
}

/// Exit code as a shell has it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
