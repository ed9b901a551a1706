//! `radrm submit --mps` with a stand-in of MPS's control daemon, which outlives the jobs that use it and ends with the last.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use radrm_preload_tests::node::Daemon;

/// A daemon on whose machine MPS is installed for the jobs that name its folder.
fn with_stand_in(config: &str) -> Daemon {
    let daemon = Daemon::new(config);
    fs::create_dir(daemon.path("bin")).expect("folder");
    symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), daemon.path("bin/nvidia-cuda-mps-control"))
        .expect("stand-in");
    daemon
}

/// A job under MPS that says where it finds MPS, and ends when a file is there.
fn submit(daemon: &Daemon, name: &str, options: &[&str]) -> u64 {
    let script =
        format!("echo $CUDA_MPS_PIPE_DIRECTORY > pipe.{name}; while [ ! -e go.{name} ]; do sleep 0.05; done");
    let options = [options, &["--gpu-mem=1GiB"]].concat();
    let words = [&["submit", "--quiet"], &options[..], &["--", "/bin/sh", "-c", &script]].concat();
    let mut command = daemon.client(&words);
    command.env("PATH", format!("{}:/usr/bin:/bin", daemon.path("bin").display()));
    let output = command.output().expect("radrm");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number")
}

fn go(daemon: &Daemon, name: &str) {
    fs::write(daemon.path(&format!("go.{name}")), "").expect("file");
}

/// The control daemon that a job was given.
fn control(daemon: &Daemon, name: &str) -> u32 {
    let file = daemon.path(&format!("pipe.{name}"));
    daemon.until("the job runs", |_| fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')));
    let pipe = fs::read_to_string(&file).expect("pipe");
    let pid = Path::new(pipe.trim()).join("nvidia-cuda-mps-control.pid");
    fs::read_to_string(&pid)
        .unwrap_or_else(|why| panic!("{}: {why}", pid.display()))
        .trim()
        .parse()
        .expect("pid")
}

fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn the_control_daemon_outlives_the_first_job_and_radrmd_and_ends_with_the_last() {
    // A GPU for each job: what is shared is the control daemon.
    let mut daemon = with_stand_in("emulate = \"4xA100-40GB\"\n");
    let first = submit(&daemon, "first", &["--mps"]);
    let pid = control(&daemon, "first");
    let second = submit(&daemon, "second", &["--mps"]);
    assert_eq!(control(&daemon, "second"), pid, "both use one");
    let plain = submit(&daemon, "plain", &[]);
    go(&daemon, "first");
    daemon.end(first);
    assert!(lives(pid), "the end of the first job ended it for the second");
    daemon.kill();
    daemon.start();
    assert!(lives(pid), "the end of radrmd ended it for the second");
    let third = submit(&daemon, "third", &["--mps"]);
    assert_eq!(control(&daemon, "third"), pid);
    for (job, name) in [(second, "second"), (third, "third")] {
        assert!(lives(pid));
        go(&daemon, name);
        daemon.end(job);
    }
    daemon.until("it ended with the last job that used it", |_| !lives(pid));
    assert_eq!(daemon.state(plain), "running");
    go(&daemon, "plain");
    daemon.end(plain);
    assert_eq!(fs::read_to_string(daemon.path("pipe.plain")).expect("file").trim(), "", "without --mps none");
}

/// Folder of a job's control daemon; empty without MPS.
fn pipe(daemon: &Daemon, name: &str) -> String {
    let file = daemon.path(&format!("pipe.{name}"));
    daemon.until("the job runs", |_| fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')));
    fs::read_to_string(&file).expect("pipe").trim().to_owned()
}

#[test]
fn the_setting_puts_jobs_on_its_gpus_under_mps_and_no_others() {
    let daemon = with_stand_in("emulate = \"2xA100-40GB\"\n[mps]\non = true\ngpus = [\"1\"]\n");
    let jobs = ["one", "two"].map(|name| (submit(&daemon, name, &["--exclusive"]), name));
    let both: Vec<(String, bool)> = jobs
        .iter()
        .map(|(job, name)| {
            let pipe = pipe(&daemon, name);
            (daemon.show(*job)["job"]["devices"].to_string(), !pipe.is_empty())
        })
        .collect();
    let nodes: serde_json::Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    let second = nodes["gpus"][1]["uuid"].as_str().expect("UUID").to_owned();
    for (devices, is_under_mps) in &both {
        assert_eq!(devices.contains(&second), *is_under_mps, "{both:?}");
    }
    assert_eq!(both.iter().filter(|(_, is_under_mps)| *is_under_mps).count(), 1, "{both:?}");
    for (job, name) in jobs {
        go(&daemon, name);
        daemon.end(job);
    }
}

#[test]
fn the_preset_of_rad_rm_is_its_policy_and_mps() {
    let daemon = with_stand_in("preset = \"rad-rm\"\nemulate = \"1xA100-40GB\"\n");
    let nodes: serde_json::Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    assert_eq!(nodes["policy"], "magm");
    let job = submit(&daemon, "one", &[]);
    assert_ne!(pipe(&daemon, "one"), "", "its jobs run under MPS");
    go(&daemon, "one");
    assert_eq!(daemon.end(job)["exit_code"], 0);
}

#[test]
fn without_mps_a_job_fails_with_the_reason_in_its_output() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    if std::env::split_paths("/usr/bin:/bin").any(|folder| folder.join("nvidia-cuda-mps-control").exists()) {
        eprintln!("skipped: MPS is installed here");
        return;
    }
    let job = daemon.submit(&["--mps", "--gpu-mem=1GiB"], &["/bin/sh", "-c", "touch ran"]);
    let row = daemon.end(job);
    assert_ne!(row["exit_code"], 0, "{row}");
    let output = fs::read_to_string(row["output"].as_str().expect("output")).expect("output");
    assert!(output.contains("nvidia-cuda-mps-control is not installed"), "{output}");
    assert!(!daemon.path("ran").exists());
}
