//! Fate of the queue and of its jobs while the daemon's disk is full.

use std::{fs, thread, time::Duration};

use radrm_preload_tests::node::{Daemon, may};

/// A daemon whose state is on a disk of its own; `None` where that cannot be.
fn daemon(config: &str) -> Option<Daemon> {
    // The namespace goes with the daemon; a shell in it fills the disk when a file outside says so.
    let before = "mkdir -p $PLACE/state && mount -t tmpfs -o size=6m none $PLACE/state\n\
        (while [ -e $PLACE/config.toml ]; do\n\
           if [ -e $PLACE/fill ]; then dd if=/dev/zero of=$PLACE/state/filler bs=4k 2>/dev/null; rm $PLACE/fill; fi\n\
           if [ -e $PLACE/free ]; then rm -f $PLACE/state/filler $PLACE/free; fi\n\
           sleep 0.05; done) &";
    may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).then(|| Daemon::with(config, before))
}

fn mark(daemon: &Daemon, name: &str) {
    fs::write(daemon.path(name), "").expect("file");
}

fn fill(daemon: &Daemon) {
    mark(daemon, "fill");
    daemon.until("the disk is full", |daemon| !daemon.path("fill").exists());
}

fn free(daemon: &Daemon) {
    mark(daemon, "free");
    daemon.until("there is room again", |daemon| !daemon.path("free").exists());
}

#[test]
fn a_full_disk_refuses_new_jobs_and_loses_none() {
    let Some(daemon) = daemon("") else { return };
    let script = "while [ ! -e $PLACE/go ]; do sleep 0.05; done; exit 5";
    let job = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", script]);
    let waiting: Vec<u64> =
        (0..3).map(|_| daemon.submit(&["--exclusive"], &["/bin/sh", "-c", script])).collect();
    daemon.until_state(job, "running");
    fill(&daemon);
    let mut refused = None;
    daemon.until("a job is refused", |daemon| {
        let done = daemon.output(&["submit", "--", "true"]);
        refused = Some(String::from_utf8_lossy(&done.stderr).into_owned());
        !done.status.success()
    });
    let refused = refused.expect("text");
    assert!(
        refused.contains("kept for the jobs that are there") && refused.lines().count() == 1,
        "{refused}"
    );
    let last = waiting[2].to_string();
    let mut lost = String::new();
    daemon.until("who holds a job is told that it is not kept", |daemon| {
        for words in [&["hold", last.as_str()][..], &["hold", "--release", &last]] {
            let done = daemon.output(words);
            if !done.status.success() {
                lost = String::from_utf8_lossy(&done.stderr).into_owned();
            }
        }
        !lost.is_empty()
    });
    assert!(lost.contains("lost if radrmd ends") && lost.lines().count() == 1, "{lost}");
    mark(&daemon, "go");
    thread::sleep(Duration::from_millis(700));
    assert!(daemon.ok(&["nodes"]).contains("cannot be written"), "{}", daemon.ok(&["nodes"]));
    free(&daemon);
    daemon.until("it is kept", |daemon| daemon.output(&["hold", "--release", &last]).status.success());
    for job in waiting.into_iter().chain([job]) {
        let ended = daemon.end(job);
        assert_eq!((&ended["exit_code"], &ended["attempts"]), (&5.into(), &1.into()), "{ended}");
    }
    daemon.ok(&["submit", "--wait", "--gpus", "0", "--", "true"]);
}

#[test]
fn new_jobs_leave_room_in_which_those_that_are_there_end() {
    let Some(daemon) = daemon("disk_reserve = \"2MiB\"\njobs_per_user = 4000\n") else { return };
    let runs = daemon.submit(&[], &["/bin/sh", "-c", "while [ ! -e $PLACE/go ]; do sleep 0.05; done"]);
    daemon.until_state(runs, "running");
    let mut refused = String::new();
    let long = "x".repeat(40_000);
    daemon.until("no job is taken", |daemon| {
        let done = daemon.output(&["submit", "--hold", "--", "true", &long]);
        refused = String::from_utf8_lossy(&done.stderr).into_owned();
        !done.status.success()
    });
    assert!(
        refused.contains("kept for the jobs that are there") && refused.lines().count() == 1,
        "{refused}"
    );
    mark(&daemon, "go");
    assert_eq!(daemon.end(runs)["exit_code"], 0);
    assert!(!daemon.ok(&["nodes"]).contains("cannot be written"), "{}", daemon.ok(&["nodes"]));
}

/// Its jobs have little time from one signal to the next.
const HASTY: &str = "emulate = \"1xA100-40GB\"\n[scheduler.eviction]\nkill_after = 500\n";
const GIVES_WAY: [&str; 8] =
    ["--exclusive", "--preemptible", "--slot", "4s", "--checkpoint-signal", "USR1", "--grace", "1s"];

#[test]
fn grace_on_a_full_disk_starts_at_the_signal() {
    let Some(daemon) = daemon(HASTY) else { return };
    let script = "echo start >> $PLACE/marks; [ $RADRM_ATTEMPT = 2 ] && exit 0; \
                  trap 'sleep 0.3; echo written >> $PLACE/marks; exit 75' USR1; while :; do sleep 0.05; done";
    let job = daemon.submit(&GIVES_WAY, &["/bin/sh", "-c", script]);
    let next = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", "echo next >> $PLACE/marks"]);
    daemon.until("it runs", |daemon| !daemon.lines("marks").is_empty());
    fill(&daemon);
    // Longer than its slot, its time for the checkpoint and that to end.
    thread::sleep(Duration::from_secs(7));
    assert_eq!(daemon.lines("marks"), ["start"]);
    free(&daemon);
    assert_eq!(daemon.end(next)["exit_code"], 0);
    assert_eq!(daemon.end(job)["exit_code"], 0);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!(daemon.lines("marks"), ["start", "written", "next", "start"], "{history}");
    assert!(history.contains("only now, as the queue could not be written"), "{history}");
}

#[test]
fn who_ends_before_it_was_told_to_give_way_does_not_run_again() {
    let Some(daemon) = daemon(HASTY) else { return };
    let script = "echo start >> $PLACE/marks; while [ ! -e $PLACE/go ]; do sleep 0.05; done; exit 0";
    let job = daemon.submit(&GIVES_WAY, &["/bin/sh", "-c", script]);
    let next = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", "echo next >> $PLACE/marks"]);
    daemon.until("it runs", |daemon| !daemon.lines("marks").is_empty());
    fill(&daemon);
    thread::sleep(Duration::from_secs(5));
    mark(&daemon, "go");
    thread::sleep(Duration::from_secs(1));
    free(&daemon);
    assert_eq!(daemon.end(next)["exit_code"], 0);
    let ended = daemon.end(job);
    let history = daemon.show(job)["history"].to_string();
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &1.into()), "{history}");
    assert_eq!(daemon.lines("marks"), ["start", "next"]);
    assert!(history.contains("not sent before it ended"), "{history}");
}
