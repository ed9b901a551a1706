//! Ends of `radrm-run`: as its program ends, and with its own codes only for its own failures.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::common::{Place, finish};

#[test]
fn the_exit_code_is_the_programs() {
    let place = Place::new();
    for code in [0, 1, 3, 125, 127, 255] {
        let script = format!("exit {code}");
        finish(&mut place.silent(&["sh", "-c", &script])).code(code);
    }
}

#[test]
fn a_program_killed_by_a_signal_ends_us_by_the_same_signal() {
    let place = Place::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("INT", 2), ("PIPE", 13), ("ABRT", 6)] {
        let script = format!("ulimit -c 0; kill -{name} $$");
        let output = finish(&mut place.silent(&["sh", "-c", &script]));
        assert_eq!(output.status.signal(), Some(number), "{name}: {output:?}");
        assert!(!output.status.core_dumped(), "{name}: no second core file");
    }
}

#[test]
fn a_missing_program_is_127() {
    let place = Place::new();
    finish(&mut place.silent(&["no-such-program"])).code(127).one_sentence("there is no such program");
    finish(&mut place.silent(&["./no/such"])).code(127).one_sentence("there is no such program");
}

#[test]
fn a_script_whose_interpreter_is_missing_is_127_and_says_so() {
    let place = Place::new();
    let script = place.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    finish(&mut place.silent(&["./script"])).code(127).one_sentence("interpreter");
}

#[test]
fn what_cannot_be_executed_is_126() {
    let place = Place::new();
    fs::write(place.join("data"), "text").unwrap();
    finish(&mut place.silent(&["./data"])).code(126).one_sentence("cannot be executed");
    finish(&mut place.silent(&["/"])).code(126).one_sentence("cannot be executed");
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let place = Place::new();
    let script = place.join("script");
    fs::write(&script, "exit 7\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    finish(&mut place.silent(&["./script"])).code(7);
}

#[test]
fn wrong_arguments_are_125_and_run_nothing() {
    let place = Place::new();
    finish(&mut place.run(&[])).code(125).one_sentence("no program given");
    finish(&mut place.run(&["--bogus", "--", "touch", "ran"])).code(125).one_sentence("--bogus");
    finish(&mut place.run(&["-o", "/no/such/x.radrm", "touch", "ran"])).code(125).one_sentence("x.radrm");
    finish(&mut place.run(&["--emulate", "3xNothing", "touch", "ran"])).code(125).one_sentence("Nothing");
    finish(&mut place.run(&["--machine", "none", "touch", "ran"])).code(125).one_sentence("none");
    finish(&mut place.run(&["--emulate", "T4", "--faults", "bogus@x", "touch", "ran"])).code(125);
    assert!(!place.join("ran").exists());
}

#[test]
fn a_profile_that_was_only_announced_is_taken_back() {
    let place = Place::new();
    finish(&mut place.run(&["-o", "new.radrm", "no-such-program"])).code(127);
    assert!(!place.join("new.radrm").exists());
}

#[test]
fn help_and_version_are_printed_and_end_well() {
    let place = Place::new();
    let help = finish(&mut place.run(&["--help"]));
    help.code(0);
    assert!(help.text().contains("Examples:") && help.stderr.is_empty(), "{help:?}");
    assert!(finish(place.run(&["--version"]).env("LC_ALL", "C")).text().starts_with("radrm-run "));
    // A reader who has seen enough.
    let script = format!("'{}' --help | true; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_radrm-run"));
    assert_eq!(finish(&mut place.command("bash", &["-c", &script])).text(), "0\n");
}

#[test]
fn standard_error_may_be_closed_or_broken() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_radrm-run");
    for redirection in ["2>&-", "2>/dev/full", "2> >(exec 0<&-; sleep 0.01)"] {
        let script =
            format!("'{program}' --no-profile --no-dataset -- sh -c 'exit 9' {redirection}; echo $?");
        let output = finish(&mut place.command("bash", &["-c", &script]));
        assert_eq!(output.text(), "9\n", "{redirection}: {output:?}");
    }
}

#[test]
fn closed_standard_streams_do_not_let_the_report_into_a_file_of_the_program() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_radrm-run");
    let script = format!("'{program}' -o p.radrm --no-dataset -- sh -c 'exit 0' <&- >&- 2>&-");
    finish(place.command("bash", &["-c", &script]).stdout(Stdio::null())).code(0);
    if let Ok(profile) = fs::read(place.join("p.radrm")) {
        let text = String::from_utf8_lossy(&profile);
        assert!(!text.contains("radrm-run:"), "messages went into the profile");
    }
}

