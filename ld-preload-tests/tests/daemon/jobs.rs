//! `radrmd` with real processes under the shim on emulated GPUs.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

use radrm_emulator_machine::Machine;
use radrm_preload_tests::{
    artifacts,
    node::{Daemon, may},
    programs,
};
use serde_json::Value;

const GIB: u64 = 1 << 30;

fn steps() -> String {
    programs::compile("steps.c", &[]).display().to_string()
}

/// Needs of other sizes than one's own are not what these tests are about.
const POLICY: &str = "[scheduler]\npolicy = \"best-fit\"\n";

#[test]
fn a_job_runs_as_it_was_submitted_and_its_need_is_known_the_next_time() {
    let daemon = Daemon::new(POLICY);
    let program = steps();
    let command = [program.as_str(), "use:0", "alloc:a:600m"];
    let job = daemon.submit(&["--name", "first"], &command);
    let ended = daemon.end(job);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &1.into()), "{ended}");
    assert_eq!(ended["name"], "first");
    let peak = ended["peak"].as_u64().expect("peak");
    assert!((600 << 20..2 * GIB).contains(&peak), "{peak}");
    // Never seen before, it had a GPU of its own; now its peak is set aside, and little more.
    let again = daemon.submit(&[], &[&command[..], &["sleep:60000"]].concat());
    daemon.until_state(again, "running");
    assert_eq!(daemon.show(again)["job"]["reserved"], Value::Null, "another command");
    let same = daemon.submit(&[], &command);
    daemon.end(same);
    let history = daemon.show(same)["history"].to_string();
    assert!(history.contains("succeeded"), "{history}");
    let shared = daemon.ok(&["nodes"]);
    assert!(shared.contains("emulated"), "{shared}");
}

#[test]
fn a_jobs_own_context_is_not_unmanaged_memory() {
    let daemon = Daemon::new(POLICY);
    let job = daemon.submit(&["--gpu-mem", "2GiB"], &[&steps(), "use:0", "alloc:a:600m", "sleep:60000"]);
    daemon.until_state(job, "running");
    let gpus = || {
        let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
        nodes["gpus"].as_array().expect("GPUs").clone()
    };
    let on = || gpus().into_iter().find(|gpu| gpu["used"].as_u64() > Some(600 << 20));
    daemon.until("its memory and its context are its own", |_| on().is_some_and(|gpu| gpu["foreign"] == 0));
}

#[test]
fn what_a_limit_of_the_user_refused_ends_the_job_and_is_told() {
    let daemon = Daemon::new(POLICY);
    // SAFETY: always works.
    let uid = unsafe { libc::getuid() };
    fs::write(daemon.path("limits.toml"), format!("[user.{uid}]\nmem-limit = \"3GiB\"\n")).expect("file");
    let mut command = daemon.client(&["submit", "--wait", "--gpu-mem", "10GiB", "--", &steps()]);
    command.args(["use:0", "alloc:a:1g", "alloc:b:3g"]).env("RADRM_CONFIG", daemon.path("limits.toml"));
    let done = command.output().expect("radrm");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("--gpu-mem 10.0 GiB is more than user"), "{said}");
    let shown = daemon.show(1);
    assert_eq!((&shown["job"]["attempts"], &shown["job"]["ooms"]), (&1.into(), &1.into()), "{shown}");
    let end = shown["job"]["end"].as_str().expect("it is over");
    assert!(end.contains("by a limit of its user or group") && said.contains(end), "{said} {end}");
    assert!(shown["history"].to_string().contains("stopped by the user's quota"), "{shown}");
}

#[test]
fn show_tells_what_was_asked_for_and_where_the_need_comes_from() {
    let daemon = Daemon::new(POLICY);
    let options = ["--hold", "--gpu-mem", "10GiB", "--gpu-share", "30", "--preemptible", "--slot", "1h"];
    let job = daemon.submit(&options, &["/bin/sleep", "1000"]);
    let text = daemon.ok(&["show", &job.to_string()]);
    for part in
        ["--gpu-mem 10.0 GiB, --gpu-share 30%, --preemptible, --slot", "requested 10.0 GiB on each GPU"]
    {
        assert!(text.contains(part), "{text}");
    }
    let shown = daemon.show(job);
    assert_eq!(
        (&shown["job"]["asked"]["gpu_mem"], &shown["job"]["asked"]["exclusive"]),
        (&(10 * GIB).into(), &false.into())
    );
    assert!(daemon.ok(&["queue"]).contains("10.0 GiB"));
    daemon.ok(&["hold", "--release", &job.to_string()]);
    daemon.until_state(job, "running");
    let text = daemon.ok(&["show", &job.to_string()]);
    assert!(text.contains("reserved  ") && text.contains("requested 10.0 GiB on each GPU"), "{text}");
    let unknown = daemon.submit(&["--hold"], &["/bin/sleep", "1000"]);
    assert!(
        daemon
            .ok(&["show", &unknown.to_string()])
            .contains("unknown: it has its GPUs to itself until it has run for 2 min 00 s")
    );
}

