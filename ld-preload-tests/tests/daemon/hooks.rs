//! The administrator's prolog and epilog, with real processes.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use radrm_preload_tests::{artifacts, node::Daemon};

/// A daemon that is not started, with these programs.
fn with_hooks(prolog: &str, epilog: &str, more: &str) -> Daemon {
    let daemon = Daemon::prepare("");
    let file = |name: &str, text: &str| -> PathBuf {
        let path = daemon.path(name);
        let place = daemon.place().display();
        fs::write(&path, format!("#!/bin/sh\nPLACE={place}\n{text}\n")).expect("program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        path
    };
    let [prolog, epilog] = [file("prolog", prolog), file("epilog", epilog)];
    let config = fs::read_to_string(daemon.path("config.toml")).expect("configuration");
    let hooks =
        format!("[hooks]\nprolog = \"{}\"\nepilog = \"{}\"\n{more}", prolog.display(), epilog.display());
    fs::write(daemon.path("config.toml"), format!("{config}{hooks}")).expect("configuration");
    daemon
}

fn submit(daemon: &Daemon, script: &str) -> u64 {
    daemon.submit(&["--gpus", "1", "--gpu-mem", "1GiB"], &["/bin/sh", "-c", script])
}

const NOTE: &str = "echo $0: $RADRM_JOB.$RADRM_ATTEMPT $RADRM_USER $RADRM_GPUS $RADRM_END $RADRM_EXIT_CODE$RADRM_EXIT_SIGNAL";

#[test]
fn prolog_and_epilog_frame_each_attempt_and_write_to_the_daemons_log() {
    let note = format!("{NOTE} >> $PLACE/marks; echo $0 speaks");
    let mut daemon = with_hooks(&note, &note, "");
    daemon.start();
    let job = submit(&daemon, "echo job >> $PLACE/marks; exit 3");
    let ended = daemon.end(job);
    assert_eq!(ended["exit_code"], 3);
    let [prolog, inside, epilog] = &daemon.lines("marks")[..] else { panic!("{:?}", daemon.lines("marks")) };
    let (user, gpu) = (ended["user"].as_str().expect("user"), ended["devices"][0].as_str().expect("GPU"));
    assert!(prolog.contains(&format!("prolog: {job}.1 {user} {gpu}")), "{prolog}");
    assert_eq!(inside, "job");
    assert!(epilog.ends_with(&format!("epilog: {job}.1 {user} {gpu} exited 3")), "{epilog}");
    let log = daemon.log();
    assert!(log.contains("prolog speaks") && log.contains("epilog speaks"), "{log}");
}

#[test]
fn a_failing_prolog_keeps_the_job_from_starting_a_bounded_number_of_times() {
    let mut daemon =
        with_hooks("echo x >> $PLACE/prologs; [ $RADRM_JOB != 1 ]", "echo x >> $PLACE/epilogs", "");
    daemon.start();
    let job = submit(&daemon, "echo job >> $PLACE/marks");
    let ended = daemon.end(job);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!((ended["attempts"].as_u64(), daemon.lines("prologs").len()), (Some(4), 4), "{history}");
    assert!(history.contains("not started: the prolog ended with exit code 1"), "{history}");
    assert!(
        ended["end"].as_str().is_some_and(|end| end.contains("the prolog ended with exit code 1")),
        "{ended}"
    );
    assert_eq!((daemon.lines("marks").len(), daemon.lines("epilogs").len()), (0, 4));
    // Other jobs are not harmed.
    assert_eq!(daemon.end(submit(&daemon, "true"))["exit_code"], 0);
}

#[test]
fn hooks_that_hang_are_killed_at_their_limit() {
    let mut daemon = with_hooks("true", "sleep 1000", "timeout_s = 1\n");
    daemon.start();
    let job = submit(&daemon, "true");
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let history = daemon.show(job)["history"].to_string();
    assert!(history.contains("the epilog was killed after 1 s, its limit"), "{history}");
}

#[test]
fn the_epilog_runs_once_whatever_is_killed() {
    // It takes its time, so that the daemon can be killed meanwhile.
    let epilog = format!("{NOTE} >> $PLACE/epilogs; while [ ! -e $PLACE/go ]; do sleep 0.05; done");
    let mut daemon = with_hooks("true", &epilog, "");
    daemon.start();
    let job = submit(&daemon, "echo ready >> $PLACE/marks; sleep 1000");
    daemon.until("it runs", |daemon| daemon.lines("marks").len() == 1);
    let supervisor = daemon.supervisor(job);
    daemon.kill();
    // SAFETY: a plain system call on a process of this test.
    unsafe { libc::kill(supervisor, libc::SIGKILL) };
    daemon.start();
    daemon.until("the epilog runs", |daemon| daemon.lines("epilogs").len() == 1);
    assert_eq!(daemon.state(job), "epilog");
    for _ in 0..3 {
        daemon.kill();
        daemon.start();
        assert_eq!(daemon.state(job), "epilog", "the next daemon waits for it");
    }
    fs::write(daemon.path("go"), "").expect("file");
    daemon.end(job);
    assert_eq!(daemon.lines("epilogs").len(), 1, "{:?}", daemon.lines("epilogs"));
    assert!(daemon.lines("epilogs")[0].contains("supervisor-killed"), "{:?}", daemon.lines("epilogs"));
    let left = fs::read_dir(daemon.path("state/attempts")).expect("folder").count();
    assert_eq!(left, 0, "its files are gone");
}

#[test]
fn a_hook_that_others_can_change_keeps_the_daemon_from_starting() {
    let mut daemon = with_hooks("true", "true", "");
    fs::set_permissions(daemon.path("epilog"), fs::Permissions::from_mode(0o777)).expect("mode");
    let said = daemon.refuses_to_start();
    assert!(said.contains("hooks.epilog: ") && said.contains("can be written by other users"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let mut check = Command::new(artifacts::directory().join("radrmd"));
    let check =
        check.arg("--check").arg("--config").arg(daemon.path("config.toml")).output().expect("radrmd");
    assert!(!check.status.success());
    fs::set_permissions(daemon.path("epilog"), fs::Permissions::from_mode(0o755)).expect("mode");
    daemon.start();
    fs::set_permissions(daemon.path("prolog"), fs::Permissions::from_mode(0o757)).expect("mode");
    // SAFETY: a plain system call; the daemon runs.
    unsafe { libc::kill(daemon.pid().cast_signed(), libc::SIGHUP) };
    daemon.until("the reload is refused", |daemon| daemon.log().contains("was not read again"));
}
