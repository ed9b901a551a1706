//! Bounds of a user at radrmd by way of a user namespace, of the own job's supervisor, and of the system's limits for users.

use std::{fs, os::unix::fs::chown, process::Command};

use radrm_preload_tests::{
    artifacts,
    node::{Daemon, may},
};

const USER: u32 = 65_534;

/// The words that make a command this user's.
const AS_USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn can_be_user() -> bool {
    may(&[&AS_USER[..], &["true"]].concat()) && may(&["getent", "passwd", "65534"])
}

/// A job of the user that runs until it is killed.
fn running(daemon: &Daemon, words: &[&str]) -> u64 {
    let script = "echo here; exec sleep 1000";
    let mut command = Command::new(AS_USER[0]);
    command.args(&AS_USER[1..]).args(words).arg(artifacts::directory().join("radrm"));
    command.arg("--socket").arg(daemon.path("socket")).args(["submit", "-q", "--", "/bin/sh", "-c", script]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("PLACE", daemon.place()).current_dir("/");
    let done = command.output().expect("radrm");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}{}", daemon.log());
    let job: u64 = String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number");
    daemon.until("the job runs", |daemon| daemon.output(&["logs", &job.to_string()]).stdout == b"here\n");
    job
}

#[test]
fn root_of_a_user_namespace_is_its_user_for_radrmd() {
    let inside = ["unshare", "--user", "--map-root-user"];
    if !can_be_user() || !may(&[&AS_USER[..], &inside, &["true"]].concat()) {
        return;
    }
    let daemon = Daemon::new("");
    let job = running(&daemon, &inside);
    assert_eq!(daemon.show(job)["job"]["uid"], USER);
    let program = daemon.show(job)["job"]["pid"].as_u64().expect("pid");
    let status = fs::read_to_string(format!("/proc/{program}/status")).expect("it runs");
    let own = format!("Uid:\t{USER}\t{USER}\t{USER}\t{USER}\n");
    assert!(status.contains(&own), "{status}");
    // Nor is it an administrator.
    let mut command = Command::new(AS_USER[0]);
    command.args(&AS_USER[1..]).args(inside).arg(artifacts::directory().join("radrm"));
    command.arg("--socket").arg(daemon.path("socket")).args(["drain", "0"]).current_dir("/");
    assert_eq!(command.output().expect("radrm").status.code(), Some(1));
}

#[test]
fn a_user_reaches_neither_files_nor_memory_of_the_supervisor() {
    if !can_be_user() {
        return;
    }
    let daemon = Daemon::new("");
    let job = running(&daemon, &[]);
    let supervisor = daemon.supervisor(job);
    let launcher = daemon.show(job)["job"]["pid"].as_u64().expect("pid");
    let may_read = |pid: &str, what: &str| {
        let script = format!("readlink /proc/{pid}/fd/1 || cat /proc/{pid}/{what}");
        let mut command = Command::new(AS_USER[0]);
        command.args(&AS_USER[1..]).args(["sh", "-c", &script]).current_dir("/");
        command.output().expect("sh").status.success()
    };
    // It has become the user, and keeps files that root has opened.
    let status = fs::read_to_string(format!("/proc/{supervisor}/status")).expect("it runs");
    assert!(status.contains(&format!("Uid:\t{USER}\t")), "{status}");
    assert!(may_read(&launcher.to_string(), "environ"), "the launcher is the user's");
    for what in ["environ", "maps", "auxv"] {
        assert!(!may_read(&supervisor.to_string(), what), "{what}");
    }
}

#[test]
fn a_start_that_fails_by_the_nodes_fault_is_tried_again() {
    if !can_be_user() {
        return;
    }
    let mut daemon = Daemon::prepare("");
    // The supervisor is the one process that the user may have: it cannot make the launcher's.
    daemon.behind("set -- prlimit --nproc=1 \"$@\"");
    daemon.start();
    let own = daemon.path("own");
    fs::create_dir(&own).expect("folder");
    chown(&own, Some(USER), Some(USER)).expect("owner");
    let file = own.join("output").display().to_string();
    // An output that is the daemon's is copied by a thread, which the supervisor cannot start either. An own one is the
    // program's alone.
    for output in [&[][..], &["--output", &file]] {
        let words = [&["submit", "-q"], output, &["--", "true"]].concat();
        let done = daemon.client_of(USER, &words).output().expect("radrm");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}{}", daemon.log());
        let row = daemon.end(String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number"));
        assert!(row["attempts"].as_u64() > Some(1), "{row}");
        assert!(row["end"].as_str().is_some_and(|end| end.starts_with("could not be started")), "{row}");
    }
}

#[test]
fn a_descriptor_that_the_daemon_was_started_with_reaches_no_job() {
    if !may(&["unshare", "--mount", "true"]) {
        return;
    }
    let daemon = Daemon::with("", "umask 077; echo secret > $PLACE/inherited; exec 7<>$PLACE/inherited");
    let job = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", "ls -l /proc/self/fd > $MARKS/open"]);
    assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
    let open = fs::read_to_string(daemon.mark("open")).expect("list");
    assert!(open.contains("/proc/") && !open.contains("inherited"), "{open}");
}