#[test]
fn a_script_is_run_as_a_whole() {
    let daemon = Daemon::new("");
    let script = "#!/bin/bash\n# train\necho prepare\necho train\necho eval\nexit 3\n";
    fs::write(daemon.path("job.sh"), script).expect("file");
    let done =
        daemon.client(&["submit", "--wait", "--quiet", "--gpus", "0", "job.sh"]).output().expect("radrm");
    assert_eq!((done.status.code(), daemon.ok(&["logs", "1"]).as_str()), (Some(3), "prepare\ntrain\neval\n"));
    fs::write(daemon.path("job.sh"), "python3 train.py\n").expect("file");
    assert!(daemon.refused(&["submit", "job.sh"]).contains("`radrm submit -- bash FILE`"));
}

#[test]
fn a_new_programs_need_is_estimated_from_its_model_summary() {
    let daemon = Daemon::new(POLICY);
    let summary = "Layer (type)   Output Shape   Param #\nLinear-1   [-1, 4194304]   268435456\n\
                   Total params: 268,435,456\n";
    fs::write(daemon.path("model.txt"), summary).expect("file");
    let job = "sleep 1000\nmodel: model.txt\nbatch_size: 64\npolicy: collocation\n";
    fs::write(daemon.path("job.rad"), job).expect("file");
    let job = daemon.ok(&["submit", "--quiet", "job.rad"]).trim().parse().expect("a number");
    daemon.until_state(job, "running");
    let shown = daemon.show(job);
    // (64 * 4194304 + 268435456 + 64 * 4194304) values of 4 bytes, and 600 MiB to start with.
    assert_eq!(shown["job"]["reserved"], 3 * GIB + (600 << 20), "{shown}");
    assert!(shown["history"].to_string().contains("Horus's formula"), "{shown}");
    let wrong = daemon.refused(&["submit", "--model-summary", "job.rad", "--", "true"]);
    assert!(wrong.contains("--model-summary") && wrong.contains("no layer"), "{wrong}");
}

#[test]
fn prometheus_gets_sums_and_no_command_lines() {
    let mut daemon = Daemon::prepare("");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let file = daemon.path("config.toml");
    let config = fs::read_to_string(&file).expect("configuration");
    let config = config.replace("metrics = \"\"", &format!("metrics = \"{free}\""));
    fs::write(&file, config).expect("configuration");
    daemon.start();
    let job = daemon.submit(&["--name", "secret"], &["/bin/sh", "-c", "exit 3"]);
    daemon.end(job);
    let mut stream = None;
    daemon.until("it listens", |_| {
        stream = TcpStream::connect(free).ok();
        stream.is_some()
    });
    let mut stream = stream.expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    assert!(head.starts_with("HTTP/1.1 200") && !body.contains("secret"), "{answer}");
    let mut types: BTreeMap<&str, &str> = BTreeMap::new();
    for line in body.lines() {
        if let Some(words) = line.strip_prefix("# TYPE ") {
            let (name, kind) = words.split_once(' ').expect("name and type");
            assert_eq!(types.insert(name, kind), None, "{name} twice");
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().unwrap_or(series);
            let base = name.rsplit_once('_').map_or(name, |(base, _)| base);
            assert!(types.contains_key(name) || types.contains_key(base), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    for line in
        ["radrm_jobs_submitted_total 1", "radrm_jobs_failed_total 1", "radrm_job_execution_seconds_count 1"]
    {
        assert!(body.lines().any(|found| found == line), "{line}: {body}");
    }
    let lost = body.lines().filter(|line| line.starts_with("radrm_gpu_lost{") && line.ends_with(" 0"));
    assert_eq!(lost.count(), 2, "{body}");
}

#[test]
fn output_directory_environment_and_exit_code_are_the_users() {
    let daemon = Daemon::new("");
    let script = "pwd; echo $PLACE; echo to-stderr >&2; umask; exit 7";
    let mut command = daemon.client(&["submit", "--wait", "--gpus", "0", "--", "/bin/sh", "-c", script]);
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o27);
            Ok(())
        });
    }
    let done = command.output().expect("radrm");
    assert_eq!(done.status.code(), Some(7), "{}", daemon.log());
    let place = daemon.place().canonicalize().expect("path").display().to_string();
    let lines: Vec<String> = daemon.ok(&["logs", "1"]).lines().map(str::to_owned).collect();
    assert_eq!(lines, [place, daemon.place().display().to_string(), "to-stderr".into(), "0027".into()]);
    assert!(daemon.refused(&["logs", "99"]).contains("there is no job 99"));
    let missing = daemon.submit(&["--gpus", "0", "--chdir", "/no/such/directory"], &["true"]);
    let ended = daemon.end(missing);
    assert_eq!(ended["end"], "could not be started: /no/such/directory: No such file or directory");
    assert!(daemon.show(missing)["history"].to_string().contains("/no/such/directory"));
}

