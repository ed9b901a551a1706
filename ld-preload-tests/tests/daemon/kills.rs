//! Many kills of the daemon in the middle of many jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use radrm_preload_tests::node::Daemon;
use serde_json::Value;

const JOBS: usize = 300;
const KILLS: usize = 30;
/// For all jobs to end after the last kill.
const LIMIT: Duration = Duration::from_secs(900);

/// Times between kills, in milliseconds: as spread as they need to be, and the same each time.
fn pauses() -> impl Iterator<Item = u64> {
    (1_u64..).map(|kill| 50 + kill.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 900)
}

#[test]
#[ignore = "takes minutes"]
fn of_300_jobs_none_is_lost_or_doubled_by_30_kills_of_the_daemon() {
    let mut daemon = Daemon::new("emulate = \"4xA100-40GB\"\n[scheduler]\npolicy = \"best-fit\"\n");
    let script = "echo $RADRM_JOB $RADRM_ATTEMPT >> $PLACE/marks; sleep 3; exit $((RADRM_JOB % 5))";
    // Held until all are there, so that the kills meet jobs that run.
    let submit = |daemon: &Daemon, options: &[&str]| {
        daemon.submit(&[&["--hold"], options].concat(), &["/bin/sh", "-c", script])
    };
    let array = submit(&daemon, &["--gpu-mem", "2GiB", "--array", "0-149%20"]);
    for at in 0..50 {
        submit(&daemon, &["--gpu-mem", "4GiB", "--priority", &(at % 3 - 2).to_string()]);
        submit(&daemon, &["--gpus", "0"]);
        submit(&daemon, &["--gpus", "0", "--after", &format!("{array}_{at}")]);
    }
    let all: Vec<String> = (array..array + JOBS as u64).map(|job| job.to_string()).collect();
    let release = ["hold", "--release"].into_iter().chain(all.iter().map(String::as_str));
    daemon.ok(&release.collect::<Vec<_>>());
    let mut kills = 0;
    let mut while_running = 0;
    for pause in pauses().take(KILLS) {
        thread::sleep(Duration::from_millis(pause));
        let jobs: Value = serde_json::from_str(&daemon.ok(&["queue", "--json"])).expect("JSON");
        let runs = |job: &Value| ["starting", "running"].contains(&job["state"].as_str().unwrap_or_default());
        while_running += usize::from(jobs.as_array().is_some_and(|jobs| jobs.iter().any(runs)));
        daemon.kill();
        kills += 1;
        daemon.start();
    }
    let begun = Instant::now();
    while daemon.ok(&["queue"]) != "no jobs\n" {
        assert!(begun.elapsed() < LIMIT, "jobs never end: {}", daemon.ok(&["queue", "--why"]));
        thread::sleep(Duration::from_millis(500));
    }
    let ended: Value =
        serde_json::from_str(&daemon.ok(&["queue", "--ended", "1000", "--json"])).expect("JSON");
    let mut codes: BTreeMap<u64, i64> = BTreeMap::new();
    for job in ended.as_array().expect("jobs") {
        let (id, code) = (job["job"].as_u64().expect("a number"), job["exit_code"].as_i64());
        let code = code.unwrap_or_else(|| panic!("job {id}: {}", daemon.show(id)));
        assert_eq!(codes.insert(id, code), None, "job {id} is listed twice");
        assert_eq!((job["attempts"].as_u64(), code), (Some(1), id as i64 % 5), "{}", daemon.show(id));
    }
    let expected: BTreeSet<u64> = (array..array + JOBS as u64).collect();
    assert_eq!(codes.keys().copied().collect::<BTreeSet<_>>(), expected, "a job is lost");
    let mut marks = daemon.lines("marks");
    marks.sort();
    let mut once: Vec<String> = expected.iter().map(|job| format!("{job} 1")).collect();
    once.sort();
    assert_eq!(marks, once, "each job ran once");
    assert!(while_running > KILLS / 2, "only {while_running} of {kills} kills met a job that ran");
    eprintln!("{kills} kills, {while_running} of them while jobs ran; {} jobs ended once each", codes.len());
}
