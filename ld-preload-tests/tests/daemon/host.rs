//! Host use of jobs under `radrmd`; what an administrator decided outlives it.

use std::fs;

use radrm_emulator_machine::Machine;
use radrm_preload_tests::{
    node::{Daemon, may},
    programs,
};
use serde_json::Value;

#[test]
fn host_use_is_shown_and_excess_is_noted_once() {
    let mut daemon = Daemon::new("cpus = 8\n");
    // 100 MB that stay, and all of a core.
    let script = "import os\ndata = bytearray(os.urandom(100_000_000))\nwhile True: pass";
    let job = daemon.submit(&["--gpus", "0", "--mem", "64MiB", "--cpus", "0.1"], &["python3", "-c", script]);
    let modest =
        daemon.submit(&["--gpus", "0", "--mem", "2GiB", "--cpus", "4"], &["/bin/sh", "-c", "sleep 1000"]);
    let lines = |daemon: &Daemon, job: u64| -> Vec<String> {
        let shown = daemon.show(job);
        let lines = shown["history"].as_array().expect("history").iter();
        let of = |line: &Value| line["text"].as_str().expect("text").to_owned();
        lines.map(of).filter(|line| line.contains("than it booked")).collect()
    };
    daemon.until("both are noted", |daemon| lines(daemon, job).len() == 2);
    let row = daemon.show(job)["job"].clone();
    assert!((100_000_000..400_000_000).contains(&row["host_memory"].as_u64().expect("bytes")), "{row}");
    assert!(row["cpu_milli"].as_u64().expect("CPU time") > 100, "{row}");
    assert_eq!((&row["booked_host_memory"], &row["booked_cpu_milli"]), (&(64 << 20).into(), &100.into()));
    let text = daemon.ok(&["show", &job.to_string()]);
    assert!(
        text.contains("resident (booked 64.0 MiB)") && text.contains("cores (booked 0.10 cores)"),
        "{text}"
    );
    // The next daemon sees it anew and says nothing again.
    daemon.kill();
    daemon.start();
    daemon.until("it is seen", |daemon| daemon.show(job)["job"]["host_memory"].as_u64() > Some(0));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((lines(&daemon, job).len(), lines(&daemon, modest).len()), (2, 0));
    assert_eq!(daemon.state(job), "running", "a booking is no limit");
}