#[test]
fn only_out_of_memory_seen_by_the_shim_is_retried_elsewhere() {
    let daemon = Daemon::new(POLICY);
    let program = steps();
    let hog = daemon.submit(&["--gpu-mem", "34GiB"], &["/bin/sleep", "1000"]);
    daemon.until_state(hog, "running");
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &[&program, "use:0", "alloc:a:3g"]);
    let ended = daemon.end(job);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!(
        (&ended["exit_code"], &ended["attempts"], &ended["ooms"]),
        (&0.into(), &2.into(), &1.into()),
        "{history}"
    );
    assert!(history.contains("ran out of GPU memory") && history.contains("tried again"), "{history}");
    // The tightest fit was beside the hog; 3 GiB and the step on top fit on the other one only.
    assert_ne!(ended["devices"], daemon.show(hog)["job"]["devices"]);
    // The words without the deed.
    let liar = daemon.submit(&["--gpu-mem", "1GiB"], &["/bin/sh", "-c", "echo CUDA out of memory; exit 1"]);
    let ended = daemon.end(liar);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&1.into(), &1.into()), "{ended}");
    // A refused request that the program gets over is not a failure.
    let calm = daemon.submit(&["--gpu-mem", "1GiB"], &[&program, "use:0", "!alloc:a:3g"]);
    assert_eq!(daemon.end(calm)["attempts"], 1);
    // Nor is it the reason of one that comes later: it asked for less, and then had trouble of its own.
    let steps: &[&str] = &[&program, "use:0", "!alloc:a:3g", "alloc:b:1m", "exit:3"];
    let other = daemon.end(daemon.submit(&["--gpu-mem", "1GiB"], steps));
    assert_eq!((&other["exit_code"], &other["attempts"], &other["ooms"]), (&3.into(), &1.into(), &0.into()));
    // One that can never have what it asked for ends with its own exit code.
    let steps: &[&str] = &[&program, "use:0", "!alloc:a:300g", "exit:7"];
    let never = daemon.end(daemon.submit(&["--gpu-mem", "1GiB"], steps));
    assert_eq!((&never["exit_code"], &never["attempts"], &never["ooms"]), (&7.into(), &1.into(), &1.into()));
}

#[test]
fn a_daemon_that_is_killed_loses_no_job_and_starts_none_twice() {
    let mut daemon = Daemon::new("");
    let script = "echo start $RADRM_JOB >> $PLACE/marks; sleep 0.4; echo end $RADRM_JOB >> $PLACE/marks; \
                  exit $((RADRM_JOB % 5))";
    let jobs: Vec<u64> =
        (0..20).map(|_| daemon.submit(&["--exclusive"], &["/bin/sh", "-c", script])).collect();
    for round in 0..4 {
        // At another point of a job's life each time; one is ended while no daemon is there.
        thread::sleep(Duration::from_millis(150 + 130 * round));
        daemon.kill();
        thread::sleep(Duration::from_millis(if round == 1 { 900 } else { 0 }));
        daemon.start();
    }
    for job in &jobs {
        let ended = daemon.end(*job);
        assert_eq!(ended["exit_code"], job % 5, "{ended}\n{}", daemon.show(*job)["history"]);
        assert_eq!(ended["attempts"], 1, "{ended}");
    }
    let marks = daemon.lines("marks");
    for job in jobs {
        for word in ["start", "end"] {
            let times = marks.iter().filter(|line| **line == format!("{word} {job}")).count();
            assert_eq!(times, 1, "{word} of {job}: {marks:?}");
        }
    }
}

#[test]
fn a_killed_supervisor_ends_all_processes_of_its_job() {
    let mut daemon = Daemon::new("");
    for while_down in [false, true] {
        let mark = format!("child{while_down}");
        let script = format!("(exec sleep 4711) & echo $! > $PLACE/{mark}; wait");
        let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", &script]);
        daemon.until("the child is there", |daemon| !daemon.lines(&mark).is_empty());
        daemon.until("its launcher is known", |daemon| daemon.show(job)["job"]["pid"].is_u64());
        let supervisor = daemon.supervisor(job);
        if while_down {
            daemon.kill();
        }
        // SAFETY: a plain system call on a process of this test.
        unsafe { libc::kill(supervisor, libc::SIGKILL) };
        if while_down {
            daemon.start();
        }
        assert_eq!(daemon.end(job)["exit_code"], 137);
        let child: i32 = daemon.lines(&mark)[0].parse().expect("pid");
        // SAFETY: signal 0 only asks.
        daemon.until("the child is gone", |_| unsafe { libc::kill(child, 0) } != 0);
    }
}

