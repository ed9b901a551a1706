//! Jobs join others by SM activity, measured over a window. A utilisation is no SM activity.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;
use std::time::Duration;

use radrm_emulator_machine::{Machine, MachineSpec};
use radrm_preload_tests::{artifacts, node::Daemon};
use serde_json::Value;

/// Stands in for a machine with a driver and DCGM.
const SYSTEM: &str =
    "export LD_LIBRARY_PATH=$PLACE/lib RADRM_EMULATED_MACHINE=$PLACE/system PATH=$PLACE/bin:$PATH";

/// Prints what the file `smact` has as SM activity of GPU 0. DCGM has no tensor activity of it.
const DCGMI: &str =
    "#!/bin/sh\nwhile :; do echo \"GPU 0 $(cat $PLACE/smact) 0.1 N/A 0.1\"; sleep 0.05; done\n";

fn set(daemon: &Daemon, smact: &str) {
    fs::write(daemon.path("smact.new"), smact).expect("file");
    fs::rename(daemon.path("smact.new"), daemon.path("smact")).expect("file");
}

/// A node with one A100, on which jobs join others below `limit` thousandths.
fn node(limit: u32, has_dcgm: bool) -> Daemon {
    let config = format!(
        "emulate = \"\"\nkernels = \"\"\n[scheduler]\npolicy = \"magm\"\n[scheduler.preconditions]\nsmact = {limit}\nwindow = 2000\n"
    );
    let mut daemon = Daemon::prepare(&config);
    daemon.behind(SYSTEM);
    let spec = MachineSpec::parse("1xA100-40GB").expect("machine");
    Machine::create(&spec, &daemon.path("system")).expect("machine");
    ["lib", "bin"].iter().for_each(|folder| fs::create_dir(daemon.path(folder)).expect("folder"));
    symlink(artifacts::file("libradrm_emulated_nvml.so"), daemon.path("lib/libnvidia-ml.so.1"))
        .expect("a driver");
    if has_dcgm {
        fs::write(daemon.path("bin/dcgmi"), DCGMI).expect("file");
        fs::set_permissions(daemon.path("bin/dcgmi"), fs::Permissions::from_mode(0o755)).expect("mode");
    }
    set(&daemon, "0.009");
    daemon.start();
    daemon
}

fn why(daemon: &Daemon, job: u64) -> String {
    daemon.show(job)["job"]["why"].as_str().expect("why").to_owned()
}

fn smact(daemon: &Daemon) -> Value {
    let node: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    node["gpus"][0]["smact"].clone()
}

fn submit(daemon: &Daemon) -> u64 {
    daemon.submit(&["--gpu-mem", "1GiB"], &["sleep", "1000"])
}

#[test]
fn dcgm_decides_on_a_gpu_without_gpm() {
    for (limit, joins) in [(5, false), (10, true)] {
        let daemon = node(limit, true);
        daemon.until("DCGM is read", |daemon| smact(daemon) == 9);
        let first = submit(&daemon);
        daemon.until_state(first, "running");
        let second = submit(&daemon);
        match joins {
            true => daemon.until_state(second, "running"),
            false => {
                daemon.until("it is too busy", |daemon| why(daemon, second).contains("has 0.9 % SM activity"))
            }
        }
        assert!(daemon.ok(&["nodes"]).contains("0.9%"));
    }
}

#[test]
fn one_odd_sample_starts_no_job_on_a_busy_gpu() {
    let daemon = node(500, true);
    let first = submit(&daemon);
    daemon.until_state(first, "running");
    set(&daemon, "0.95");
    let second = submit(&daemon);
    daemon.until("it is too busy", |daemon| why(daemon, second).contains("SM activity, and"));
    for _ in 0..3 {
        set(&daemon, "0");
        thread::sleep(Duration::from_millis(150));
        set(&daemon, "0.95");
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(daemon.state(second), "waiting", "{}", why(&daemon, second));
    }
    set(&daemon, "0.1");
    daemon.until_state(second, "running");
}

#[test]
fn where_nothing_measures_sm_activity_it_is_unknown_and_no_job_joins_by_it() {
    let daemon = node(800, false);
    let first = submit(&daemon);
    daemon.until_state(first, "running");
    let second = submit(&daemon);
    daemon.until("it is not measured", |daemon| why(daemon, second).contains("it is not measured"));
    assert_eq!(smact(&daemon), Value::Null);
    assert!(daemon.ok(&["nodes"]).contains("there is no dcgmi"), "{}", daemon.ok(&["nodes"]));
}
