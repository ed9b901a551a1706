//! Programs that know nothing of sharing, under `radrm share`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use radrm_preload_tests::child::{self, Ended};
use radrm_preload_tests::{artifacts, python};

use super::PATIENCE;

/// Runs trainings (seed, workers, size) under `radrm share`, where PyTorch is; gives what was printed and how often each
/// process loaded a sample.
fn trainings(options: &[&str], trainings: &[[&str; 3]]) -> Option<(Ended, BTreeMap<String, usize>)> {
    let torch = python::torch()?;
    let place = tempfile::tempdir().expect("folder");
    let loaded = place.path().join("loaded");
    artifacts::file("libradrm_share.so");
    artifacts::file("radrm");
    // PyTorch's CUDA libraries are those of a dry run.
    let mut command = Command::new(artifacts::file("radrm-run"));
    command.args(["--dry-run", "--write-files", "--no-profile", "--no-dataset", "-q", "--"]);
    command.arg(artifacts::file("radrm")).arg("share").args(options);
    for [seed, workers, size] in trainings {
        command.arg("--").arg(&torch).arg(python::script("share_unmodified.py"));
        command.args([seed, "2", workers, size, "--loaded"]).arg(&loaded);
    }
    command.env("RADRM_LIB_DIR", artifacts::directory()).env("XDG_RUNTIME_DIR", place.path());
    command.env_remove("LD_PRELOAD");
    let ended = child::run(command, PATIENCE);
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(&loaded).unwrap_or_default().lines() {
        let process = line.split(' ').next().unwrap_or_default().to_owned();
        *counts.entry(process).or_default() += 1;
    }
    Some((ended, counts))
}

/// Ends of the trainings: digests of all batches, and the next random number of each.
fn digests(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<_> = ended.stdout.lines().filter(|line| line.starts_with("digest")).collect();
    lines.sort_unstable();
    lines
}

/// Samples of two epochs of the training and the test loader.
const SAMPLES: usize = 2 * (40 + 10);

#[test]
fn equal_trainings_load_once_and_get_what_they_would_alone() {
    let Some((alone, _)) = trainings(&[], &[["1", "0", "5"]]) else { return };
    let alone = alone.ok();
    // With another seed the training's samples come in another order, and the test's do not.
    let (all, loaded) = trainings(&["--wait", "2m"], &[["1", "0", "5"], ["1", "2", "5"], ["2", "0", "5"]])
        .expect("as before");
    let all = all.ok();
    let equal = digests(&all).into_iter().filter(|line| *line == digests(&alone)[0]).count();
    assert_eq!(equal, 2, "the same batches and random numbers: {} {}", all.stdout, alone.stdout);
    assert!(all.stderr.contains("in another order"), "{}", all.stderr);
    assert_eq!(loaded.values().sum::<usize>(), SAMPLES + 2 * 40, "{loaded:?} {}", all.stderr);
}

#[test]
fn trainings_on_other_data_load_their_own_and_hear_why() {
    let three = [["1", "0", "5"], ["2", "0", "5"], ["1", "0", "6"]];
    let Some((all, loaded)) = trainings(&["--any-order", "--wait", "2m"], &three) else { return };
    let all = all.ok();
    assert!(all.stderr.contains("load other data"), "{}", all.stderr);
    assert_eq!(loaded.values().sum::<usize>(), 2 * SAMPLES, "{loaded:?} {}", all.stderr);
}
