//! `radrm-kernels`, a cudarc program, under `radrm-run` on emulated GPUs.

use std::process::Command;

use radrm_preload_tests::{artifacts, child, figures::Outcome, python, rig::Rig};
use serde_json::Value;

fn run(programs: &[&str]) -> Outcome {
    let rig = Rig::emulated("2xH200");
    let mut command = rig.launched(artifacts::file("radrm-kernels"));
    command.arg("run").args(programs);
    let outcome = rig.outcome(child::run(command, 120)).ok();
    // A storm alone takes no memory.
    let options = |program: &&&str| !program.starts_with("--") && program.parse::<u32>().is_err();
    let takes_memory = programs.iter().filter(options).any(|program| *program != "storm");
    assert_eq!(outcome.assert_equals_ledger(), usize::from(takes_memory));
    outcome
}

#[test]
fn square_takes_one_array() {
    let outcome = run(&["square", "--mib", "32"]);
    assert_eq!(outcome.account(0).kinds[7].peak.0, 32 << 20, "cudarc allocates in stream order");
    assert_eq!(outcome.launches("square"), (100, 0));
}

#[test]
fn launches_are_counted_by_kernel() {
    let outcome = run(&["storm", "triad", "spin", "--rounds", "77", "--mib", "3"]);
    for kernel in ["nothing", "triad", "spin"] {
        assert_eq!(outcome.launches(kernel), (77, 0), "{kernel}");
    }
    let counted: u64 = outcome.ledgers.iter().flat_map(|b| &b.gpus).map(|g| g.launches).sum();
    assert_eq!(counted, 3 * 77);
}

#[test]
fn the_ladder_reaches_its_top_and_comes_down() {
    let outcome = run(&["ladder", "--mib", "100"]);
    // 1 KiB, 2 KiB, ... 32 MiB, ending below 100 MiB.
    assert_eq!(outcome.account(0).kinds[0].peak.0, ((1 << 16) - 1) * 1024);
    assert_eq!(outcome.account(0).kinds[0].now.0, 0);
}

#[test]
fn pool_churn_on_the_second_gpu() {
    let outcome = run(&["churn", "--device", "1", "--rounds", "5000"]);
    assert_eq!(outcome.account(1).kinds[7].allocations, 5000);
    assert_eq!(outcome.account(1).kinds[7].now.0, 0);
}

/// Facts that programs print of themselves: a line of JSON for each, after one for the GPU.
fn known(said: &str) -> Vec<Value> {
    let mut lines = said.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let gpu: Value = lines.next().expect("a line for the GPU");
    assert!(gpu["gpu"].as_str().is_some_and(|name| name.contains("H200")), "{gpu}");
    lines.collect()
}

/// The record of each program is what it knows of itself. Each runs alone, since two may use the same kernel.
#[test]
fn known_work_is_what_is_recorded() {
    let mut programs = 0;
    for name in ["square", "triad", "spin", "ladder", "storm", "replay", "churn", "train"] {
        let outcome = run(&[name, "--json", "--rounds", "37", "--mib", "6", "--nodes", "7"]);
        let all = known(&outcome.ended.stdout);
        let [work] = &all[..] else { panic!("{all:?}") };
        assert_eq!(work["program"], name);
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {work}"));
        for (kernel, expected) in work["kernels"].as_object().expect("kernels") {
            let (launches, in_graphs) = (number(&expected["launches"]), number(&expected["graph_launches"]));
            assert_eq!(outcome.launches(kernel), (launches, in_graphs), "{name}: {kernel}");
            assert_eq!(launches + in_graphs, if name == "replay" { 7 * 37 } else { 37 }, "{name}: {kernel}");
            let recorded = outcome.profile.processes.iter().flat_map(|p| &p.kernels);
            let seen = recorded.filter(|k| k.name == *kernel).map(|k| (k.blocks, k.threads));
            let expected = (number(&expected["blocks"]), number(&expected["threads"]));
            assert_eq!(seen.fold((0, 0), |(a, b), (c, d)| (a + c, b + d)), expected, "{name}: {kernel}");
        }
        let graphs: u64 = outcome.profile.processes.iter().map(|p| p.state.graph_launches).sum();
        assert_eq!(graphs, number(&work["graphs"]), "{name}");
        if number(&work["allocations"]) > 0 {
            // Plain memory, or what the pool has handed out.
            let kinds = &outcome.account(0).kinds;
            let seen = if kinds[0].allocations > 0 { kinds[0] } else { kinds[7] };
            assert_eq!(seen.peak.0, number(&work["peak_bytes"]), "{name}");
            assert_eq!(seen.allocations, number(&work["allocations"]), "{name}");
        }
        let result = ["ladder", "storm", "churn"].contains(&name);
        assert_eq!(work["checked"], if result { "no_result" } else { "not_executed" }, "{name}");
        programs += 1;
    }
    let listed = child::run(listing(), 60).ok().stdout;
    assert_eq!(listed.lines().count(), programs, "a program is not tested: {listed}");
}

