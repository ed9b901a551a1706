//! Launch budgets that `radrmd` decides on reach the programs.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use radrm_preload_tests::{node::Daemon, programs};
use radrm_telemetry::budget::Budget;
use radrm_telemetry::{Segment, Writer};

pub(super) const POLICY: &str = "emulate = \"1xH200\"\n[scheduler]\npolicy = \"best-fit\"\n";

/// The file that says that a kernel takes half a millisecond. It is there as a whole or not at all: a program that starts while
/// the file is written again finds it empty, and its kernels take a hundredth of that.
pub(super) fn kernel_times(daemon: &Daemon) -> PathBuf {
    let times = daemon.path("times");
    if !times.exists() {
        let whole = daemon.path("times.new");
        fs::write(&whole, "* 500000\n").expect("kernel times");
        fs::rename(&whole, &times).expect("kernel times");
    }
    times
}

pub(super) fn submit(daemon: &Daemon, options: &[&str], before: &str) -> u64 {
    let program = programs::compile("turns.c", &["-pthread"]).display().to_string();
    let times = kernel_times(daemon);
    // As many blocks as an H200 has multiprocessors: a program that runs there keeps all of them busy.
    let words = format!("{before} exec {program} fill launches 300 132");
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", times.display());
    let options = [&["--gpu-mem", "2GiB"], options].concat();
    daemon.submit(&options, &["env", "RADRM_EMULATOR_TIME=real", &times, "sh", "-c", &words])
}

/// The segment of a job that runs, as its program finds it.
pub(super) fn segment_of(daemon: &Daemon, job: u64) -> Option<Segment> {
    Segment::open(&path_of(daemon, job)?).ok()
}

fn path_of(daemon: &Daemon, job: u64) -> Option<PathBuf> {
    let place = format!("PLACE={}", daemon.place().display());
    let job = format!("RADRM_JOB={job}");
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let environ = fs::read(process.path().join("environ")).ok()?;
        let environ = String::from_utf8_lossy(&environ).into_owned();
        let lines: Vec<&str> = environ.split('\0').collect();
        let path = lines.iter().find_map(|line| line.strip_prefix("RADRM_SEGMENT="))?;
        (lines.contains(&&*job) && lines.contains(&&*place)).then(|| PathBuf::from(path))
    })
}

pub(super) fn budget_of(daemon: &Daemon, job: u64) -> Option<Budget> {
    segment_of(daemon, job)?.budget()
}

pub(super) fn until_share(daemon: &Daemon, job: u64, share: Option<u16>) {
    daemon.until(&format!("job {job} has a share of {share:?}"), |daemon| {
        segment_of(daemon, job).is_some_and(|segment| segment.budget().map(|budget| budget.share) == share)
    });
}

/// Launches that were let through so far.
fn passed(daemon: &Daemon, job: u64) -> u64 {
    let segment = segment_of(daemon, job).expect("segment");
    let slots = segment.slots().expect("directory");
    slots.iter().map(|slot| segment.throttled(slot).expect("slot").passed).sum()
}

/// The first job's part of what both launch in the same time.
fn part(daemon: &Daemon, jobs: [u64; 2]) -> f64 {
    let before = jobs.map(|job| passed(daemon, job));
    thread::sleep(Duration::from_secs(4));
    let after = jobs.map(|job| passed(daemon, job));
    let [one, other] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    one / (one + other)
}

#[test]
fn declared_shares_hold_also_when_the_daemon_was_killed() {
    let mut daemon = Daemon::new(POLICY);
    let jobs = [submit(&daemon, &["--gpu-share", "30"], ""), submit(&daemon, &["--gpu-share", "70"], "")];
    for (job, share) in jobs.into_iter().zip([300, 700]) {
        daemon.until_state(job, "running");
        until_share(&daemon, job, Some(share));
        daemon.until("it launches", |daemon| passed(daemon, job) > 0);
    }
    thread::sleep(Duration::from_millis(500));
    // Where the machine has no time for them, once more.
    let parts: Vec<f64> =
        (0..6).map(|_| part(&daemon, jobs)).take_while(|part| !(0.27..=0.33).contains(part)).collect();
    assert!(parts.len() < 6, "{parts:?}");
    let history = daemon.show(jobs[0])["history"].to_string();
    assert!(history.contains("launches in 30 % of the time"), "{history}");
    daemon.kill();
    let words = jobs.map(|job| budget_of(&daemon, job));
    assert!(words.iter().all(Option::is_some), "the shares hold without the daemon");
    daemon.start();
    daemon.ok(&["cancel", &jobs[1].to_string()]);
    daemon.end(jobs[1]);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(budget_of(&daemon, jobs[0]).map(|budget| budget.share), Some(300), "its own share, alone too");
}

