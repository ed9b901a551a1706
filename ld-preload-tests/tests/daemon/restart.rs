//! Actions of a daemon that comes back on the jobs that it finds.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    process::Command,
    thread,
    time::Duration,
};

use radrm_emulator_machine::Machine;
use radrm_preload_tests::{
    artifacts,
    node::{Daemon, may},
    programs,
};

const ONE_GPU: &str = "emulate = \"1xA100-40GB\"\n[scheduler.eviction]\nkill_after = 100000\n";

/// Runs until a file is there.
const UNTIL_GO: &str = "echo start $RADRM_JOB $RADRM_ATTEMPT >> $PLACE/marks; \
                        while [ ! -e $PLACE/go ]; do sleep 0.1; done";

/// A script that waits for a signal, says that it came, and takes its time to end with a code then.
fn ends_late(signal: &str, code: u32) -> String {
    format!(
        "echo start $RADRM_ATTEMPT >> $PLACE/marks; [ $RADRM_ATTEMPT = 2 ] && exit 7; \
         trap 'echo told >> $PLACE/marks; while [ ! -e $PLACE/go ]; do sleep 0.05; done; exit {code}' {signal}; \
         echo ready >> $PLACE/marks; while :; do sleep 0.05; done"
    )
}

fn touch(daemon: &Daemon, name: &str) {
    fs::write(daemon.path(name), "").expect("file");
}

fn until_marked(daemon: &Daemon, mark: &str) {
    daemon.until(mark, |daemon| daemon.lines("marks").iter().any(|line| line == mark));
}

#[test]
fn systemd_is_told_of_a_daemon_once_it_answers() {
    let daemon = Daemon::prepare(ONE_GPU);
    artifacts::file("radrm-run");
    let told = UnixDatagram::bind(daemon.path("notify")).expect("socket");
    told.set_read_timeout(Some(Duration::from_secs(60))).expect("patience");
    let mut command = Command::new(artifacts::directory().join("radrmd"));
    command.arg("--config").arg(daemon.path("config.toml")).arg("--socket").arg(daemon.path("socket"));
    command.arg("--state").arg(daemon.path("state")).env("NOTIFY_SOCKET", daemon.path("notify"));
    let mut child = command.spawn().expect("radrmd");
    let mut text = [0; 64];
    let heard = told.recv(&mut text).map(|length| text[..length].to_vec());
    let answer = daemon.output(&["nodes"]);
    child.kill().and_then(|()| child.wait()).expect("its end");
    assert_eq!(String::from_utf8_lossy(&heard.expect("a word")).trim(), "READY=1");
    assert!(answer.status.success(), "{answer:?}");
}

#[test]
fn a_job_preempted_without_a_daemon_is_requeued() {
    let own: &[&str] = &["--checkpoint-signal", "USR1", "--grace", "100s"];
    for (options, signal, code) in [(own, "USR1", 75), (&[], "TERM", 3)] {
        let mut daemon = Daemon::new(ONE_GPU);
        let script = ends_late(signal, code);
        let options = [&["--exclusive", "--preemptible"], options].concat();
        let job = daemon.submit(&options, &["/bin/sh", "-c", &script]);
        until_marked(&daemon, "ready");
        let important = daemon.submit(&["--exclusive", "--priority", "5"], &["/bin/sh", "-c", "sleep 1"]);
        until_marked(&daemon, "told");
        daemon.kill();
        touch(&daemon, "go");
        daemon.until_kept(job, 1);
        daemon.start();
        assert_eq!(daemon.end(important)["exit_code"], 0);
        let ended = daemon.end(job);
        let history = daemon.show(job)["history"].to_string();
        assert_eq!((&ended["exit_code"], &ended["attempts"]), (&7.into(), &2.into()), "{history}");
    }
}

