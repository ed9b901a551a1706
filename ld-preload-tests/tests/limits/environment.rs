//! A limit holds whatever a program does to its environment before its first call of the driver.

use std::{path::Path, process::Command};

use radrm_preload_tests::{
    child, programs,
    rig::{PATIENCE, Rig},
};

const MIB: u64 = 1 << 20;

/// A card on which contexts take nothing and a job may take 64 MiB.
fn rig() -> (Rig, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("directory");
    let spec = directory.path().join("machine.toml");
    let text = "[[gpu]]\nmodel = \"H100-80GB\"\nmemory_mib = 1024\ncontext_mib = 0\n";
    std::fs::write(&spec, text).expect("description");
    (Rig::emulated(spec.to_str().expect("text")).limited("64MiB"), directory)
}

/// Ways to lose or forge the variables of a limit, as steps of `programs/steps.c`.
const CHANGES: &[&[&str]] = &[
    &["clearenv"],
    &["unsetall"],
    &["unset:RADRM_SEGMENT", "unset:RADRM_QUOTA"],
    &["unset:RADRM_SEGMENT"],
    &["set:RADRM_SEGMENT:", "set:RADRM_QUOTA:"],
    &["set:RADRM_SEGMENT:/nowhere", "set:RADRM_QUOTA:0"],
    &["set:RADRM_DISABLE:1"],
    &["clearenv", "set:RADRM_DISABLE:1"],
    &["title:server of models"],
    &["title:server of models", "set:RADRM_DISABLE:1"],
    &["clearenv", "fork:1"],
    // As a module does that Python has looked up.
    &["lookup", "title:server of models", "clearenv"],
];

/// The program after a change of its environment gets 64 MiB and no more, and sees 64 MiB as the GPU's memory.
#[track_caller]
fn assert_limited(mut command: Command, change: &[&str]) {
    command.args(change).args(["use:0", "info", "alloc:a:64m", "!alloc:b:1m"]);
    let shown = format!("{command:?}");
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(ended.stdout, format!("info {0} {0}\n", 64 * MIB), "{shown}");
}

#[test]
fn limit_holds_after_the_program_empties_its_environment() {
    let (rig, _directory) = rig();
    for flags in [&[][..], programs::LINKED] {
        for change in CHANGES {
            assert_limited(rig.command(programs::compile("steps.c", flags)), change);
        }
    }
}

#[test]
fn limit_holds_in_a_program_started_by_the_loader() {
    // The loader then names another string as the program's file, which elsewhere marks where the environment ends.
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        eprintln!("skipped: {} is not here", loader.display());
        return;
    }
    let (rig, _directory) = rig();
    for change in CHANGES.iter().filter(|change| !change.iter().any(|step| step.starts_with("title"))) {
        let mut command = rig.command(loader);
        // An environment of several pages.
        command.arg(programs::compile("steps.c", &[])).env("A", "x".repeat(9000)).env("ZZ", "x".repeat(9000));
        assert_limited(command, change);
    }
}

#[test]
fn limit_holds_in_a_launched_program_and_its_children() {
    let (rig, _directory) = rig();
    for words in [&[][..], &["sh", "-c", "\"$0\" \"$@\" & wait $!"]] {
        for change in CHANGES {
            let program = programs::compile("steps.c", &[]);
            let mut command = rig.launched(words.first().map_or(program.as_path(), Path::new));
            command.args(words.iter().skip(1));
            if !words.is_empty() {
                command.arg(&program);
            }
            assert_limited(command, change);
        }
    }
}

#[test]
fn arguments_that_look_like_variables_mean_nothing() {
    let mut rig = Rig::emulated("1xA100-40GB");
    let mut command = rig.command(programs::compile("steps.c", &[]));
    command.args(["use:0", "alloc:a:100m", "exit:0", "RADRM_QUOTA=1", "RADRM_SEGMENT=/x", "RADRM_DISABLE=1"]);
    child::run(command, PATIENCE).ok();
    let process = &rig.end_session().profile.processes;
    assert_eq!(process.len(), 1, "counted in the segment of its environment");
}

#[test]
fn a_switch_that_a_program_sets_itself_works_without_a_limit() {
    let mut rig = Rig::emulated("1xA100-40GB");
    let mut command = rig.command(programs::compile("steps.c", &[]));
    command.args(["set:RADRM_DISABLE:1", "use:0", "alloc:a:100m"]);
    child::run(command, PATIENCE).ok();
    assert!(rig.end_session().profile.processes.is_empty());
}
