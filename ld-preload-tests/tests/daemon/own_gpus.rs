//! A job has its GPUs and no other, whatever its programs do to `CUDA_VISIBLE_DEVICES`.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Output};

use radrm_emulator_machine::Machine;
use radrm_preload_tests::node::{Daemon, may};
use radrm_preload_tests::{artifacts, programs};
use serde_json::Value;

/// Bytes in use on the GPU of this number.
fn used(daemon: &Daemon, gpu: usize) -> u64 {
    Machine::open(&daemon.path("state/machine")).expect("machine").memory(gpu).used
}

fn gpus(daemon: &Daemon) -> Vec<Value> {
    let node: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    node["gpus"].as_array().expect("GPUs").clone()
}

/// A job that reserves so much of a GPU that none of the others fits beside it, and the number of that GPU.
fn victim(daemon: &Daemon, program: &str) -> (u64, usize) {
    let script = format!("{program} keep 37000 go.victim > out.victim");
    let job = daemon.submit(&["--gpu-mem", "40000MiB"], &["/bin/sh", "-c", &script]);
    daemon
        .until("it holds its memory", |daemon| daemon.lines("out.victim") == ["GPUS 1", "granted", "ready"]);
    let is_its = |gpu: &Value| gpu["jobs"].as_array().is_some_and(|jobs| jobs.contains(&job.into()));
    (job, gpus(daemon).iter().position(is_its).expect("its GPU"))
}

fn go(daemon: &Daemon, name: &str) {
    fs::write(daemon.path(&format!("go.{name}")), "").expect("file");
}

/// Runs a job whose programs reach for other GPUs, and looks while it holds what it got: nothing of the victim's, and of
/// its own as much as `granted` says. Returns the job.
fn reaches(
    daemon: &Daemon,
    name: &str,
    options: &[&str],
    script: &str,
    of: (usize, u64),
    granted: usize,
) -> u64 {
    let (victim, before) = of;
    let job = daemon.submit(options, &["/bin/sh", "-c", &script.replace("NAME", name)]);
    let out = format!("out.{name}");
    daemon.until(&format!("{name} has asked: {}", daemon.show(job)), |daemon| {
        daemon.lines(&out).last().is_some_and(|line| line == "ready")
    });
    assert_eq!(used(daemon, victim), before, "{name} has memory of the other job's GPU");
    let count = daemon.lines(&out).iter().filter(|line| *line == "granted").count();
    assert_eq!(count, granted, "{name}: {:?}", daemon.lines(&out));
    go(daemon, name);
    let end = daemon.end(job);
    assert_eq!(end["exit_code"], 0, "{name}: {end}");
    job
}

