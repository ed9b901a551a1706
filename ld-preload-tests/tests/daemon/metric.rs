//! Jobs join others by SM activity, measured over a window. A utilisation is no SM activity.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;
use std::time::Duration;

use radrm_emulator_machine::{Machine, MachineSpec};
use radrm_preload_tests::{artifacts, node::Daemon, programs};
use serde_json::Value;

/// Stands in for a machine with a driver and DCGM.
const SYSTEM: &str =
    "export LD_LIBRARY_PATH=$PLACE/lib RADRM_EMULATED_MACHINE=$PLACE/system PATH=$PLACE/bin:$PATH";

/// Prints what the file `smact` has as SM activity of GPU 0. DCGM has no tensor activity of it, and its engine is always in use.
const DCGMI: &str =
    "#!/bin/sh\nwhile :; do echo \"GPU 0 $(cat $PLACE/smact) 0.1 N/A 0.1 0.98\"; sleep 0.05; done\n";

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

fn gpu(daemon: &Daemon) -> Value {
    let node: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    node["gpus"][0].clone()
}

fn smact(daemon: &Daemon) -> Value {
    gpu(daemon)["smact"].clone()
}

fn submit(daemon: &Daemon) -> u64 {
    daemon.submit(&["--gpu-mem", "1GiB"], &["sleep", "1000"])
}

#[test]
fn dcgm_decides_on_a_gpu_without_gpm() {
    for (limit, joins) in [(5, false), (10, true)] {
        let daemon = node(limit, true);
        daemon.until("DCGM is read", |daemon| smact(daemon) == 9);
        assert_eq!(gpu(&daemon)["gract"], 980);
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

/// An emulated H200, which has GPM. Launches are not timed there.
fn node_with_gpm(limit: u32) -> Daemon {
    Daemon::new(&format!(
        "emulate = \"1xH200\"\nkernels = \"\"\n[scheduler]\npolicy = \"magm\"\n[scheduler.preconditions]\nsmact = {limit}\nwindow = 2000\n"
    ))
}

/// Submits a shell's words, in which `$FILL BLOCKS THREADS` keeps the GPU busy with kernels of so many blocks, 5 ms each.
fn submit_kernels(daemon: &Daemon, words: &str) -> u64 {
    let program = programs::compile("turns.c", &["-pthread"]).display().to_string();
    let times = daemon.path("times");
    fs::write(&times, "* 5000000\n").expect("kernel times");
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", times.display());
    let fill = format!("FILL={program} fill launches 300");
    let words = ["env", "RADRM_EMULATOR_TIME=real", &times, &fill, "sh", "-c", words];
    daemon.submit(&["--gpu-mem", "1GiB"], &words)
}

#[test]
fn gpm_decides_on_an_h200_where_one_thread_makes_it_look_busy() {
    for (limit, joins) in [(5, false), (10, true)] {
        let daemon = node_with_gpm(limit);
        let first = submit_kernels(&daemon, "exec $FILL 1 1");
        daemon.until_state(first, "running");
        // One of 132 multiprocessors, .76 %.
        daemon.until("one of its multiprocessors is at work", |daemon| {
            (7..=8).contains(&smact(daemon).as_u64().unwrap_or(0))
        });
        let seen = gpu(&daemon);
        assert!(seen["gract"].as_u64() > Some(500) && seen["utilization"].as_u64() > Some(50), "{seen}");
        let second = submit(&daemon);
        match joins {
            true => daemon.until_state(second, "running"),
            false => daemon.until("it is too busy", |daemon| {
                why(daemon, second).contains("has 0.7 % SM activity")
                    || why(daemon, second).contains("has 0.8 % SM activity")
            }),
        }
    }
}

#[test]
fn one_odd_sample_of_gpm_starts_no_job_on_a_busy_gpu() {
    let daemon = node_with_gpm(500);
    // All multiprocessors, but for .4 s now and then.
    let words = "$FILL 264 1024 & while sleep 2.5; do kill -STOP $!; sleep 0.4; kill -CONT $!; done";
    let first = submit_kernels(&daemon, words);
    daemon.until_state(first, "running");
    daemon.until("the GPU is busy", |daemon| smact(daemon).as_u64() > Some(900));
    let second = submit(&daemon);
    for _ in 0..3 {
        daemon.until("a poll shows an idle GPU", |daemon| {
            smact(daemon).as_u64().is_some_and(|part| part < 100)
        });
        daemon.until("and a later one a busy GPU", |daemon| smact(daemon).as_u64() > Some(900));
        assert_eq!(daemon.state(second), "waiting", "{}", why(&daemon, second));
    }
    daemon.ok(&["cancel", &first.to_string()]);
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

#[test]
fn a_job_that_holds_an_idle_gpu_is_shown_and_its_hours_are_added_up() {
    let mut daemon = node(500, true);
    let job = submit(&daemon);
    daemon.until_state(job, "running");
    let idle = |daemon: &Daemon| daemon.show(job)["job"]["idle_ms"].as_u64();
    // .9 % is work.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(idle(&daemon), None, "{}", daemon.show(job));
    set(&daemon, "0");
    daemon.until("it is idle for longer than the window", |daemon| idle(daemon) > Some(2500));
    assert!(daemon.ok(&["queue"]).contains("running, idle "), "{}", daemon.ok(&["queue"]));
    assert!(daemon.ok(&["show", &job.to_string()]).contains("its GPUs have done nothing for "));
    assert!(daemon.ok(&["nodes"]).contains(" idle ") && gpu(&daemon)["idle_ms"].as_u64() > Some(2500));
    set(&daemon, "0.2");
    daemon.until("it works again", |daemon| idle(daemon).is_none());
    let hours = |daemon: &Daemon| {
        let rows: Value = serde_json::from_str(&daemon.ok(&["usage", "--json"])).expect("JSON");
        ["idle_gpu_hours", "gpu_hours"].map(|name| rows[0][name].as_f64().expect("hours"))
    };
    let [spent, all] = hours(&daemon);
    assert!(spent * 3600.0 > 2.5 && spent < all, "{spent} of {all}");
    assert!(daemon.ok(&["usage"]).contains("IDLE"));
    daemon.ok(&["cancel", &job.to_string()]);
    daemon.end(job);
    assert_eq!(hours(&daemon)[0], spent, "after its end");
    daemon.kill();
    daemon.start();
    assert_eq!(hours(&daemon)[0], spent, "after a restart");
}

#[test]
fn a_job_on_a_gpu_of_unknown_activity_is_never_idle() {
    let daemon = node(500, false);
    let job = submit(&daemon);
    daemon.until_state(job, "running");
    thread::sleep(Duration::from_millis(3000));
    assert!(daemon.show(job)["job"]["idle_ms"].is_null(), "{}", daemon.show(job));
    let rows: Value = serde_json::from_str(&daemon.ok(&["usage", "--json"])).expect("JSON");
    assert_eq!(rows[0]["idle_gpu_hours"], 0.0);
}
