//! The Python modules that are loaded with a program's interpreter: those that every recording of the Python side needs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A module's file and its text.
pub type PythonFile = (&'static str, &'static str);

/// Needed by all others; the first of them is what the interpreter loads.
pub const COMMON: [PythonFile; 7] = [
    ("sitecustomize.py", include_str!("sitecustomize.py")),
    ("radrm_imports.py", include_str!("radrm_imports.py")),
    ("radrm_devices.py", include_str!("radrm_devices.py")),
    ("radrm_ends.py", include_str!("radrm_ends.py")),
    ("radrm_lines.py", include_str!("radrm_lines.py")),
    ("radrm_peaks.py", include_str!("radrm_peaks.py")),
    ("radrm_steps.py", include_str!("radrm_steps.py")),
];

/// Writes modules into a folder.
///
/// # Errors
/// The first file that cannot be written, and why.
pub fn write(folder: &Path, files: &[PythonFile]) -> Result<(), (PathBuf, io::Error)> {
    files.iter().try_for_each(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| (path, source))
    })
}