/// A process that has the job's segment but makes its launches without looking at budgets: this test itself.
#[test]
fn a_process_that_cannot_be_held_is_named_in_the_jobs_history() {
    let daemon = Daemon::new(POLICY);
    let job = submit(&daemon, &["--gpu-share", "30"], "");
    daemon.until_state(job, "running");
    until_share(&daemon, job, Some(300));
    let path = path_of(&daemon, job).expect("segment");
    Writer::join(&CString::new(path.as_os_str().as_bytes()).expect("no NUL")).expect("a slot");
    let unheld = |pid: u32| format!("process {pid} cannot be held to its launch budget");
    let named = unheld(std::process::id());
    daemon.until("it is named", |daemon| daemon.show(job)["history"].to_string().contains(&named));
    daemon.until("it launches", |daemon| passed(daemon, job) > 0);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!(history.matches("cannot be held to its launch budget").count(), 1, "{history}");
}

#[test]
fn a_job_that_launches_nothing_lends_its_part_and_gets_it_back() {
    let daemon = Daemon::new(POLICY);
    let waits = format!("while [ ! -e {}/go ]; do sleep 0.1; done;", daemon.place().display());
    let jobs = [submit(&daemon, &["--gpu-share", "30"], ""), submit(&daemon, &["--gpu-share", "70"], &waits)];
    jobs.into_iter().for_each(|job| daemon.until_state(job, "running"));
    until_share(&daemon, jobs[0], Some(1000));
    fs::write(daemon.path("go"), "").expect("file");
    until_share(&daemon, jobs[0], Some(300));
    until_share(&daemon, jobs[1], Some(700));
    daemon.until("it launches", |daemon| passed(daemon, jobs[1]) > 0);
    let phases = jobs.map(|job| budget_of(&daemon, job).expect("budget").phase);
    assert!(phases == [700, 0] || phases == [0, 300], "side by side: {phases:?}");
}

#[test]
fn a_gpu_that_is_busier_than_its_limit_has_its_least_important_job_slowed() {
    let daemon = Daemon::new(&format!(
        "user_priority = 9\n{POLICY}[scheduler.throttle]\nsmact = 500\nevery = 500\nleast = 100\n"
    ));
    let important = submit(&daemon, &["--priority", "5"], "");
    let other = submit(&daemon, &[], "");
    [important, other].into_iter().for_each(|job| daemon.until_state(job, "running"));
    daemon.until("the less important job is slowed", |daemon| {
        budget_of(daemon, other).is_some_and(|budget| budget.share <= 500)
    });
    let history = daemon.show(other)["history"].to_string();
    assert!(history.contains("launches in 50 % of the time"), "{history}");
    assert_eq!(budget_of(&daemon, important), None);
    // No job is left to be slowed for.
    daemon.ok(&["cancel", &important.to_string()]);
    daemon.end(important);
    until_share(&daemon, other, None);
}

#[test]
fn a_job_that_slows_a_more_important_one_is_slowed_itself() {
    let daemon = Daemon::new(&format!(
        "user_priority = 9\n{POLICY}[scheduler.throttle]\nspeed = 800\nevery = 500\nleast = 100\n"
    ));
    let important = submit(&daemon, &["--priority", "5"], "");
    daemon.until_state(important, "running");
    daemon.until("it launches", |daemon| segment_of(daemon, important).is_some());
    // Until it is known how fast it is alone.
    thread::sleep(Duration::from_secs(12));
    let other = submit(&daemon, &[], "");
    daemon.until_state(other, "running");
    daemon.until("the less important job is slowed", |daemon| {
        budget_of(daemon, other).is_some_and(|budget| budget.share <= 500)
    });
    let history = daemon.show(other)["history"].to_string();
    assert!(history.contains(&format!("job {important}")), "{history}");
    assert_eq!(budget_of(&daemon, important), None);
    daemon.ok(&["cancel", &important.to_string()]);
    daemon.end(important);
    until_share(&daemon, other, None);
}
