//! The benchmarks give all their figures. Nothing is said about time here.

use std::{fs, process::Command};

use radrm_preload_tests::{artifacts, child};

#[test]
fn the_quick_bench_gives_every_figure() {
    for library in ["libradrm.so", "libradrm_instant_cuda.so", "libradrm_passthrough.so", "radrm-run"] {
        artifacts::file(library);
    }
    let directory = tempfile::tempdir().expect("temporary directory");
    let out = directory.path().join("RESULTS.md");
    let mut command = Command::new(env!("CARGO_BIN_EXE_radrm-bench"));
    command.arg("--quick").arg("--out").arg(&out);
    let ended = child::run(command, 300).ok();
    let text = fs::read_to_string(&out).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr));
    for call in
        ["launch", "launchEx", "alloc+free", "pool pair", "create+release", "memGetInfo", "graph of 50"]
    {
        assert!(text.contains(&format!("| {call} | 1 | 1 |")), "{call} is missing:\n{text}");
        assert!(text.contains(&format!("| {call} | 1 | 2 |")), "{call} with two threads is missing:\n{text}");
    }
    for mode in ["count", "sample"] {
        for setup in ["no shim", "pass-through", "RADRM"] {
            assert!(text.contains(&format!("| {mode} | {setup} |")), "{text}");
        }
    }
    assert!(text.contains("| alloc+free, new addresses | 1000 | 1 |"), "{text}");
    assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
}
