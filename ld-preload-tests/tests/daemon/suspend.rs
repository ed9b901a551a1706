//! Jobs that `radrmd` takes off their GPUs without loss, with real processes under the shim on emulated GPUs.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, thread, time::Duration};

use radrm_emulator_machine::{CheckpointState, Machine};
use radrm_preload_tests::{
    artifacts,
    node::{Daemon, may},
    programs,
    random::Random,
};
use serde_json::Value;

const GIB: u64 = 1 << 30;
const ONE_GPU: &str = "emulate = \"1xA100-40GB\"\n";

/// World that a test of suspending needs.
trait Suspends {
    fn keeps(&self, options: &[&str], arguments: &[&str]) -> u64;
    fn ticks(&self, job: u64) -> u64;
    fn until_it_works(&self, job: u64, processes: u32);
    fn stop(&self, job: u64);
    fn history(&self, job: u64) -> String;
    fn machine(&self) -> Machine;
    fn used(&self) -> u64;
}

impl Suspends for Daemon {
    /// A job that keeps device memory with real pages behind it, and says at its end whether it lost any.
    fn keeps(&self, options: &[&str], arguments: &[&str]) -> u64 {
        let program = programs::compile("keeps.c", &[]).display().to_string();
        let all = [&["submit", "--quiet"], options, &["--", &program], arguments].concat();
        let done = self.client(&all).env("RADRM_EMULATOR_BACKED", "1").output().expect("radrm");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number")
    }

    /// Sum of what its processes have counted.
    fn ticks(&self, job: u64) -> u64 {
        (0..2)
            .flat_map(|process| self.lines(&format!("tick.{job}.{process}")))
            .filter_map(|n| n.trim().parse::<u64>().ok())
            .sum()
    }

    fn until_it_works(&self, job: u64, processes: u32) {
        let counts =
            |daemon: &Self| (0..processes).all(|n| !daemon.lines(&format!("tick.{job}.{n}")).is_empty());
        self.until(&format!("job {job} works"), counts);
        let before = self.ticks(job);
        self.until(&format!("job {job} goes on"), |daemon| daemon.ticks(job) > before);
        // Until it was seen what it uses, it counts as one that cannot be suspended.
        self.until(&format!("job {job} is seen"), |daemon| {
            daemon.show(job)["job"]["used"].as_u64() > Some(0)
        });
    }

    fn stop(&self, job: u64) {
        fs::write(self.path(&format!("stop.{job}")), "").expect("file");
    }

    fn history(&self, job: u64) -> String {
        self.show(job)["history"].to_string()
    }

    fn machine(&self) -> Machine {
        Machine::open(&self.path("state/machine")).expect("machine")
    }

    fn used(&self) -> u64 {
        self.machine().memory(0).used
    }
}

/// It ended by itself, at its first attempt, with all its data.
#[track_caller]
fn assert_whole(daemon: &Daemon, job: u64) {
    daemon.stop(job);
    let ended = daemon.end(job);
    assert_eq!(
        (&ended["exit_code"], &ended["attempts"]),
        (&0.into(), &1.into()),
        "{ended}\n{}\n{}",
        daemon.history(job),
        daemon.ok(&["logs", &job.to_string()])
    );
}

#[test]
fn a_preempted_job_is_suspended_whole_and_keeps_its_data() {
    let daemon = Daemon::new(ONE_GPU);
    let job =
        daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible", "--name", "gives-way"], &["3000m", "twice"]);
    daemon.until_it_works(job, 2);
    let used = daemon.used();
    assert!(used > 6000 << 20);
    let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["2000m"]);
    daemon.until_it_works(important, 1);
    assert_eq!(daemon.state(job), "suspended", "{}", daemon.history(job));
    let ticks = daemon.ticks(job);
    assert!(daemon.used() < 3 * GIB, "its memory is off the GPU");
    let ledgers = daemon.machine().ledgers();
    let off = ledgers.iter().filter(|ledger| ledger.checkpoint == CheckpointState::Checkpointed).count();
    assert_eq!(off, 2);
    // NVML shows nothing of it; the daemon does.
    let row = daemon.show(job)["job"].clone();
    assert_eq!(row["suspended_pids"].as_array().map(Vec::len), Some(2), "{row}");
    assert!(row["suspended"].as_u64() > Some(6000 << 20), "{row}");
    let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    assert_eq!((&nodes["suspended"], &nodes["running"]), (&1.into(), &1.into()));
    for arguments in [&["queue"][..], &["top", "--once"], &["nodes"], &["show", &job.to_string()]] {
        assert!(daemon.ok(arguments).contains("suspended"), "{arguments:?}: {}", daemon.ok(arguments));
    }
    assert!(
        daemon.ok(&["queue", "--why"]).contains("comes closest with"),
        "{}",
        daemon.ok(&["queue", "--why"])
    );
    assert_eq!(daemon.ticks(job), ticks, "it does nothing on the GPU");
    assert_whole(&daemon, important);
    daemon.until("it goes on", |daemon| daemon.ticks(job) > ticks);
    daemon.until_state(job, "running");
    assert_eq!(daemon.used(), used);
    // And again: once is no accident.
    let second = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
    daemon.until_it_works(second, 1);
    assert_whole(&daemon, second);
    daemon.until_state(job, "running");
    assert_whole(&daemon, job);
    let history = daemon.history(job);
    for words in ["to be suspended", "2 processes", "goes on where it was suspended"] {
        assert!(history.matches(words).count() == 2, "{words}: {history}");
    }
    assert!(!history.contains("SIGTERM"), "{history}");
}