#[test]
fn a_drained_gpu_stays_drained_for_the_next_daemon() {
    let mut daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let drained = |daemon: &Daemon| {
        let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
        nodes["gpus"][0]["drained"].as_bool().expect("drained")
    };
    daemon.ok(&["drain", "0"]);
    daemon.kill();
    daemon.start();
    assert!(
        drained(&daemon) && daemon.log().contains("is drained: it takes no new jobs"),
        "{}",
        daemon.log()
    );
    let job = daemon.submit(&[], &["/bin/true"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(daemon.state(job), "waiting");
    daemon.ok(&["drain", "--resume", "0"]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    daemon.stop();
    daemon.start();
    assert!(!drained(&daemon));
}

#[test]
fn the_reason_of_a_drain_is_shown_to_who_looks_and_who_waits() {
    let mut daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    daemon.ok(&["drain", "0", "--reason", "fan broken"]);
    let job = daemon.submit(&[], &["/bin/true"]);
    let check = |daemon: &Daemon| {
        let nodes = daemon.ok(&["nodes"]);
        assert!(nodes.contains("GPU 0 is drained: fan broken ("), "{nodes}");
        let queue = daemon.ok(&["queue", "--why"]);
        assert!(queue.contains("GPU 0 is drained: fan broken"), "{queue}");
    };
    check(&daemon);
    daemon.kill();
    daemon.start();
    check(&daemon);
    assert!(daemon.log().contains("(fan broken)"), "{}", daemon.log());
    let text = daemon.refused(&["drain", "0", "--reason", "two\nlines"]);
    assert!(text.contains("a reason has one line"), "{text}");
    daemon.ok(&["drain", "0", "--resume"]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    assert!(!daemon.ok(&["nodes"]).contains("drained"));
}

#[test]
fn a_job_waiting_for_a_lost_gpu_stays_queued_over_restart() {
    let mut daemon = Daemon::new("");
    let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    let uuid = nodes["gpus"][1]["uuid"].as_str().expect("UUID").to_owned();
    let set_lost = |daemon: &Daemon, lost| {
        let machine = Machine::open(&daemon.path("state/machine")).expect("emulated machine");
        let gpu = (0..machine.gpu_count()).find(|gpu| machine.spec().uuid_text(*gpu) == uuid).expect("GPU");
        machine.set_lost(gpu, lost);
    };
    daemon.ok(&["drain", "1"]);
    let job = daemon.submit(&["--gpus", "2", "--exclusive"], &["/bin/true"]);
    assert_eq!(daemon.state(job), "waiting");
    daemon.kill();
    set_lost(&daemon, true);
    daemon.start();
    let shown = daemon.show(job);
    assert_eq!(shown["job"]["state"], "waiting", "{shown}");
    // Whatever it is tried again for: it is released, also where the next daemon found it held, or a GPU is back.
    for restart in [false, true] {
        daemon.ok(&["hold", &job.to_string()]);
        if restart {
            daemon.kill();
            daemon.start();
        }
        daemon.ok(&["hold", "--release", &job.to_string()]);
        assert_eq!(daemon.state(job), "waiting", "{}", daemon.show(job)["history"]);
    }
    let machine = || Machine::open(&daemon.path("state/machine")).expect("emulated machine");
    machine().set_lost(0, true);
    daemon.until("the other is gone, too", |daemon| daemon.log().contains("is gone"));
    machine().set_lost(0, false);
    daemon.until("it is back", |daemon| daemon.log().contains("is back"));
    assert_eq!(daemon.state(job), "waiting", "{}", daemon.show(job)["history"]);
    set_lost(&daemon, false);
    daemon.kill();
    daemon.start();
    daemon.ok(&["drain", "--resume", "1"]);
    assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
}

#[test]
fn memory_of_a_jobs_processes_is_not_unmanaged() {
    let daemon = Daemon::new("[scheduler]\npolicy = \"best-fit\"\n");
    let program = programs::compile("steps.c", &[]).display().to_string();
    // Less than the driver gives at once; and a job of unknown need, whose context is not accounted for.
    for options in [&["--gpu-mem", "1GiB"][..], &[]] {
        let job = daemon.submit(options, &[&program, "use:0", "alloc:a:1m", "sleep:60000"]);
        daemon.until_state(job, "running");
    }
    let gpus = || {
        let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
        nodes["gpus"].as_array().expect("GPUs").clone()
    };
    daemon.until("all is accounted for", |_| {
        gpus().iter().all(|gpu| gpu["used"].as_u64() > Some(0) && gpu["foreign"] == 0)
    });
}

#[test]
fn a_job_is_not_spared_with_its_daemon_when_host_memory_runs_out() {
    let spare = "echo -500 > /proc/self/oom_score_adj";
    if !may(&["unshare", "--mount", "/bin/sh", "-c", spare]) {
        return;
    }
    let daemon = Daemon::with("", spare);
    let script = "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj > $PLACE/scores";
    let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", script]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    assert_eq!(daemon.lines("scores"), ["0", "0"], "the job's and its launcher's");
    let own = fs::read_dir("/proc").expect("processes").flatten().any(|entry| {
        let file = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        file("cmdline").contains(&daemon.path("socket").display().to_string())
            && file("oom_score_adj").trim() == "-500"
    });
    assert!(own, "the daemon's own stays");
}

#[test]
fn the_audit_expects_the_configured_context() {
    if !may(&["unshare", "--mount", "true"]) {
        return;
    }
    let mut daemon = Daemon::prepare("[scheduler]\npolicy = \"best-fit\"\n");
    let config = fs::read_to_string(daemon.path("config.toml")).expect("configuration");
    fs::write(daemon.path("config.toml"), config.replace("audit_s = 0", "audit_s = 1"))
        .expect("configuration");
    fs::write(daemon.path("limits.toml"), "context = \"0\"\n").expect("limits");
    daemon.behind("export RADRM_CONFIG=$PLACE/limits.toml");
    daemon.start();
    let program = programs::compile("steps.c", &[]).display().to_string();
    let job = daemon.submit(&["--gpu-mem", "2GiB"], &[&program, "use:0", "alloc:a:600m", "sleep:60000"]);
    daemon.until_state(job, "running");
    // A context takes more than the tolerance, and nothing is expected for it.
    daemon.until("its context is named", |daemon| {
        let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
        nodes["audit"].to_string().contains("holds more than its calls account for")
    });
}

/// A tree as the kernel's resctrl has it. Its files count nothing by themselves.
fn resctrl(daemon: &Daemon) {
    for folder in ["resctrl/info/L3_MON", "resctrl/mon_groups"] {
        fs::create_dir_all(daemon.path(folder)).expect("folder");
    }
    let features = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n";
    fs::write(daemon.path("resctrl/info/L3_MON/mon_features"), features).expect("file");
}

#[test]
fn memory_traffic_of_a_job_is_counted_by_resctrl_and_shown() {
    let mut daemon = Daemon::prepare("");
    let config = fs::read_to_string(daemon.path("config.toml")).expect("configuration");
    let root = daemon.path("resctrl");
    let config = format!("memory_bandwidth = \"200GB\"\nresctrl = \"{}\"\n{config}", root.display());
    fs::write(daemon.path("config.toml"), config).expect("configuration");
    daemon.start();
    let nodes = daemon.ok(&["nodes"]);
    assert!(nodes.contains("resctrl is not mounted"), "whatever else counts here: {nodes}");
    daemon.kill();
    resctrl(&daemon);
    daemon.start();
    assert!(daemon.ok(&["nodes"]).contains("memory traffic of jobs is counted by resctrl, of "));
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["sleep", "1000"]);
    daemon.until_state(job, "running");
    let group = root.join(format!("mon_groups/radrm.{job}.1"));
    let tasks = fs::read_to_string(group.join("tasks")).expect("its group");
    let first = tasks.lines().next().unwrap_or_default();
    assert_eq!(first, daemon.supervisor(job).to_string(), "everything that it starts is in the group");
    // A file does not list what a process starts, as the kernel would.
    daemon.until("a process that was there before the group joins it", |daemon| {
        let pid = daemon.show(job)["job"]["pid"].to_string();
        let tasks = fs::read_to_string(group.join("tasks")).expect("its group");
        tasks.lines().any(|line| line == pid)
    });
    assert!(daemon.show(job)["job"]["memory_traffic"].is_null(), "nothing is counted yet");
    for domain in ["mon_L3_00", "mon_L3_01"] {
        fs::create_dir_all(group.join("mon_data").join(domain)).expect("folder");
    }
    let count = |bytes: u64| {
        for domain in ["mon_L3_00", "mon_L3_01"] {
            let file = group.join("mon_data").join(domain).join("mbm_total_bytes");
            fs::write(file.with_extension("new"), format!("{bytes}\n")).expect("file");
            fs::rename(file.with_extension("new"), file).expect("file");
        }
    };
    let (begun, mut bytes) = (std::time::Instant::now(), 0);
    daemon.until("its traffic is known", |daemon| {
        // 3 GB in a second in each domain.
        bytes = u64::try_from(begun.elapsed().as_millis()).unwrap_or(0) * 3_000_000;
        count(bytes);
        daemon.show(job)["job"]["memory_traffic"].as_u64() > Some(1_000_000_000)
    });
    let seen = daemon.show(job)["job"]["memory_traffic"].as_u64().expect("traffic");
    assert!(seen < 60_000_000_000, "{seen}");
    let shown = daemon.ok(&["show", &job.to_string()]);
    assert!(shown.contains("/s memory traffic"), "{shown}");
    fs::write(group.join("mon_data/mon_L3_01/mbm_total_bytes"), "Unavailable\n").expect("file");
    daemon.until("a domain that does not say makes it unknown", |daemon| {
        daemon.show(job)["job"]["memory_traffic"].is_null()
    });
}
