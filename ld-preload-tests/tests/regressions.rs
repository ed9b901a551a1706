//! What once went wrong; every test is named after what it protects.

use radrm_preload_tests::{child, figures::Outcome, programs, rig::PATIENCE, rig::Rig};
use radrm_profile::model::{GpuIndex, Kind};
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

/// What one process had is gone before the next one starts.
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