#[test]
fn no_job_gets_a_byte_of_a_gpu_that_it_was_not_given() {
    let mut daemon = Daemon::new("cpus = 100\n");
    let program = programs::compile("every_gpu.c", &[]).display().to_string();
    let (first, gpu) = victim(&daemon, &program);
    let other = 1 - gpu;
    let uuids: Vec<String> =
        gpus(&daemon).iter().map(|gpu| gpu["uuid"].as_str().expect("uuid").to_owned()).collect();
    let of = (gpu, used(&daemon, gpu));
    let run = |visible: &str| format!("{program} {visible} 500 go.NAME > out.NAME");
    let before = |visible: &str| format!("export CUDA_VISIBLE_DEVICES={visible}; {}", run("keep"));
    let both = format!("{gpu},{other}");
    let backwards = format!("{other},{gpu}");
    let by_uuid = uuids.join(",");
    let own = ["--gpu-mem", "1GiB"];
    let none = ["--gpus", "0"];
    let cases: Vec<(&str, &[&str], String, usize)> = vec![
        ("as-given", &own[..], run("keep"), 1),
        ("variable", &own[..], before(&gpu.to_string()), 0),
        ("late", &own[..], run(&gpu.to_string()), 0),
        ("all", &own[..], run(&both), 1),
        ("backwards", &own[..], run(&backwards), 1),
        ("removed", &own[..], run("unset"), 1),
        ("by-uuid", &own[..], run(&by_uuid), 1),
        ("its-uuid", &own[..], run(&uuids[gpu]), 0),
        ("variable-uuid", &own[..], before(&uuids[gpu]), 0),
        ("env", &own[..], format!("env CUDA_VISIBLE_DEVICES={gpu} {}", run("keep")), 0),
        ("nested", &own[..], format!("sh -c 'CUDA_VISIBLE_DEVICES={gpu} exec sh -c \"{}\"'", run("keep")), 0),
        ("order", &own[..], format!("export CUDA_DEVICE_ORDER=FASTEST_FIRST; {}", run(&both)), 1),
        ("cpu", &none[..], run("keep"), 0),
        ("cpu-variable", &none[..], before(&gpu.to_string()), 0),
        ("cpu-late", &none[..], run(&both), 0),
        ("cpu-removed", &none[..], run("unset"), 0),
        ("cpu-uuid", &none[..], run(&by_uuid), 0),
        ("unknown", &[][..], run("unset"), 1),
        ("whole", &["--exclusive"][..], run("unset"), 1),
        ("estimate", &["--gpu-mem-estimate", "1GiB"][..], run("unset"), 1),
        ("share", &["--gpu-mem", "1GiB", "--gpu-share", "50"][..], run("unset"), 1),
    ];
    for (name, options, script, granted) in &cases {
        reaches(&daemon, name, options, script, of, *granted);
    }
    let array = daemon.submit(
        &["--gpu-mem", "1GiB", "--array", "0-1"],
        &["/bin/sh", "-c", &run("unset").replace("NAME", "array$RADRM_ARRAY_INDEX")],
    );
    for index in 0..2 {
        let out = format!("out.array{index}");
        daemon.until("the array has asked", |daemon| {
            daemon.lines(&out).last().is_some_and(|line| line == "ready")
        });
        assert_eq!(daemon.lines(&out).iter().filter(|line| *line == "granted").count(), 1);
    }
    assert_eq!(used(&daemon, gpu), of.1, "array");
    (0..2).for_each(|index| go(&daemon, &format!("array{index}")));
    daemon.end(array + 1);
    // The second attempt, after it ran out of its own memory in the first.
    let script = format!(
        "if [ $RADRM_ATTEMPT = 1 ]; then touch go.first; {program} keep 3000 go.first > first; grep -q refused first && exit 1; fi; {}",
        run("unset")
    );
    let job = reaches(&daemon, "retry", &["--gpu-mem", "1GiB", "--gpu-mem-upper", "1GiB"], &script, of, 1);
    eprintln!("attempts: {}", daemon.show(job)["job"]["attempts"]);
    // A daemon that comes back.
    daemon.kill();
    daemon.start();
    reaches(&daemon, "restarted", &own, &run("unset"), of, 1);
    let named = reaches(&daemon, "named", &own, &run(&gpu.to_string()), of, 0);
    let shown = daemon.ok(&["show", &named.to_string()]);
    let sentence =
        format!("requested memory of GPU {}, which is not one of this job's, and got none", uuids[gpu]);
    assert!(shown.contains(&sentence), "{shown}");
    assert_eq!(daemon.state(first), "running");
    go(&daemon, "victim");
    assert_eq!(daemon.end(first)["exit_code"], 0);
}

#[test]
fn a_refusal_on_anothers_gpu_is_no_need_and_no_retry() {
    let daemon = Daemon::new("");
    let program = programs::compile("every_gpu.c", &[]).display().to_string();
    let (first, gpu) = victim(&daemon, &program);
    let script = format!("touch go.b; {program} {gpu} 500 go.b | grep -q granted");
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["/bin/sh", "-c", &script]);
    let end = daemon.end(job);
    assert_eq!(
        (&end["exit_code"], &end["attempts"], &end["ooms"]),
        (&1.into(), &1.into(), &0.into()),
        "{end}"
    );
    assert_eq!(end["end"], "exit code 1");
    go(&daemon, "victim");
    daemon.end(first);
}

#[test]
fn programs_get_numbers_in_pci_order_or_uuids_where_the_site_asks_for_them() {
    let script = "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER > visible";
    for (config, is_number) in [("", true), ("visible_devices = \"uuid\"\n", false)] {
        let daemon = Daemon::new(config);
        let job = daemon.submit(&["--gpu-mem", "1GiB"], &["/bin/sh", "-c", script]);
        let end = daemon.end(job);
        let uuid = end["devices"][0].as_str().expect("a GPU").to_owned();
        let at = gpus(&daemon).iter().position(|gpu| gpu["uuid"] == *uuid).expect("its number");
        let name = if is_number { at.to_string() } else { uuid };
        assert_eq!(daemon.lines("visible"), [format!("{name} PCI_BUS_ID")]);
    }
}

