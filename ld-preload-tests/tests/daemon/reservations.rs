//! GPUs that are kept for people: by `radrm admin reserve`, over a kill of the daemon, as those see it who wait.

use std::process::Command;

use radrm_preload_tests::node::Daemon;
use serde_json::Value;

/// Local time so many days from now, as `date` writes it.
fn day(more: &str) -> String {
    let out = Command::new("date").args(["-d", more, "+%Y-%m-%d %H:%M"]).output().expect("date");
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

#[test]
fn a_reservation_keeps_gpus_for_its_people_over_a_kill_of_the_daemon() {
    let mut daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    let until = day("+2 days");
    let sleeps = |daemon: &Daemon| daemon.submit(&["--exclusive"], &["/bin/sleep", "300"]);
    let first = sleeps(&daemon);
    daemon.until("it runs", |daemon| daemon.state(first) == "running");
    let made = daemon.ok(&["admin", "reserve", "--users", "games", "--until", &until, "--reason", "course"]);
    assert!(made.starts_with("reservation 1: GPUs 0, 1 are kept for games from "), "{made}");
    let job = sleeps(&daemon);
    daemon.kill();
    daemon.start();
    let kept = "GPUs 0, 1 are kept for games from ";
    daemon.until("it waits for the reservation's end", |daemon| {
        let why = daemon.ok(&["queue", "--why"]);
        why.contains(kept) && why.contains(&format!(" until {until} (course)"))
    });
    assert_eq!(daemon.state(job), "waiting");
    for words in [&["nodes"][..], &["limits"], &["admin", "reservations"]] {
        let text = daemon.ok(words);
        assert!(text.contains("games") && text.contains(&until), "{words:?}: {text}");
        let still = format!("job {first} of other people still runs there");
        assert!(text.contains(&still), "{words:?}: {text}");
    }
    let rows: Value = serde_json::from_str(&daemon.ok(&["admin", "reservations", "--json"])).expect("JSON");
    assert_eq!((&rows[0]["number"], &rows[0]["holds"]), (&1.into(), &true.into()), "{rows}");
    daemon.ok(&["admin", "unreserve", "1"]);
    daemon.until("it starts", |daemon| daemon.state(job) == "running");
    assert!(daemon.ok(&["admin", "reservations"]).contains("no GPU is reserved"));
    daemon.ok(&["cancel", &first.to_string(), &job.to_string()]);
}

#[test]
fn names_that_the_node_does_not_have_are_refused_with_the_nearest_one() {
    let daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    let until = day("+2 days");
    let refused =
        |options: &[&str]| daemon.refused(&[&["admin", "reserve", "--until", &until], options].concat());
    for (options, part) in [
        (&["--users", "rooot"][..], "this machine has no user rooot; did you mean root?"),
        (&["--groups", "rooot"], "this machine has no group rooot; did you mean root?"),
        (&["--users", "root", "--gpus", "2"], "there is no GPU 2; this node has 0 to 1"),
        (
            &["--users", "root", "--gpus", "A10O"],
            "there is no GPU A10O; this node has 0 to 1; did you mean A100?",
        ),
        (&["--users", "root", "--from", "2099-01-01"], "ends before it begins"),
        (&["--users", "root", "--from", "soon"], "is not a time such as"),
    ] {
        let text = refused(options);
        assert!(text.contains(part), "{options:?}: {text}");
    }
}
