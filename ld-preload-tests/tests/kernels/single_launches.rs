//! Single launches, from a program's streams to the tracks of a trace.

use std::collections::{BTreeMap, BTreeSet};

use radrm_preload_tests::{child, programs, rig::PATIENCE, rig::Rig};
use serde_json::Value;

/// Streams run side by side: on one track their slices would cut each other short.
#[test]
fn default_streams_of_threads_and_contexts_are_tracks_of_their_own() {
    let rig = Rig::emulated("1xH200");
    let times = rig.path().join("times");
    // Two do not go in step, so that what the profile keeps has launches of both.
    std::fs::write(&times, "*0 20000000\n*1 30000000\n").expect("kernel times");
    let mut command = rig.launcher();
    command.args(["--kernels", "all", "--"]).arg(programs::compile("default_streams.c", &["-pthread"]));
    command.env("RADRM_EMULATOR_TIME", "real").env("RADRM_EMULATOR_KERNEL_TIMES", &times);
    rig.outcome(child::run(command, PATIENCE)).ok();
    let trace: Value = serde_json::from_str(&rig.report(&["--perfetto=-"]).stdout).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let mut tracks: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for slice in events.iter().filter(|event| event["args"]["sample"] == true) {
        let kernel = slice["name"].as_str().expect("a kernel");
        tracks.entry(slice["tid"].as_u64().expect("a track")).or_default().insert(kernel);
        // To the GPU's clock's grain.
        let (shown, took) = (slice["dur"].as_f64().expect("us"), slice["args"]["duration_ns"].as_f64());
        assert!(shown >= took.expect("ns") / 1e3 - 1.0, "cut short: {slice}");
    }
    let mut kernels: Vec<Vec<&str>> = tracks.into_values().map(|track| track.into_iter().collect()).collect();
    kernels.sort();
    assert_eq!(kernels, [["legacy0"], ["legacy1"], ["thread0"], ["thread1"]]);
}