#[test]
fn memory_pressure_suspends_the_least_important_job() {
    // Needs are not added up: jobs are placed by what is free, and then they grow.
    let config = format!(
        "{ONE_GPU}[scheduler]\nmemory = \"observed\"\npolicy = \"first-fit\"\n[scheduler.eviction]\nmin_free = {}\n",
        10 * GIB
    );
    let daemon = Daemon::new(&config);
    let first = daemon.keeps(&["--preemptible", "--priority", "1", "--gpu-mem", "4GiB"], &["15000m"]);
    daemon.until_it_works(first, 1);
    let least = daemon.keeps(&["--preemptible", "--gpu-mem", "4GiB"], &["18000m"]);
    daemon.until_state(least, "suspended");
    assert_eq!(daemon.state(first), "running");
    let history = daemon.history(least);
    assert!(history.contains("least important"), "{history}");
    assert_whole(&daemon, first);
    assert_whole(&daemon, least);
}

#[test]
fn a_job_that_cannot_be_suspended_is_signalled_with_a_reason() {
    let daemon = Daemon::new(&format!("{ONE_GPU}[scheduler.eviction]\nkill_after = 3000\n"));
    for (argument, reason) in
        [("managed", "it uses managed memory"), ("event", "it shares memory with other jobs")]
    {
        let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["100m", argument, "deaf"]);
        daemon.until_it_works(job, 1);
        let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
        daemon.until("the reason is told", |daemon| {
            let queue = daemon.ok(&["queue", "--why"]);
            queue.contains("SIGTERM") && queue.contains(&format!("it cannot be suspended: {reason}"))
        });
        assert_whole(&daemon, important);
        daemon.stop(job);
        let ended = daemon.end(job);
        assert_eq!(
            (&ended["attempts"], &ended["exit_code"]),
            (&2.into(), &0.into()),
            "{}",
            daemon.history(job)
        );
        assert!(!daemon.history(job).contains("to be suspended"), "known before anything is frozen");
    }
}

#[test]
fn what_an_administrator_forbids_is_not_done() {
    for (setting, reason) in [
        ("on = false", "the driver cannot suspend processes"),
        ("host_memory = 1000000000", "the host has no room for its memory"),
    ] {
        let daemon = Daemon::new(&format!("{ONE_GPU}[suspend]\n{setting}\n"));
        let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["2000m"]);
        daemon.until_it_works(job, 1);
        let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
        assert_whole(&daemon, important);
        assert!(daemon.history(job).contains(reason), "{}", daemon.history(job));
        daemon.stop(job);
        assert_eq!(daemon.end(job)["attempts"], 2);
    }
}

#[test]
fn a_daemon_that_is_killed_between_checkpoint_and_restore_loses_nothing() {
    let mut daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["3000m", "twice"]);
    daemon.until_it_works(job, 2);
    let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
    daemon.until_state(job, "suspended");
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.state(job), "suspended");
    daemon.until_it_works(important, 1);
    daemon.kill();
    // The other ends while no daemon is there.
    daemon.stop(important);
    daemon.until("the GPU is empty", |daemon| daemon.used() == 0);
    daemon.start();
    daemon.until_state(job, "running");
    assert_whole(&daemon, job);
    assert_whole(&daemon, important);
}

#[test]
fn the_peak_of_a_suspended_job_is_known_to_the_daemon_that_follows() {
    let mut daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["3000m"]);
    daemon.until_it_works(job, 1);
    let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
    daemon.until_state(job, "suspended");
    let peak = daemon.show(job)["job"]["peak"].clone();
    assert!(peak.as_u64() >= Some(3000 << 20), "{peak}");
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.show(job)["job"]["peak"], peak);
    let queue = daemon.ok(&["queue"]);
    let row = queue.lines().find(|line| line.contains("suspended")).expect("its row");
    assert_eq!(row.matches("GiB").count(), 2, "memory and peak: {queue}");
    assert_whole(&daemon, important);
    assert_whole(&daemon, job);
}

