//! Knowledge of `radrmd` about a program before it runs: from earlier runs, estimates, and dry runs.

use std::fs;

use radrm_preload_tests::{artifacts, node::Daemon, programs};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Needs of other sizes than one's own are not what these tests are about.
const POLICY: &str = "[scheduler]\npolicy = \"best-fit\"\n";

fn steps() -> String {
    programs::compile("steps.c", &[]).display().to_string()
}

#[test]
fn a_program_that_ran_out_of_memory_is_not_unknown_the_next_time() {
    let daemon = Daemon::new(&format!("{POLICY}[scheduler.recovery]\nattempts = 1\n"));
    let program = steps();
    let command = [program.as_str(), "use:0", "alloc:a:3g"];
    let job = daemon.submit(&["--gpu-mem", "1GiB"], &command);
    let ended = daemon.end(job);
    assert_eq!((&ended["ooms"], ended["exit_code"] == 0), (&1.into(), false), "{ended}");
    // Another program stays unknown, the same one does not: more than what did not suffice is set aside.
    let sleep = ["/bin/sleep", "1000"];
    let other = daemon.submit(&["--hold"], &sleep);
    assert!(!daemon.show(other)["history"].to_string().contains("needs"));
    let again = daemon.submit(&["--hold"], &command);
    let history = daemon.show(again)["history"].to_string();
    assert!(history.contains("equal runs ran out of memory with less"), "{history}");
    daemon.ok(&["hold", "--release", &again.to_string()]);
    assert_eq!(daemon.end(again)["exit_code"], 0, "{}", daemon.show(again));
    // And now it is measured.
    let third = daemon.submit(&["--hold"], &command);
    let history = daemon.show(third)["history"].to_string();
    assert!(history.contains("measured in an equal run"), "{history}");
    // `radrm estimate` gives what a submission is given, by the same history, and submits nothing.
    let estimate = |options: &[&str]| -> Value {
        let line = ["estimate", "--json"].iter().chain(options).chain(&["--"]).chain(&command);
        serde_json::from_str(&daemon.ok(&line.copied().collect::<Vec<_>>())).expect("JSON")
    };
    let estimated = estimate(&[]);
    assert_eq!((&estimated["history"], &estimated["runs"]), (&"radrmd".into(), &2.into()), "{estimated}");
    let source = estimated["memory"]["source_text"].as_str().expect("a source");
    let need = daemon.show(third)["job"]["need_from"].to_string();
    assert!(history.contains(source) && need.contains(source), "{source}: {need}");
    assert_eq!(daemon.submit(&["--hold"], &sleep), third + 1);
    // A dataset that is named is read in place of it: the launcher's row of the same run.
    let own = daemon.path(".local/share/radrm/dataset.db").display().to_string();
    assert_eq!(estimate(&["--dataset", &own])["history"], "dataset");
}

#[test]
fn queued_jobs_learn_run_times_unless_the_user_set_one() {
    let mut daemon = Daemon::prepare(&format!("emulate = \"1xA100-40GB\"\n{POLICY}"));
    let events = daemon.path("events").display().to_string();
    let config = fs::read_to_string(daemon.path("config.toml")).expect("configuration");
    fs::write(daemon.path("config.toml"), format!("events = \"{events}\"\n{config}")).expect("configuration");
    daemon.start();
    let program = steps();
    let command = [program.as_str(), "use:0", "alloc:a:600m", "sleep:700"];
    let first = daemon.submit(&["--exclusive"], &command);
    daemon.until_state(first, "running");
    let (told, said, given) = (
        daemon.submit(&["--exclusive"], &command),
        daemon.submit(&["--exclusive", "--expected", "1h"], &command),
        daemon.submit(&["--exclusive", "--gpu-mem", "2GiB"], &command),
    );
    daemon.end(first);
    let known = |job: u64| -> Option<u64> {
        let lines = daemon.lines("events").into_iter();
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let of = |event: Value| {
            let event = event["step"]["event"].clone();
            (event["event"] == "profile_known" && event["job"] == job).then(|| event["expected"].as_u64())
        };
        events.filter_map(of).flatten().next()
    };
    for job in [told, given] {
        daemon.until("it is told", |_| known(job).is_some());
        assert!((600..60_000).contains(&known(job).expect("told")), "{:?}", known(job));
    }
    assert_eq!(known(said), None);
}