#[test]
fn cancel_hold_release_and_time_limits_do_what_they_say() {
    let daemon = Daemon::new("");
    let held = daemon.submit(&["--hold", "--gpus", "0"], &["true"]);
    assert_eq!(daemon.state(held), "held");
    let blockers: Vec<u64> = (0..2).map(|_| daemon.submit(&["--exclusive"], &["sleep", "1000"])).collect();
    for job in &blockers {
        daemon.until_state(*job, "running");
    }
    let waiting = daemon.submit(&["--exclusive"], &["true"]);
    assert_eq!(daemon.state(waiting), "waiting");
    assert!(
        daemon.ok(&["queue", "--why"]).contains("each device that it may use has jobs"),
        "{}",
        daemon.ok(&["queue", "--why"])
    );
    daemon.ok(&["hold", &waiting.to_string()]);
    assert_eq!(daemon.state(waiting), "held");
    daemon.ok(&["cancel", &waiting.to_string()]);
    assert_eq!(daemon.end(waiting)["end"], "cancelled");
    assert!(daemon.refused(&["cancel", &waiting.to_string()]).contains("is over"));
    assert!(daemon.refused(&["hold", &blockers[0].to_string()]).contains("runs already"));
    daemon.ok(&["cancel", &blockers[0].to_string()]);
    assert_eq!(daemon.end(blockers[0])["end"], "cancelled");
    daemon.ok(&["hold", "--release", &held.to_string()]);
    assert_eq!(daemon.end(held)["exit_code"], 0);
    let long = daemon.submit(&["--time", "300ms", "--gpus", "0"], &["sleep", "1000"]);
    let ended = daemon.end(long);
    assert!(ended["end"].as_str().expect("text").contains("time limit"), "{ended}");
}

#[test]
fn a_job_gets_sigterm_to_react_to_and_one_that_does_not_is_killed() {
    let mut daemon = Daemon::new("[scheduler.eviction]\nkill_after = 60000\n");
    let polite = "trap 'echo bye >> $PLACE/polite; exit 3' TERM; echo ready >> $PLACE/polite; \
                  while :; do sleep 0.1; done";
    let polite = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", polite]);
    daemon.until("it is ready", |daemon| !daemon.lines("polite").is_empty());
    // One that was adopted gets it too.
    daemon.kill();
    daemon.start();
    daemon.ok(&["cancel", &polite.to_string()]);
    assert_eq!(daemon.end(polite)["end"], "cancelled");
    assert_eq!(daemon.lines("polite"), ["ready", "bye"]);
    daemon.kill();
    let config = fs::read_to_string(daemon.path("config.toml")).expect("configuration");
    fs::write(daemon.path("config.toml"), config.replace("60000", "300")).expect("configuration");
    daemon.start();
    let deaf = "trap '' TERM; echo ready >> $PLACE/deaf; while :; do sleep 0.1; done";
    let deaf = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", deaf]);
    daemon.until("it is deaf", |daemon| !daemon.lines("deaf").is_empty());
    daemon.ok(&["cancel", &deaf.to_string()]);
    assert_eq!(daemon.end(deaf)["end"], "cancelled");
}

#[test]
fn a_checkpoint_signal_comes_before_the_end_and_the_job_goes_on_later() {
    let daemon = Daemon::new("[scheduler.eviction]\nkill_after = 2000\n");
    let script = "echo begin $RADRM_ATTEMPT >> $PLACE/marks; [ $RADRM_ATTEMPT = 2 ] && exit 0; \
                  trap 'echo saved >> $PLACE/marks; exit 75' USR1; while :; do sleep 0.05; done";
    let options = ["--exclusive", "--preemptible", "--checkpoint-signal", "USR1", "--grace", "20s"];
    let jobs: Vec<u64> = (0..2).map(|_| daemon.submit(&options, &["/bin/sh", "-c", script])).collect();
    daemon.until("both run", |daemon| daemon.lines("marks").len() == 2);
    let important = daemon.submit(&["--priority", "5", "--exclusive"], &["sleep", "0.2"]);
    assert_eq!(daemon.end(important)["exit_code"], 0);
    let evicted: Vec<Value> = jobs
        .iter()
        .map(|job| daemon.show(*job)["job"].clone())
        .filter(|job| job["attempts"] != 1 || job["state"] != "running")
        .collect();
    assert_eq!(evicted.len(), 1, "one of them gave way: {:?}", daemon.lines("marks"));
    let job = evicted[0]["job"].as_u64().expect("number");
    let ended = daemon.end(job);
    assert_eq!((&ended["exit_code"], &ended["attempts"], &ended["ooms"]), (&0.into(), &2.into(), &0.into()));
    let marks = daemon.lines("marks");
    assert_eq!(marks.iter().filter(|line| *line == "saved").count(), 1, "{marks:?}");
}

