//! The supervisor of one run: a process of its own, so that a run ends in order when the sweep was killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use radrm_base::reason;
use radrm_os::{ProcessIdentity, pidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::attempt::{Attempt, Ended, MARK, OUTPUT, Order, kill_marked};

/// Reason that the supervisor ends its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The time is over.
    Timeout,
    /// The sweep was interrupted, or gives the run up.
    Interrupted,
}

/// Runs what the order in a folder says. Standard input is the attempt's locked status file.
///
/// # Errors
/// The folder cannot be used.
pub fn run(folder: PathBuf) -> io::Result<()> {
    let attempt = Attempt::at(folder);
    let order = attempt.order()?;
    let mut status = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let own = ProcessIdentity::of(std::process::id()).ok_or(io::ErrorKind::NotFound)?;
    writeln!(status, "{} {}", own.pid, own.start)?;
    if let Some(barrier) = &order.barrier {
        // A signal ends this process while it waits: nothing was started.
        if !barrier.open()?.pass()? {
            return Ok(());
        }
    }
    let signals = signals()?;
    let started = Instant::now();
    let started_ms = radrm_os::time::epoch_ms();
    let ended = match start(&attempt, &order) {
        Ok(child) => {
            let (status, cause) = supervise(child, &attempt, &order, signals, started)?;
            if cause == Some(Cause::Interrupted) && attempt.given_up().is_none() {
                // No result: the run is repeated.
                return Ok(());
            }
            Ended {
                code: status.code(),
                signal: status.signal(),
                timed_out: cause == Some(Cause::Timeout),
                stopped: cause == Some(Cause::Interrupted),
                ..Ended::default()
            }
        }
        Err(error) => Ended { why: Some(reason(&error)), ..Ended::default() },
    };
    attempt.end(&Ended { started_ms, duration_ms: started.elapsed().as_millis() as u64, ..ended })
}

/// A stream that has something to read when a signal came.
fn signals() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

fn start(attempt: &Attempt, order: &Order) -> io::Result<Child> {
    let output = File::create(attempt.file(OUTPUT))?;
    let (program, arguments) = order.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    if !Path::new(&order.directory).is_dir() {
        let text = format!("the directory {} does not exist", order.directory.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(&order.environment).env(MARK, &order.mark).current_dir(&order.directory);
    // A group of its own: it is ended as a whole, and Ctrl-C of the terminal does not reach it.
    command.process_group(0).stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    command.spawn()
}

/// Returns true if a child is over.
/// The child keeps its process id until it is waited for.
fn has_ended(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_some())
}

/// Waits for the end of the program; gives why it was ended, if it was.
fn supervise(
    mut child: Child,
    attempt: &Attempt,
    order: &Order,
    mut signals: UnixStream,
    started: Instant,
) -> io::Result<(ExitStatus, Option<Cause>)> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| {
        if let Some(group) = group {
            // The group may be gone already.
            let _ = kill_process_group(group, signal);
        }
    };
    let handle = pidfd::open(child.id())?;
    let timeout = order.timeout_ms.map(|ms| started + Duration::from_millis(ms));
    let (mut cause, mut kill_at) = (None, None);
    loop {
        if has_ended(&child)? {
            if cause.is_some() {
                // The rest of the program's group, and what left it. The program is waited for only then: before that
                // no other group can have its number.
                signal(Signal::KILL);
                kill_marked(&order.mark);
            }
            return Ok((child.wait()?, cause));
        }
        let now = Instant::now();
        let due = if cause.is_none() { timeout } else { kill_at };
        if due.is_some_and(|due| due <= now) {
            if cause.is_none() {
                cause = Some(Cause::Timeout);
                signal(Signal::TERM);
                kill_at = Some(now + Duration::from_millis(order.grace_ms));
            } else {
                signal(Signal::KILL);
                kill_marked(&order.mark);
                kill_at = None;
            }
            continue;
        }
        let left = due.map(|due| due - now);
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut events = [PollFd::new(&handle, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        match poll(&mut events, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 16];
        if matches!(signals.read(&mut bytes), Ok(count) if count > 0) {
            // A program that has ended by itself was not interrupted.
            if cause.is_none() && has_ended(&child)? {
                return Ok((child.wait()?, None));
            }
            // A sweep that is resumed does not know that it asked before: the program keeps its time to end.
            if cause.is_some() && attempt.given_up().is_some() {
                continue;
            }
            // The second one does not wait.
            let is_first = cause != Some(Cause::Interrupted);
            cause = Some(Cause::Interrupted);
            signal(if is_first { Signal::TERM } else { Signal::KILL });
            let grace = if is_first { Duration::from_millis(order.grace_ms) } else { Duration::ZERO };
            kill_at = Some(Instant::now() + grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    /// Supervises a program that takes its time to end; it is asked to end once more meanwhile.
    fn asked_twice(given_up: bool, timeout_ms: Option<u64>) -> (ExitStatus, Option<Cause>) {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::at(dir.path().to_owned());
        if given_up {
            attempt.give_up("its loss is too high").unwrap();
        }
        let mark = format!("supervisor test {} {}", std::process::id(), dir.path().display());
        let order = Order { mark, timeout_ms, grace_ms: 600_000, ..Order::default() };
        let script = "trap 'echo asked; read word; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut lines = io::BufReader::new(output).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let (reader, mut writer) = UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        if timeout_ms.is_none() {
            writer.write_all(b"1").unwrap();
        }
        let asks = std::thread::spawn(move || {
            assert_eq!(lines.next().unwrap().unwrap(), "asked");
            writer.write_all(b"2").unwrap();
            // The supervisor has read it by then; a program that was killed reads no word.
            std::thread::sleep(Duration::from_millis(300));
            let _ = input.write_all(b"end\n");
            writer
        });
        let ended = supervise(child, &attempt, &order, reader, Instant::now()).unwrap();
        asks.join().unwrap();
        ended
    }

    #[test]
    fn a_given_up_run_keeps_its_grace_when_it_is_asked_again() {
        let (status, cause) = asked_twice(true, None);
        assert_eq!((status.code(), cause), (Some(0), Some(Cause::Interrupted)));
        let (status, cause) = asked_twice(true, Some(0));
        assert_eq!((status.code(), cause), (Some(0), Some(Cause::Timeout)), "its time was over before");
        let (status, cause) = asked_twice(false, None);
        assert_eq!((status.signal(), cause), (Some(Signal::KILL.as_raw()), Some(Cause::Interrupted)));
    }

    #[test]
    fn a_child_that_is_over_keeps_its_number_until_it_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert!(!has_ended(&child).unwrap());
        drop(child.stdin.take());
        while !has_ended(&child).unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(radrm_os::Process(child.id()).exists() && has_ended(&child).unwrap());
        assert!(child.wait().unwrap().success());
    }
}
