//! Settings of `radrmd` that name what is not there, and what it keeps of earlier times.

use std::{fs, process::Command};

use radrm_preload_tests::{artifacts, node::Daemon};
use serde_json::Value;

#[test]
fn check_names_gpus_and_users_of_mps_that_are_not_there() {
    let daemon = Daemon::prepare(
        "emulate = \"2xA100-40GB\"\n[mps]\non = true\ngpus = [\"1\", \"7\"]\nusers = [\"root\", \"no-such-user\"]\n",
    );
    let mut check = Command::new(artifacts::directory().join("radrmd"));
    check.arg("--check").arg("--config").arg(daemon.path("config.toml"));
    let done = check.arg("--state").arg(daemon.path("state")).output().expect("radrmd");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "they are warnings: {said}");
    let about =
        |part: &str| said.lines().filter(|line| line.contains(part)).map(str::to_owned).collect::<Vec<_>>();
    assert!(matches!(&about("mps.gpus")[..], [one] if one.contains("\"7\"")), "{said}");
    assert!(matches!(&about("mps.users")[..], [one] if one.contains("\"no-such-user\"")), "{said}");
    assert!(!daemon.path("state/machine").exists(), "a check makes nothing");
}

#[test]
fn top_and_stats_answer_for_an_earlier_time() {
    let daemon = Daemon::new("");
    let job =
        daemon.submit(&["--exclusive"], &["/bin/sh", "-c", "while [ ! -e $PLACE/go ]; do sleep 0.05; done"]);
    let top = |ago: &str| daemon.ok(&["top", "--at", ago]);
    let has = |text: &str| text.contains("RAN SINCE");
    daemon.until("it is seen to have run a second ago", |_| has(&top("1s")));
    assert!(!has(&top("1h ago")), "{}", top("1h ago"));
    let jobs = |since: &str| -> Value {
        let text = daemon.ok(&["stats", "--json", "--since", since]);
        serde_json::from_str::<Value>(&text).expect("JSON")["jobs"].clone()
    };
    assert_eq!(jobs("1h"), 0, "it has not ended");
    fs::write(daemon.path("go"), "").expect("file");
    daemon.end(job);
    assert_eq!(jobs("1h"), 1);
    daemon.until("its end is more than a second ago", |_| jobs("1s") == 0);
    assert_eq!(jobs("1h"), 1);
    assert!(!has(&top("0s")), "{}", top("0s"));
    daemon.until("it ran before", |_| (1..60).any(|ago| has(&top(&format!("{ago}s")))));
}