#[test]
fn a_second_user_sees_and_touches_nothing_of_the_first_ones() {
    const USER: u32 = 65_534;
    const OTHER: u32 = 1;
    if !may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        || !may(&["getent", "passwd", "65534"])
        || !may(&["getent", "passwd", "1"])
    {
        return;
    }
    let daemon = Daemon::new("");
    let as_user = |user: u32, arguments: &[&str]| {
        daemon.client_of(user, arguments).current_dir("/").output().expect("radrm")
    };
    let script = "id -u; sleep 1000";
    let first = as_user(USER, &["submit", "-q", "--name", "secret", "--", "/bin/sh", "-c", script]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(first.status.success(), "{}{}", text(&first.stderr), daemon.log());
    let job = text(&first.stdout).trim().to_owned();
    daemon.until("it runs as its user", |_| text(&as_user(USER, &["logs", &job]).stdout) == "65534\n");
    for arguments in [
        vec!["show", &job],
        vec!["logs", &job],
        vec!["cancel", &job],
        vec!["hold", &job],
        vec!["hold", "--release", &job],
    ] {
        let done = as_user(OTHER, &arguments);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}");
        // The same words as for a job that there is not.
        assert!(text(&done.stderr).contains(&format!("there is no job {job}")), "{}", text(&done.stderr));
    }
    for arguments in
        [&["queue"][..], &["queue", "--all"], &["queue", "--all", "--ended", "9"], &["top", "--once"]]
    {
        let done = as_user(OTHER, arguments);
        assert!(done.status.success() && !text(&done.stdout).contains("secret"), "{}", text(&done.stdout));
    }
    let nodes: Value = serde_json::from_slice(&as_user(OTHER, &["nodes", "--json"]).stdout).expect("JSON");
    let gpus = nodes["gpus"].as_array().expect("GPUs");
    assert!(gpus.iter().all(|gpu| gpu["jobs"].as_array().is_some_and(Vec::is_empty)), "{nodes}");
    for arguments in [&["submit", "--priority", "1", "--", "true"][..], &["drain", "0"]] {
        assert_eq!(as_user(OTHER, arguments).status.code(), Some(1), "{arguments:?}");
    }
    assert_eq!(daemon.state(job.parse().expect("number")), "running", "root sees it, and it runs on");
    // Root's list is that of all users, also where it does not ask for it: an empty one would read as an idle node.
    let listed = daemon.ok(&["queue"]);
    let user = Command::new("id").args(["-nu", "65534"]).output().expect("id");
    assert!(listed.contains("secret") && listed.contains(text(&user.stdout).trim()), "{listed}");
    assert!(
        !fs::metadata(daemon.path("state/queue.db"))
            .is_ok_and(|found| found.permissions().mode() & 0o044 != 0)
            || as_user(OTHER, &["queue"]).status.success()
    );
    let read = Command::new("setpriv")
        .args(["--reuid=1", "--regid=1", "--clear-groups", "cat"])
        .args([daemon.path("state/queue.db"), daemon.path(&format!("state/jobs/{job}/output"))])
        .output()
        .expect("cat");
    assert!(read.stdout.is_empty(), "the queue and others' output are not open to all");
    let cancelled = as_user(USER, &["cancel", &job]);
    assert!(cancelled.status.success());
    assert_eq!(daemon.end(job.parse().expect("number"))["end"], "cancelled");
    // One that an administrator cancels is shown to its user with that name.
    let first = as_user(USER, &["submit", "-q", "--", "/bin/sh", "-c", script]);
    let job: u64 = text(&first.stdout).trim().parse().expect("number");
    daemon.until("it runs", |daemon| daemon.state(job) == "running");
    daemon.ok(&["cancel", &job.to_string()]);
    let name = Command::new("id").arg("-un").output().expect("id");
    let by = format!("cancelled by {}", text(&name.stdout).trim());
    assert_eq!(daemon.end(job)["end"].as_str(), Some(by.as_str()));
    let shown = text(&as_user(USER, &["show", &job.to_string()]).stdout);
    assert!(shown.contains(&by), "{shown}");
}

#[test]
fn admission_rejects_impossible_jobs_and_counts_lost_gpus() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB+1xA100-80GB\"\n[scheduler]\npolicy = \"best-fit\"\n");
    let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    let models: Vec<&str> =
        nodes["gpus"].as_array().expect("GPUs").iter().filter_map(|gpu| gpu["model"].as_str()).collect();
    let refused = |options: &[&str]| daemon.refused(&[&["submit"], options, &["--", "true"]].concat());
    let said = refused(&["--gpu-model", "FOO"]);
    assert!(said.contains("called FOO") && models.iter().all(|model| said.contains(model)), "{said}");
    fs::write(daemon.path("foo.rad"), "#RADRM --gpu-model=FOO\ntrue\n").expect("file");
    assert!(daemon.refused(&["submit", "foo.rad"]).contains("called FOO"));
    for (options, part) in [
        (&["--gpus", "3"][..], "3 devices"),
        (&["--gpus", "2", "--gpu-model", models[0]], "2 devices"),
        (&["--gpus", "2", "--gpu-mem", "60GiB"], "2 devices"),
        (&["--cpus", "10000"], "CPUs"),
        (&["--gpus", "0", "--mem", "900TiB"], "memory"),
    ] {
        let said = refused(options);
        assert!(said.contains("never run here") && said.contains(part), "{options:?}: {said}");
    }
    assert_eq!(daemon.ok(&["queue", "--ended", "9"]), "no jobs\n", "nothing of it is in the queue");
    // More than any GPU has may be a guess, and that is said.
    let guess = daemon.output(&["submit", "--gpu-mem", "100GiB", "--", "true"]);
    let remark = String::from_utf8_lossy(&guess.stderr).into_owned();
    assert!(guess.status.success() && remark.contains("more than any GPU here has"), "{remark}");
    assert_eq!(remark.lines().count(), 1, "{remark}");
    assert_eq!(daemon.end(1)["exit_code"], 0);
    // A GPU that is gone may come back: who needs it waits.
    let uuid = nodes["gpus"][1]["uuid"].as_str().expect("UUID");
    set_lost(&daemon, uuid, true);
    daemon.until("it is gone", |daemon| daemon.ok(&["nodes"]).contains("gone"));
    let job = daemon.submit(&["--gpu-model", models[1]], &["true"]);
    assert_eq!(daemon.state(job), "waiting");
    set_lost(&daemon, uuid, false);
    assert_eq!(daemon.end(job)["exit_code"], 0);
}

