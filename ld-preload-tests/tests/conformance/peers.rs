//! A sample of other projects' test suites; all of them run by `cargo xtask peers`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use radrm_preload_tests::{
    child, peers,
    python::{interpreter, script, torch},
    rig::{PATIENCE, Rig},
};

/// Files of numba-cuda's suite: memory, streams, IPC-like objects, and contexts.
const SAMPLE: [&str; 3] =
    ["cudadrv/test_cuda_memory.py", "cudadrv/test_context_stack.py", "cudadrv/test_streams.py"];

#[test]
fn a_sample_of_numba_cudas_suite_is_the_same_with_the_shim() {
    let Some(python) = interpreter() else { return };
    let suites = peers::suites::all().expect("the list");
    let suite = suites.iter().find(|suite| suite.name == "numba-cuda").expect("numba-cuda");
    let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let output = Command::new(&python).args(["-c", ask]).output().expect("python");
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join(suite.tests);
    let interpreter =
        peers::run::Interpreter { python, packages: None, libraries: Vec::new(), variable: None };
    let mut tests = 0;
    for name in SAMPLE {
        let patience = Duration::from_secs(PATIENCE);
        let run = peers::run::file(&interpreter, &folder.join(name), patience).expect(name);
        let differences = run.differences();
        assert!(differences.is_empty(), "{name}: {differences:?}");
        tests += run.bare.len();
    }
    assert!(tests > 20, "only {tests} tests were found");
}

/// Promises of the allocators and graphs of the newest PyTorch, written anew: no package has its own tests of this
/// version; `cargo xtask peers` runs those of an older one. Each promise is a function of `torch_memory.py`, which
/// prints the figures that it saw.
#[track_caller]
fn pytorch_is_the_same(settings: &str) {
    let Some(python) = torch() else { return };
    let rig = || {
        let rig = Rig::emulated("2xA100-40GB");
        rig.add_stand_ins();
        rig
    };
    let run = |mut command: Command| {
        command.args(["-W", "ignore", &script("torch_memory.py")]).env("PYTORCH_CUDA_ALLOC_CONF", settings);
        child::run(command, 4 * PATIENCE).ok().stdout
    };
    let (bare, shimmed) = (rig(), rig());
    let said = run(bare.bare_command(&python));
    assert!(said.lines().count() > 20 && !said.contains("FAILED"), "{settings}: {said}");
    assert_eq!(run(shimmed.launched(&python)), said, "{settings}");
}

#[test]
fn pytorchs_allocator_and_graphs_are_the_same_with_the_shim() {
    pytorch_is_the_same("");
}

#[test]
fn pytorchs_growing_segments_are_the_same_with_the_shim() {
    pytorch_is_the_same("expandable_segments:True");
}

#[test]
fn pytorch_on_the_drivers_pool_is_the_same_with_the_shim() {
    pytorch_is_the_same("backend:cudaMallocAsync");
}
