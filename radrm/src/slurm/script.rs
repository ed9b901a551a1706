//! The batch script: what it is known by, and how it is run without Slurm.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use radrm_base::Bytes;
use radrm_os::untrusted;

use super::SlurmError;

/// Bytes of a script; Slurm takes 4 MiB as it comes.
const MAX_SCRIPT: u64 = 64 << 20;

/// The script of a job.
#[derive(Debug)]
pub(super) struct Script {
    /// The text that Slurm gets.
    pub(super) content: Vec<u8>,
    /// Path of the script, if it is a file.
    pub(super) path: Option<PathBuf>,
}

impl Script {
    /// The script that a command line names: a file, the command of `--wrap`, or standard input.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(named: Option<&OsStr>, wrap: Option<&OsStr>) -> Result<Self, SlurmError> {
        if let Some(command) = wrap {
            return Ok(Self { content: wrapped(command), path: None });
        }
        let path = named.map_or_else(|| PathBuf::from("standard input"), PathBuf::from);
        let content = match named {
            Some(_) => untrusted::open_linked(&path).and_then(bounded),
            None => read_input(),
        };
        match content {
            Ok(content) => Ok(Self { content, path: named.map(|_| path) }),
            Err(source) => Err(SlurmError::Script { path, source }),
        }
    }

    /// Returns true if it starts steps of its own, which only Slurm can do.
    pub(super) fn starts_steps(&self) -> bool {
        let text = String::from_utf8_lossy(&self.content);
        let words =
            |line: &str| line.split(|c: char| !(c.is_alphanumeric() || "/_-.".contains(c))).any(is_srun);
        text.lines().filter(|line| !line.trim_start().starts_with('#')).any(words)
    }

    /// Command that runs it where Slurm does not: the program that its first line names.
    pub(super) fn interpreter(&self) -> Vec<OsString> {
        let text = String::from_utf8_lossy(&self.content);
        let named = text.lines().next().and_then(|line| line.strip_prefix("#!"));
        named.unwrap_or("/bin/sh").split_whitespace().map(OsString::from).collect()
    }

    /// It as a file: its own, or a copy in memory that lives as long as the second value.
    ///
    /// # Errors
    /// There is no room for the copy.
    pub(super) fn as_file(&self) -> io::Result<(PathBuf, Option<tempfile::NamedTempFile>)> {
        if let Some(path) = &self.path {
            return Ok((path.canonicalize()?, None));
        }
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(&self.content)?;
        Ok((file.path().to_owned(), Some(file)))
    }

    /// It as standard input of `sbatch`.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn as_input(&self) -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(&self.content)?;
        file.rewind()?;
        Ok(file)
    }
}

fn is_srun(word: &str) -> bool {
    word == "srun" || word.ends_with("/srun")
}

fn read_input() -> io::Result<Vec<u8>> {
    bounded(io::stdin().lock())
}

/// Reads a script to its end.
fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(MAX_SCRIPT + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SCRIPT {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {}", Bytes(MAX_SCRIPT)),
        ));
    }
    Ok(content)
}

/// The script that `sbatch --wrap` makes.
fn wrapped(command: &OsStr) -> Vec<u8> {
    let begin = b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n";
    [begin.as_slice(), command.as_encoded_bytes(), b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        Script { content: text.as_bytes().to_vec(), path: None }
    }

    #[test]
    fn steps_of_its_own_are_found() {
        for text in
            ["srun python3 t.py", "time srun -n 2 x", "a && srun x", "x=$(srun hostname)", "/usr/bin/srun x"]
        {
            assert!(script(text).starts_steps(), "{text}");
        }
        for text in ["# srun x", "python3 srun.py", "./my-srun x", "python3 train.py"] {
            assert!(!script(text).starts_steps(), "{text}");
        }
    }

    #[test]
    fn the_first_line_names_what_runs_it() {
        assert_eq!(script("#!/usr/bin/env python3\n").interpreter(), ["/usr/bin/env", "python3"]);
        assert_eq!(script("echo").interpreter(), ["/bin/sh"]);
    }

    #[test]
    fn a_script_that_is_not_there_is_named() {
        let error = Script::read(Some(OsStr::new("/nowhere.sh")), None).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere.sh: "), "{error}");
    }
}