#[test]
fn a_daemon_that_is_killed_half_way_loses_nothing() {
    // Two times 6 GiB take more than two seconds in each direction.
    let mut daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["6000m", "twice"]);
    daemon.until_it_works(job, 2);
    let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
    let halves = |daemon: &Daemon| {
        let ledgers = daemon.machine().ledgers();
        ledgers.iter().filter(|ledger| ledger.alive && ledger.checkpoint != CheckpointState::Running).count()
    };
    daemon.until("it is being suspended", |daemon| halves(daemon) > 0);
    daemon.kill();
    thread::sleep(Duration::from_millis(300));
    daemon.start();
    // What was begun is undone, and then done.
    daemon.until_it_works(important, 1);
    assert_eq!(daemon.state(job), "suspended", "{}", daemon.history(job));
    assert_whole(&daemon, important);
    daemon.until_state(job, "resuming");
    daemon.kill();
    daemon.start();
    daemon.until_state(job, "running");
    assert_whole(&daemon, job);
}

#[test]
fn no_job_comes_back_into_too_little_memory() {
    let daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "10GiB", "--preemptible"], &["9000m"]);
    daemon.until_it_works(job, 1);
    let important = daemon.keeps(&["--gpu-mem", "35GiB", "--priority", "5"], &["100m"]);
    daemon.until_it_works(important, 1);
    assert_eq!(daemon.state(job), "suspended");
    // A process past the daemon takes most of the GPU.
    let libraries = tempfile::tempdir().expect("directory");
    let driver = artifacts::file("libradrm_emulated_cuda.so");
    std::os::unix::fs::symlink(driver, libraries.path().join("libcuda.so.1")).expect("link");
    let mut unmanaged = Command::new(programs::compile("steps.c", &[]))
        .args(["use:0", "alloc:a:33g", "sleep:100000"])
        .env("RADRM_EMULATED_MACHINE", daemon.path("state/machine"))
        .env("LD_LIBRARY_PATH", libraries.path())
        .spawn()
        .expect("unmanaged process");
    daemon.until("it has its memory", |daemon| daemon.used() > 33 * GIB);
    assert_whole(&daemon, important);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(daemon.state(job), "suspended", "{}", daemon.history(job));
    unmanaged.kill().expect("kill");
    unmanaged.wait().expect("wait");
    daemon.until_state(job, "running");
    // While it comes back its memory is no other job's.
    assert_whole(&daemon, job);
}

#[test]
fn what_is_set_aside_for_a_job_that_comes_back_is_not_given_to_another() {
    let daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "15GiB", "--preemptible"], &["12000m"]);
    daemon.until_it_works(job, 1);
    let important = daemon.keeps(&["--gpu-mem", "35GiB", "--priority", "5"], &["100m"]);
    daemon.until_it_works(important, 1);
    daemon.stop(important);
    daemon.until_state(job, "resuming");
    let late = daemon.keeps(&["--gpu-mem", "30GiB"], &["29000m"]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(daemon.state(late), "waiting", "{}", daemon.history(late));
    daemon.until_state(job, "running");
    assert_whole(&daemon, job);
    daemon.until_it_works(late, 1);
    assert_whole(&daemon, late);
    assert_eq!(daemon.show(late)["job"]["ooms"], 0);
}

#[test]
fn a_suspended_job_can_be_cancelled_and_may_die() {
    let daemon = Daemon::new(ONE_GPU);
    let kept = daemon.keeps(&["--gpu-mem", "15GiB", "--preemptible"], &["100m"]);
    daemon.until_it_works(kept, 1);
    let dies = daemon.keeps(&["--gpu-mem", "15GiB", "--preemptible"], &["100m"]);
    daemon.until_it_works(dies, 1);
    let important = daemon.keeps(&["--gpu-mem", "35GiB", "--priority", "5"], &["100m"]);
    daemon.until_state(kept, "suspended");
    daemon.until_state(dies, "suspended");
    daemon.ok(&["cancel", &kept.to_string()]);
    assert_eq!(daemon.end(kept)["end"], "cancelled");
    let pid = daemon.show(dies)["job"]["suspended_pids"][0].as_i64().expect("a process");
    // SAFETY: a plain system call; a process of this test.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    let ended = daemon.end(dies);
    assert_eq!(
        (&ended["exit_code"], &ended["attempts"]),
        (&137.into(), &1.into()),
        "{}",
        daemon.history(dies)
    );
    assert_whole(&daemon, important);
    daemon.until("nothing is left", |daemon| daemon.used() == 0);
}