#[test]
fn a_runs_features_are_in_the_dataset() {
    let daemon = Daemon::new(POLICY);
    let program = steps();
    daemon.end(daemon.submit(&[], &[&program, "use:0", "alloc:a:600m"]));
    let mut list = std::process::Command::new(artifacts::file("radrm"));
    list.args(["dataset", "list", "--json"]).env_clear().env("HOME", daemon.place());
    let text = list.output().expect("radrm").stdout;
    let rows: Value = serde_json::from_slice(&text).expect("JSON");
    let features = &rows[0]["features"]["processes"][0]["features"];
    // The daemon's own row of the job has the same peak on the same GPU.
    let mut own = std::process::Command::new(artifacts::file("radrm"));
    own.args(["dataset", "list", "--json", "--dataset"]).arg(daemon.path("state/dataset.db")).env_clear();
    let own: Value = serde_json::from_slice(&own.output().expect("radrm").stdout).expect("JSON");
    assert!(rows[0]["peaks"][0]["peak_bytes"].is_u64(), "{rows}");
    assert_eq!(own[0]["peaks"], rows[0]["peaks"], "{own}");
    let footprint = &features["memory_footprint_bytes"];
    assert_eq!(footprint["value"].as_f64(), Some((600 * MIB) as f64), "{features}");
    assert!(
        features.get("launches_per_second").is_some() && features.get("sm_active").is_some(),
        "{features}"
    );
}

#[test]
fn an_estimate_is_reserved_and_not_enforced() {
    let daemon = Daemon::new(POLICY);
    let program = steps();
    // FakeTensor's 100 MiB stand for a process of 2 GiB, as Horus's figure is below them: and still too little.
    let line = format!("{program} use:0 alloc:a:3g sleep:60000");
    let text = format!("#\n\n{line}\nm\nd\n8\ncollocation\n1\n0\n50\n100\n40000\n");
    fs::write(daemon.path("a.rad"), text).expect("file");
    let job = daemon.ok(&["submit", "--quiet", "a.rad"]).trim().parse().expect("a number");
    daemon.until("it has its memory", |daemon| daemon.show(job)["job"]["used"].as_u64() >= Some(3 * GIB));
    let shown = daemon.show(job);
    let history = shown["history"].to_string();
    assert!(
        history.contains("needs 2.") && history.contains("(78.1 % confidence): FakeTensor's figure"),
        "{history}"
    );
    assert_eq!((&shown["job"]["attempts"], &shown["job"]["state"]), (&1.into(), &"running".into()));
    // What the user writes down is an estimate too, and is not unknown.
    fs::write(daemon.path("b.rad"), "#RADRM --gpu-mem-estimate=7GiB --time=30m\nsleep 1000\n").expect("file");
    let job = daemon.ok(&["submit", "--quiet", "b.rad"]).trim().parse().expect("a number");
    daemon.until_state(job, "running");
    assert_eq!(daemon.show(job)["job"]["reserved"], 7 * GIB);
}

#[test]
fn a_dry_run_estimates_the_context_or_says_why_not() {
    let daemon = Daemon::new(POLICY);
    let program = steps();
    let submit = |options: &[&str], command: &[&str]| {
        let done = daemon.output(&[&["submit", "--dry-run"][..], options, &["--"], command].concat());
        let said = String::from_utf8(done.stderr).expect("text");
        assert!(done.status.success(), "{said}");
        let text = String::from_utf8(done.stdout).expect("text");
        let job: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
        (job, said)
    };
    // It sleeps only under the daemon, so that there is something to look at.
    let script =
        format!("echo dry-words; \"{program}\" use:0 alloc:a:3g; [ -z \"$RADRM_JOB\" ] || sleep 1000");
    let (job, said) = submit(&[], &["/bin/sh", "-c", &script]);
    assert!(said.contains("dry run of 3 steps on an emulated NVIDIA A100-SXM4-40GB"), "{said}");
    assert!(said.contains("dry-words"), "what it prints is not lost: {said}");
    daemon.until_state(job, "running");
    let reserved = daemon.show(job)["job"]["reserved"].as_u64().expect("an estimate");
    // 3 GiB, the context, and what dry runs lack.
    assert!((9 * GIB / 2..6 * GIB).contains(&reserved), "{reserved}");
    // Nothing to estimate from, and it is submitted all the same.
    for (command, why) in [
        (&["/bin/true"][..], "took no GPU memory"),
        (&[&program, "use:0", "alloc:a:1g", "exit:7"], "exit code 7"),
    ] {
        let (job, said) = submit(&["--hold"], command);
        assert!(said.contains("nothing is estimated by a dry run") && said.contains(why), "{said}");
        assert!(!daemon.show(job)["history"].to_string().contains("needs"));
    }
    // What is said needs no dry run.
    let (_, said) = submit(&["--hold", "--gpu-mem", "1GiB"], &[&program, "use:0", "alloc:a:3g"]);
    assert_eq!(said, "");
}