#[test]
fn a_shim_that_cannot_load_is_named_and_the_program_runs() {
    let place = Place::new();
    for (content, part) in [(None, "is not in"), (Some("text"), "is not a shared library")] {
        let libraries = place.join("lib");
        fs::create_dir_all(&libraries).unwrap();
        if let Some(content) = content {
            fs::write(libraries.join("libradrm.so"), content).unwrap();
        }
        let mut run = place.run(&["--no-profile", "--no-dataset", "--", "sh", "-c", "echo ran; exit 4"]);
        let output = finish(run.env("RADRM_LIB_DIR", &libraries));
        output.code(4);
        assert_eq!(output.text(), "ran\n");
        // Before the start, and in the report.
        let said = |head: &str| {
            output.stderr.lines().filter(|line| line.starts_with(head) && line.contains(part)).count()
        };
        assert_eq!((said("radrm-run: "), said("nothing was counted: ")), (1, 1), "{}", output.stderr);
    }
}

#[test]
fn emulation_that_cannot_hold_is_refused_before_the_start() {
    let place = Place::new();
    fs::write(place.join("static.c"), "int puts(const char*); int main(void) { puts(\"ran\"); return 0; }")
        .unwrap();
    let compiled = finish(&mut place.command("gcc", &["-static", "-o", "static", "static.c"]));
    compiled.code(0);
    let output = finish(&mut place.run(&["--emulate", "T4", "--no-profile", "--no-dataset", "./static"]));
    output.code(125);
    assert!(output.stdout.is_empty(), "{output:?}");
    // Without emulation the same program runs and is said to go unseen.
    let output = finish(&mut place.run(&["--no-profile", "--no-dataset", "./static"]));
    output.code(0);
    assert_eq!(output.text(), "ran\n");
    assert!(
        output.stderr.contains("statically linked") || output.stderr.contains("libradrm.so"),
        "{}",
        output.stderr
    );
}

#[test]
fn failed_launch_leaves_no_profile() {
    let place = Place::new();
    for (options, program, code, part) in [
        (&["--emulate", "NOSUCH"][..], "true", 125, "NOSUCH"),
        (&["--emulate", "T4", "--faults", "nosuch=1"], "true", 125, "nosuch"),
        (&["--machine", "none/machine"], "true", 125, "none/machine"),
        (&["--json=none/x.json"], "true", 125, "none/x.json"),
        (&["--mem-limit", "99:1GiB", "--emulate", "T4"], "true", 125, "99"),
        (&["--emulate", "T4"], "./nosuch", 127, "./nosuch"),
        (&["--emulate", "T4"], "/dev/null", 126, "/dev/null"),
    ] {
        let run = || place.run(&[options, &["-o", "x.radrm", "--no-dataset", "--", program]].concat());
        let output = finish(&mut run());
        output.code(code);
        assert!(
            output.stderr.contains(part) && output.stderr.lines().count() == 1,
            "{options:?}: {output:?}"
        );
        assert!(place.profiles().is_empty(), "{options:?} {program}");
        // A file that was there before is not this run's to take away.
        fs::write(place.join("x.radrm"), "").unwrap();
        finish(&mut run()).code(code);
        assert_eq!(place.profiles(), ["x.radrm"], "{options:?} {program}");
        fs::remove_file(place.join("x.radrm")).unwrap();
    }
}

#[test]
fn messages_carry_a_priority_where_journald_reads_them_and_nowhere_else() {
    let place = Place::new();
    let log = place.join("log");
    let said = |stream: &dyn Fn(u64, u64) -> String, words: &[&str]| {
        let file = fs::File::create(&log).unwrap();
        let found = fs::metadata(&log).unwrap();
        let mut command = place.command(env!("CARGO_BIN_EXE_radrmd"), words);
        let stream = stream(found.dev(), found.ino());
        command.env("JOURNAL_STREAM", stream).env("HOME", place.path()).stderr(file);
        let _ = command.status().unwrap();
        fs::read_to_string(&log).unwrap()
    };
    let own = |device: u64, inode: u64| format!("{device}:{inode}");
    let other = |device: u64, inode: u64| format!("{device}:{}", inode + 1);
    let check: &[&str] = &["--check", "--state", "state", "--emulate", "1xT4"];
    let fails: &[&str] = &["--check", "--config", "none.toml"];
    assert!(said(&own, check).starts_with("<6>radrmd: "), "{}", said(&own, check));
    assert!(said(&own, fails).starts_with("<3>radrmd: none.toml"), "{}", said(&own, fails));
    assert!(said(&other, check).starts_with("radrmd: "), "a file");
}
