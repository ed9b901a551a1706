//! Limits of users in the queue: from the file, by `radrm admin set`, over a kill of the daemon.

use std::fs;
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

/// A job of another user that runs until it is cancelled, on GPUs of its own.
#[track_caller]
fn sleeps_of(daemon: &Daemon, user: u32, gpus: &str) -> u64 {
    let line = ["submit", "--quiet", "--exclusive", "--gpus", gpus, "--", "/bin/sleep", "300"];
    let done = daemon.client_of(user, &line).current_dir("/").output().expect("radrm");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    String::from_utf8_lossy(&done.stdout).trim().parse().unwrap_or_else(|_| panic!("{text}"))
}

/// Why a job waits.
fn why(daemon: &Daemon, job: u64) -> String {
    daemon.show(job)["job"]["why"].as_str().unwrap_or_default().to_owned()
}

fn has_other_users() -> bool {
    may(&["setpriv", "--reuid=1", "true"])
}

/// The numbers of two users that each system has: daemon and bin.
const USERS: [u32; 2] = [1, 2];

#[test]
fn a_job_at_a_limit_keeps_its_place_and_only_jobs_of_others_pass_it() {
    if !has_other_users() {
        return;
    }
    let daemon = Daemon::new("emulate = \"4xA100-40GB\"\n[limits.default]\ngpus = 2\n");
    let [one, other] = USERS;
    let first = sleeps_of(&daemon, one, "1");
    daemon.until_state(first, "running");
    let (second, third) = (sleeps_of(&daemon, one, "2"), sleeps_of(&daemon, one, "1"));
    let passes = sleeps_of(&daemon, other, "2");
    daemon.until_state(passes, "running");
    assert_eq!((daemon.state(second), daemon.state(third)), ("waiting".to_owned(), "waiting".to_owned()));
    let text = why(&daemon, second);
    assert!(
        text.contains("has 1, and it needs 2; it can start when jobs of that user give 1 GPU back"),
        "{text}"
    );
    let text = why(&daemon, third);
    assert!(text.contains(&format!("job {second} of its user is before it")), "{text}");
    daemon.ok(&["cancel", &first.to_string()]);
    daemon.until_state(second, "running");
    assert_eq!(daemon.state(third), "waiting");
    daemon.ok(&["cancel", &second.to_string()]);
    daemon.until_state(third, "running");
    daemon.ok(&["cancel", &third.to_string(), &passes.to_string()]);
}

#[test]
fn a_user_whose_gpu_hours_are_spent_starts_behind_others_and_is_not_refused() {
    if !has_other_users() {
        return;
    }
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n[limits.users.daemon]\ngpu_hours = 0\n");
    let [one, other] = USERS;
    let blocker = sleeps(&daemon);
    daemon.until_state(blocker, "running");
    let (set_back, late) = (sleeps_of(&daemon, one, "1"), sleeps_of(&daemon, other, "1"));
    let text = daemon.ok(&["limits", "daemon"]);
    assert!(text.contains("jobs go behind those of other users"), "{text}");
    daemon.ok(&["cancel", &blocker.to_string()]);
    daemon.until_state(late, "running");
    assert_eq!(daemon.state(set_back), "waiting");
    daemon.ok(&["cancel", &late.to_string()]);
    daemon.until_state(set_back, "running");
    daemon.ok(&["cancel", &set_back.to_string()]);
}

#[test]
fn no_job_of_a_user_starts_in_quiet_hours() {
    if !has_other_users() {
        return;
    }
    let daemon = Daemon::new("");
    let [one, other] = USERS;
    daemon.ok(&["admin", "set", "user:daemon", "quiet_hours", "00:00-24:00"]);
    let quiet = sleeps_of(&daemon, one, "1");
    let free = sleeps_of(&daemon, other, "1");
    daemon.until_state(free, "running");
    let text = why(&daemon, quiet);
    assert!(text.contains("do not start at 00:00-24:00 (quiet_hours, user daemon)"), "{text}");
    let text = daemon.refused(&["admin", "set", "default", "quiet_hours", "8 to 18"]);
    assert!(text.contains("hours such as"), "{text}");
    daemon.ok(&["admin", "unset", "user:daemon", "quiet_hours"]);
    daemon.until_state(quiet, "running");
    daemon.ok(&["cancel", &quiet.to_string(), &free.to_string()]);
}

#[test]
fn a_user_who_joins_a_group_has_its_limits_without_a_restart() {
    if !has_other_users() || !may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        return;
    }
    let before = "cp /etc/group $PLACE/group; mount --bind $PLACE/group /etc/group";
    let config =
        "emulate = \"4xA100-40GB\"\n[limits.default]\ngpus = 1\n[limits.groups.radrm-test-lab]\ngpus = 3\n";
    let daemon = Daemon::with(config, before);
    let groups = fs::read_to_string("/etc/group").expect("groups");
    let jobs: Vec<u64> = (0..3).map(|_| sleeps_of(&daemon, USERS[0], "1")).collect();
    daemon.until("one runs", |daemon| running(daemon, &jobs) == 1);
    assert!(daemon.log().contains("this machine has no group radrm-test-lab"), "{}", daemon.log());
    let reload = |members: &str| {
        let text = format!("{groups}radrm-test-lab:x:60999:{members}\n");
        fs::write(daemon.path("group"), text).expect("groups");
        // SAFETY: a plain system call on a process of this test.
        unsafe { libc::kill(daemon.pid().cast_signed(), libc::SIGHUP) };
    };
    reload("daemon");
    daemon.until("all run", |daemon| running(daemon, &jobs) == 3);
    reload("");
    let own = |daemon: &Daemon| {
        let done = daemon.client_of(USERS[0], &["limits", "--json"]).output().expect("radrm");
        let all: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        all["limits"].as_array().expect("rows").iter().find(|row| row["name"] == "gpus").cloned().expect("it")
    };
    let row = own(&daemon);
    assert_eq!((&row["from"], &row["number"], &row["used"]), (&"default".into(), &1.into(), &3.0.into()));
    assert_eq!(running(&daemon, &jobs), 3, "jobs that run stay");
    let numbers: Vec<String> = jobs.iter().map(u64::to_string).collect();
    daemon.ok(&[&["cancel"], &numbers.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
}