#[test]
fn a_wrong_command_line_ends_with_2_also_without_a_daemon() {
    let daemon = Daemon::new("");
    let socket = daemon.path("no-listener").display().to_string();
    for line in [
        &["submit", "--gpu-mem", "3G", "--", "true"][..],
        &["submit", "--time", "soon", "--", "true"],
        &["submit", "--bogus", "--", "true"],
        &["submit", "--gpus", "0", "--exclusive", "--", "true"],
        &["submit"],
        &["stats", "--since", "yesterday"],
        &["top", "--once", "--every", "0"],
        &["queue", "--ended", "-1"],
        &["show", "x"],
        &["logs"],
        &["cancel"],
        &["hold", "x"],
        &["nodes", "x"],
        &["drain"],
        &["quota", "set", "4711", "8G"],
        &["replay", "t.csv", "--policy", "fastest"],
    ] {
        let away = [line, &["--socket", &socket]].concat();
        let lines = if matches!(line, ["quota" | "replay", ..]) || line.contains(&"--") {
            vec![line]
        } else {
            vec![line, &away]
        };
        for line in lines {
            let done = daemon.output(line);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!((done.status.code(), said.lines().count()), (Some(2), 1), "{line:?}: {said}");
        }
    }
    assert_eq!(daemon.ok(&["queue", "--ended", "9"]), "no jobs\n");
}

#[test]
fn thesis_lines_run_in_the_submitters_environment_alone() {
    let daemon = Daemon::new("");
    for profile in [".bash_profile", ".profile", ".bashrc"] {
        fs::write(daemon.path(profile), "echo $0 >> $PLACE/profiles; PATH=/nowhere\n").expect("profile");
    }
    fs::create_dir(daemon.path("bin")).expect("directory");
    let conda = "#!/bin/sh\n[ \"$1 $2\" = 'shell.bash hook' ] && echo 'conda() { [ $1 = activate ] && export ENV=$2; }'\n";
    fs::write(daemon.path("bin/conda"), conda).expect("file");
    fs::set_permissions(daemon.path("bin/conda"), fs::Permissions::from_mode(0o755)).expect("mode");
    let job =
        "# a job\nconda activate torch\nMORE=1 sh -c 'echo $ENV $MORE $PATH; exit 5'\npolicy: collocation\n";
    fs::write(daemon.path("job.rad"), job).expect("file");
    let path = format!("{}:/usr/bin:/bin", daemon.path("bin").display());
    let mut command = daemon.client(&["submit", "--wait", "--quiet", "--gpus", "0", "job.rad"]);
    let done = command.env("PATH", &path).output().expect("radrm");
    let logs = daemon.ok(&["logs", "1"]);
    assert_eq!((done.status.code(), logs.as_str()), (Some(5), format!("torch 1 {path}\n").as_str()));
    assert_eq!(daemon.lines("profiles"), [""; 0]);
}

#[test]
fn a_job_past_its_slot_stays_last_after_a_daemon_restart() {
    let mut daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let first = daemon.submit(&["--exclusive", "--slot", "500ms"], &["sleep", "1000"]);
    daemon.until_state(first, "running");
    let second = daemon.submit(&["--exclusive"], &["sleep", "1000"]);
    let third = daemon.submit(&["--exclusive"], &["sleep", "1000"]);
    daemon.until_state(second, "running");
    daemon.until_state(first, "waiting");
    let order = |daemon: &Daemon| -> Vec<u64> {
        let jobs: Value = serde_json::from_str(&daemon.ok(&["queue", "--json"])).expect("JSON");
        let waiting = jobs.as_array().expect("jobs").iter().filter(|job| job["state"] == "waiting");
        waiting.filter_map(|job| job["job"].as_u64()).collect()
    };
    assert_eq!(order(&daemon), [third, first]);
    daemon.kill();
    daemon.start();
    assert_eq!(order(&daemon), [third, first], "the first had its turn");
    // Also for one that finds the GPU free.
    let group = libc::pid_t::try_from(daemon.show(second)["job"]["pid"].as_i64().expect("pid")).expect("pid");
    daemon.kill();
    // SAFETY: a plain system call; a group of a job of this test.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    daemon.until_kept(second, 1);
    daemon.start();
    daemon.until_state(third, "running");
    // It would have to give way again at once.
    let shown = daemon.show(first);
    assert_eq!(
        (&shown["job"]["state"], &shown["job"]["attempts"]),
        (&"waiting".into(), &1.into()),
        "{shown}"
    );
}

