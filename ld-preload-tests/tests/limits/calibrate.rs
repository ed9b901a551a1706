//! `radrm calibrate --mps` beside a stand-in of MPS's control daemon, and what radrmd makes of the curve.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use radrm_preload_tests::{node::Daemon, programs};
use serde_json::Value;

use super::throttle_node::POLICY;

/// A program that says which share it was given and then keeps the GPU busy.
fn words(daemon: &Daemon) -> Vec<String> {
    let program = programs::compile("turns.c", &["-pthread"]).display().to_string();
    let times = daemon.path("times");
    fs::write(&times, "* 500000\n").expect("kernel times");
    let script = format!(
        "echo \"share ${{CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-all}}\"; exec {program} fill launches 300 132"
    );
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", times.display());
    ["env", "RADRM_EMULATOR_TIME=real", &times, "sh", "-c", &script].map(str::to_owned).to_vec()
}

/// A search path with the stand-in under the real one's name.
fn path(daemon: &Daemon) -> String {
    let bin = daemon.path("bin");
    if !bin.exists() {
        fs::create_dir(&bin).expect("bin");
        symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), bin.join("nvidia-cuda-mps-control"))
            .expect("stand-in");
    }
    format!("{}:/usr/bin:/bin", bin.display())
}

fn calibrate(daemon: &Daemon, options: &[&str], words: &[String]) -> Command {
    let (machine, dataset) = (daemon.path("state/machine"), daemon.path("state/dataset.db"));
    let mut command = daemon.client(&["calibrate", "--mps", "--json", "--warm-up=500ms"]);
    command.args(options).arg("--machine").arg(machine).arg("--dataset").arg(dataset);
    command.arg("--").args(words);
    command.env("PATH", path(daemon));
    command
}

fn share_of(daemon: &Daemon, words: &[String]) -> String {
    // Its jobs run under MPS, which its submitter's surroundings say.
    let config = daemon.path("radrm.toml");
    fs::write(&config, "[mps]\nenable = true\n").expect("configuration");
    let mut submit = daemon.client(&["submit", "--quiet", "--gpu-mem", "2GiB", "--"]);
    submit.args(words).env("PATH", path(daemon)).env("RADRM_CONFIG", config);
    let said = submit.output().expect("radrm");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let job = String::from_utf8_lossy(&said.stdout).trim().parse().expect("a number");
    daemon.until_state(job, "running");
    let job_text = job.to_string();
    daemon.until("it says its share", |daemon| daemon.ok(&["logs", &job_text]).contains("share "));
    let said = daemon.ok(&["logs", &job_text]);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!(said.contains("share all"), !history.contains("under MPS on"), "{said} {history}");
    daemon.ok(&["cancel", &job_text]);
    daemon.end(job);
    said.lines().find(|line| line.starts_with("share ")).unwrap_or_default().to_owned()
}

#[test]
fn only_a_curve_measured_here_limits_a_programs_share() {
    let daemon = Daemon::new(POLICY);
    let words = words(&daemon);
    assert_eq!(share_of(&daemon, &words), "share all", "nothing was measured");
    let out = calibrate(&daemon, &["--shares=40", "--time=2s"], &words).output().expect("radrm");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if !out.status.success() && said.contains("something else ran") {
        // The machine had no time for one of the runs: nothing is kept of it.
        assert_eq!(share_of(&daemon, &words), "share all");
        return;
    }
    assert!(out.status.success(), "{said}");
    let curve: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let points = curve["points"].as_array().expect("points");
    let percents: Vec<u64> = points.iter().filter_map(|point| point["percent"].as_u64()).collect();
    assert_eq!(percents, [40, 100]);
    assert!(points.iter().all(|point| point["launches_per_second"].as_f64() > Some(0.0)), "{curve}");
    let expected = match curve["enough_percent"].as_u64() {
        Some(percent) => format!("share {percent}"),
        None => "share all".to_owned(),
    };
    assert_eq!(share_of(&daemon, &words), expected);
    let mut other = words.clone();
    other[5].push_str(" # another program");
    assert_eq!(share_of(&daemon, &other), "share all", "its curve is not known");
}

#[test]
fn a_program_that_ends_too_early_leaves_no_curve() {
    let daemon = Daemon::new(POLICY);
    let words = ["true".to_owned()];
    let out = calibrate(&daemon, &["--time=1s"], &words).output().expect("radrm");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("at 100 % the program ended before") && said.lines().count() == 1, "{said}");
}
