//! Traces that are shell scripts of pauses and `.rad` files, as CARMA publishes them.

use std::path::{Path, PathBuf};

use radrm_scheduler_core::Millis;
use radrm_scheduler_core::rad_file::RadFile;
use radrm_scheduler_core::replay::read::{self as traces, Training};
use radrm_scheduler_core::replay::{Filling, Recorded, TraceJob};

use super::input;
use crate::Failure;
use crate::error::FileProblem;

/// Folders above that of a script in which the files that it names are looked for: scripts are run at the top of a repository.
const FOLDERS_ABOVE: usize = 3;

/// A script, with its files as they are on this machine.
#[derive(Debug)]
pub(super) struct Played {
    /// Since the script's begin, and the file.
    pub(super) files: Vec<(Millis, PathBuf)>,
    /// Number of commands that are neither a pause nor name a `.rad` file.
    pub(super) others: usize,
}

/// The script at a path with this text; `None`: it is none, or a trace in another form. `rad_files`: folder of the files, where one
/// is named.
pub(super) fn of(path: &Path, text: &str, rad_files: Option<&Path>) -> Option<Played> {
    if traces::form(text).is_some() {
        return None;
    }
    let script = traces::script(text)?;
    let folder = folder(path, rad_files);
    let files = script.files.into_iter().map(|(at, named)| (at, found(&folder, Path::new(&named))));
    Some(Played { files: files.collect(), others: script.others })
}

/// Where `.rad` files are that the trace names.
pub(super) fn folder(path: &Path, rad_files: Option<&Path>) -> PathBuf {
    rad_files.unwrap_or_else(|| path.parent().unwrap_or(Path::new(""))).to_owned()
}

/// A named file: by its name in the folder, or by its path from there or from a folder above.
fn found(folder: &Path, named: &Path) -> PathBuf {
    let by_name = named.file_name().map(|name| folder.join(name));
    let mut above = folder.to_owned();
    let mut by_path = vec![folder.join(named)];
    for _ in 0..FOLDERS_ABOVE {
        above.push("..");
        by_path.push(above.join(named));
    }
    let found = by_name.into_iter().chain(by_path).find(|file| file.is_file());
    found.unwrap_or_else(|| folder.join(named))
}

/// The jobs of a script, which have the run times that were recorded, or else an assumed one.
pub(super) fn jobs(
    played: &Played,
    recorded: Option<&Recorded>,
    filling: &Filling,
) -> Result<Vec<TraceJob>, Failure> {
    let job = |(at, path): &(Millis, PathBuf)| -> Result<TraceJob, Failure> {
        let file =
            RadFile::parse(&input::written(path)?).map_err(|error| FileProblem::Rad(error).of(path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let ran = recorded.and_then(|recorded| recorded.ran(&name));
        let mut job = Training::of_file(&name, *at, ran, &file).job(filling);
        job.estimates.extend(file.estimates.clone());
        Ok(job)
    };
    played.files.iter().map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_scheduler_core::Bytes;
    use std::fs;

    const SCRIPT: &str = "python src/submit.py --task workloads/big.rad\nsleep 73\npython src/submit.py --task workloads/small.rad\n";

    fn rad(batch: u32, gpus: u32, mib: u32) -> String {
        format!(
            "# a training\nconda activate torch\npython3 t.py\nresnet50.txt\nimagenet\n{batch}\ncollocation\n{gpus}\n{mib}\n900.5\n40000\n8000\n"
        )
    }

    #[test]
    fn files_are_found_from_a_folder_above_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let scripts = dir.path().join("assets/traces");
        for folder in [&scripts, &dir.path().join("workloads")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(dir.path().join("workloads/big.rad"), rad(32, 2, 5262)).unwrap();
        fs::write(dir.path().join("workloads/small.rad"), rad(8, 1, 900)).unwrap();
        let path = scripts.join("t.sh");
        let played = of(&path, SCRIPT, None).unwrap();
        let recorded = Recorded::read("rad,duration_min\nsmall,2\n").unwrap();
        let jobs = jobs(&played, Some(&recorded), &Filling::default()).unwrap();
        let [big, small] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!((big.name.as_str(), big.arrival, big.gpus), ("big", Millis(0), 2));
        assert_eq!((big.peak, big.batch, big.is_duration_assumed), (Bytes::from_mib(5262), Some(32), true));
        let names: Vec<&str> = big.estimates.keys().map(String::as_str).collect();
        assert_eq!(names, ["gpumemnet", "horus"], "40000 stands for no number");
        assert_eq!((small.arrival, small.duration), (Millis(73_000), Millis(120_000)));
        assert!(!small.is_duration_assumed);
        let elsewhere = of(&path, SCRIPT, Some(&dir.path().join("workloads"))).unwrap();
        assert!(elsewhere.files[0].1.ends_with("workloads/big.rad"));
        assert_eq!(elsewhere.others, 0);
    }

    #[test]
    fn a_missing_file_is_named_and_a_trace_in_another_form_is_no_script() {
        let dir = tempfile::tempdir().unwrap();
        let played = of(&dir.path().join("t.sh"), SCRIPT, None).unwrap();
        let why = jobs(&played, None, &Filling::default()).unwrap_err().to_string();
        assert!(why.contains("workloads/big.rad: No such file"), "{why}");
        assert!(of(Path::new("t.csv"), "runtime\n5\n", None).is_none());
        assert!(of(Path::new("t.sh"), "sleep 5\n", None).is_none());
    }
}
