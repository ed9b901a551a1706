//! The load of a GPU by a job that has it to itself is measured by `radrmd` and decides who may join it.

use std::fs;

use radrm_preload_tests::{node::Daemon, programs};
use serde_json::Value;

/// Whatever was never seen is assumed to be as busy as the busiest programs that were measured: two of them would add 18 %
/// of a GPU's work, one beside a quarter of a GPU 45 %, and sharing pays from 22 % on.
const CONFIG: &str = "emulate = \"1xA100-40GB\"\nkernels = \"all\"\n[scheduler]\npolicy = \"aware\"\n\
                      [scheduler.assumed]\nsmact = 850\nsmocc = 850\ndrama = 850\n";

/// A job that always has kernels on the GPU, of 27 blocks: a quarter of an A100's 108 multiprocessors, each with
/// one block of 1024 threads of the two that it holds.
fn quarter(daemon: &Daemon, time: &str) -> u64 {
    let words = quarter_words(daemon, time);
    daemon.submit(&["--gpu-mem", "2GiB"], &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The same job, alone on a GPU and with all its launches recorded. When its activity is known, that of a job which was there
/// before would be known too. Gives its number.
fn until_witness_is_known(daemon: &Daemon) -> u64 {
    let words =
        ["submit", "--quiet", "--exclusive", "--gpu-mem", "2GiB", "--"].map(str::to_owned).into_iter();
    let words: Vec<String> = words.chain(quarter_words(daemon, "real")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = daemon.client(&words).env("RADRM_KERNELS", "all").output().expect("radrm");
    let witness: u64 = String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number");
    daemon.until("the witness is known", |daemon| !daemon.show(witness)["job"]["activity"].is_null());
    witness
}

fn quarter_words(daemon: &Daemon, time: &str) -> Vec<String> {
    let program = programs::compile("turns.c", &["-pthread"]).display().to_string();
    let times = daemon.path("times");
    fs::write(&times, "* 500000\n").expect("kernel times");
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", times.display());
    let time = format!("RADRM_EMULATOR_TIME={time}");
    ["env", &time, &times, &program, "fill", "launches", "300", "27"].map(str::to_owned).to_vec()
}

fn permille(activity: &Value, part: &str) -> u64 {
    activity[part].as_u64().unwrap_or_else(|| panic!("{part}: {activity}"))
}

#[test]
fn a_lone_jobs_measured_activity_survives_the_daemon() {
    let mut daemon = Daemon::new(CONFIG);
    let job = quarter(&daemon, "real");
    daemon.until_state(job, "running");
    let second = daemon.submit(&["--gpu-mem", "2GiB"], &["sleep", "1000"]);
    let third = daemon.submit(&["--gpu-mem", "2GiB", "--hold"], &["sleep", "1000"]);
    assert_eq!(daemon.state(second), "waiting");
    let why = daemon.ok(&["queue", "--why"]);
    assert!(why.contains("predicted gain"), "nothing is known of the first: {why}");
    daemon.until_state(second, "running");
    let activity = daemon.show(job)["job"]["activity"].clone();
    let (smact, smocc) = (permille(&activity, "smact"), permille(&activity, "smocc"));
    // A quarter at most: where the host has much else to do the GPU waits for launches.
    assert!((100..=260).contains(&smact) && smocc.abs_diff(smact / 2) <= 2, "{activity}");
    assert_eq!(activity["drama"], Value::Null, "launches show nothing of it");
    assert!(daemon.ok(&["show", &job.to_string()]).contains("SM activity "));
    // What is beside it now, and did nothing yet, is not known.
    assert_eq!(daemon.show(second)["job"]["activity"], Value::Null);
    // With the second gone the third may join only if the first is known, and it is.
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.show(job)["job"]["activity"], activity);
    daemon.ok(&["cancel", &second.to_string()]);
    daemon.end(second);
    daemon.ok(&["hold", "--release", &third.to_string()]);
    // Long before anything could be measured anew.
    let why = daemon.ok(&["queue", "--why"]);
    assert_ne!(daemon.state(third), "waiting", "{why}");
}

/// No launch is timed: NVML's performance monitor measures the job that has the GPU to itself.
#[test]
fn where_launches_are_only_counted_gpm_decides_who_may_join() {
    let config = CONFIG.replace("1xA100-40GB", "1xH200").replace("\"all\"", "\"count\"");
    let daemon = Daemon::new(&config.replace("drama = 850", "drama = 400"));
    // A quarter of an H200's 132 multiprocessors.
    let mut words = quarter_words(&daemon, "real");
    "33".clone_into(words.last_mut().expect("words"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let job = daemon.submit(&["--gpu-mem", "2GiB"], &words);
    daemon.until_state(job, "running");
    let second = daemon.submit(&["--gpu-mem", "2GiB"], &["sleep", "1000"]);
    let why = daemon.ok(&["queue", "--why"]);
    assert_eq!(daemon.state(second), "waiting", "nothing is known of the first: {why}");
    daemon.until_state(second, "running");
    let activity = daemon.show(job)["job"]["activity"].clone();
    let [smact, smocc, drama] = ["smact", "smocc", "drama"].map(|part| permille(&activity, part));
    assert!((100..=260).contains(&smact) && smocc.abs_diff(smact / 2) <= 2, "{activity}");
    assert!(
        drama.abs_diff(2 * smact) <= 8,
        "half of the time of kernels, as the emulator has it: {activity}"
    );
}

#[test]
fn where_waiting_takes_no_time_activity_is_a_share_of_the_gpus_own_time() {
    for mode in ["all", "sample:1%"] {
        let daemon = Daemon::new(&CONFIG.replace("all", mode));
        let job = quarter(&daemon, "instant");
        daemon.until("it is known", |daemon| !daemon.show(job)["job"]["activity"].is_null());
        let smact = permille(&daemon.show(job)["job"]["activity"], "smact");
        assert!((220..=260).contains(&smact), "{mode}: {smact}");
    }
}

#[test]
fn of_a_job_whose_launches_are_only_counted_nothing_is_said() {
    let daemon = Daemon::new(&CONFIG.replace("\"all\"", "\"count\"").replace("1xA100", "2xA100"));
    let job = quarter(&daemon, "real");
    daemon.until_state(job, "running");
    until_witness_is_known(&daemon);
    let second = daemon.submit(&["--gpu-mem", "2GiB"], &["sleep", "1000"]);
    let why = daemon.ok(&["queue", "--why"]);
    assert_eq!((daemon.state(job), daemon.state(second)), ("running".into(), "waiting".into()), "{why}");
    assert_eq!(daemon.show(job)["job"]["activity"], Value::Null);
}

#[test]
fn of_jobs_that_were_never_alone_nothing_is_said() {
    let config =
        CONFIG.replace("\"aware\"", "\"best-fit\"").replace("all", "sample").replace("1xA100", "2xA100");
    let daemon = Daemon::new(&config);
    let jobs = [quarter(&daemon, "real"), quarter(&daemon, "real")];
    jobs.into_iter().for_each(|job| daemon.until_state(job, "running"));
    let witness = until_witness_is_known(&daemon);
    daemon.ok(&["cancel", &witness.to_string()]);
    daemon.end(witness);
    for job in jobs {
        assert_eq!(daemon.show(job)["job"]["activity"], Value::Null);
    }
    // Alone at last, one is measured.
    daemon.ok(&["cancel", &jobs[0].to_string()]);
    daemon.end(jobs[0]);
    daemon.until("it is known", |daemon| !daemon.show(jobs[1])["job"]["activity"].is_null());
    let smact = permille(&daemon.show(jobs[1])["job"]["activity"], "smact");
    assert!(
        (100..=260).contains(&smact),
        "{smact}: a quarter at most, less where the host has much else to do"
    );
}