fn listing() -> Command {
    let mut command = Command::new(artifacts::file("radrm-kernels"));
    command.arg("list");
    command
}

#[test]
fn blocks_and_threads_are_those_asked_for() {
    let outcome = run(&["square", "spin", "--blocks", "33", "--threads", "96", "--rounds", "5"]);
    for kernel in ["square", "spin"] {
        let recorded = outcome.profile.processes.iter().flat_map(|p| &p.kernels);
        let shape = recorded.filter(|k| k.name == kernel).map(|k| (k.launches, k.blocks, k.threads));
        assert_eq!(shape.collect::<Vec<_>>(), [(5, 5 * 33, 5 * 33 * 96)], "{kernel}");
    }
}

#[test]
fn seconds_end_a_program_and_its_span_says_when() {
    let outcome = run(&["spin", "--json", "--seconds", "0.3", "--blocks", "4"]);
    let all = known(&outcome.ended.stdout);
    let span = &all[0]["span_ns"];
    let length = span[1].as_u64().expect("an end") - span[0].as_u64().expect("a start");
    assert!(length >= 300_000_000, "{span}");
    let launches = all[0]["kernels"]["spin"]["launches"].as_u64().expect("launches");
    assert_eq!(outcome.launches("spin"), (launches, 0));
}

#[test]
fn every_program_runs_and_wrong_requests_are_told() {
    let outcome = run(&["all", "--mib", "6", "--rounds", "10"]);
    assert_eq!(outcome.ended.stdout.lines().count(), 9, "{}", outcome.ended.stdout);
    for (arguments, said) in [
        (&["sqare"][..], "there is no program `sqare`"),
        (&["square", "--threads", "1025"], "1 to 1024 threads, not 1025"),
        (&["square", "--blocks", "0"], "at least 1 block"),
        (&["square", "--blocks", "4294967295"], "are more than 4294967295 elements"),
        (&["replay", "--nodes", "0"], "at least 1 node"),
        (&["square", "--device", "7"], "there is no GPU 7"),
        (&["square", "--must-execute"], "kernels do not execute on this GPU"),
    ] {
        let rig = Rig::emulated("1xH200");
        let mut command = rig.bare_command(artifacts::file("radrm-kernels"));
        command.arg("run").args(arguments);
        let ended = child::run(command, 60);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}");
        assert!(ended.stderr.contains(said), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
    }
}

/// The emulated driver takes what NVRTC makes for its GPU; without an NVRTC the shipped kernels are the same.
#[test]
fn nvrtc_is_used_where_there_is_one() {
    let with = |library: &str| {
        let rig = Rig::emulated("1xH200");
        let mut command = rig.bare_command(artifacts::file("radrm-kernels"));
        command.env("RADRM_NVRTC", library).args(["run", "replay", "--rounds", "3"]);
        child::run(command, 60)
    };
    let shipped = with("").ok();
    assert!(shipped.stdout.contains("(kernels from shipped PTX)"), "{}", shipped.stdout);
    let wrong = with("/nowhere/libnvrtc.so");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stderr.contains("RADRM_NVRTC names /nowhere/libnvrtc.so"), "{}", wrong.stderr);
    let Some(python) = python::interpreter() else { return };
    let find = "import glob, nvidia; print(*glob.glob(next(iter(nvidia.__path__)) + '/*/lib/libnvrtc.so.*'))";
    let mut asking = Command::new(python);
    asking.args(["-c", find]);
    let found = child::run(asking, 60).ok().stdout;
    let library = found.split_whitespace().next().expect("the environment has NVRTC");
    let compiled = with(library).ok();
    assert!(compiled.stdout.contains(" for sm_90)"), "{}", compiled.stdout);
    assert_eq!(compiled.stdout.lines().count(), shipped.stdout.lines().count());
}

#[test]
fn without_a_driver_one_sentence_says_so() {
    let rig = Rig::empty();
    let mut command = rig.bare_command(artifacts::file("radrm-kernels"));
    command.args(["run", "storm"]);
    let ended = child::run(command, 60);
    if ended.status.success() {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    assert!(ended.stderr.contains("libcuda"), "{}", ended.stderr);
    assert_eq!(ended.stderr.trim().lines().count(), 1, "{}", ended.stderr);
}
