//! `radrm top` without a daemon: the runs of this user, as their segments show them at each moment. The terminal, its keys and
//! lists are those of `radrm top` with one, too.

mod activity;
pub(crate) mod columns;
mod history;
mod interface;
mod reading;
mod runs;
mod steps;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use radrm_os::Process;
use radrm_text::output::{self, Delivery, width};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use thiserror::Error;

use crate::{Failure, print, print_json};
use interface::Interface;
pub(crate) use interface::Key;
use reading::Reading;
use runs::Runs;
pub(crate) use terminal::Screen;

/// Between the two polls of a view that is printed once: rates need two.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Reason that there is nothing to show, as one sentence.
#[derive(Debug, Error)]
pub(crate) enum LiveError {
    /// A number that is neither a process of a run nor a job.
    #[error(
        "no running program under radrm-run has the process or job number {0}; `radrm top --runs` lists those that do"
    )]
    NoRun(u32),
    /// A profile that no run writes.
    #[error("no run is writing {0}; `radrm report {0}` shows what it holds")]
    Ended(String),
}

impl crate::error::CommandError for LiveError {}

/// Options of `radrm top`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// One run: a process, a job of the daemon, or a profile.
    pub(crate) only: Option<&'a str>,
    /// Print once, and as JSON.
    pub(crate) once: bool,
    pub(crate) json: bool,
    /// Time between two updates.
    pub(crate) every: Duration,
}

/// Shows the runs until the user has seen enough.
pub(crate) fn run(asked: &Asked<'_>) -> Result<(), Failure> {
    let out = std::io::stdout();
    let mut runs = Runs::default();
    let began = Instant::now();
    let mut poll = || -> Result<Vec<Reading>, Failure> {
        runs.poll(began.elapsed());
        Ok(runs.readings(asked.only)?)
    };
    if asked.once || asked.json || !out.is_terminal() || !std::io::stdin().is_terminal() {
        poll()?;
        std::thread::sleep(POLL_INTERVAL);
        let readings = poll()?;
        return match asked.json {
            true => print_json(&readings),
            false => print(&view::plain(&readings, width(&out))),
        };
    }
    let mut readings = poll()?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let mut interface = Interface::new(asked.only.is_some());
    let screen = Screen::enter().map_err(Failure::Output)?;
    let mut next = Instant::now() + asked.every;
    loop {
        let (columns, lines) = screen.size();
        let picture = view::screen(&readings, &mut interface, host, columns, lines);
        if matches!(output::screen_to_stdout(&picture), Ok(Delivery::Closed) | Err(_)) {
            return Ok(());
        }
        for key in screen.keys(next.saturating_duration_since(Instant::now())).map_err(Failure::Output)? {
            if key == Key::Quit || !interface.press(key, &readings) {
                return Ok(());
            }
            if let Some(run) = interface.to_end.take() {
                // A paused picture is old, and the kernel gives numbers of processes again.
                let now = poll().unwrap_or_default();
                let reading = now.iter().find(|reading| reading.run == run);
                interface.said = reading.map_or_else(|| format!("run {run} has ended"), end);
            }
        }
        if Instant::now() >= next {
            next = Instant::now() + asked.every;
            if !interface.is_paused() {
                match poll() {
                    Ok(now) => readings = now,
                    // The run that was shown has ended.
                    Err(_) if asked.only.is_some() => interface.ended(),
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Asks a run to end, as `kill` does; returns what was done, in words.
fn end(reading: &Reading) -> String {
    let run = reading.run;
    if let Some(job) = reading.job {
        return format!("run {run} is job {job} of radrmd: `radrm cancel {job}` ends it");
    }
    let left: Vec<u32> = match reading.launcher_running {
        true => vec![run],
        false => reading.processes.iter().map(|process| process.pid).collect(),
    };
    match left.into_iter().filter_map(|pid| ask_to_end(pid, reading.uid)).collect::<Result<Vec<()>, _>>() {
        Ok(sent) if sent.is_empty() => format!("run {run} has no process any more"),
        Ok(_) => format!("run {run} is asked to end (SIGTERM)"),
        Err(error) => format!("run {run} is not ended: {}", radrm_base::reason(&std::io::Error::from(error))),
    }
}

/// Asks a process to end; `None` if it is gone or not this user's: a run's segment is its user's, who may write any number there.
fn ask_to_end(pid: u32, uid: u32) -> Option<rustix::io::Result<()>> {
    let handle = radrm_os::pidfd::open(pid).ok()?;
    // Compared after the process is held: it cannot be a later one of this number.
    if Process(pid).users() != Some((uid, uid)) {
        return None;
    }
    match pidfd_send_signal(handle, Signal::TERM) {
        Err(Errno::SRCH) => None,
        sent => Some(sent),
    }
}

/// Returns true if a word names a file rather than a number.
fn is_file(word: &str) -> bool {
    word.parse::<u32>().is_err() || Path::new(word).is_file()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_is_not_the_runs_users_is_not_ended() {
        let own = rustix::process::geteuid().as_raw();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert_eq!(ask_to_end(child.id(), own + 1), None);
        assert!(matches!(child.try_wait(), Ok(None)));
        assert_eq!(ask_to_end(child.id(), own), Some(Ok(())));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert_eq!(ask_to_end(child.id(), own), None, "it is gone");
    }
}
