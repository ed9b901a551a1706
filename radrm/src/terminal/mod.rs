//! Interactive jobs: a program of a job on a terminal of its own, to which its user's terminal is connected.
//!
//! `radrm submit --interactive` makes this program the job's: it opens the terminal, starts the user's program on it and
//! listens at a socket that only the user can open ([`host`]). The submitting command, and `radrm attach` later, are its
//! clients ([`guest`]). radrmd has no part in it: the job has its limits, its output and its end as any other.

mod escape;
mod frames;
pub(crate) mod guest;
pub(crate) mod host;
mod notebook;
mod place;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::Args;
use radrm_base::reason;
use radrm_protocol::words;
use radrm_text::Untrusted;
use thiserror::Error;

use crate::error::CommandError;

/// The word that makes `radrm` the program of an interactive job.
pub(crate) const WORD: &str = "terminal";

/// Options of that program.
#[derive(Args, Debug)]
pub struct Flags {
    /// Socket at which terminals are connected
    socket: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Reason that there is no terminal.
#[derive(Debug, Error)]
pub(crate) enum TerminalError {
    #[error("no terminal can be opened: {}", reason(.0))]
    NoTerminal(#[source] io::Error),
    #[error("{}: other users could connect there: it must be a folder of yours with mode 0700", .0.display())]
    Folder(PathBuf),
    #[error("{}: {}", path.display(), reason(problem))]
    Socket { path: PathBuf, problem: io::Error },
    #[error("{}: the terminal there is another user's", .0.display())]
    Foreign(PathBuf),
    #[error("{} cannot be started: {}", program.display(), reason(problem))]
    NotStarted { program: PathBuf, problem: io::Error },
    #[error("the connection to the terminal failed: {}", reason(.0))]
    Lost(#[source] io::Error),
    #[error("the terminal ended without a word: its job may have been killed")]
    Gone,
    #[error(
        "{} terminals are connected to the job, the most that it takes: leave one of them by `~d` first",
        host::MAX_GUESTS
    )]
    Full,
    #[error("job {0} has no terminal: submit it with --interactive")]
    None(u64),
    #[error("job {0} has no terminal at the moment: it has not started, or its socket is gone")]
    NotThere(u64),
    #[error("job {0} is {1}'s: only they can use its terminal")]
    OfAnother(u64, String),
}

impl CommandError for TerminalError {}

/// The command of a job that runs `command` on a terminal, and its socket.
pub(crate) fn command(command: &[String]) -> Result<(Vec<String>, PathBuf), TerminalError> {
    let program = std::env::current_exe().map_err(TerminalError::NoTerminal)?;
    let socket = place::new_socket();
    let own = [program.as_os_str(), WORD.as_ref(), socket.as_os_str(), "--".as_ref()].map(words::encode);
    Ok((own.into_iter().chain(command.iter().cloned()).collect(), socket))
}

/// The socket of a job's terminal, if its command opens one.
pub(crate) fn socket(command: &[Untrusted]) -> Option<PathBuf> {
    let [_, word, socket, dashes, ..] = command else { return None };
    (*word == WORD && *dashes == "--").then(|| words::decode(socket.raw()).map(PathBuf::from)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_job_is_found_in_its_command() {
        let (all, made) = command(&["bash".to_owned(), "-l".to_owned()]).unwrap();
        assert_eq!(all[4..], ["bash", "-l"]);
        let all: Vec<Untrusted> = all.into_iter().map(Untrusted::from).collect();
        assert_eq!(socket(&all), Some(made.clone()));
        assert_ne!(command(&[]).unwrap().1, made, "each has its own");
        for other in [&all[1..], &all[..3], &["bash".into()]] {
            assert_eq!(socket(other), None);
        }
    }
}