#[test]
fn a_daemon_that_may_open_few_files_starts_no_job_twice_and_kills_none() {
    const JOBS: usize = 24;
    if !may(&["unshare", "--mount", "true"]) {
        return;
    }
    let mut daemon = Daemon::new("cpus = 1000\n");
    let script = format!("{UNTIL_GO}; exit 5");
    let jobs: Vec<u64> =
        (0..JOBS).map(|_| daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", &script])).collect();
    daemon.until("all run", |daemon| daemon.lines("marks").len() == JOBS);
    daemon.kill();
    daemon.behind("ulimit -n 45");
    daemon.start();
    thread::sleep(Duration::from_secs(1));
    daemon.kill();
    // Too few for any supervisor.
    daemon.behind("ulimit -n 34");
    daemon.start();
    thread::sleep(Duration::from_secs(1));
    touch(&daemon, "go");
    for job in jobs {
        let ended = daemon.end(job);
        assert_eq!((&ended["exit_code"], &ended["attempts"]), (&5.into(), &1.into()), "{}", daemon.log());
    }
    assert_eq!(daemon.lines("marks").len(), JOBS);
}

#[test]
fn jobs_keep_the_daemons_first_open_file_limit() {
    if !may(&["unshare", "--mount", "true"]) {
        return;
    }
    let daemon = Daemon::with("", "ulimit -S -n 300");
    let script = "ulimit -S -n > $PLACE/files; ulimit -H -n >> $PLACE/files";
    let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", script]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("limit");
    let [soft, hard] = [0, 1].map(|at| line.split_whitespace().nth(at).expect("limit").to_owned());
    assert_eq!(soft, hard);
    assert_eq!(daemon.lines("files"), ["300".to_owned(), hard]);
}

#[test]
fn a_daemon_that_cannot_know_a_jobs_end_names_it_and_exits() {
    let mut daemon = Daemon::new("");
    let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", &format!("{UNTIL_GO}; exit 5")]);
    until_marked(&daemon, &format!("start {job} 1"));
    daemon.kill();
    let (file, aside) = (daemon.path(&format!("state/attempts/{job}.1")), daemon.path("aside"));
    fs::rename(&file, &aside).expect("renamed");
    std::os::unix::fs::symlink(&file, &file).expect("a link to itself");
    let said = daemon.refuses_to_start();
    assert!(said.contains(&format!("what became of job {job} is not known")), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    fs::rename(&aside, &file).expect("renamed");
    daemon.start();
    assert_eq!(daemon.state(job), "running");
    touch(&daemon, "go");
    assert_eq!(daemon.end(job)["exit_code"], 5);
    assert_eq!(daemon.lines("marks").len(), 1);
}

#[test]
fn a_cancelled_job_does_not_rerun_after_a_reboot() {
    let boot = |id: &str| {
        format!(
            "echo {id} > $PLACE/boot-id; mount --bind $PLACE/boot-id /proc/sys/kernel/random/boot_id || exit 1"
        )
    };
    let bind = "mount --bind /dev/null /proc/sys/kernel/random/boot_id";
    if !may(&["unshare", "--mount", "/bin/sh", "-c", bind]) {
        return;
    }
    let mut daemon = Daemon::with(ONE_GPU, &boot("first"));
    let deaf = format!("trap '' TERM; {UNTIL_GO}");
    let jobs: Vec<u64> = (0..2).map(|_| daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", &deaf])).collect();
    daemon.until("both run", |daemon| daemon.lines("marks").len() == 2);
    daemon.ok(&["cancel", &jobs[0].to_string()]);
    let supervisors = [0, 1].map(|at| daemon.supervisor(jobs[at]));
    let groups = [0, 1].map(|at| {
        let group = daemon.show(jobs[at])["job"]["pid"].as_i64().expect("pid");
        libc::pid_t::try_from(group).expect("pid")
    });
    daemon.kill();
    for (supervisor, group) in supervisors.into_iter().zip(groups) {
        // SAFETY: plain system calls on processes of this test.
        unsafe {
            libc::kill(supervisor, libc::SIGKILL);
            libc::kill(-group, libc::SIGKILL);
        }
    }
    daemon.behind(&boot("second"));
    daemon.start();
    assert_eq!(daemon.end(jobs[0])["end"], "cancelled");
    // One that was not cancelled does.
    until_marked(&daemon, &format!("start {} 2", jobs[1]));
    assert_eq!(daemon.lines("marks").len(), 3);
}

#[test]
fn a_finished_job_does_not_rerun_when_its_gpu_is_missing() {
    let mut daemon = Daemon::new("");
    let job = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", UNTIL_GO]);
    until_marked(&daemon, &format!("start {job} 1"));
    let uuid = daemon.show(job)["job"]["devices"][0].as_str().expect("UUID").to_owned();
    daemon.kill();
    touch(&daemon, "go");
    daemon.until_kept(job, 1);
    let machine = Machine::open(&daemon.path("state/machine")).expect("emulated machine");
    let gpu = (0..machine.gpu_count()).find(|gpu| machine.spec().uuid_text(*gpu) == uuid).expect("GPU");
    machine.set_lost(gpu, true);
    daemon.start();
    let ended = daemon.end(job);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &1.into()), "{ended}");
    assert_eq!(daemon.lines("marks").len(), 1);
}

#[test]
fn a_time_limit_without_a_daemon_spares_a_job_that_was_over() {
    let mut daemon = Daemon::new("");
    let limited = |code: u32| {
        let script = format!("{UNTIL_GO}; exit {code}");
        daemon.submit(&["--gpus", "0", "--time", "4s"], &["/bin/sh", "-c", &script])
    };
    let jobs = [0, 7].map(|code| (limited(code), code));
    daemon.until("both run", |daemon| daemon.lines("marks").len() == 2);
    daemon.kill();
    touch(&daemon, "go");
    jobs.iter().for_each(|(job, _)| daemon.until_kept(*job, 1));
    thread::sleep(Duration::from_secs(4));
    daemon.start();
    for (job, code) in jobs {
        assert_eq!(daemon.end(job)["exit_code"], code, "{}", daemon.show(job)["history"]);
    }
}

#[test]
fn queue_order_holds_when_a_daemon_returns_to_a_free_gpu() {
    let mut daemon = Daemon::new(ONE_GPU);
    let first = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", UNTIL_GO]);
    until_marked(&daemon, &format!("start {first} 1"));
    let low = daemon.submit(&["--exclusive"], &["sleep", "1000"]);
    let high = daemon.submit(&["--exclusive", "--priority", "9"], &["sleep", "1000"]);
    daemon.kill();
    touch(&daemon, "go");
    daemon.until_kept(first, 1);
    daemon.start();
    daemon.until_state(high, "running");
    assert_eq!(daemon.state(low), "waiting", "{}", daemon.show(low)["history"]);
}

/// Result of SQL on the queue, while no daemon has it.
fn sql(daemon: &Daemon, words: &str) -> String {
    sql_on(daemon, "queue.db", words)
}

/// Result of SQL on a database in the daemon's state.
fn sql_on(daemon: &Daemon, database: &str, words: &str) -> String {
    let script = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1])\n\
                  print([row for part in sys.argv[2].split(';;') for row in base.execute(part).fetchall()])\nbase.commit()";
    let mut command = Command::new("python3");
    let done = command.args(["-c", script]).arg(daemon.path("state").join(database)).arg(words).output();
    let done = done.expect("python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

#[test]
fn what_ended_long_ago_is_forgotten_but_for_what_changed_lately() {
    let mut daemon = Daemon::new("");
    let jobs = [0, 1].map(|_| daemon.submit(&["--gpus", "0"], &["true"]));
    jobs.iter().for_each(|job| assert_eq!(daemon.end(*job)["exit_code"], 0));
    daemon.kill();
    sql(&daemon, "UPDATE jobs SET ended_ms = 1");
    let folder = |job: u64| daemon.path(&format!("state/jobs/{job}"));
    fs::remove_dir_all(folder(jobs[0])).expect("its files");
    let kept = folder(jobs[1]);
    daemon.start();
    let gone = jobs[0].to_string();
    daemon.until("it is forgotten", |daemon| !daemon.output(&["show", &gone]).status.success());
    assert_eq!(daemon.show(jobs[1])["job"]["exit_code"], 0);
    assert!(kept.is_dir());
}

#[test]
fn an_attempt_is_one_row_of_the_daemons_private_dataset() {
    let mut daemon = Daemon::new("");
    let program = programs::compile("steps.c", &[]).display().to_string();
    let job = daemon.submit(&[], &[&program, "use:0", "alloc:a:600m"]);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    daemon.kill();
    let rows = "SELECT job_id, attempt, origin, complete, footprint_bytes >= 600 << 20 FROM runs ORDER BY id";
    let expected = format!("[({job}, 1, 'daemon', 1, 1)]");
    assert_eq!(sql_on(&daemon, "dataset.db", rows), expected);
    let mode = fs::metadata(daemon.path("state/dataset.db")).expect("its dataset").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_daemon_that_ends_says_what_it_leaves() {
    let mut daemon = Daemon::new(ONE_GPU);
    let runs = daemon.submit(&["--exclusive"], &["sleep", "1000"]);
    daemon.until_state(runs, "running");
    let waits = daemon.submit(&["--exclusive"], &["true"]);
    daemon.until_state(waits, "waiting");
    daemon.stop();
    let end = "ends; jobs that run on: 1; jobs that wait for its next start: 1";
    assert!(daemon.log().contains(end), "{}", daemon.log());
    daemon.start();
    daemon.ok(&["cancel", &runs.to_string()]);
    assert_eq!(daemon.end(waits)["exit_code"], 0);
}

#[test]
fn a_lost_queue_gives_no_old_folder_to_another_user() {
    let mut daemon = Daemon::new(ONE_GPU);
    let secret = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", "echo secret"]);
    daemon.end(secret);
    daemon.stop();
    for file in ["queue.db", "queue.db-wal", "queue.db-shm"] {
        let _ = fs::remove_file(daemon.path(&format!("state/{file}")));
    }
    daemon.start();
    assert!(daemon.log().contains("or was lost"), "{}", daemon.log());
    let next = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", "echo other"]);
    daemon.end(next);
    assert!(next > secret, "numbers go on: {next}");
    let output = fs::read_to_string(daemon.path(&format!("state/jobs/{secret}/output"))).expect("output");
    assert_eq!(output, "secret\n");
    daemon.stop();
    let mut check = Command::new(artifacts::directory().join("radrmd"));
    let check = check.arg("--check").arg("--state").arg(daemon.path("state")).output().expect("radrmd");
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(check.status.success() && said.contains("is whole: 1 jobs, 2 job folders"), "{said}");
}

#[test]
fn a_removed_socket_comes_back_and_is_logged() {
    let daemon = Daemon::new(ONE_GPU);
    fs::remove_file(daemon.path("socket")).expect("the socket");
    daemon.until("it answers again", |daemon| {
        daemon.client(&["nodes", "--json"]).output().is_ok_and(|out| out.status.success())
    });
    assert!(daemon.log().contains("is there again"), "{}", daemon.log());
}

#[test]
fn a_reload_changes_limits_and_ends_no_job() {
    let daemon = Daemon::new(ONE_GPU);
    let job = daemon.submit(&["--gpus", "0"], &["sleep", "1000"]);
    daemon.until_state(job, "running");
    let config = daemon.path("config.toml");
    let text = fs::read_to_string(&config).expect("the configuration");
    let hang_up = |text: &str, part: &str| {
        fs::write(&config, text).expect("the configuration");
        // SAFETY: a plain system call; the daemon runs.
        unsafe { libc::kill(daemon.pid().cast_signed(), libc::SIGHUP) };
        daemon.until(part, |daemon| daemon.log().contains(part));
    };
    let text = text.replace("poll_ms = 100", "poll_ms = 77");
    hang_up(&format!("jobs_per_user = 1\n{text}"), "restart radrmd for: poll_ms");
    assert!(daemon.refused(&["submit", "--gpus", "0", "--", "true"]).contains("and 1 is the most"));
    hang_up("nonsense = 1\n", "was not read again");
    assert_eq!(daemon.state(job), "running");
}
