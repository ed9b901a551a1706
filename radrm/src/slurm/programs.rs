//! Slurm's own programs.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::SlurmError;

/// Folders of the programs besides `PATH`.
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

/// Output of a program.
///
/// # Errors
/// It is not there, or it fails, with what it wrote about that.
pub(super) fn output(name: &'static str, arguments: &[&str]) -> Result<String, SlurmError> {
    let mut command = Command::new(find(name)?);
    // Times as seconds since 1970, whatever the user likes to read.
    command.args(arguments).env("SLURM_TIME_FORMAT", "%s").stdin(Stdio::null());
    let output = command.output().map_err(|source| SlurmError::Program { program: name, source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let said = cause(name, &text)
        .map_or_else(|| output.status.to_string(), |line| radrm_text::clean(line).into_owned());
    Err(SlurmError::Failed { program: name, said })
}

/// The line that says why a program failed, without its name and level: the fatal one, which follows the errors that led
/// to it, else the first.
fn cause<'a>(name: &str, text: &'a str) -> Option<&'a str> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let of = |line: &'a str| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line);
    lines()
        .find_map(|line| of(line).strip_prefix("fatal: "))
        .or_else(|| lines().next().map(|line| of(line).trim_start_matches("error: ")))
}

/// Becomes a program; returns only if that fails.
pub(super) fn become_program(name: &'static str, mut command: Command) -> SlurmError {
    use std::os::unix::process::CommandExt;
    let source: io::Error = command.exec();
    SlurmError::Program { program: name, source }
}

#[cfg(test)]
mod tests {
    use super::cause;

    #[test]
    fn a_programs_failure_is_told_by_its_fatal_line_without_its_name() {
        let text =
            "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: Could not establish a source\n";
        assert_eq!(cause("sinfo", text), Some("Could not establish a source"));
        let plain = "\nslurm_load_partitions: Unable to contact slurm controller\n";
        assert_eq!(cause("sinfo", plain), Some("slurm_load_partitions: Unable to contact slurm controller"));
        assert_eq!(cause("sacct", "sacct: error: no accounting\nmore"), Some("no accounting"));
        assert_eq!(cause("sacct", " \n"), None);
    }
}
