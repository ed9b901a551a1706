//! Producers that radrmd runs for jobs which load from them.

use std::fs;
use std::path::Path;

use radrm_preload_tests::node::Daemon;
use radrm_preload_tests::{artifacts, child, python};

/// Samples of an epoch that a job has got, once each, in all epochs that it saw to their end.
fn epochs(log: &Path) -> usize {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    let mut ends = 0;
    for line in text.lines() {
        if line.starts_with("end ") {
            assert_eq!(seen.len(), SAMPLES, "{}", log.display());
            seen.clear();
            ends += 1;
            continue;
        }
        for number in line.split(' ').skip(1) {
            assert!(seen.insert(number.to_owned()), "{}: sample {number} came twice", log.display());
        }
    }
    ends
}

const SAMPLES: usize = 800;

#[test]
fn jobs_with_one_loader_get_a_producer_that_outlives_its_death() {
    let Some(interpreter) = python::interpreter() else { return };
    artifacts::file("libradrm_share.so");
    let daemon = Daemon::new("[scheduler]\npolicy = \"best-fit\"\n");
    let interpreter = interpreter.display().to_string();
    // Long enough to be killed in between.
    let load = format!("{interpreter} {} data 6 {SAMPLES} 8 2", python::script("share_loader.py"));
    let loader = format!("--loader=data={load}");
    let submit = |log: &str| {
        let log = daemon.path(log).display().to_string();
        let script = python::script("share_trainer.py");
        let mut client = daemon.client(&["submit", "--quiet", "--gpu-mem=1GiB", &loader, "--"]);
        client.args([&interpreter, &script, "data", &log, "0", "epoch", "120"]);
        client.env("RADRM_LIB_DIR", artifacts::directory()).env("XDG_RUNTIME_DIR", daemon.place());
        client.env("PYTHONPATH", artifacts::workspace().join("contrib/python"));
        let done = client.output().expect("radrm");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().parse::<u64>().expect("a number")
    };
    let jobs = [submit("first"), submit("second")];
    let producers = || {
        let rows: serde_json::Value = serde_json::from_str(&daemon.ok(&["queue", "--json"])).expect("JSON");
        let rows = rows["jobs"].as_array().or(rows.as_array()).expect("jobs").clone();
        rows.into_iter().filter(|row| row["name"] == "loader data").collect::<Vec<_>>()
    };
    daemon.until("a batch has come", |daemon| {
        fs::metadata(daemon.path("second")).is_ok_and(|log| log.len() > 0)
    });
    let [producer] = &producers()[..] else { panic!("one producer for both") };
    assert_eq!(producer["gpus"], 0);
    let pid = producer["pid"].as_u64().expect("it runs");
    child::kill_group(u32::try_from(pid).expect("a pid"));
    for job in jobs {
        assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
    }
    for log in ["first", "second"] {
        assert_eq!(epochs(&daemon.path(log)), 6, "{log}");
    }
    daemon.until("no producer is left", |_| producers().is_empty());
    let history = daemon.show(jobs[0])["history"].to_string();
    assert_eq!(history.matches("loads from data").count(), 2, "a second producer after the kill: {history}");
}
