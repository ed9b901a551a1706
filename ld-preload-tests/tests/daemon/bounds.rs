//! Bounds on what `radrmd` takes from its users; what it refuses changes nothing.

use std::{fs, process::Command};

use radrm_preload_tests::{
    artifacts,
    node::{Daemon, may},
    programs,
};
use serde_json::Value;

fn queue(daemon: &Daemon) -> Vec<Value> {
    let text = daemon.ok(&["queue", "--json"]);
    serde_json::from_str::<Value>(&text).expect("JSON").as_array().expect("jobs").clone()
}

/// Number of lines of a job's history that begin like this.
fn lines(daemon: &Daemon, job: u64, begin: &str) -> usize {
    let shown = daemon.show(job);
    let lines = shown["history"].as_array().expect("history").iter();
    lines.filter(|line| line["text"].as_str().expect("text").starts_with(begin)).count()
}

#[test]
fn a_submission_that_is_too_large_is_rejected_as_usage_error() {
    let daemon = Daemon::new("");
    let name = "n".repeat(257);
    let done = daemon.output(&["submit", "--name", &name, "--", "true"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("name has 257 bytes") && said.lines().count() == 1, "{said}");
    let large = daemon
        .client(&["submit", "--", "true"])
        .envs((0..20).map(|n| (format!("E{n}"), "x".repeat(120_000))))
        .output();
    // Where the kernel gives a program that much at all.
    if let Ok(done) = large {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("2 MiB is the most") && said.lines().count() == 1, "{said}");
    }
    fs::write(daemon.path("long.rad"), format!("#RADRM --gpus=0\ntrue {}\n", "x".repeat(200_000)))
        .expect("file");
    assert!(daemon.refused(&["submit", "long.rad"]).contains("128 KiB"));
    assert!(queue(&daemon).is_empty());
    // As long as it may be, 20 times: more than one answer has room for.
    let words = "y".repeat(120_000);
    let jobs: Vec<u64> = (0..20)
        .map(|_| daemon.submit(&["--hold"], &[&["true"], &[words.as_str(); 8][..]].concat()))
        .collect();
    let rows = queue(&daemon);
    assert_eq!(rows.len(), jobs.len());
    assert!(rows.iter().all(|row| row["command"].to_string().len() < 300), "{}", rows[0]);
    assert_eq!(daemon.show(jobs[0])["job"]["command"][8], words.as_str(), "all of it is there");
}

#[test]
fn what_one_user_keeps_in_the_queue_is_bounded_also_after_a_restart() {
    let mut daemon = Daemon::new("bytes_per_user = 1_000_000\n");
    let words = "z".repeat(120_000);
    // Each has 600,000 bytes and its environment: one fits, two do not.
    let long = [&["true"], &[words.as_str(); 5][..]].concat();
    let submit = [&["submit", "--hold", "--"], &long[..]].concat();
    let job = daemon.submit(&["--hold"], &long);
    let said = daemon.refused(&submit);
    assert!(said.contains("commands and environments of your jobs") && said.lines().count() == 1, "{said}");
    daemon.submit(&["--hold"], &["true"]);
    daemon.kill();
    daemon.start();
    assert!(daemon.refused(&submit).contains("commands and environments of your jobs"));
    daemon.ok(&["cancel", &job.to_string()]);
    daemon.submit(&["--hold"], &long);
}

#[test]
fn of_the_ended_jobs_of_a_user_the_newest_are_kept() {
    let mut daemon = Daemon::new("jobs_per_user = 5\n");
    let jobs: Vec<u64> = (0..12)
        .map(|_| {
            let job = daemon.submit(&["--hold"], &["true"]);
            daemon.ok(&["cancel", &job.to_string()]);
            job
        })
        .collect();
    let is_kept = |daemon: &Daemon, job: u64| daemon.output(&["show", &job.to_string()]).status.success();
    daemon.kill();
    daemon.start();
    daemon.until("the oldest are forgotten", |daemon| !is_kept(daemon, jobs[6]));
    assert!(jobs[7..].iter().all(|job| is_kept(&daemon, *job)));
}

