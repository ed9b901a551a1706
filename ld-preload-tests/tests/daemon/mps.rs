//! `radrm submit --mps` with a stand-in of MPS's control daemon, which outlives the jobs that use it and ends with the last.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use radrm_preload_tests::{artifacts, node::Daemon};

/// A daemon on whose machine MPS is installed for the jobs that name its folder.
fn with_stand_in(config: &str) -> Daemon {
    let daemon = Daemon::new(config);
    fs::create_dir(daemon.path("bin")).expect("folder");
    symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), daemon.path("bin/nvidia-cuda-mps-control"))
        .expect("stand-in");
    daemon
}

/// A daemon on whose machine MPS has protocol 3, also for itself.
fn with_third(config: &str) -> Daemon {
    let mut daemon = Daemon::prepare(config);
    fs::create_dir(daemon.path("bin")).expect("folder");
    symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), daemon.path("bin/nvidia-cuda-mps-control"))
        .expect("stand-in");
    daemon.behind("export PATH=$PLACE/bin:$PATH RADRM_MPS_STANDIN=v3");
    daemon.start();
    daemon
}

/// A job under MPS that says where it finds MPS and its partition, and ends when a file is there.
fn submit(daemon: &Daemon, name: &str, options: &[&str]) -> u64 {
    submit_with(daemon, name, options, &[])
}

/// The same with variables.
fn submit_with(daemon: &Daemon, name: &str, options: &[&str], variables: &[(&str, &str)]) -> u64 {
    let script = format!(
        "echo $CUDA_MPS_SM_PARTITION > partition.{name}; echo $CUDA_MPS_PIPE_DIRECTORY > pipe.{name}; \
         while [ ! -e go.{name} ]; do sleep 0.05; done"
    );
    let options = [options, &["--gpu-mem=1GiB"]].concat();
    let words = [&["submit", "--quiet"], &options[..], &["--", "/bin/sh", "-c", &script]].concat();
    let mut command = daemon.client(&words);
    command.env("PATH", format!("{}:/usr/bin:/bin", daemon.path("bin").display()));
    command.envs(variables.iter().copied());
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

#[test]
fn nodes_and_check_name_the_protocol_of_mps() {
    let mut daemon = with_third("emulate = \"1xA100-40GB\"\n[mps]\non = true\n");
    let third = "MPS by protocol 3: a server for each user, a namespace for each job";
    assert!(daemon.ok(&["nodes"]).contains(third), "{}", daemon.ok(&["nodes"]));
    daemon.behind("export PATH=$PLACE/bin:$PATH");
    daemon.stop();
    daemon.start();
    assert!(daemon.ok(&["nodes"]).contains("MPS by protocol 2"), "{}", daemon.ok(&["nodes"]));
    daemon.behind("");
    daemon.stop();
    daemon.start();
    let nodes = daemon.ok(&["nodes"]);
    if nodes.contains("MPS by protocol") {
        eprintln!("skipped: MPS is installed here");
        return;
    }
    assert!(nodes.contains("nvidia-cuda-mps-control is not installed, so jobs under MPS fail"), "{nodes}");
    daemon.stop();
    let mut check = Command::new(artifacts::directory().join("radrmd"));
    check
        .arg("--config")
        .arg(daemon.path("config.toml"))
        .arg("--state")
        .arg(daemon.path("state"))
        .arg("--check");
    check
        .env("PATH", format!("{}:/usr/bin:/bin", daemon.path("bin").display()))
        .env("RADRM_MPS_STANDIN", "v3");
    let output = check.output().expect("radrmd");
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(said.contains(third), "{said}");
}

#[test]
fn jobs_with_a_share_have_sm_partitions_and_others_wait_for_sms() {
    let daemon = with_third("emulate = \"1xA100-40GB\"\n[mps]\non = true\nsm_partitions = true\n");
    assert!(daemon.ok(&["nodes"]).contains("SM partitions by --gpu-share"));
    let nodes: serde_json::Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    let uuid = nodes["gpus"][0]["uuid"].as_str().expect("UUID").to_owned();
    let variables = [("RADRM_MPS_STANDIN", "v3"), ("RADRM_MPS_STANDIN_DEVICES", &*format!("{uuid}=108"))];
    let start = |name: &str, options: &[&str]| submit_with(&daemon, name, options, &variables);
    let partition = |name: &str| {
        pipe(&daemon, name);
        fs::read_to_string(daemon.path(&format!("partition.{name}"))).expect("file").trim().to_owned()
    };
    let jobs = [("half", Some("50")), ("third", Some("30"))].map(|(name, share)| {
        let share = share.map(|share| format!("--gpu-share={share}%"));
        (start(name, &share.iter().map(String::as_str).collect::<Vec<_>>()), name)
    });
    let [half, third] = [partition("half"), partition("third")];
    assert!(half != third && [&half, &third].iter().all(|one| one.starts_with(&uuid)), "{half} {third}");
    let log = Path::new(&pipe(&daemon, "half")).join("../../log/control.log");
    let log = fs::read_to_string(log).expect("the log of the control daemon");
    // 27 chunks of 4 multiprocessors.
    assert!(log.contains("--chunks=13") && log.contains("--chunks=8"), "{log}");
    for (job, name) in jobs {
        go(&daemon, name);
        daemon.end(job);
    }
    // A job without a share has the whole GPU of one that is not divided.
    let whole = start("whole", &[]);
    assert_eq!(partition("whole"), "");
    let late = start("late", &["--gpu-share=50%"]);
    daemon.until("it waits for an SM partition", |daemon| {
        daemon.ok(&["queue", "--why"]).contains("no device has an SM partition of MPS for it")
    });
    assert_eq!(daemon.state(late), "waiting");
    go(&daemon, "whole");
    daemon.end(whole);
    assert!(partition("late").starts_with(&uuid));
    go(&daemon, "late");
    daemon.end(late);
}

#[test]
fn jobs_on_mig_instances_have_a_control_daemon_of_their_instance() {
    let machine = tempfile::Builder::new().suffix(".toml").tempfile().expect("file");
    let text = "[[gpu]]\nmodel = \"A100-40GB\"\nname = \"NVIDIA A100 MIG 1g.5gb\"\nmig_profile = \"1g.5gb\"\n\
                memory_mib = 4864\nsms = 14\ncount = 2\n";
    fs::write(machine.path(), text).expect("file");
    let daemon = with_stand_in(&format!("emulate = \"{}\"\n[mps]\non = true\n", machine.path().display()));
    let names = ["one", "two"];
    let jobs = names.map(|name| submit(&daemon, name, &["--exclusive"]));
    let pids = names.map(|name| control(&daemon, name));
    assert_ne!(pipe(&daemon, "one"), pipe(&daemon, "two"));
    assert_ne!(pids[0], pids[1]);
    go(&daemon, "one");
    daemon.end(jobs[0]);
    daemon.until("that of the first instance ended", |_| !lives(pids[0]));
    assert!(lives(pids[1]), "that of the other goes on");
    go(&daemon, "two");
    daemon.end(jobs[1]);
    daemon.until("it ended", |_| !lives(pids[1]));
}