#[test]
fn energy_of_emulated_gpus_is_not_added_up_and_that_is_said() {
    let mut daemon = Daemon::new("emulate = \"1xH200\"\n");
    // Far more seconds of the GPU than pass.
    fs::write(daemon.path("times"), "* 500000000\n").expect("kernel times");
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", daemon.path("times").display());
    let program = programs::compile("steady.c", &[]).display().to_string();
    let job = daemon.submit(&["--gpu-mem", "2GiB"], &["env", &times, &program, "132", "1024", "1000"]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    thread::sleep(Duration::from_millis(400));
    // What was watched is written at the end at the latest.
    daemon.stop();
    daemon.start();
    let text = daemon.ok(&["stats"]);
    let said = text.lines().filter(|line| line.contains("emulated (1xH200)") && line.contains("energy"));
    assert_eq!(said.count(), 1, "{text}");
    assert!(!text.contains(" MJ") && !text.contains(" W"), "{text}");
    let stats: Value = serde_json::from_str(&daemon.ok(&["stats", "--json"])).expect("JSON");
    let gpu = &stats["gpus"][0];
    assert!(gpu["samples"].as_u64() > Some(0), "{stats}");
    for part in ["energy_mj", "mean_power_w", "mean_smact"] {
        assert_eq!(gpu[part], Value::Null, "{stats}");
    }
    daemon.ok(&["stats", "--since", "1h", "--html", "page.html"]);
    let page = fs::read_to_string(daemon.path("page.html")).expect("page");
    assert!(page.contains("emulated (1xH200)") && page.contains("<h3>GPU memory in use"), "{page}");
    assert!(!page.contains("<h3>Power") && !page.contains("<h3>Energy"), "{page}");
}

/// A GPU of the daemon falls off the bus, or is back.
fn set_lost(daemon: &Daemon, uuid: &str, lost: bool) {
    let machine = Machine::open(&daemon.path("state/machine")).expect("emulated machine");
    let gpu = (0..machine.gpu_count()).find(|gpu| machine.spec().uuid_text(*gpu) == uuid).expect("GPU");
    machine.set_lost(gpu, lost);
}

#[test]
fn jobs_of_a_lost_gpu_wait_for_another_and_others_go_on() {
    let daemon = Daemon::new("");
    let script = "echo $RADRM_JOB >> $PLACE/marks; while [ ! -e $PLACE/go ]; do sleep 0.05; done; exit 5";
    let jobs: Vec<u64> =
        (0..2).map(|_| daemon.submit(&["--exclusive"], &["/bin/sh", "-c", script])).collect();
    daemon.until("both run", |daemon| daemon.lines("marks").len() == 2);
    let gpu = daemon.show(jobs[0])["job"]["devices"][0].as_str().expect("UUID").to_owned();
    set_lost(&daemon, &gpu, true);
    daemon.until_state(jobs[0], "waiting");
    assert_eq!(daemon.state(jobs[1]), "running");
    let nodes = daemon.ok(&["nodes"]);
    assert!(nodes.contains("gone"), "{nodes}");
    set_lost(&daemon, &gpu, false);
    daemon.until("it runs again", |daemon| daemon.lines("marks").len() == 3);
    fs::File::create(daemon.path("go")).expect("file");
    for (job, attempts) in jobs.into_iter().zip([2, 1]) {
        let ended = daemon.end(job);
        let found = (&ended["exit_code"], &ended["attempts"], &ended["ooms"]);
        assert_eq!(found, (&5.into(), &attempts.into(), &0.into()), "{}", daemon.show(job)["history"]);
    }
    assert!(!daemon.ok(&["nodes"]).contains("gone"));
}

#[test]
fn a_job_that_needs_a_gpu_that_is_gone_waits_for_it() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB+1xA100-80GB\"\n");
    let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    let large = nodes["gpus"][1]["uuid"].as_str().expect("UUID");
    let script = "while [ ! -e $PLACE/go ]; do sleep 0.05; done; exit 5";
    let both = daemon.submit(&["--gpus", "2", "--exclusive"], &["/bin/sh", "-c", script]);
    daemon.until_state(both, "running");
    set_lost(&daemon, large, true);
    daemon.until("its job is off it", |daemon| daemon.state(both) != "running");
    daemon.until_state(both, "waiting");
    // One that comes meanwhile, too.
    let late = daemon.submit(&["--gpus", "2", "--exclusive"], &["/bin/sh", "-c", script]);
    assert_eq!(daemon.state(late), "waiting", "{}", daemon.show(late));
    set_lost(&daemon, large, false);
    fs::File::create(daemon.path("go")).expect("file");
    for job in [both, late] {
        assert_eq!(daemon.end(job)["exit_code"], 5, "{}", daemon.show(job)["history"]);
    }
}