#[test]
fn a_queue_of_more_jobs_than_one_answer_has_room_for_is_listed_as_a_whole() {
    let daemon = Daemon::new("");
    let jobs: Vec<u64> = (0..250).map(|_| daemon.submit(&["--hold"], &["true"])).collect();
    let listed: Vec<u64> = queue(&daemon).iter().map(|row| row["job"].as_u64().expect("number")).collect();
    assert_eq!(listed, jobs);
    assert_eq!(daemon.ok(&["queue"]).lines().count(), 251);
}

#[test]
fn a_job_that_is_named_several_times_is_held_and_cancelled_once() {
    let daemon = Daemon::new("");
    let job = daemon.submit(&["--hold", "--gpus", "0"], &["true"]);
    let named = vec![job.to_string(); 1000];
    let words: Vec<&str> = named.iter().map(String::as_str).collect();
    daemon.ok(&[&["cancel"], &words[..]].concat());
    assert_eq!(daemon.end(job)["end"], "cancelled");
    assert_eq!(lines(&daemon, job, "cancelled"), 1);
    let running =
        daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]);
    daemon.until_state(running, "running");
    let named = vec![running.to_string(); 1000];
    let words: Vec<&str> = named.iter().map(String::as_str).collect();
    daemon.ok(&[&["cancel"], &words[..]].concat());
    assert_eq!(lines(&daemon, running, "asked to end (SIGTERM)"), 1);
    let many = vec!["1".to_owned(); 10_001];
    let words: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(daemon.refused(&[&["cancel"], &words[..]].concat()).contains("10000 at once"));
}

#[test]
fn jobs_are_held_all_or_none() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let sleeps = ["/bin/sh", "-c", "sleep 1000"];
    let running = daemon.submit(&["--exclusive"], &sleeps);
    daemon.until_state(running, "running");
    let waiting = daemon.submit(&["--exclusive"], &sleeps);
    let (one, two) = (running.to_string(), waiting.to_string());
    for named in [["hold", &two, &one], ["hold", &one, &two]] {
        assert!(daemon.refused(&named).contains("runs already"));
        assert_eq!(daemon.state(waiting), "waiting");
        assert_eq!(lines(&daemon, waiting, "held"), 0);
    }
    daemon.ok(&["hold", &two, &two]);
    assert_eq!(daemon.state(waiting), "held");
}

#[test]
fn what_radrm_replay_cannot_make_is_a_wrong_command_line() {
    for words in
        [&["replay", "synthetic:99999999999999"][..], &["replay", "synthetic:3", "--gpus", "4xB9000"]]
    {
        let done = Command::new(artifacts::file("radrm")).args(words).output().expect("radrm");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && (said.contains("5000000") || said.contains("B9000")), "{said}");
    }
}

#[test]
fn a_users_default_limit_holds_under_roots_emulated_daemon() {
    const USER: u32 = 65_534;
    if !may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
        || !may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
        || !may(&["getent", "passwd", "65534"])
    {
        return;
    }
    // The configuration of the node, for this daemon and its jobs alone.
    let before = "cp -a /etc $PLACE/etc && mkdir -p $PLACE/etc/radrm \
                  && printf '[default]\\nmem-limit = \"1GiB\"\\n' > $PLACE/etc/radrm/radrm.toml \
                  && mount --bind $PLACE/etc /etc";
    let daemon = Daemon::with("emulate = \"1xA100-40GB\"\n", before);
    let program = programs::compile("steps.c", &[]).display().to_string();
    let submit = |allocation: &str| -> u64 {
        let line = ["submit", "-q", "--gpu-mem", "4GiB", "--", &program, "use:0", allocation];
        let done = daemon.client_of(USER, &line).current_dir("/").output().expect("radrm");
        String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number")
    };
    let fits = daemon.end(submit("alloc:a:300m"));
    assert_eq!(fits["exit_code"], 0, "{fits} {}", daemon.log());
    let job = submit("alloc:a:3g");
    let ended = daemon.end(job);
    assert_ne!(ended["exit_code"], 0, "{ended}");
    let history = daemon.show(job)["history"].to_string();
    assert!(history.contains("was stopped by"), "{ended} {history}");
}
