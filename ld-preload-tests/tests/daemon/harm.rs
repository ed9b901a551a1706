//! Harm that a job, or another program of its user, may do to the daemon that runs it, and what comes of it.

use std::{
    ffi::CString,
    fs,
    io::Write,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use radrm_preload_tests::{artifacts, node::Daemon, programs, rig::PATIENCE};
use serde_json::Value;

const ONE_GPU: &str = "emulate = \"1xA100-40GB\"\n";

/// Waits until the daemon answers. One that hangs is killed: nothing would ever end.
#[track_caller]
fn assert_answers(daemon: &mut Daemon) {
    let mut asks = daemon.client(&["nodes"]).stdout(Stdio::null()).spawn().expect("radrm");
    let begun = Instant::now();
    while asks.try_wait().expect("wait").is_none() {
        if begun.elapsed() > Duration::from_secs(PATIENCE) {
            let _ = asks.kill();
            let _ = asks.wait();
            daemon.kill();
            panic!("the daemon hangs");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn lives(pid: libc::pid_t) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(pid, 0) == 0 }
}

#[test]
fn a_pipe_in_the_mps_directory_that_a_job_chose_does_not_hang_the_daemon() {
    let mut daemon = Daemon::new(ONE_GPU);
    let directory = daemon.path("mps");
    fs::create_dir(&directory).expect("directory");
    let program = programs::compile("keeps.c", &[]).display().to_string();
    let options = ["submit", "--quiet", "--gpu-mem", "10GiB", "--preemptible", "--", &program, "100m"];
    let done = daemon.client(&options).env("CUDA_MPS_PIPE_DIRECTORY", &directory).output().expect("radrm");
    let job: u64 = String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number");
    daemon.until("it is seen", |daemon| daemon.show(job)["job"]["used"].as_u64() > Some(0));
    let pipe = directory.join("nvidia-cuda-mps-control.pid").display().to_string();
    let pipe = CString::new(pipe).expect("path");
    // SAFETY: a plain system call; the path ends with zero.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
    // Many looks at what it uses.
    thread::sleep(Duration::from_secs(2));
    assert_answers(&mut daemon);
    // And it is suspended as before: what is not a number of a daemon's is not a daemon.
    let important = daemon.submit(&["--exclusive", "--priority", "5"], &["sleep", "1000"]);
    daemon.until_state(important, "running");
    assert_eq!(daemon.state(job), "suspended", "{}", daemon.show(job)["history"]);
}

#[test]
fn a_job_whose_supervisor_is_stopped_can_be_ended() {
    let daemon = Daemon::new("[scheduler.eviction]\nkill_after = 100\n");
    let jobs: Vec<u64> = (0..2).map(|_| daemon.submit(&["--gpus", "0"], &["sleep", "1000"])).collect();
    let supervisors: Vec<libc::pid_t> = jobs.iter().map(|job| daemon.supervisor(*job)).collect();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The second one is stopped again whenever it goes on.
        scope.spawn(|| {
            // SAFETY: a plain system call on a process of this test, until it is gone.
            while !over.load(Relaxed) && unsafe { libc::kill(supervisors[1], libc::SIGSTOP) } == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        });
        // SAFETY: as above.
        unsafe { libc::kill(supervisors[0], libc::SIGSTOP) };
        thread::sleep(Duration::from_millis(100));
        for job in &jobs {
            daemon.ok(&["cancel", &job.to_string()]);
        }
        let ended = |daemon: &Daemon| jobs.iter().all(|job| daemon.state(*job) == "ended");
        let begun = Instant::now();
        while !ended(&daemon) && begun.elapsed() < Duration::from_secs(PATIENCE) {
            thread::sleep(Duration::from_millis(50));
        }
        over.store(true, Relaxed);
        assert!(ended(&daemon), "{:?}", jobs.iter().map(|job| daemon.show(*job)).collect::<Vec<_>>());
    });
    for job in jobs {
        assert_eq!(daemon.show(job)["job"]["end"], "cancelled");
    }
    assert!(!supervisors.into_iter().any(lives));
}

#[test]
fn a_job_that_replaces_its_profile_by_a_pipe_or_a_device_still_ends() {
    let daemon = Daemon::new("");
    for replacement in ["mkfifo $profile", "ln -s /dev/zero $profile", "ln -s /etc/passwd $profile"] {
        // The launcher must not write a profile there any more.
        let script = format!(
            "profile=$PLACE/state/jobs/$RADRM_JOB/$RADRM_ATTEMPT.radrm; kill -STOP $PPID\n\
             rm -f $profile; {replacement}; kill -9 $PPID"
        );
        let job = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", &script]);
        assert_eq!(daemon.end(job)["exit_code"], 137, "{replacement}");
        let after = daemon.submit(&["--exclusive"], &["true"]);
        assert_eq!(daemon.end(after)["exit_code"], 0, "{replacement}: its GPU is free again");
    }
}