#[test]
fn a_job_that_lost_its_gpu_does_not_count_as_failed() {
    // It fails long before anybody would look.
    let mut daemon = Daemon::prepare(POLICY);
    let file = daemon.path("config.toml");
    let config = fs::read_to_string(&file).expect("configuration");
    fs::write(&file, config.replace("poll_ms = 100", "poll_ms = 3600000")).expect("configuration");
    daemon.start();
    fs::write(daemon.path("marks"), "").expect("file");
    let program = programs::compile("trace_job.c", &[]).display().to_string();
    let marks = daemon.path("marks").display().to_string();
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &[&program, &marks, "100", "2000", "1", "0"]);
    daemon.until("its program runs", |daemon| daemon.lines("marks").len() == 1);
    daemon.until("its GPU is in use", |daemon| {
        let machine = Machine::open(&daemon.path("state/machine")).expect("emulated machine");
        machine.ledgers().iter().any(|ledger| ledger.gpus.iter().any(|gpu| gpu.launches > 0))
    });
    let gpu = daemon.show(job)["job"]["devices"][0].as_str().expect("UUID").to_owned();
    set_lost(&daemon, &gpu, true);
    let ended = daemon.end(job);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &2.into()), "{history}");
    assert_ne!(ended["devices"][0], gpu.as_str(), "{history}");
    // One that fails on a GPU that is there has failed.
    let failed = daemon.submit(&["--gpu-mem", "1GiB"], &["/bin/sh", "-c", "exit 7"]);
    let ended = daemon.end(failed);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&7.into(), &1.into()), "{ended}");
}

#[test]
fn a_daemon_killed_while_starting_jobs_leaves_no_lock() {
    let mut daemon = Daemon::new("");
    for _ in 0..12 {
        for _ in 0..3 {
            daemon.submit(&["--gpus", "0"], &["/bin/true"]);
        }
        // `start` fails if it finds the lock taken: the daemon then ends at once.
        daemon.kill();
        daemon.start();
    }
    assert!(!daemon.log().contains("another radrmd"), "{}", daemon.log());
}

#[test]
fn only_one_daemon_has_a_state_and_wrong_settings_are_told() {
    let daemon = Daemon::new("");
    let start = |arguments: &[&Path]| {
        let mut command = Command::new(artifacts::directory().join("radrmd"));
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
        command.output().expect("radrmd")
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let (state, socket) = (daemon.path("state"), daemon.path("socket2"));
    let second = start(&["--state".as_ref(), &state, "--socket".as_ref(), &socket]);
    assert_eq!(second.status.code(), Some(1));
    assert!(said(&second).contains("another radrmd uses"), "{}", said(&second));
    let config = daemon.path("wrong.toml");
    fs::write(&config, "[scheduler]\npolicy = \"fastest\"\n").expect("file");
    let wrong = start(&["--config".as_ref(), &config]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(said(&wrong).contains("line 2") && said(&wrong).lines().count() == 1, "{}", said(&wrong));
    assert_eq!(start(&["--bogus".as_ref()]).status.code(), Some(2));
}

#[test]
fn a_job_leaves_neither_processes_nor_its_segment() {
    let daemon = Daemon::new(POLICY);
    let runtime = tempfile::Builder::new().prefix("radrm-left").tempdir_in("/dev/shm").expect("directory");
    fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o777)).expect("mode");
    // One that can still join, has a session of its own and ignores the first signal.
    let script = "setsid sh -c 'trap \"\" TERM; sleep 600' & touch $XDG_RUNTIME_DIR/ran; exit 0";
    let mut command = daemon.client(&["submit", "--quiet", "--gpu-mem", "1GiB", "--", "sh", "-c", script]);
    let submitted = command.env("XDG_RUNTIME_DIR", runtime.path()).output().expect("radrm");
    let job: u64 = String::from_utf8(submitted.stdout).expect("text").trim().parse().expect("a number");
    assert_eq!(daemon.end(job)["exit_code"], 0);
    assert!(runtime.path().join("ran").exists());
    let left = fs::read_dir(runtime.path().join("radrm")).expect("where its segment was").flatten();
    assert_eq!(left.map(|entry| entry.path()).collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new());
    let is_left = |process: &radrm_os::Process| {
        process.variable("XDG_RUNTIME_DIR").is_some_and(|path| path == runtime.path())
            && process.stat().is_some_and(|stat| !stat.is_dead())
    };
    assert_eq!(radrm_os::Process::all().filter(is_left).count(), 0);
}
