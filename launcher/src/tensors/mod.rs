//! `radrm-run --stacks=tensors`: what held the memory of a framework's allocator at its peak.
//!
//! A few lines of Python that are loaded with the interpreter read the history that PyTorch's allocator keeps, and leave a
//! file for each process. What cannot be recorded keeps no program from running.
//!
//! | module | is |
//! |---|---|
//! | [`figures`] | a process's file |
//! | [`records`] | what of it goes into the profile |

mod figures;
mod records;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use radrm_limits::program::environment::Environment;
use radrm_profile::{Profile, Record};
use tempfile::TempDir;
use thiserror::Error;

use crate::hook::{self, PythonFile};
use crate::temporary;

/// Names the folder of the processes' files to the program.
const FOLDER: &str = "RADRM_TENSORS";
const FIGURES: &str = "figures";
/// Asks the program's Python side for marks of optimizer steps.
const STEPS: &str = "RADRM_STEPS";

/// The Python modules that record tensors.
const PYTHON: [PythonFile; 10] = [
    ("radrm_tensors.py", include_str!("hook/radrm_tensors.py")),
    ("radrm_backward.py", include_str!("hook/radrm_backward.py")),
    ("radrm_holders.py", include_str!("hook/radrm_holders.py")),
    ("radrm_jax.py", include_str!("hook/radrm_jax.py")),
    ("radrm_modules.py", include_str!("hook/radrm_modules.py")),
    ("radrm_pprof.py", include_str!("hook/radrm_pprof.py")),
    ("radrm_repeats.py", include_str!("hook/radrm_repeats.py")),
    ("radrm_refusal.py", include_str!("hook/radrm_refusal.py")),
    ("radrm_replay.py", include_str!("hook/radrm_replay.py")),
    ("radrm_rows.py", include_str!("hook/radrm_rows.py")),
];

/// Reason that tensors cannot be recorded, as one sentence.
#[derive(Debug, Error)]
pub enum TensorsError {
    /// There is no room.
    #[error("tensors are not recorded: no directory for it: {0}")]
    Directory(io::Error),
    /// A file in there cannot be written.
    #[error("tensors are not recorded: {}: {source}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The recording of tensors in one run, or of its optimizer steps alone.
pub struct TensorRecording {
    directory: TempDir,
    only_steps: bool,
}

impl TensorRecording {
    /// Writes the Python modules into a directory of their own; `is_alone`: no other Python side is loaded.
    ///
    /// # Errors
    /// [`TensorsError`]; nothing is left behind.
    pub fn prepare(is_alone: bool) -> Result<Self, TensorsError> {
        let directory = temporary::directory("radrm-tensors-").map_err(TensorsError::Directory)?;
        let figures = directory.path().join(FIGURES);
        fs::create_dir(&figures).map_err(|source| TensorsError::Write { path: figures, source })?;
        let common = if is_alone { &hook::COMMON[..] } else { &[] };
        hook::write(directory.path(), &[common, &PYTHON].concat())
            .map_err(|(path, source)| TensorsError::Write { path, source })?;
        Ok(Self { directory, only_steps: false })
    }

    /// Writes only the modules that mark the steps of optimizers.
    ///
    /// # Errors
    /// [`TensorsError`]; nothing is left behind.
    pub fn of_steps() -> Result<Self, TensorsError> {
        let directory = temporary::directory("radrm-steps-").map_err(TensorsError::Directory)?;
        hook::write(directory.path(), &hook::COMMON)
            .map_err(|(path, source)| TensorsError::Write { path, source })?;
        Ok(Self { directory, only_steps: true })
    }

    /// Folder in which everything lies.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// Lets a program with this environment find the modules: behind those of another Python side, which load them.
    pub fn enter(&self, environment: &mut Environment) {
        environment.prepend_path("PYTHONPATH", self.directory.path());
        if self.only_steps {
            return environment.set(STEPS, b"1");
        }
        environment.set(FOLDER, self.directory.path().join(FIGURES).as_os_str().as_encoded_bytes());
    }

    /// Records of what the processes of a profile left; takes the directory away.
    #[must_use]
    pub fn collect(self, profile: &Profile) -> Vec<Record> {
        if self.only_steps {
            return Vec::new();
        }
        let found = figures::read(&self.directory.path().join(FIGURES));
        records::records(profile, &found)
    }
}