#[test]
fn a_helper_that_is_killed_is_followed_by_another() {
    let daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["6000m", "twice"]);
    daemon.until_it_works(job, 2);
    let file = daemon.path(&format!("state/attempts/{job}.1.suspend"));
    let helper = || -> Option<i64> {
        let bytes = fs::read(&file).ok()?;
        let line = bytes.split(|byte| *byte == b'\n').next()?;
        let who: Value = serde_json::from_slice(line).ok()?;
        let comm = fs::read_to_string(format!("/proc/{}/comm", who["pid"])).ok()?;
        who["pid"].as_i64().filter(|_| comm.starts_with("exe") || comm.starts_with("radrmd"))
    };
    let kill = |daemon: &Daemon| {
        daemon.until("a helper is at it", |_| helper().is_some());
        thread::sleep(Duration::from_millis(300));
        // SAFETY: a plain system call; a process of this test.
        helper().map(|pid| unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) });
    };
    let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
    kill(&daemon);
    daemon.until_it_works(important, 1);
    assert_eq!(daemon.state(job), "suspended", "{}", daemon.history(job));
    assert_whole(&daemon, important);
    daemon.until_state(job, "resuming");
    kill(&daemon);
    daemon.until_state(job, "running");
    assert_whole(&daemon, job);
    let times = daemon.history(job).matches("without an answer").count();
    assert!((1..=2).contains(&times), "{}", daemon.history(job));
}

#[test]
fn a_helper_has_no_more_rights_than_the_jobs_user() {
    const USER: u32 = 65_534;
    if !may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        || !may(&["getent", "passwd", "65534"])
    {
        return;
    }
    let daemon = Daemon::new(ONE_GPU);
    fs::set_permissions(daemon.place(), fs::Permissions::from_mode(0o777)).expect("mode");
    let program = programs::compile("keeps.c", &[]).display().to_string();
    let arguments = ["submit", "-q", "--gpu-mem", "30GiB", "--preemptible", "--", &program, "3000m"];
    let done = daemon.client_of(USER, &arguments).env("RADRM_EMULATOR_BACKED", "1").output().expect("radrm");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let job: u64 = String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number");
    daemon.until_it_works(job, 1);
    let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
    daemon.until_it_works(important, 1);
    assert_eq!(daemon.state(job), "suspended", "{}", daemon.history(job));
    let ledgers = daemon.machine().ledgers();
    let helpers: Vec<_> =
        ledgers.iter().filter(|ledger| ledger.command.contains("--suspend-one-job")).collect();
    assert!(!helpers.is_empty() && helpers.iter().all(|ledger| ledger.uid == USER), "{helpers:?}");
    assert_whole(&daemon, important);
    assert_whole(&daemon, job);
}

#[test]
fn a_job_that_is_cancelled_while_it_is_suspended_or_brought_back_ends() {
    let daemon = Daemon::new(ONE_GPU);
    for state in ["suspending", "resuming"] {
        let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["6000m"]);
        daemon.until_it_works(job, 1);
        let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
        if state == "resuming" {
            daemon.until_it_works(important, 1);
            daemon.stop(important);
        }
        daemon.until_state(job, state);
        daemon.ok(&["cancel", &job.to_string()]);
        let ended = daemon.end(job);
        assert_eq!(
            (&ended["end"], &ended["attempts"]),
            (&"cancelled".into(), &1.into()),
            "{}",
            daemon.history(job)
        );
        assert_whole(&daemon, important);
        daemon.until("nothing is left", |daemon| daemon.used() == 0);
    }
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_loses_nothing() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64 | 1)
    });
    let mut random = Random(seed);
    let mut daemon = Daemon::new(ONE_GPU);
    let job = daemon.keeps(&["--gpu-mem", "30GiB", "--preemptible"], &["2000m", "twice"]);
    daemon.until_it_works(job, 2);
    for round in 0..5 {
        let important = daemon.keeps(&["--gpu-mem", "30GiB", "--priority", "5"], &["100m"]);
        for end in [false, true] {
            if end {
                daemon.until_it_works(important, 1);
                daemon.stop(important);
            }
            // Each direction takes about a second.
            thread::sleep(Duration::from_millis(random.below(1400)));
            daemon.kill();
            thread::sleep(Duration::from_millis(random.below(1400)));
            daemon.start();
        }
        assert_eq!(daemon.end(important)["exit_code"], 0, "seed {seed}, round {round}");
    }
    daemon.until_state(job, "running");
    assert_whole(&daemon, job);
}
