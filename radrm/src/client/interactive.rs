//! `radrm submit --interactive` and `radrm attach`: from a job to its terminal.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use radrm_protocol::ProtocolError;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::{JobRow, Request, Response};
use radrm_text::Untrusted;
use rustix::process::geteuid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::terminal::guest::{Left, attach, touch};
use crate::terminal::{TerminalError, socket};
use crate::{Failure, NAME};

/// Times that a socket which is there is tried.
const MAX_TRIES: u32 = 10;

/// Interval at which a job that waits is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Returns true for a socket that is not there yet, or no more.
fn may_pass(problem: &io::Error) -> bool {
    matches!(problem.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Says why a job waits, when it starts, connects to its terminal, and gives its exit code. A user who leaves before it
/// starts takes the job back.
pub(super) fn run(
    job: u64,
    at: &Path,
    quiet: bool,
    mut connection: Connection,
    connect: &dyn Fn() -> Result<Connection, ProtocolError>,
) -> Result<u8, Failure> {
    let mut tries = 1;
    loop {
        let leaves = Arc::new(AtomicBool::new(false));
        let signals = [SIGHUP, SIGINT, SIGTERM];
        let registered = signals.map(|signal| signal_hook::flag::register(signal, Arc::clone(&leaves)));
        let row = wait(job, at, quiet, &mut connection, connect, &leaves);
        registered.into_iter().flatten().for_each(|id| _ = signal_hook::low_level::unregister(id));
        let Some(row) = row? else { return Ok(128 + 2) };
        if row.end.is_some() {
            return Ok(ended(&row, quiet));
        }
        if leaves.load(Ordering::Relaxed) {
            // The program is on its terminal, to which nothing of the user has come: it is hung up.
            let _ = touch(at);
            return Ok(say(job, Left::HungUp, quiet));
        }
        match attach(at) {
            Ok(left) => return Ok(say(job, left, quiet)),
            // It ended before this terminal was there, or is about to listen.
            Err(TerminalError::Socket { problem, .. }) if may_pass(&problem) && tries < MAX_TRIES => {}
            Err(error) => return Err(error.into()),
        }
        tries += 1;
        thread::sleep(POLL_INTERVAL);
    }
}

/// The job once it has a terminal or has ended; `None`: the user left and it was cancelled.
fn wait(
    job: u64,
    at: &Path,
    quiet: bool,
    connection: &mut Connection,
    connect: &dyn Fn() -> Result<Connection, ProtocolError>,
    leaves: &AtomicBool,
) -> Result<Option<Box<JobRow>>, Failure> {
    let mut said = Untrusted::default();
    loop {
        if leaves.load(Ordering::Relaxed) {
            connection.done(&Request::Cancel { jobs: vec![job.into()] })?;
            radrm_text::output::say(NAME, &format!("job {job} is cancelled"));
            return Ok(None);
        }
        match connection.ask(&Request::Show { job: job.into() }) {
            Ok(Response::Job(row, _)) => {
                if row.end.is_some() || at.exists() {
                    return Ok(Some(row));
                }
                if !quiet && row.attempts == 0 && row.why != said && !row.why.is_empty() {
                    radrm_text::output::say(NAME, &format!("job {job} waits: {}", row.why));
                    said = row.why;
                }
            }
            Ok(other) => return Err(odd(&other).into()),
            Err(why) if why.is_lost() => {
                if let Ok(again) = connect() {
                    *connection = again;
                }
            }
            Err(why) => return Err(why.into()),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Says how a job ended; gives its exit code.
fn ended(row: &JobRow, quiet: bool) -> u8 {
    if !quiet {
        let end = row.end.clone().unwrap_or_default();
        radrm_text::output::say(NAME, &format!("job {} has ended: {end}", row.job));
    }
    row.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn say(job: u64, left: Left, quiet: bool) -> u8 {
    let (sentence, code) = match left {
        Left::Ended(code) => return code,
        Left::Detached => (format!("job {job} goes on; `radrm attach {job}` comes back to it"), 0),
        Left::HungUp => (format!("job {job} was hung up"), 0),
    };
    if !quiet {
        radrm_text::output::say(NAME, &sentence);
    }
    code
}

/// Connects to the terminal of a job of this user.
pub(super) fn attach_to(job: JobRef, connection: &mut Connection) -> Result<u8, Failure> {
    let row = match connection.ask(&Request::Show { job })? {
        Response::Job(row, _) => row,
        other => return Err(odd(&other).into()),
    };
    // What another user's job writes is not for this terminal, and their socket could be anything.
    if row.uid != geteuid().as_raw() {
        return Err(TerminalError::OfAnother(row.job, row.user).into());
    }
    let at = socket(&row.command).ok_or(TerminalError::None(row.job))?;
    if row.end.is_some() {
        return Ok(ended(&row, false));
    }
    if !at.exists() {
        return Err(TerminalError::NotThere(row.job).into());
    }
    Ok(say(row.job, attach(&at)?, false))
}
