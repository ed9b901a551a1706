//! The reservation of `radrmd` for a job follows what the job holds after its first optimizer steps.

use std::fs;
use std::process::Command;

use radrm_preload_tests::{artifacts, node::Daemon, programs};
use serde_json::Value;

const GIB: u64 = 1 << 30;

/// A daemon with one GPU of 40 GiB and a log of its events.
fn daemon() -> Daemon {
    let mut daemon = Daemon::prepare("emulate = \"1xA100-40GB\"\n[scheduler]\npolicy = \"best-fit\"\n");
    let events = daemon.path("events").display().to_string();
    let config = fs::read_to_string(daemon.path("config.toml")).expect("configuration");
    fs::write(daemon.path("config.toml"), format!("events = \"{events}\"\n{config}")).expect("configuration");
    daemon.start();
    daemon
}

fn steps() -> String {
    programs::compile("steps.c", &[]).display().to_string()
}

fn reserved(daemon: &Daemon, job: u64) -> u64 {
    daemon.show(job)["job"]["reserved"].as_u64().unwrap_or(u64::MAX)
}

/// Feeds the daemon's events to another scheduler, which has to decide the same.
fn replays_alike(daemon: &Daemon) {
    let mut replay = Command::new(artifacts::file("radrm"));
    replay.args(["replay", "--events"]).arg(daemon.path("events")).env_clear();
    let done = replay.output().expect("radrm");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

/// The events of first steps in the log.
fn logged(daemon: &Daemon) -> Vec<Value> {
    let lines = daemon.lines("events").into_iter();
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    events.map(|event| event["step"]["event"].clone()).filter(|e| e["event"] == "steps_observed").collect()
}

#[test]
fn three_steps_of_fixed_shapes_let_another_job_in() {
    let daemon = daemon();
    let program = steps();
    let estimate = ["--gpu-mem-estimate", "30GiB", "--fixed-shapes"];
    let command = [program.as_str(), "use:0", "alloc:a:8g", "3x:mark:step", "sleep:60000"];
    let first = daemon.submit(&estimate, &command);
    let second = daemon.submit(&["--gpu-mem", "25GiB"], &[&program, "use:0", "alloc:a:20g", "sleep:60000"]);
    daemon.until_state(second, "running");
    let bound = reserved(&daemon, first);
    assert!((8 * GIB * 105 / 100..10 * GIB).contains(&bound), "{bound}");
    let why = daemon.ok(&["queue", "--why"]);
    assert!(why.contains("expected to stay under") && why.contains("its user states fixed shapes"), "{why}");
    let asked = daemon.show(first)["job"]["asked"].to_string();
    assert!(asked.contains("\"fixed_shapes\":true"), "{asked}");
    let events = logged(&daemon);
    assert_eq!(events[0]["first"]["fixed"]["by"], "user", "{events:?}");
    daemon.ok(&["cancel", &first.to_string(), &second.to_string()]);
    daemon.end(first);
    daemon.end(second);
    replays_alike(&daemon);
}

#[test]
fn a_job_that_outgrows_its_first_steps_gets_its_estimate_back() {
    let daemon = daemon();
    let program = steps();
    let command =
        [&program, "use:0", "alloc:a:8g", "3x:mark:step", "sleep:3000", "alloc:b:4g", "sleep:60000"];
    let job = daemon.submit(&["--gpu-mem-estimate", "30GiB", "--fixed-shapes"], &command);
    daemon.until("it is bounded", |daemon| reserved(daemon, job) < 10 * GIB);
    daemon.until("it is not any more", |daemon| reserved(daemon, job) == 30 * GIB);
    let history = daemon.show(job)["history"].to_string();
    assert!(history.contains("more than the") && history.contains("30.0 GiB are reserved"), "{history}");
    daemon.ok(&["cancel", &job.to_string()]);
    daemon.end(job);
    replays_alike(&daemon);
}

/// A program with an option for the batch size, which holds 4 GiB after its third step, and `later` after these.
fn script(daemon: &Daemon, later: &str) -> String {
    let path = daemon.path("train.sh");
    let text = format!(
        "#!/bin/sh\n[ \"$2\" = 8 ] && rest=sleep:10 || rest=sleep:60000\n\
         exec {} use:0 alloc:a:4g 3x:mark:step sleep:2500 {later} $rest\n",
        steps()
    );
    fs::write(&path, text).expect("script");
    path.display().to_string()
}

fn train(daemon: &Daemon, options: &[&str], script: &str, batch: &str) -> u64 {
    let options = [&["--gpu-mem-estimate", "30GiB"], options].concat();
    daemon.submit(&options, &["/bin/sh", script, "--batch-size", batch])
}

#[test]
fn an_earlier_run_that_did_not_grow_bounds_the_next_batch_size() {
    let daemon = daemon();
    let script = script(&daemon, "");
    let first = train(&daemon, &[], &script, "8");
    assert_eq!(daemon.end(first)["exit_code"], 0);
    let history = daemon.show(first)["history"].to_string();
    assert!(history.contains("its reservation stays: no earlier run"), "{history}");
    let second = train(&daemon, &[], &script, "16");
    daemon.until_state(second, "running");
    // By its estimate from the other batch size it is more.
    daemon.until("its first steps bound it", |daemon| reserved(daemon, second) < 5 * GIB);
    let why = daemon.ok(&["queue", "--why"]);
    assert!(why.contains("an earlier run of its program took no more later"), "{why}");
    daemon.ok(&["cancel", &second.to_string()]);
    daemon.end(second);
    replays_alike(&daemon);
}

#[test]
fn a_program_whose_run_grew_keeps_its_estimate_whatever_its_user_says() {
    let daemon = daemon();
    let script = script(&daemon, "alloc:b:2g");
    assert_eq!(daemon.end(train(&daemon, &[], &script, "8"))["exit_code"], 0);
    let second = train(&daemon, &["--fixed-shapes"], &script, "16");
    daemon.until("its steps were seen", |daemon| {
        daemon.show(second)["history"].to_string().contains("an earlier run of its program took more later")
    });
    assert!(reserved(&daemon, second) > 6 * GIB, "{}", daemon.show(second));
    daemon.ok(&["cancel", &second.to_string()]);
    daemon.end(second);
}
