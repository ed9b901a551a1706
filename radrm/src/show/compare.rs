//! `radrm compare`.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use radrm_analyzer::{Comparison, Summary};
use radrm_console::output::width;
use radrm_launcher::layout::text_options;

use super::report;
use crate::error::{FileProblem, UsageError};
use crate::{Failure, print};

#[derive(clap::Args, Debug)]
pub(crate) struct Flags {
    /// Profile before and after the change
    #[arg(value_name = "PROFILE", num_args = 0..=2, conflicts_with_all = ["before", "after"])]
    pair: Vec<PathBuf>,
    /// Runs before the change
    #[arg(long, value_name = "PROFILE", num_args = 1.., requires = "after")]
    before: Vec<PathBuf>,
    /// Runs after it
    #[arg(long, value_name = "PROFILE", num_args = 1.., requires = "before")]
    after: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows what changed. A directory stands for the profiles in it.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let (before, after) = match flags.pair.as_slice() {
        [before, after] => (std::slice::from_ref(before), std::slice::from_ref(after)),
        _ if !flags.before.is_empty() => (&flags.before[..], &flags.after[..]),
        _ => return Err(UsageError::OneSide.into()),
    };
    let (before, after) = (summaries(before)?, summaries(after)?);
    let comparison = Comparison::of(&before, &after);
    if flags.json {
        return print(&comparison.json());
    }
    let out = std::io::stdout();
    let options = text_options(out.is_terminal(), width(&out), false, None);
    print(&radrm_analyzer::comparison_text(&comparison, &options))
}

fn summaries(paths: &[PathBuf]) -> Result<Vec<Summary>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(profiles_in(path)?);
        } else {
            files.push(path.clone());
        }
    }
    files.iter().map(|file| Ok(Summary::from_profile(&report::open(file)?))).collect()
}

/// The profiles of a directory, by name.
fn profiles_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(directory).map_err(|error| FileProblem::Io(error).of(directory))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "radrm")).collect();
    files.sort();
    if files.is_empty() {
        return Err(FileProblem::NoProfile.of(directory));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_profiles_is_said() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.txt"), "").unwrap();
        let error = summaries(&[dir.path().into()]).unwrap_err();
        let error = error.to_string();
        assert!(error.ends_with("there is no profile (*.radrm) in it"), "{error}");
        fs::write(dir.path().join("b.radrm"), "").unwrap();
        fs::write(dir.path().join("a.radrm"), "").unwrap();
        let files = profiles_in(dir.path()).unwrap();
        assert!(files[0].ends_with("a.radrm") && files[1].ends_with("b.radrm") && files.len() == 2);
        assert!(summaries(&files).unwrap_err().to_string().contains("a.radrm: "));
    }
}
