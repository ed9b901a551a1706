//! Names that would steer a terminal, in what the commands print.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use radrm_preload_tests::node::Daemon;
use radrm_preload_tests::{artifacts, programs};
use serde_json::Value;

/// A formula that clears the screen, reverses the text after it, sets a title, and begins lines of its own.
const NAME: &str = "=cmd|calc!A0\u{1b}[2Jb\u{202e}c\u{9b}2Jd\u{1b}]0;x\u{7}e\nforged line\r\nforged line";

/// The same where it is no text: as the name of a file.
const BYTES: &[u8] = b"=cmd|calc!A0\xff\x1b[2J\xe2\x80\xae\xc2\x9b\xf0\r\nforged line";

/// Returns true for characters that act on a terminal.
fn acts(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[track_caller]
fn assert_clean(what: &[&str], output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what:?}: {error}"));
        assert!(!text.contains(acts), "{what:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged line")), "{what:?}: {text}");
    }
}

fn json(daemon: &Daemon, arguments: &[&str]) -> Value {
    serde_json::from_str(&daemon.ok(arguments)).expect("JSON")
}

#[test]
fn no_command_prints_what_acts_on_a_terminal() {
    let daemon = Daemon::new("");
    let program = daemon.path(NAME);
    fs::copy(programs::compile("steps.c", &[]), &program).expect("program");
    let program = program.to_str().expect("UTF-8");
    let steps = [program, "use:0", "alloc:a:600m", "launch:fill:8:256", "exit:3"];
    let job = daemon.submit(&["--name", NAME, "--gpu-mem", "2GiB"], &steps);
    let held = daemon.submit(&["--name", NAME, "--gpu-mem", "2GiB", "--hold"], &steps);
    let running = daemon
        .submit(&["--name", NAME, "--gpu-mem", "2GiB"], &[program, "use:0", "alloc:a:600m", "sleep:600000"]);
    daemon.end(job);
    daemon.until_state(running, "running");
    let row = &json(&daemon, &["show", &job.to_string(), "--json"])["job"];
    assert_eq!(row["name"], NAME, "JSON keeps what it escapes");
    assert_eq!(row["command"][0], program);
    let profile = row["profile"].as_str().expect("profile").to_owned();
    let dataset = daemon.path("state/dataset.db");
    let dataset = dataset.to_str().expect("UTF-8");
    let sweep = daemon.path("sweep.toml");
    fs::write(&sweep, format!("x = 1\n[\"{}\n", NAME.replace('\n', ""))).expect("sweep");
    let sweep = sweep.to_str().expect("UTF-8");
    let (job, held, running) = (job.to_string(), held.to_string(), running.to_string());
    let none = format!("{NAME}.rad");
    for words in [
        &["queue", "--all"][..],
        &["queue", "--ended", "10"],
        &["queue", "--json"],
        &["show", &job],
        &["show", &held],
        &["show", &running],
        &["nodes"],
        &["nodes", "--json"],
        &["top", "--once"],
        &["stats"],
        &["stats", "--json"],
        &["usage"],
        &["usage", "--csv"],
        &["report", &profile],
        &["report", "--json", &profile],
        &["report", "--features", &profile],
        &["report", "--timeline", &profile],
        &["report", "--oom", &profile],
        &["report", "--perfetto=-", &profile],
        &["advise", "--dataset", dataset],
        &["cancel", NAME],
        &["logs", NAME],
        &["compare", &profile, &profile],
        &["export", "csv", &profile],
        &["dataset", "list", "--dataset", dataset],
        &["dataset", "list", "--json", "--dataset", dataset],
        &["audit"],
        &["quota", "show"],
        &["estimate", "--", program],
        &["submit", &none],
        &["submit", "--gpu-mem", NAME, "--", "true"],
        &["drain", NAME],
        &["sweep", sweep],
        &["replay", &none],
        &["replay", "--events", &none],
        &[NAME],
    ] {
        assert_clean(words, &daemon.output(words));
    }
    for words in [
        &["--mem-limit", NAME, "--", "true"][..],
        &["--dry-run", "--faults", NAME, "--", "true"],
        &["--", NAME],
    ] {
        let mut command = Command::new(artifacts::directory().join("radrm-run"));
        command.args(words).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", daemon.place());
        assert_clean(words, &command.current_dir(daemon.place()).output().expect("radrm-run"));
    }
    let odd = OsStr::from_bytes(BYTES);
    for words in [
        &["report"][..],
        &["compare", "none"],
        &["export", "csv"],
        &["replay", "--policy", "exclusive"],
        &["replay", "--events"],
        &["sweep"],
        &["submit"],
        &["submit", "--"],
        &["estimate", "--"],
        &["dataset", "list", "--dataset"],
    ] {
        assert_clean(words, &daemon.client(words).arg(odd).output().expect("radrm"));
    }
    for words in [&["--mem-limit", "1GiB", "--"][..], &["--no-profile", "--no-dataset", "-o"]] {
        let mut command = Command::new(artifacts::directory().join("radrm-run"));
        command.args(words).arg(odd).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", daemon.place());
        assert_clean(words, &command.current_dir(daemon.place()).output().expect("radrm-run"));
    }
    daemon.ok(&["cancel", &running]);
    daemon.end(running.parse().expect("a number"));
    assert!(!daemon.log().contains(acts), "{:?}", daemon.log());
    // A line feed begins no line of its own in a page.
    let page = daemon.ok(&["report", "--html=-", &profile]);
    assert!(page.contains("forged line") && !page.contains(acts), "{page:?}");
    let cells = daemon.ok(&["export", "csv", &profile]);
    assert!(
        !cells.lines().any(|line| line.split(',').any(|cell| cell.trim_matches('"').starts_with('='))),
        "{cells}"
    );
}
