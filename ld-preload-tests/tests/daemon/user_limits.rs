//! Limits of users in the queue: from the file, by `radrm admin set`, over a kill of the daemon.

use std::process::Command;

use radrm_preload_tests::artifacts;
use radrm_preload_tests::node::{Daemon, may};
use serde_json::Value;

/// The user of the tests.
fn own_name() -> String {
    let out = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

fn limit(daemon: &Daemon, name: &str) -> Value {
    let all: Value = serde_json::from_str(&daemon.ok(&["limits", "--json"])).expect("JSON");
    let rows = all["limits"].as_array().expect("rows").clone();
    rows.into_iter().find(|row| row["name"] == name).expect("the limit")
}

fn running(daemon: &Daemon, jobs: &[u64]) -> usize {
    jobs.iter().filter(|job| daemon.state(**job) == "running").count()
}

fn sleeps(daemon: &Daemon) -> u64 {
    daemon.submit(&["--exclusive"], &["/bin/sleep", "300"])
}

#[test]
fn a_limit_that_changes_live_holds_at_the_next_start_and_after_a_kill_of_the_daemon() {
    let mut daemon = Daemon::new("emulate = \"4xA100-40GB\"\n[limits.default]\ngpus = 2\n");
    let jobs: Vec<u64> = (0..4).map(|_| sleeps(&daemon)).collect();
    daemon.until("two of them run", |daemon| running(daemon, &jobs) == 2);
    let why = daemon.ok(&["queue", "--why"]);
    assert!(why.contains("2 GPUs at once (gpus, default)"), "{why}");
    assert_eq!(
        (&limit(&daemon, "gpus")["used"], &limit(&daemon, "gpus")["from"]),
        (&2.0.into(), &"default".into())
    );
    let user = format!("user:{}", own_name());
    daemon.ok(&["admin", "set", &user, "gpus", "3"]);
    daemon.until("a third one runs", |daemon| running(daemon, &jobs) == 3);
    assert_eq!(daemon.state(jobs[3]), "waiting");
    let set = limit(&daemon, "gpus");
    assert_eq!((&set["number"], &set["set_by"]), (&3.into(), &own_name().into()));
    // Jobs that run stay where they are.
    daemon.ok(&["admin", "set", &user, "gpus", "1"]);
    daemon.kill();
    daemon.start();
    daemon.until("the next one knows those that run", |daemon| running(daemon, &jobs) == 3);
    assert_eq!(daemon.state(jobs[3]), "waiting");
    let kept = limit(&daemon, "gpus");
    assert_eq!((&kept["number"], &kept["set_by"]), (&1.into(), &own_name().into()));
    daemon.ok(&["cancel", &jobs[0].to_string(), &jobs[1].to_string()]);
    daemon.end(jobs[0]);
    daemon.end(jobs[1]);
    let text = daemon.show(jobs[3])["history"].to_string();
    assert!(text.contains("may have 1 GPU at once"), "{text}");
    daemon.ok(&["admin", "unset", &user, "gpus"]);
    daemon.until("the limit of the file lets it run", |daemon| daemon.state(jobs[3]) == "running");
    assert!(daemon.ok(&["admin", "show"]).contains("no limit was set"));
    daemon.ok(&["cancel", &jobs[2].to_string(), &jobs[3].to_string()]);
}

#[test]
fn a_job_that_its_limits_never_let_start_is_refused_with_one_sentence() {
    let daemon = Daemon::new(
        "[limits.default]\ngpus = 1\ndefault_time = \"30m\"\nmax_time = \"1h30m\"\nmemory = \"8GiB\"\nallowed_gpus = [1]\n",
    );
    let refused = |options: &[&str]| daemon.refused(&[&["submit"], options, &["--", "true"]].concat());
    for (options, part) in [
        (["--gpus", "2"], "it needs 2 GPUs, and its user may have 1 at once (gpus, default)"),
        (["--time", "2h"], "above its user's 1 h 30 min (max_time, default)"),
        (
            ["--gpu-mem", "9GiB"],
            "it needs 9.00 GiB on each GPU, and its user may have 8.00 GiB (memory, default)",
        ),
    ] {
        let text = refused(&options);
        assert!(text.contains(part), "{text}");
    }
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &["true"]);
    let row = daemon.end(job);
    assert_eq!(row["time_limit_ms"], 1_800_000, "the default time");
    let nodes: Value = serde_json::from_str(&daemon.ok(&["nodes", "--json"])).expect("JSON");
    assert_eq!(row["devices"][0], nodes["gpus"][1]["uuid"], "{row}");
    let history = daemon.show(job)["history"].to_string();
    assert!(history.contains("it ends after 30 min 00 s (default_time, default)"), "{history}");
}

#[test]
fn wrong_names_of_limits_users_and_groups_are_named() {
    let daemon = Daemon::new("");
    for (words, part) in [
        (["default", "gpu", "4"], "there is no limit gpu; did you mean gpus?"),
        (["user:no-such-user", "gpus", "4"], "this machine has no user no-such-user"),
        (["group:no-such-group", "gpus", "4"], "this machine has no group no-such-group"),
        (["alice", "gpus", "4"], "`alice` is not default, user:NAME or group:NAME"),
        (["default", "max_time", "4"], "a time such as"),
        (["default", "allowed_gpus", "0,9"], "there is no GPU 9"),
    ] {
        let text = daemon.refused(&[&["admin", "set"], &words[..]].concat());
        assert!(text.contains(part), "{text}");
    }
    let daemon =
        Daemon::prepare("[limits.users.no-such-user]\ngpus = 1\n[limits.groups.no-such-group]\ngpus = 1\n");
    let mut check = Command::new(artifacts::directory().join("radrmd"));
    check.arg("--check").arg("--config").arg(daemon.path("config.toml"));
    let done = check.arg("--state").arg(daemon.path("state")).output().expect("radrmd");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(text.contains("limits.users: this machine has no user no-such-user"), "{text}");
    assert!(text.contains("limits.groups: this machine has no group no-such-group"), "{text}");
}

#[test]
fn users_see_their_own_limits_and_set_none() {
    if !may(&["setpriv", "--reuid=1", "true"]) {
        return;
    }
    let daemon = Daemon::new("[limits.users.daemon]\ngpus = 0\n[limits.default]\ngpus = 3\n");
    let of_user = |words: &[&str]| {
        let out = daemon.client_of(1, words).output().expect("radrm");
        (
            out.status.code(),
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)),
        )
    };
    let (code, text) = of_user(&["limits"]);
    assert!(code == Some(0) && text.contains("limits of daemon") && text.contains("user daemon"), "{text}");
    let administrators = "by administrators";
    for (words, part) in [
        (&["limits", "root"][..], "only administrators see the limits of other users"),
        (&["admin", "set", "user:daemon", "gpus", "none"][..], administrators),
        (&["admin", "unset", "user:daemon", "gpus"][..], administrators),
        (&["admin", "show"][..], administrators),
        (
            &["submit", "--", "true"][..],
            "it needs 1 GPU, and its user may have 0 at once (gpus, user daemon)",
        ),
    ] {
        let (code, text) = of_user(words);
        assert!(code == Some(1) && text.contains(part), "{words:?}: {text}");
    }
    let text = daemon.ok(&["limits", "daemon"]);
    assert!(text.contains("limits of daemon") && text.contains("user daemon"), "{text}");
}
