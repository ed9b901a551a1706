//! `radrm compare`.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use radrm_analyzer::{Comparison, Flame, Held, Summary, TensorsBy};
use radrm_launcher::layout::text_options;
use radrm_launcher::report_file;
use radrm_text::output::width;

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
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write one self-contained page to OUT, with a flame graph of what holds more or less memory; `-` is standard output
    #[arg(long, value_name = "OUT", require_equals = true)]
    html: Option<PathBuf>,
}

impl Flags {
    /// The profiles before and after the change.
    fn sides(&self) -> Result<(&[PathBuf], &[PathBuf]), UsageError> {
        match self.pair.as_slice() {
            [before, after] => Ok((std::slice::from_ref(before), std::slice::from_ref(after))),
            _ if !self.before.is_empty() => Ok((&self.before, &self.after)),
            _ => Err(UsageError::OneSide),
        }
    }

    /// The file that the page goes to; `None` for standard output.
    fn out(&self) -> Option<&Path> {
        self.html.as_deref().filter(|out| out.as_os_str() != "-")
    }
}

/// Shows what changed. A directory stands for the profiles in it.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let (before, after) = flags.sides()?;
    if let Some(out) = flags.out() {
        report_file::spares_profile(out).map_err(UsageError::Overwrites)?;
    }
    let (before, after) = (runs(before)?, runs(after)?);
    // What a framework's allocator holds says more than what it took from the driver.
    let has_tensors = |runs: &Runs| runs.tensors.iter().all(|flames| !flames.is_empty());
    let flames = |runs: Runs, has_tensors: bool| match has_tensors {
        true => runs.tensors.into_iter().map(Some).collect(),
        false => runs.flames,
    };
    let has_tensors = has_tensors(&before) && has_tensors(&after);
    let comparison = Comparison::of(&before.summaries, &after.summaries)
        .with_stacks(&flames(before, has_tensors), &flames(after, has_tensors));
    match (flags.html.is_some(), flags.out()) {
        (true, None) => return print(&radrm_analyzer::comparison_html(&comparison)),
        (true, Some(out)) => {
            report_file::write(out, radrm_analyzer::comparison_html(&comparison))?;
            return print(&format!("{}\n", out.display()));
        }
        (false, _) => {}
    }
    if flags.json {
        return print(&comparison.json());
    }
    let out = std::io::stdout();
    let options = text_options(out.is_terminal(), width(&out), false, None);
    print(&radrm_analyzer::comparison_text(&comparison, &options))
}

/// The runs of one side.
#[derive(Default)]
struct Runs {
    summaries: Vec<Summary>,
    /// Call stacks at the peak; `None` where they were not recorded.
    flames: Vec<Option<Vec<Flame>>>,
    /// Tensors at the peak, by line; empty where they were not recorded.
    tensors: Vec<Vec<Flame>>,
}

/// The files that are named; a directory stands for the profiles in it.
pub(crate) fn profiles(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(profiles_in(path)?);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn runs(paths: &[PathBuf]) -> Result<Runs, Failure> {
    let mut runs = Runs::default();
    for file in profiles(paths)? {
        let mut profile = report::open(&file)?;
        radrm_symbols::fill(&mut profile);
        runs.summaries.push(Summary::from_profile(&profile));
        let recorded = profile.processes.iter().any(|process| process.stacks.is_some());
        runs.flames.push(recorded.then(|| radrm_analyzer::flames(&profile, Held::AtPeak, false)));
        runs.tensors.push(radrm_analyzer::tensor_flames(&profile, TensorsBy::Lines, false));
    }
    Ok(runs)
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
    use clap::Parser;

    use super::*;

    #[test]
    fn a_comparison_has_two_sides() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            flags: Flags,
        }
        let sides = |line: &str| {
            let flags = Line::try_parse_from(["compare"].into_iter().chain(line.split(' '))).unwrap().flags;
            let sides = flags.sides().map(|(before, after)| (before.to_vec(), after.to_vec()));
            sides.map_err(|error| error.to_string())
        };
        let files = |names: &str| names.chars().map(|name| PathBuf::from(name.to_string())).collect();
        assert_eq!(sides("a b"), Ok((files("a"), files("b"))));
        assert_eq!(sides("--before a b c --after d e --json"), Ok((files("abc"), files("de"))));
        assert!(sides("a").unwrap_err().contains("needs two profiles"));
    }

    #[test]
    fn a_directory_without_profiles_is_said() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.txt"), "").unwrap();
        let error = runs(&[dir.path().into()]).err().unwrap();
        let error = error.to_string();
        assert!(error.ends_with("there is no profile (*.radrm) in it"), "{error}");
        fs::write(dir.path().join("b.radrm"), "").unwrap();
        fs::write(dir.path().join("a.radrm"), "").unwrap();
        let files = profiles_in(dir.path()).unwrap();
        assert!(files[0].ends_with("a.radrm") && files[1].ends_with("b.radrm") && files.len() == 2);
        assert!(runs(&files).err().unwrap().to_string().contains("a.radrm: "));
    }
}
