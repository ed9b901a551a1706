//! A run with NVIDIA's own CUDA runtime corrects a dry run, which has a stand-in in its place.

use std::path::PathBuf;
use std::process::Command;

use radrm_collector::dataset::{Dataset, Filter, Origin, Row};
use radrm_preload_tests::{artifacts, child, programs};
use serde_json::Value;

use super::harness::PATIENCE;

const MIB: u64 = 1 << 20;

/// The folder of the genuine runtime; `None`, reported, where it is not there.
fn runtime() -> Option<PathBuf> {
    let folder = artifacts::workspace().join("target/genuine/runtime/nvidia/cu13/lib");
    if folder.join("libcudart.so.13").exists() {
        return Some(folder);
    }
    eprintln!("skipped: no genuine CUDA runtime in {} (cargo xtask genuine)", folder.display());
    None
}

#[test]
fn a_run_with_the_genuine_cuda_runtime_corrects_a_dry_run() {
    let Some(runtime) = runtime() else { return };
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("d.db");
    let program = programs::compile("runtime_memory.c", &["-ldl"]);
    let run = |options: &[&str]| {
        let mut command = Command::new(artifacts::file("radrm-run"));
        command.args(options).args(["--emulate", "A100-40GB", "--json=-", "--no-profile"]);
        command.arg("--dataset").arg(&file).arg("--").arg(&program);
        command.env("LD_LIBRARY_PATH", &runtime).current_dir(place.path());
        let ended = child::run(command, PATIENCE).ok();
        let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
        report
    };
    let rows = || Dataset::open(&file).unwrap().rows(&Filter::default()).unwrap();

    let shipped = run(&["--dry-run"])["dry_run"]["expected"].clone();
    assert_eq!(shipped["runs"], 0, "{shipped:#}");
    run(&[]);
    let [real, dry] = &rows()[..] else { panic!("{:#?}", rows()) };
    assert_eq!((real.origin, dry.origin), (Origin::Emulated, Origin::DryRun));
    // Only the real run shows the runtime's version.
    let shown = |row: &Row| row.framework.clone().unwrap_or_default();
    assert!(shown(real).contains("CUDA runtime 13"), "{real:?}");
    assert!(!shown(dry).contains("CUDA runtime 13"), "{dry:?}");

    // As on a GPU whose processes hold 300 MiB more.
    let peak = dry.footprint_bytes.unwrap() + 300 * MIB;
    let measured =
        Row { id: 0, origin: Origin::Measured, emulated: None, footprint_bytes: Some(peak), ..real.clone() };
    Dataset::open(&file).unwrap().add(&measured, None).unwrap();

    let other = place.path().join("other");
    std::fs::copy(&program, &other).unwrap();
    let mut command = Command::new(artifacts::file("radrm-run"));
    command.args(["--dry-run", "--emulate", "A100-40GB", "--json=-", "--no-profile", "--dataset"]).arg(&file);
    command.arg("--").arg(&other).env("LD_LIBRARY_PATH", &runtime).current_dir(place.path());
    let report: Value = serde_json::from_str(&child::run(command, PATIENCE).ok().stdout).expect("a report");
    let corrected = &report["dry_run"]["expected"];
    assert_eq!(corrected["runs"], 1, "{corrected:#}");
    let bytes = corrected["bytes"].as_u64().unwrap();
    assert!(bytes.abs_diff(peak) < 30 * MIB && shipped["bytes"].as_u64().unwrap().abs_diff(peak) > 200 * MIB);
}
