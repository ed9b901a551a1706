//! Processes that end by a signal or without exit handlers: no figure of a framework is complete, and the driver's is.

use std::process::Command;

use radrm_preload_tests::{artifacts, child, python::script};
use serde_json::Value;

use super::harness::{DryRun, PATIENCE, plain_dry_run, python};

const MIB: u64 = 1 << 20;
const ENDED: &str = "ended by a signal or without exit handlers";

/// A run whose children end so, and that takes 64 MiB itself.
fn children(ends: &[&str]) -> Option<DryRun> {
    let python = python()?;
    let program = script("dry_run_ended.py");
    let arguments = [&[program.as_str()], ends].concat();
    Some(plain_dry_run(&python, &["--stacks=tensors"], &arguments).ok())
}

/// The only GPU.
fn gpu(run: &DryRun) -> &Value {
    &run.report["dry_run"]["gpus"][0]
}

/// Reasons that tensors of processes are missing.
fn missing(run: &DryRun) -> Vec<&str> {
    let of = run.report["tensors"].as_array().expect("tensors");
    of.iter().filter_map(|of| of["missing"].as_str()).collect()
}

#[test]
fn children_without_last_figures_are_counted_by_the_driver_only() {
    let Some(run) = children(&["exit", "kill", "term", "idle"]) else { return };
    let gpu = gpu(&run);
    let expected = [
        ("processes", 5),
        ("reporting_processes", 1),
        ("reporting_requested_peak", 64 * MIB),
        ("requested_peak", 964 * MIB),
    ];
    for (name, value) in expected {
        assert_eq!(gpu[name], value, "{name} of {gpu:#}");
    }
    assert_eq!(gpu["phases"]["whole"]["reserved"], 64 * MIB, "{gpu:#}");
    assert!(gpu["held_peak"].as_u64() > Some(964 * MIB), "{gpu:#}");
    let remarks = run.report["dry_run"]["remarks"].as_array().expect("remarks");
    let of_ended: Vec<&str> =
        remarks.iter().filter_map(Value::as_str).filter(|it| it.contains(ENDED)).collect();
    assert!(matches!(&of_ended[..], [one] if one.starts_with("processes ")), "{remarks:#?}");
    assert_eq!(of_ended[0].split(ENDED).next().unwrap().split(',').count(), 4, "{of_ended:?}");
    let missing = missing(&run);
    assert_eq!(missing.len(), 4, "{missing:?}");
    assert!(missing.iter().all(|why| why.ends_with(ENDED)), "{missing:?}");
}

#[test]
fn a_child_that_multiprocessing_forked_reports_its_figures() {
    let Some(run) = children(&["forked"]) else { return };
    let gpu = gpu(&run);
    assert_eq!((&gpu["processes"], &gpu["reporting_processes"]), (&2.into(), &2.into()), "{gpu:#}");
    assert_eq!(gpu["phases"]["whole"]["allocated"], 96 * MIB, "{gpu:#}");
    assert_eq!(missing(&run), [""; 0], "{:#}", run.report["tensors"]);
    let sums = run.report["tensors"].as_array().unwrap().iter();
    let sums: Vec<u64> = sums.filter_map(|of| of["gpus"][0]["allocated_bytes"].as_u64()).collect();
    assert_eq!(sums.iter().sum::<u64>(), 96 * MIB, "{sums:?}");
    let remarks = run.report["dry_run"]["remarks"].to_string();
    assert!(!remarks.contains(ENDED), "{remarks}");
}

#[test]
fn memory_that_did_not_suffice_is_reported_of_a_process_that_ended_so() {
    let Some(run) = children(&["refused"]) else { return };
    let found = &run.report["dry_run"];
    assert_eq!(found["out_of_memory"], 1, "{found:#}");
    assert_eq!(found["fits"], Value::Array(Vec::new()), "{found:#}");
    assert!(matches!(&missing(&run)[..], [one] if one.ends_with(ENDED)), "{:#}", run.report["tensors"]);
}

#[test]
fn text_and_page_say_which_processes_have_no_figures() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    let (profile, page) = (place.path().join("a.radrm"), place.path().join("a.html"));
    let mut command = Command::new(artifacts::file("radrm-run"));
    command.args(["--dry-run", "--stacks=tensors", "--no-dataset", "-o"]).arg(&profile).arg("--");
    command.arg(&python).args([&script("dry_run_ended.py"), "exit"]);
    child::run(command, PATIENCE).ok();
    let report = |options: &[&str]| {
        let mut command = Command::new(artifacts::file("radrm"));
        command.arg("report").args(options).arg(&profile);
        child::run(command, PATIENCE).ok().stdout
    };
    let text = report(&[]);
    report(&[&format!("--html={}", page.display())]);
    let page = std::fs::read_to_string(&page).unwrap();
    for (shown, part) in [&text, &page].into_iter().flat_map(|shown| {
        [
            "ended by a signal or without exit handlers: figures are those of the driver",
            "driver allocations only: the process ended by a signal or without exit handlers",
            "1 of 2 processes reported allocated and reserved",
            "by other processes",
        ]
        .map(|part| (shown, part))
    }) {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    for shown in [&text, &page] {
        assert!(!shown.contains("neither PyTorch"), "{shown}");
        assert!(!shown.contains("by libraries"), "all of it was tensors: {shown}");
    }
}