#[test]
fn a_job_under_mps_and_jobs_of_a_group_have_their_gpus_and_no_other() {
    let daemon = Daemon::new("emulate = \"4xA100-40GB\"\n");
    fs::create_dir(daemon.path("bin")).expect("folder");
    symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), daemon.path("bin/nvidia-cuda-mps-control"))
        .expect("stand-in");
    let program = programs::compile("every_gpu.c", &[]).display().to_string();
    let (first, gpu) = victim(&daemon, &program);
    let before = used(&daemon, gpu);
    let script = format!("{program} unset 500 go.mps > out.mps");
    let words = ["submit", "--quiet", "--mps", "--gpu-mem=1GiB", "--", "/bin/sh", "-c", &script];
    let mut command = daemon.client(&words);
    command.env("PATH", format!("{}:/usr/bin:/bin", daemon.path("bin").display()));
    let output = command.output().expect("radrm");
    let job: u64 = String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number");
    daemon.until(&format!("it has asked: {}", daemon.show(job)), |daemon| {
        daemon.lines("out.mps").last().is_some_and(|line| line == "ready")
    });
    assert_eq!(used(&daemon, gpu), before);
    assert_eq!(daemon.lines("out.mps").iter().filter(|line| *line == "granted").count(), 1);
    go(&daemon, "mps");
    daemon.end(job);
    go(&daemon, "victim");
    daemon.end(first);
}

/// `radrm quota set` of a running job, by this user or another.
fn quota_set(daemon: &Daemon, job: u64, user: Option<u32>, limit: &str) -> Output {
    daemon.supervisor(job);
    let launcher = daemon.show(job)["job"]["pid"].to_string();
    let radrm = artifacts::directory().join("radrm");
    let mut command = match user {
        None => Command::new(radrm),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={user}"), format!("--regid={user}")]);
            command.arg("--clear-groups").arg(radrm);
            command
        }
    };
    command.args(["quota", "set", &launcher, limit]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", "/").current_dir("/").output().expect("radrm")
}

#[test]
fn a_larger_limit_gives_a_job_no_gpu_that_it_was_not_given() {
    let daemon = Daemon::new("cpus = 100\n");
    let program = programs::compile("every_gpu.c", &[]).display().to_string();
    let (first, gpu) = victim(&daemon, &program);
    let before = used(&daemon, gpu);
    let script = |name: &str| {
        format!(
            "while [ ! -e go.change ]; do sleep 0.05; done; {program} 0,1 2000 go.{name} > out.{name}; true"
        )
    };
    let own = daemon.submit(&["--gpu-mem", "1GiB"], &["/bin/sh", "-c", &script("own")]);
    let none = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", &script("none")]);
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let said = quota_set(&daemon, own, None, "3GiB");
    assert_eq!(said.status.success(), is_root, "{said:?}");
    let said = quota_set(&daemon, none, None, "3GiB");
    assert!(!said.status.success(), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("was given no GPU by radrmd"), "{said:?}");
    go(&daemon, "change");
    for (name, granted) in [("own", usize::from(is_root)), ("none", 0)] {
        let out = format!("out.{name}");
        daemon.until("it has asked", |daemon| daemon.lines(&out).last().is_some_and(|line| line == "ready"));
        let count = daemon.lines(&out).iter().filter(|line| *line == "granted").count();
        assert_eq!(count, granted, "{name}: {:?}", daemon.lines(&out));
    }
    assert_eq!(used(&daemon, gpu), before, "memory of the other job's GPU");
    for (name, job) in [("own", own), ("none", none), ("victim", first)] {
        go(&daemon, name);
        daemon.end(job);
    }
}

#[test]
fn a_user_lowers_the_limit_that_radrmd_gave_and_does_not_raise_it() {
    const USER: u32 = 65_534;
    if !may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        || !may(&["getent", "passwd", "65534"])
    {
        return;
    }
    let daemon = Daemon::new("");
    let words = ["submit", "-q", "--gpu-mem", "1GiB", "--", "sleep", "1000"];
    let submitted = daemon.client_of(USER, &words).current_dir("/").output().expect("radrm");
    let job: u64 = String::from_utf8_lossy(&submitted.stdout).trim().parse().expect("number");
    let set = |limit: &str| quota_set(&daemon, job, Some(USER), limit);
    for limit in ["30GiB", "none", "0=2GiB", "1=2GiB"] {
        let said = set(limit);
        assert_eq!(said.status.code(), Some(1), "{limit}: {said:?}");
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(text.contains("only root may give job") && text.contains("radrmd"), "{limit}: {text}");
    }
    assert!(set("512MiB").status.success() && set("1GiB").status.success(), "up to what it was given");
    assert!(quota_set(&daemon, job, None, "2GiB").status.success(), "root");
    daemon.ok(&["cancel", &job.to_string()]);
    daemon.end(job);
}
