//! Reads a sweep's file, in whichever of its formats.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use radrm_os::untrusted;

use crate::error::SweepError;
use crate::plan::Plan;
use crate::{own, radt};

/// MiB of a file: a line for each of [`crate::expand::MAX_RUNS`] runs.
const MAX_SIZE: u64 = 64;

/// A sweep's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Path of the file.
    pub path: PathBuf,
    /// Text that was read.
    pub text: String,
    /// Plan that it contains.
    pub plan: Plan,
}

impl Source {
    /// Returns true for a file of radT's.
    #[must_use]
    pub fn is_radt(&self) -> bool {
        extension(&self.path) != "toml"
    }

    /// Returns true if the file has a column for the state of its runs.
    #[must_use]
    pub fn is_table(&self) -> bool {
        extension(&self.path) == "csv"
    }
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

/// Returns true if a file is one of a sweep, by its ending.
#[must_use]
pub fn is_sweep(path: &Path) -> bool {
    ["csv", "yaml", "yml", "toml"].contains(&extension(path).as_str())
}

/// Reads a sweep. What radT's files name is looked for from `here`, the current directory.
///
/// # Errors
/// The file cannot be read, or where it is wrong.
pub fn read(path: &Path, here: &Path) -> Result<Source, SweepError> {
    let kind = extension(path);
    if !is_sweep(path) {
        return Err(SweepError::Kind(path.to_owned()));
    }
    let io = |source| SweepError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    untrusted::open_linked(path)
        .and_then(|file| file.take((MAX_SIZE << 20) + 1).read_to_end(&mut bytes))
        .map_err(io)?;
    if bytes.len() as u64 > MAX_SIZE << 20 {
        return Err(SweepError::TooLarge { path: path.to_owned(), most: MAX_SIZE });
    }
    let text = String::from_utf8(bytes).map_err(|_| SweepError::NotText(path.to_owned()))?;
    // Spreadsheets write a mark before the first column.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let absolute = fs::canonicalize(path).map_err(io)?;
    let beside = absolute.parent().unwrap_or(here);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let plan = match kind.as_str() {
        "csv" => radt::csv::read(&text, &name, here, beside),
        "toml" => own::read(&text, &name, beside),
        _ => radt::read_yaml(&text, here, beside),
    };
    let mut plan = plan.map_err(|(at, what)| SweepError::Wrong { path: path.to_owned(), at, what })?;
    if plan.groups.is_empty() {
        return Err(SweepError::Empty(path.to_owned()));
    }
    for run in plan.groups.iter_mut().flat_map(|group| &mut group.runs) {
        // One name for each directory: a run is the same one from wherever the sweep is started. The run itself reports a
        // directory that does not exist.
        run.directory =
            fs::canonicalize(&run.directory).unwrap_or_else(|_| std::mem::take(&mut run.directory));
    }
    let emulate = plan.emulate.take();
    plan.run_on(emulate.as_deref());
    Ok(Source { path: path.to_owned(), text, plan })
}
