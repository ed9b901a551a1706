//! GPU-hours by user.

use radrm_preload_tests::node::Daemon;
use serde_json::Value;

fn rows(daemon: &Daemon, options: &[&str]) -> Vec<Value> {
    let words = [&["usage", "--json"], options].concat();
    serde_json::from_str(&daemon.ok(&words)).expect("JSON")
}

#[test]
fn gpu_hours_are_the_jobs_own_and_survive_the_daemon() {
    let mut daemon = Daemon::new("");
    let jobs = [
        daemon.submit(&["--gpus", "2", "--exclusive"], &["/bin/sleep", "0.4"]),
        daemon.submit(&["--gpu-mem", "10GiB"], &["/bin/sleep", "0.3"]),
        daemon.submit(&["--gpus", "0"], &["/bin/sleep", "0.3"]),
    ];
    let ran = jobs.map(|job| daemon.end(job)["ran_ms"].as_f64().expect("ms") / 3_600_000.0);
    let found = rows(&daemon, &[]);
    let [row] = &found[..] else { panic!("{found:?}") };
    let hours = |name: &str| row[name].as_f64().expect("hours");
    assert!((hours("gpu_hours") - (2.0 * ran[0] + ran[1])).abs() < 1e-9, "{row} {ran:?}");
    // The second one shared its GPU: a quarter of 40 GiB, and what is kept beside it.
    let share = (hours("weighted_gpu_hours") - 2.0 * ran[0]) / ran[1];
    assert!((0.249..0.35).contains(&share), "{share}");
    assert_eq!((&row["jobs"], &row["attempts"], &row["out_of_memory"]), (&2.into(), &2.into(), &0.into()));
    daemon.kill();
    daemon.start();
    assert_eq!(rows(&daemon, &[]), found, "after a restart");
    assert_eq!(rows(&daemon, &["--to", "2001-01-01"]), [] as [Value; 0]);
    let csv = daemon.ok(&["usage", "--csv"]);
    assert!(csv.starts_with("user,uid,gpu_hours,") && csv.lines().count() == 2, "{csv}");
    let stats: Value = serde_json::from_str(&daemon.ok(&["stats", "--json"])).expect("JSON");
    assert_eq!(stats["users"], serde_json::json!(found), "the same sums");
    assert!(daemon.ok(&["stats"]).contains("GPU-hours of users"));
    let wrong = daemon.output(&["usage", "--from", "2026-02-01", "--to", "2026-01-01"]);
    assert_eq!(wrong.status.code(), Some(2));
}
