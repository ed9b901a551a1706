//! Third-party clients, unmodified from PyPI, under `radrm-run` on emulated GPUs.

use std::path::PathBuf;

use radrm_preload_tests::{
    child,
    figures::Outcome,
    python::{interpreter as python, script},
    rig::Rig,
};

fn client(python: &PathBuf, rig: &Rig, arguments: &[&str]) -> Outcome {
    let mut command = rig.launched(python);
    command.args(arguments).env("NUMBA_CACHE_DIR", rig.path().join("numba"));
    rig.outcome(child::run(command, 240))
}

#[test]
fn cuda_python() {
    let Some(python) = python() else { return };
    let rig = Rig::emulated("1xH200");
    let outcome = client(&python, &rig, &[&script("driver_script.py")]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).kinds[0].now.0, 24 << 20);
    assert_eq!(outcome.launches("scale"), (25, 0));
}

#[test]
fn pynvml() {
    let Some(python) = python() else { return };
    let rig = Rig::emulated("2xA100-40GB");
    let outcome = client(&python, &rig, &[&script("nvml_script.py")]).ok();
    assert!(outcome.ended.stdout.contains("gpu 1 "), "{}", outcome.ended.stdout);
    assert!(outcome.profile.processes.iter().all(|p| p.state.accounts.is_empty()));
    let outcome = client(&python, &Rig::emulated("1xH200"), &[&script("nvml_beside.py")]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).now.0, 512 << 20);
}

#[test]
fn case_13_multiprocessing_workers_of_every_start_method() {
    let Some(python) = python() else { return };
    let rig = Rig::emulated("1xH200");
    let outcome = client(&python, &rig, &[&script("workers_script.py")]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 6);
    let peaks = outcome.peaks_mib();
    assert_eq!(peaks, [1, 2, 3, 4, 5, 6]);
}

/// Asserts that a run on the emulated GPU launched something, and that the figures are the ledger's.
#[track_caller]
fn agrees_and_launched(outcome: &Outcome) {
    let said = &outcome.ended.stderr;
    assert_eq!(outcome.assert_equals_ledger(), 1, "{said}");
    let launches: u64 = outcome.ledgers.iter().flat_map(|b| &b.gpus).map(|g| g.launches).sum();
    let kernels = outcome.profile.processes.iter().flat_map(|p| &p.kernels);
    let counted: u64 = kernels.map(|k| k.launches + k.graph_launches).sum();
    assert!(launches > 0, "nothing was launched: {said}");
    assert_eq!(counted, launches);
}

/// Runs one of numba-cuda's own example programs as it is installed. Kernels do not execute on an
/// emulated GPU, so an example that checks a result may fail in that check, and in nothing else.
#[track_caller]
fn numba_example(name: &str) {
    let Some(python) = python() else { return };
    let rig = Rig::emulated("1xH200");
    let module = format!("numba.cuda.tests.doc_examples.{name}");
    let outcome = client(&python, &rig, &["-m", "unittest", "-v", &module]);
    let said = &outcome.ended.stderr;
    assert!(said.contains("\nRan ") && !said.contains("\nRan 0 "), "{said}");
    assert!(!said.contains("errors="), "{name}: more than a wrong result: {said}");
    agrees_and_launched(&outcome);
}

#[test]
fn numba_vecadd() {
    numba_example("test_vecadd");
}

#[test]
fn numba_matmul() {
    // This one is a plain function, not a test case of unittest.
    let Some(python) = python() else { return };
    let code = "from numba.cuda.tests.doc_examples import test_matmul; test_matmul.test_matmul()";
    let outcome = client(&python, &Rig::emulated("1xH200"), &["-c", code]);
    let said = &outcome.ended.stderr;
    assert!(outcome.ended.status.success() || said.contains("\nAssertionError"), "{said}");
    agrees_and_launched(&outcome);
}

#[test]
fn numba_laplace() {
    numba_example("test_laplace");
}

#[test]
fn numba_montecarlo() {
    numba_example("test_montecarlo");
}

#[test]
fn numba_random() {
    numba_example("test_random");
}

#[test]
fn numba_reduction() {
    numba_example("test_reduction");
}

#[test]
fn numba_sessionize() {
    numba_example("test_sessionize");
}

#[test]
fn numba_ufunc() {
    numba_example("test_ufunc");
}

#[test]
fn numba_cooperative_groups() {
    numba_example("test_cg");
}

#[test]
fn numba_cpointer() {
    numba_example("test_cpointer");
}

#[test]
fn numba_cpu_gpu_compat() {
    numba_example("test_cpu_gpu_compat");
}

#[test]
fn numba_globals() {
    numba_example("test_globals");
}
