//! Regressions: each test is named after what it protects.

use std::fs;

use radrm_preload_tests::{child, figures::Outcome, programs, rig::PATIENCE, rig::Rig};
use radrm_profile::model::{End, GpuIndex, Kind};
use radrm_profile::peak::{gpu_kind_peaks, gpu_peak};

const MIB: u64 = 1 << 20;

/// Runs a line of shell in which `steps` is the program of that name.
fn shell(rig: &Rig, line: &str) -> Outcome {
    let steps = programs::compile("steps.c", &[]);
    let mut command = rig.launched("/bin/sh");
    command.arg("-c").arg(line.replace("steps", &steps.to_string_lossy()));
    rig.outcome(child::run(command, PATIENCE)).ok()
}

/// Asserts the job's peak of device memory, total and plain, both known exactly.
#[track_caller]
fn assert_peak(outcome: &Outcome, mib: u64) {
    let peak = gpu_peak(&outcome.profile, GpuIndex(0));
    assert_eq!((peak.total.0, peak.exact), (mib * MIB, true), "{peak:?}");
    let device = gpu_kind_peaks(&outcome.profile, GpuIndex(0))[Kind::Device.index()];
    assert_eq!((device.bytes.0, device.exact), (mib * MIB, true), "{device:?}");
}

/// The memory of one process is gone before the next one starts.
#[test]
fn programs_one_after_the_other_are_not_added_up() {
    let rig = Rig::emulated("1xH200");
    let outcome = shell(&rig, "steps use:0 alloc:a:80m; steps use:0 alloc:a:70m; steps use:0 alloc:a:75m");
    assert_eq!(outcome.profile.processes.len(), 3);
    assert_peak(&outcome, 80);
}

/// exec keeps the process id, and the driver takes back what the program before held.
#[test]
fn a_program_that_becomes_another_is_not_two_at_once() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("execs.c", &[]), &["5"]).ok();
    assert_eq!(outcome.profile.processes.len(), 6);
    assert_peak(&outcome, 6);
}

/// A process that holds still while another one comes and goes: both count.
#[test]
fn programs_side_by_side_are_added_up() {
    let rig = Rig::emulated("1xH200");
    let line = "steps use:0 alloc:a:80m sleep:400 & sleep 0.2; steps use:0 alloc:a:70m free:a; wait";
    assert_peak(&shell(&rig, line), 150);
}

/// A program's own mistakes with pointers say nothing about the figures: what the driver refuses to
/// free never was a block.
#[test]
fn frees_that_the_driver_refuses_leave_the_figures_complete() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("bad_frees.c", &[]), &[]).ok();
    let doubts: Vec<_> = outcome.process().state.bypasses.iter().filter(|b| b.matters).collect();
    assert!(doubts.is_empty(), "{doubts:?}");
}

/// A child can take its leave between two looks of the launcher.
#[test]
fn children_that_end_well_are_not_said_to_have_vanished() {
    let rig = Rig::emulated("1xH200");
    let line = "i=0; while [ $i -lt 100 ]; do steps use:0 alloc:a:1m & i=$((i+1)); done; wait";
    let outcome = shell(&rig, line);
    assert_eq!(outcome.profile.processes.len(), 100);
    let odd: Vec<_> = outcome.profile.processes.iter().map(|process| process.state.end).collect();
    assert!(odd.iter().all(|end| matches!(end, End::Exited(_))), "{odd:?}");
}

/// As a pool of worker processes is taken down.
#[test]
fn a_child_that_its_parent_kills_is_said_to_be_killed() {
    let rig = Rig::emulated("1xH200");
    // The shell waits for the child, so that its end is known, and stays a little.
    let line = "steps use:0 alloc:a:80m sleep:9000 & sleep 0.3; kill -TERM $!; wait; sleep 0.1; true";
    let outcome = shell(&rig, line);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("version of the kernel");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    // Only since this version the kernel tells it to anybody but the parent.
    let told = (numbers.next(), numbers.next()) >= (Some(6), Some(15));
    let expected = if told { End::Signal(libc::SIGTERM) } else { End::Vanished };
    assert_eq!(outcome.process().state.end, expected);
}

/// A value that stands for "empty" in a table of handles is a handle like any other: its launches are counted.
#[test]
fn launches_of_any_handle_value_are_counted() {
    const ROUNDS: &str = "3";
    let program = programs::compile("odd_handles.c", &[]);
    for mode in ["count", "sample", "all"] {
        let rig = Rig::instant();
        let mut command = rig.launcher();
        command.args(["--kernels", mode, "--"]).arg(&program).arg(ROUNDS);
        let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
        let made: u64 = outcome.ended.stdout.trim().parse().expect("a number of launches");
        let processes = outcome.profile.processes.iter();
        let counted: u64 = processes.flat_map(|p| &p.kernels).map(|kernel| kernel.launches).sum();
        assert_eq!(counted, made, "{mode}");
    }
}

/// A product of cuSPARSE calls nothing that a capture forbids, and its workspace can come from the captured stream's
/// pool. The library is the stand-in of a dry run.
#[test]
fn sparse_products_in_a_capture_leave_it_valid() {
    let rig = Rig::emulated("1xA100-40GB");
    rig.add_stand_ins();
    let program = programs::compile("sparse_capture.c", &["-ldl"]);
    let bare = child::run(rig.bare_command(&program), PATIENCE).ok().stdout;
    let calls = || bare.lines().filter_map(|line| line.trim_start().split_once(": "));
    for what in ["product", "end", "launch"] {
        assert!(bare.contains(what), "{bare}");
    }
    // Status 1: active.
    let wrong: Vec<_> = calls()
        .filter(|(call, answer)| match *call {
            "status" => *answer != "1, end: 0",
            "nodes" | "last error" => false,
            _ => answer.split(' ').any(|code| code != "0"),
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}\n{bare}");
    let outcome = rig.run(&program, &[]).ok();
    assert_eq!(outcome.ended.stdout, bare);
}
