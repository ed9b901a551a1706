//! GPUs that the node daemon takes: real ones, or those that it is asked by name to emulate.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use radrm_emulator_machine::{Machine, MachineSpec};
use radrm_preload_tests::node::Daemon;
use radrm_preload_tests::{artifacts, programs};
use serde_json::Value;

/// Names the emulated machine to the emulated NVML, which stands in for the system's here.
const SYSTEM: &str = "export LD_LIBRARY_PATH=$PLACE/lib RADRM_EMULATED_MACHINE=$PLACE/system";

fn node(daemon: &Daemon) -> Value {
    serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON")
}

fn gpus(daemon: &Daemon) -> usize {
    node(daemon)["gpus"].as_array().expect("a list").len()
}

#[test]
fn no_gpu_is_emulated_unless_asked_by_name() {
    let daemon = Daemon::new("emulate = \"\"\n");
    let node = node(&daemon);
    assert_eq!((gpus(&daemon), &node["emulated"]), (0, &Value::Null), "{node}");
    assert!(node["issues"].to_string().contains("NVML"), "{node}");
    assert!(daemon.log().contains("no GPU: "), "{}", daemon.log());
    let waiting = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    assert_eq!(daemon.state(waiting), "waiting");
    let shown = daemon.ok(&["show", &waiting.to_string()]);
    assert!(shown.contains("this node has no GPU (") && shown.contains("NVML"), "{shown}");
    let why = daemon.ok(&["queue", "--why"]);
    assert!(why.contains("this node has no GPU for jobs"), "{why}");
    let job = daemon.submit(&["--gpus", "0"], &["sh", "-c", "test -z \"$RADRM_EMULATED_MACHINE\""]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    assert_eq!(daemon.show(job)["job"]["emulated"], Value::Null);
}

#[test]
fn a_job_on_emulated_gpus_is_labelled() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    assert_eq!(daemon.end(job)["emulated"], "1xA100-40GB");
    let shown = daemon.ok(&["show", &job.to_string()]);
    assert!(shown.contains("emulated     1xA100-40GB"), "{shown}");
    assert!(shown.contains("(emulated GPUs: 1xA100-40GB)"), "in its history: {shown}");
}

#[test]
fn what_a_job_was_emulated_on_is_shown_after_the_node_has_changed() {
    let mut daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    daemon.end(job);
    daemon.kill();
    let config = fs::read_to_string(daemon.path("config.toml")).expect("file");
    fs::write(daemon.path("config.toml"), config.replace("1xA100-40GB", "")).expect("file");
    daemon.start();
    assert_eq!(node(&daemon)["emulated"], Value::Null);
    assert_eq!(daemon.show(job)["job"]["emulated"], "1xA100-40GB");
}

#[test]
fn gpus_that_appear_later_are_taken_and_jobs_kept() {
    // SAFETY: a plain system call that cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root");
        return;
    }
    let mut daemon = Daemon::prepare("emulate = \"\"\n");
    daemon.behind(SYSTEM);
    fs::create_dir(daemon.path("lib")).expect("folder");
    let spec = MachineSpec::parse("2xA100-40GB").expect("machine");
    Machine::create(&spec, &daemon.path("system")).expect("machine");
    daemon.start();
    let running = daemon.submit(&["--gpus", "0"], &["sh", "-c", "until test -e go; do sleep 0.1; done"]);
    daemon.until_state(running, "running");
    assert_eq!(gpus(&daemon), 0);
    let waiting = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    assert_eq!(daemon.state(waiting), "waiting");
    let pid = daemon.pid();
    let library = artifacts::file("libradrm_emulated_nvml.so");
    symlink(library, daemon.path("lib/libnvidia-ml.so.1")).expect("a driver");
    daemon.until("the GPUs are there", |daemon| {
        // It restarts meanwhile.
        let output = daemon.output(&["nodes", "--json"]).stdout;
        let node: Value = serde_json::from_slice(&output).unwrap_or_default();
        node["gpus"].as_array().is_some_and(|gpus| gpus.len() == 2)
    });
    assert_eq!((daemon.pid(), daemon.state(running).as_str()), (pid, "running"));
    assert_eq!(daemon.end(waiting)["exit_code"], 0, "it waited for a GPU");
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    fs::write(daemon.path("go"), "").expect("file");
    assert_eq!(daemon.end(running)["exit_code"], 0);
}

#[test]
fn who_holds_memory_outside_of_jobs_is_named_within_a_poll() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let program = programs::compile("every_gpu.c", &[]);
    let mut outside = Command::new(artifacts::file("radrm-run"));
    outside
        .args(["--quiet", "--no-profile", "--no-dataset", "--machine"])
        .arg(daemon.path("state/machine"))
        .arg("--");
    outside.arg(program).args(["keep", "30000"]).arg(daemon.path("go")).stdout(Stdio::null());
    outside.env("RADRM_LIB_DIR", artifacts::directory());
    let mut outside = outside.spawn().expect("radrm-run");
    daemon.until("it is named", |daemon| {
        node(daemon)["gpus"][0]["outside"].as_array().is_some_and(|all| all.len() == 1)
    });
    let shown = daemon.ok(&["nodes"]);
    let held = "(every_gpu";
    assert!(shown.contains("outside of jobs, on GPU 0: process ") && shown.contains(held), "{shown}");
    assert!(shown.contains("under its own radrm-run"), "{shown}");
    let job = daemon.submit(&["--gpu-mem", "20GiB"], &["true"]);
    let why = daemon.show(job)["job"]["why"].as_str().expect("why").to_owned();
    assert!(why.contains("needs 20.0 GiB") && why.contains(held), "{why}");
    fs::write(daemon.path("go"), "").expect("file");
    outside.wait().expect("it ends");
    assert_eq!(daemon.end(job)["exit_code"], 0);
}
