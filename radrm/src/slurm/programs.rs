//! Slurm's own programs.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::SlurmError;

/// Where they are besides `PATH`.
const FURTHER: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin"];

/// A program of Slurm's.
///
/// # Errors
/// [`SlurmError::NoProgram`].
pub(super) fn find(name: &'static str) -> Result<PathBuf, SlurmError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(FURTHER.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file()).ok_or(SlurmError::NoProgram(name))
}

/// What a program prints.
///
/// # Errors
/// It is not there, or it fails, with the first line that it wrote about that.
pub(super) fn output(name: &'static str, arguments: &[&str]) -> Result<String, SlurmError> {
    let mut command = Command::new(find(name)?);
    // Times as seconds since 1970, whatever the user likes to read.
    command.args(arguments).env("SLURM_TIME_FORMAT", "%s").stdin(Stdio::null());
    let output = command.output().map_err(|source| SlurmError::Program { program: name, source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| !line.trim().is_empty());
    let said = line.map_or_else(|| output.status.to_string(), |line| radrm_term::clean(line).into_owned());
    Err(SlurmError::Failed { program: name, said })
}

/// Becomes a program; returns only if that fails.
pub(super) fn become_program(name: &'static str, mut command: Command) -> SlurmError {
    use std::os::unix::process::CommandExt;
    let source: io::Error = command.exec();
    SlurmError::Program { program: name, source }
}
