//! Interactive jobs: a program on a terminal of its own, and who is connected to it.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use radrm_preload_tests::node::{Daemon, may};

use super::screen::Screen;

/// The socket of a job's terminal.
fn socket(daemon: &Daemon, job: u64) -> PathBuf {
    PathBuf::from(daemon.show(job)["job"]["command"][2].as_str().expect("a command"))
}

/// A shell on a terminal: its screen and its job.
fn shell(daemon: &Daemon) -> Screen {
    let line = ["submit", "--interactive", "--gpus", "0", "--", "/bin/sh", "-i"];
    let mut command = daemon.client(&line);
    command.env("PS1", "> ");
    let mut screen = Screen::new(command, 33, 101);
    screen.until("> ");
    screen
}

#[test]
fn a_program_has_a_terminal_and_its_exit_code_and_output_come_back() {
    let daemon = Daemon::new("");
    let script = "test -t 0 && test -t 1 && echo \"yes $((6 * 7))\"; read line; echo \"got $line\"; exit 3";
    let line = ["submit", "--interactive", "--gpus", "0", "--", "/bin/sh", "-c", script];
    let mut ran = daemon.client(&line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("radrm");
    ran.stdin.take().expect("a pipe").write_all(b"hello\n").expect("input");
    let ran = ran.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(
        said.contains("job 1 submitted") && said.contains("yes 42") && said.contains("got hello"),
        "{said}"
    );
    let row = daemon.end(1);
    assert_eq!((&row["exit_code"], &row["name"]), (&3.into(), &"sh".into()), "{row}");
    let logs = daemon.ok(&["logs", "1"]);
    assert!(logs.contains("yes 42") && logs.contains("got hello"), "{logs}");
    // One that ends at once is seen too.
    let line = ["submit", "-q", "--interactive", "--gpus", "0", "--", "echo", "short"];
    let ran = daemon.client(&line).output().expect("radrm");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.starts_with('2') && said.contains("short"), "{said}");
    assert!(!socket(&daemon, 1).exists() && !socket(&daemon, 2).exists());
}

#[test]
fn a_session_ends_with_its_terminal_and_one_that_was_left_is_found_again() {
    let daemon = Daemon::new("");
    let mut screen = shell(&daemon);
    screen.type_in("stty size\r");
    screen.until("33 101");
    screen.type_in("\r~d");
    screen.until("`radrm attach 1` comes back");
    assert_eq!(screen.code(), Some(0));
    assert_eq!(daemon.state(1), "running");
    let mut again = Screen::new(daemon.client(&["attach", "1"]), 20, 50);
    again.type_in("echo back$((1 + 1)); stty size\r");
    again.until("back2");
    again.until("20 50");
    // As if the connection to the machine had broken.
    again.client.kill().expect("kill");
    daemon.end(1);
    let late = daemon.output(&["attach", "1"]);
    assert!(String::from_utf8_lossy(&late.stderr).contains("job 1 has ended"), "{late:?}");

    // A cancelled one ends though its shell takes no notice of SIGTERM.
    let mut screen = shell(&daemon);
    let begun = Instant::now();
    daemon.ok(&["cancel", "2"]);
    daemon.end(2);
    assert!(begun.elapsed() < Duration::from_secs(60) || screen.code() == Some(1));
    assert_ne!(screen.code(), Some(0));

    let job = daemon.submit(&["--gpus", "0"], &["true"]);
    assert!(daemon.refused(&["attach", &job.to_string()]).contains("submit it with --interactive"));
}

#[test]
fn no_user_gets_at_the_terminal_of_another() {
    if !may(&["sh", "-c", "test $(id -u) = 0"]) {
        return;
    }
    let daemon = Daemon::new("");
    let mut screen = shell(&daemon);
    let ran = daemon.client_of(65534, &["attach", "1"]).output().expect("radrm");
    assert!(!ran.status.success(), "{ran:?}");
    let socket = socket(&daemon, 1);
    assert!(socket.exists());
    let foreign = Command::new("/usr/bin/env").args(["test", "-e"]).arg(&socket).uid(65534).status();
    assert!(!foreign.expect("test").success(), "the folder is closed");
    screen.type_in("exit 5\r");
    assert_eq!(screen.code(), Some(5));
}

