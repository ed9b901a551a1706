//! Programs in pid namespaces of their own, as sandboxes and containers give them: their figures are complete although
//! their process ids mean other processes to the launcher.

use std::{path::Path, process::Command};

use radrm_preload_tests::{figures::Outcome, programs, rig::Rig};
use radrm_profile::model::{End, Exit, Process};

/// Command that begins a program as process 1 of a namespace.
const ALONE: &str = "unshare --user --map-root-user --pid --mount --fork --kill-child --mount-proc";

fn may() -> bool {
    let status =
        Command::new("unshare").args(["--user", "--map-root-user", "--pid", "--fork", "true"]).status();
    let may = status.is_ok_and(|status| status.success());
    if !may {
        eprintln!("skipped: this system gives no user namespaces");
    }
    may
}

/// Runs a script of the shell in which `$STEPS` is `steps.c`.
fn run(rig: &Rig, script: &str) -> Outcome {
    let program = programs::compile("steps.c", &[]);
    let script = script.replace("$ALONE", ALONE).replace("$STEPS", &program.display().to_string());
    rig.run(Path::new("/bin/sh"), &["-c", &script])
}

fn gib(process: &Process) -> [u64; 2] {
    let account = &process.state.accounts[0];
    [account.peak.0 >> 30, account.now.0 >> 30]
}

#[test]
fn the_peak_of_a_program_in_a_pid_namespace_is_that_of_its_whole_life() {
    if !may() {
        return;
    }
    let rig = Rig::emulated("1xH200");
    let outcome = run(&rig, "$ALONE $STEPS use:0 alloc:a:1g sleep:1500 alloc:b:2g sleep:700 free:a").ok();
    let process = outcome.process();
    assert_eq!(gib(process), [3, 2], "{process:#?}");
    assert!(matches!(process.state.end, End::Exited(_)), "{:?}", process.state.end);
    assert_ne!(process.identity.pid, 1, "its number here");
    assert!(!rig.report(&[]).stdout.contains("vanished"));
}

#[test]
fn a_killed_program_in_a_pid_namespace_is_seen_to_have_gone() {
    if !may() {
        return;
    }
    let rig = Rig::emulated("1xH200");
    let outcome = run(&rig, "$ALONE sh -c '$STEPS use:0 alloc:a:1g sleep:1000 kill; sleep 1'; true");
    let process = outcome.process();
    assert!(matches!(process.state.end, End::Signal(9) | End::Vanished), "{:?}", process.state.end);
    assert_eq!(gib(process), [1, 1]);
}

#[test]
fn programs_that_come_and_go_leave_the_slot_of_one_in_a_pid_namespace_alone() {
    if !may() {
        return;
    }
    let rig = Rig::emulated("1xH200");
    // Each of the others would find the number of the first free, or that of another process.
    let others = "for n in 1 2 3 4 5 6; do $STEPS use:0 alloc:a:8m sleep:50; done";
    let script = format!(
        "$ALONE $STEPS use:0 alloc:a:1g sleep:2500 alloc:b:2g & $ALONE $STEPS use:0 alloc:a:4g sleep:2500 alloc:b:1g &
         sleep 0.7; {others}; $ALONE sh -c '{others}'; wait"
    );
    let outcome = run(&rig, &script).ok();
    let mut peaks: Vec<_> = outcome.profile.processes.iter().map(gib).collect();
    peaks.sort_unstable();
    assert_eq!(peaks.len(), 14);
    assert_eq!((peaks[11], peaks[12], peaks[13]), ([0, 0], [3, 3], [5, 5]), "{peaks:?}");
    let ends = outcome.profile.processes.iter().map(|process| process.state.end);
    assert!(ends.clone().all(|end| matches!(end, End::Exited(_))), "{:?}", ends.collect::<Vec<_>>());
    assert_eq!(outcome.profile.outcome.map(|outcome| outcome.exit), Some(Exit::Code(0)));
}
