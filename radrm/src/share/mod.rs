//! `radrm share`: unmodified programs that load the same data with one loader.
//!
//! Each program's Python loads `radrm.share._unmodified`, which decides what is shared. This only starts the programs, and
//! tells them how many there are.

mod error;

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::{NamedTempFile, TempDir};

use crate::Failure;
use crate::client::text::span;
use crate::error::UsageError;
pub(crate) use error::ShareError;

/// Between two looks at the programs and the signals.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Hook that each interpreter loads first.
const HOOK: &str = include_str!("sitecustomize.py");

/// Names of variables that `radrm.share._unmodified` reads.
const SESSION: &str = "RADRM_SHARE_SESSION";
const PROGRAM: &str = "RADRM_SHARE_PROGRAM";
const ANY_ORDER: &str = "RADRM_SHARE_ANY_ORDER";
const WAIT: &str = "RADRM_SHARE_WAIT_MS";

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Share also where the programs' orders of samples differ, as with other seeds: all get that of one of them
    #[arg(long)]
    any_order: bool,
    /// Time that the first program waits for the others at the beginning of an epoch [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    wait: Option<u64>,
    /// The programs with their arguments, with -- between them
    #[arg(last = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// Runs the programs, and gives the highest of their exit codes.
pub(crate) fn run(flags: &Flags) -> Result<u8, Failure> {
    let programs: Vec<&[OsString]> = flags.words.split(|word| word == "--").collect();
    if programs.iter().any(|program| program.is_empty()) {
        return Err(UsageError::NoProgram.into());
    }
    let session = Session::new(programs.len())?;
    // Only one that is caught: an ignored one would be ignored by the programs, too.
    let asked = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let asked = asked.clone();
        let note = move || asked.store(signal.unsigned_abs() as usize, Ordering::Relaxed);
        // SAFETY: storing a number is allowed in a handler.
        unsafe { signal_hook::low_level::register(signal, note) }.map_err(ShareError::Signals)?;
    }
    let mut children: Vec<(usize, Child)> = Vec::new();
    for (number, words) in programs.into_iter().enumerate() {
        match session.start(number, words, flags) {
            Ok(child) => children.push((number, child)),
            Err(why) => {
                end(&children, SIGTERM);
                return Err(why.into());
            }
        }
    }
    let mut worst = 0;
    while !children.is_empty() {
        let mut left = Vec::new();
        let count = children.len();
        for (number, mut child) in children {
            match child.try_wait() {
                Ok(Some(status)) => worst = worst.max(code(status)),
                _ => left.push((number, child)),
            }
        }
        children = left;
        if children.len() < count {
            session.note(children.iter().map(|(number, _)| *number))?;
        }
        match asked.swap(0, Ordering::Relaxed) {
            0 => {}
            // A terminal sends it to the programs, too.
            signal if signal == SIGINT.unsigned_abs() as usize => {}
            signal => end(&children, i32::try_from(signal).unwrap_or(SIGTERM)),
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(worst)
}

fn end(children: &[(usize, Child)], signal: i32) {
    for (_, child) in children {
        // SAFETY: a system call without memory; the child was not waited for, so the number is its own.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }
}

/// As a shell reports it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Session that the programs have in common: a folder of this user with the socket of each shared epoch.
struct Session {
    folder: TempDir,
}

impl Session {
    fn new(programs: usize) -> Result<Self, ShareError> {
        let make = || -> io::Result<Self> {
            // A socket's path has at most 107 bytes, and the names of epochs are 32 long.
            let parent = env::temp_dir();
            let parent = if parent.as_os_str().len() <= 48 { parent } else { PathBuf::from("/tmp") };
            let mode = Permissions::from_mode(0o700);
            let folder =
                tempfile::Builder::new().prefix("radrm-share-").permissions(mode).tempdir_in(parent)?;
            std::fs::create_dir(folder.path().join("hook"))?;
            std::fs::write(folder.path().join("hook/sitecustomize.py"), HOOK)?;
            Ok(Self { folder })
        };
        let session = make().map_err(ShareError::Session)?;
        session.note(0..programs)?;
        Ok(session)
    }

    /// Tells the programs which of them run. The file is whole at any time.
    fn note(&self, programs: impl Iterator<Item = usize>) -> Result<(), ShareError> {
        let programs: Vec<_> = programs.map(|number| number.to_string()).collect();
        let write = || -> io::Result<()> {
            let mut file = NamedTempFile::new_in(self.folder.path())?;
            writeln!(file, "{}", programs.join(" "))?;
            file.persist(self.folder.path().join("living")).map(|_| ()).map_err(|error| error.error)
        };
        write().map_err(ShareError::Session)
    }

    fn start(&self, number: usize, words: &[OsString], flags: &Flags) -> Result<Child, ShareError> {
        let (program, arguments) = words
            .split_first()
            .map_or((OsStr::new(""), &[][..]), |(program, rest)| (program.as_os_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments).env(SESSION, self.folder.path()).env(PROGRAM, number.to_string());
        let mut path = vec![self.folder.path().join("hook")];
        path.extend(env::var_os("PYTHONPATH").iter().flat_map(env::split_paths));
        // Behind what the user names: a package of the interpreter's own is of the same version.
        path.extend(module());
        if let Ok(path) = env::join_paths(path) {
            command.env("PYTHONPATH", path);
        }
        match flags.any_order {
            true => command.env(ANY_ORDER, "1"),
            false => command.env_remove(ANY_ORDER),
        };
        command.env(WAIT, flags.wait.unwrap_or(30_000).to_string());
        let own = std::process::id();
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // The programs end with this one, and their session's folder with it.
                libc::prctl(libc::PR_SET_PDEATHSIG, SIGTERM);
                match libc::getppid() == own.cast_signed() {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(libc::ECHILD)),
                }
            })
        };
        let failed = |source| ShareError::Start { program: program.to_string_lossy().into_owned(), source };
        command.spawn().map_err(failed)
    }
}

/// The folder of the Python package of this installation, where it is not a wheel: beside the programs of an unpacked
/// archive, as installed on a system, in a source tree.
fn module() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let beside = own.parent()?;
    let places = ["../lib/radrm/python", "../../contrib/python"].map(|place| beside.join(place));
    let system = Path::new("/usr/lib/radrm/python").to_owned();
    places.into_iter().chain([system]).find(|place| place.join("radrm/share/__init__.py").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_that_run_are_named_in_a_folder_of_the_user() {
        let session = Session::new(3).unwrap();
        let mode = std::fs::metadata(session.folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let living = || std::fs::read_to_string(session.folder.path().join("living")).unwrap();
        assert_eq!(living(), "0 1 2\n");
        session.note([0, 2].into_iter()).unwrap();
        assert_eq!(living(), "0 2\n");
    }
}