#[test]
fn who_leaves_before_the_start_takes_the_job_back() {
    let daemon = Daemon::new("");
    let first = daemon.submit(&["--gpus", "2", "--exclusive"], &["sleep", "600"]);
    daemon.until_state(first, "running");
    let line = ["submit", "--interactive", "--gpus", "8", "--", "true"];
    let refused = daemon.client(&line).output().expect("radrm");
    assert!(!refused.status.success(), "it can never start here: {refused:?}");
    let line = ["submit", "--interactive", "--exclusive", "--", "true"];
    let mut screen = Screen::new(daemon.client(&line), 24, 80);
    screen.until("waits:");
    screen.type_in("\u{3}");
    screen.until("is cancelled");
    assert_eq!(screen.code(), Some(130));
    daemon.ok(&["cancel", &first.to_string()]);
}

#[test]
fn a_program_that_reads_nothing_still_prints_all() {
    let daemon = Daemon::new("");
    let script = "head -c 1500000 /dev/zero | tr '\\0' x; echo; echo last";
    let line = ["submit", "-q", "--interactive", "--gpus", "0", "--", "/bin/sh", "-c", script];
    let mut ran = daemon.client(&line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("radrm");
    let mut input = ran.stdin.take().expect("a pipe");
    let typing = std::thread::spawn(move || _ = input.write_all(&vec![b'y'; 2_000_000]));
    let ran = ran.wait_with_output().expect("an end");
    typing.join().expect("typing");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("last") && said.len() > 1_500_000, "{}", said.len());
}

#[test]
fn input_ends_without_a_last_line_feed_and_a_signal_for_a_checkpoint_ends_no_session() {
    let daemon = Daemon::new("");
    let line = ["submit", "-q", "--interactive", "--gpus", "0", "--", "cat"];
    let mut ran = daemon.client(&line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("radrm");
    ran.stdin.take().expect("a pipe").write_all(b"abc").expect("input");
    assert!(ran.wait_with_output().expect("an end").status.success());

    let mut screen = shell(&daemon);
    let host = daemon.show(2)["job"]["pid"].as_u64().expect("a launcher");
    let group = i32::try_from(host).expect("a process");
    // SAFETY: a plain system call on the group of this test's job.
    assert_eq!(unsafe { libc::kill(-group, libc::SIGUSR1) }, 0);
    screen.type_in("echo still $((1 + 1))\r");
    screen.until("still 2");
    screen.type_in("exit 4\r");
    assert_eq!(screen.code(), Some(4));
}

#[test]
fn a_session_ends_though_another_terminal_has_left_it_before() {
    let daemon = Daemon::new("");
    let mut first = shell(&daemon);
    let mut second = Screen::new(daemon.client(&["attach", "1"]), 24, 80);
    second.type_in("echo two$((1 + 1))\r");
    second.until("two2");
    first.until("two2");
    first.type_in("\r~d");
    assert_eq!(first.code(), Some(0));
    // An answer: the other's leave has been heard.
    second.type_in("echo three$((1 + 1))\r");
    second.until("three2");
    second.client.kill().expect("kill");
    daemon.end(1);
}

#[test]
fn a_terminal_beyond_the_most_of_a_job_is_refused_by_one_sentence() {
    let daemon = Daemon::new("");
    let mut screen = shell(&daemon);
    let at = socket(&daemon, 1);
    let connect = || UnixStream::connect(&at).expect("the terminal");
    let others: Vec<UnixStream> = (0..15).map(|_| connect()).collect();
    let mut refused = daemon.client(&["attach", "1"]);
    let refused = refused.stdin(Stdio::null()).output().expect("radrm");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("16 terminals are connected to the job"), "{said}");
    screen.type_in("echo still $((1 + 1))\r");
    screen.until("still 2");
    drop(others);
    let mut late = Screen::new(daemon.client(&["attach", "1"]), 24, 80);
    late.type_in("echo late $((1 + 1))\r");
    late.until("late 2");
    screen.type_in("exit 4\r");
    assert_eq!(screen.code(), Some(4));
}

#[test]
fn a_user_who_came_by_ssh_sees_the_way_to_a_notebook() {
    let daemon = Daemon::new("");
    let script = "echo 'http://localhost:8889/lab?token=0123abcd'; read line";
    let mut command =
        daemon.client(&["submit", "--interactive", "--gpus", "0", "--", "/bin/sh", "-c", script]);
    command.env("SSH_CONNECTION", "198.51.100.4 50122 192.0.2.7 22");
    let mut screen = Screen::new(command, 33, 101);
    screen.until("run `ssh -N -L 8889:localhost:8889 ");
    screen.until("192.0.2.7`, and open http://localhost:8889/lab?token=0123abcd");
    screen.type_in("\r");
    assert_eq!(screen.code(), Some(0));
}