#[test]
fn detached_processes_end_with_their_killed_supervisor() {
    let daemon = Daemon::new("");
    let script = "(setsid /bin/sh -c 'echo $$ > $PLACE/child; exec sleep 4711' &); sleep 1000";
    let start = |name: &str| {
        let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", &script.replace("child", name)]);
        daemon.until("its child is there", |daemon| !daemon.lines(name).is_empty());
        (job, daemon.lines(name)[0].parse::<libc::pid_t>().expect("pid"))
    };
    let ((job, child), (other, others)) = (start("child"), start("other"));
    // SAFETY: a plain system call on a process of this test.
    unsafe { libc::kill(daemon.supervisor(job), libc::SIGKILL) };
    assert_eq!(daemon.end(job)["exit_code"], 137);
    daemon.until("the child is gone", |_| !lives(child));
    assert!(lives(others) && daemon.state(other) == "running", "another job's are left alone");
}

#[test]
fn detached_processes_end_with_a_supervisor_killed_without_daemon() {
    let mut daemon = Daemon::new("");
    let script = "(setsid /bin/sh -c 'echo $$ > $PLACE/child; exec sleep 4711' &); sleep 1000";
    let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", script]);
    daemon.until("its child is there", |daemon| !daemon.lines("child").is_empty());
    let child: libc::pid_t = daemon.lines("child")[0].parse().expect("pid");
    let supervisor = daemon.supervisor(job);
    daemon.kill();
    // SAFETY: a plain system call on a process of this test.
    unsafe { libc::kill(supervisor, libc::SIGKILL) };
    daemon.start();
    assert_eq!(daemon.end(job)["exit_code"], 137);
    daemon.until("the child is gone", |_| !lives(child));
}

#[test]
fn what_is_no_socket_is_not_replaced_by_one() {
    let mut daemon = Daemon::prepare("");
    fs::write(daemon.path("socket"), "precious").expect("file");
    let said = daemon.refuses_to_start();
    assert!(said.contains("is not a socket") && said.lines().count() == 1, "{said}");
    assert_eq!(fs::read_to_string(daemon.path("socket")).expect("still there"), "precious");
    assert!(!daemon.path("socket.lock").exists());
}

#[test]
fn a_failed_exec_is_reported_in_output_and_status() {
    let place = tempfile::tempdir_in(artifacts::directory().join("../tmp")).expect("directory");
    let (output, status) = (place.path().join("output"), place.path().join("status"));
    // As the daemon starts a supervisor. A launcher gets all words of the job's command.
    let order = serde_json::json!({
        "argv": ["/bin/true", "x".repeat(200 << 10)], "environment": [], "cwd": "/", "user": null,
        "umask": 0o22, "output": output, "error": null, "profile": place.path().join("profile"),
        "hidden": [], "grace_ms": 1000,
    });
    let file = fs::File::options().read(true).write(true).create_new(true).open(&status).expect("file");
    let mut supervisor = Command::new(artifacts::directory().join("radrmd"))
        .arg("--keep-one-job")
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .expect("radrmd");
    supervisor.stdin.take().expect("pipe").write_all(order.to_string().as_bytes()).expect("order");
    assert!(supervisor.wait().expect("wait").success());
    let sentence = "its command cannot be executed: Argument list too long";
    assert_eq!(fs::read_to_string(output).expect("output"), format!("radrmd: {sentence}\n"));
    let bytes = fs::read(status).expect("status");
    let end = bytes[512..].split(|byte| *byte == b'\n').next().expect("a line");
    let end: Value = serde_json::from_slice(end).expect("JSON");
    assert_eq!(end["not_started"], sentence);
}

#[test]
fn a_user_who_shortens_the_emulated_machine_does_not_end_the_daemon() {
    let mut daemon = Daemon::new(ONE_GPU);
    let (pid, machine) = (daemon.pid(), daemon.path("state/machine"));
    let issues = |daemon: &Daemon| daemon.ok(&["nodes", "--json"]);
    // Both of its libraries look at it.
    thread::sleep(Duration::from_secs(1));
    fs::File::options().write(true).open(&machine).expect("the machine").set_len(0).expect("shortened");
    daemon.until("it says so", |daemon| issues(daemon).contains("the emulated GPUs are lost"));
    let waiting = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    assert_eq!((daemon.state(waiting).as_str(), daemon.pid()), ("waiting", pid));
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.end(waiting)["exit_code"], 0, "it is made anew");
    assert!(!issues(&daemon).contains("the emulated GPUs are lost"));
}
