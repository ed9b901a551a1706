//! `radrm-kernels`, a cudarc program, under `radrm-run` on emulated GPUs.

use radrm_preload_tests::{artifacts, child, figures::Outcome, rig::Rig};

fn run(programs: &[&str]) -> Outcome {
    let rig = Rig::emulated("2xH200");
    let mut command = rig.launched(artifacts::file("radrm-kernels"));
    command.arg("run").args(programs);
    let outcome = rig.outcome(child::run(command, 120)).ok();
    assert_eq!(outcome.assert_equals_books(), 1);
    outcome
}

#[test]
fn square_takes_one_array() {
    let outcome = run(&["square", "--mib", "32"]);
    assert_eq!(outcome.account(0).kinds[7].peak.0, 32 << 20, "cudarc allocates in stream order");
    assert_eq!(outcome.launches("square"), (1, 0));
}

#[test]
fn launches_are_counted_by_kernel() {
    let outcome = run(&["storm", "triad", "spin", "--rounds", "77", "--mib", "3"]);
    for kernel in ["nothing", "triad", "spin"] {
        assert_eq!(outcome.launches(kernel), (77, 0), "{kernel}");
    }
    let books: u64 = outcome.books.iter().flat_map(|b| &b.gpus).map(|g| g.launches).sum();
    assert_eq!(books, 3 * 77);
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

#[test]
fn every_program_runs_and_an_unknown_one_is_named() {
    let outcome = run(&["all", "--mib", "6", "--rounds", "10"]);
    assert_eq!(outcome.ended.stdout.lines().count(), 7, "{}", outcome.ended.stdout);
    let rig = Rig::emulated("1xH200");
    let mut command = rig.bare_command(artifacts::file("radrm-kernels"));
    command.args(["run", "sqare"]);
    let ended = child::run(command, 60);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("there is no program `sqare`"), "{}", ended.stderr);
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
