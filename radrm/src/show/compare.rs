//! `radrm compare`.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use radrm_analyzer::{Comparison, Summary};
use radrm_console::output;
use radrm_console::output::width;
use radrm_launcher::layout::text_options;
use radrm_profile::model::Profile;

use super::report::told;
use crate::{Failure, print};

/// The flags as written.
#[derive(clap::Args, Debug)]
pub struct Flags {
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

/// `radrm compare`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// Profiles before the change, or directories of them.
    pub before: Vec<PathBuf>,
    /// Those after it.
    pub after: Vec<PathBuf>,
    /// As JSON.
    pub json: bool,
}

impl Flags {
    /// What they mean together.
    ///
    /// # Errors
    /// One sentence: there are not two sides.
    pub fn resolve(self) -> Result<Compare, String> {
        let Flags { mut pair, before, after, json } = self;
        if !before.is_empty() {
            return Ok(Compare { before, after, json });
        }
        match (pair.pop(), pair.pop()) {
            (Some(after), Some(before)) => Ok(Compare { before: vec![before], after: vec![after], json }),
            _ => Err("a comparison needs two profiles, or several after --before and --after".to_owned()),
        }
    }
}

/// Shows what changed.
///
/// # Errors
/// One sentence: a profile cannot be read, or a directory has none.
pub fn run(order: &Compare) -> Result<(), Failure> {
    let (before, after) = (summaries(&order.before)?, summaries(&order.after)?);
    let comparison = Comparison::of(&before, &after);
    if order.json {
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
    let summary = |file: &PathBuf| {
        let profile = Profile::open(file).map_err(|error| format!("{}: {}", file.display(), told(&error)))?;
        Ok(Summary::from_profile(&profile))
    };
    files.iter().map(summary).collect()
}

/// The profiles of a directory, by name.
fn profiles_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("{} cannot be read: {}", directory.display(), output::reason(&error)))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "radrm")).collect();
    files.sort();
    if files.is_empty() {
        return Err(format!("{}: there is no profile (*.radrm) in it", directory.display()).into());
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
