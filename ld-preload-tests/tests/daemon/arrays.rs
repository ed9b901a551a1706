//! Jobs that wait for other jobs, and arrays.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, process::Stdio, thread, time::Duration};

use radrm_preload_tests::node::Daemon;
use serde_json::Value;

const CPUS: &str = "cpus = 100\n";

/// A job without a GPU that writes a mark, waits for a file, and ends with a code.
fn waits(file: &str, code: u32) -> String {
    format!("echo $RADRM_JOB >> $PLACE/marks; while [ ! -e $PLACE/{file} ]; do sleep 0.05; done; exit {code}")
}

fn submit(daemon: &Daemon, options: &[&str], script: &str) -> u64 {
    daemon.submit(&[&["--gpus", "0"], options].concat(), &["/bin/sh", "-c", script])
}

fn touch(daemon: &Daemon, name: &str) {
    fs::write(daemon.path(name), "").expect("file");
}

fn queue(daemon: &Daemon) -> Vec<Value> {
    let jobs: Value = serde_json::from_str(&daemon.ok(&["queue", "--json"])).expect("JSON");
    jobs.as_array().expect("jobs").clone()
}

#[test]
fn dependents_wait_start_and_fail_with_their_reasons_also_across_a_restart() {
    let mut daemon = Daemon::new(CPUS);
    let [good, bad] = [0, 3].map(|code| submit(&daemon, &[], &waits("go", code)));
    let after =
        |condition: &str, job: u64| submit(&daemon, &["--after", &format!("{condition}:{job}")], "true");
    let [ok, any, failed] = [after("ok", good), after("any", bad), after("ok", bad)];
    let chained = after("ok", failed);
    let held = submit(&daemon, &["--hold", "--after", &format!("ok:{bad}")], "true");
    let why = |daemon: &Daemon, job: u64| daemon.show(job)["job"]["why"].as_str().expect("why").to_owned();
    assert_eq!(why(&daemon, ok), format!("starts after job {good} has succeeded"));
    assert_eq!(why(&daemon, any), format!("starts after job {bad} has ended"));
    assert!(daemon.ok(&["show", &ok.to_string()]).contains(&format!("--after ok:{good}")));
    // Both end while no daemon is there.
    daemon.until("both run", |daemon| daemon.lines("marks").len() == 2);
    daemon.kill();
    daemon.start();
    assert_eq!(daemon.state(ok), "waiting", "a restart starts nothing early");
    daemon.kill();
    touch(&daemon, "go");
    [good, bad].iter().for_each(|job| daemon.until_kept(*job, 1));
    daemon.start();
    for job in [ok, any] {
        assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job)["history"]);
    }
    for (job, on) in [(failed, bad), (chained, failed), (held, bad)] {
        let end = daemon.end(job)["end"].as_str().expect("an end").to_owned();
        assert_eq!(end, format!("cancelled: job {on}, which it depends on, did not succeed"));
    }
    // What has ended is known when a job is submitted.
    let refused = |after: &str| daemon.refused(&["submit", "--gpus", "0", "--after", after, "--", "true"]);
    assert!(refused(&format!("ok:{bad}")).contains(&format!("job {bad} did not succeed")));
    assert!(refused("any:4711").contains("there is no job 4711"));
    assert_eq!(
        daemon.end(submit(&daemon, &["--after", &format!("ok:{good},{any}")], "true"))["exit_code"],
        0
    );
}

#[test]
fn an_array_is_one_submission_of_bounded_jobs() {
    let mut daemon = Daemon::new(CPUS);
    let script = "echo $RADRM_ARRAY_JOB $RADRM_ARRAY_INDEX >> $PLACE/marks; \
                  while [ ! -e $PLACE/go-$RADRM_ARRAY_INDEX ]; do sleep 0.05; done; exit $RADRM_ARRAY_INDEX";
    let array = submit(&daemon, &["--array", "0-8:2%2"], script);
    let then = submit(&daemon, &["--after", &array.to_string()], "true");
    let mark = |index: u32| format!("{array} {index}");
    daemon.until("two run", |daemon| daemon.lines("marks").len() == 2);
    let list = daemon.ok(&["queue"]);
    assert!(list.contains(&format!("{array}_0 ")) && list.contains(&format!("{array}_[4,6,8%2] ")), "{list}");
    assert_eq!(
        list.lines().count(),
        5,
        "a head, two that run, one line for the array, the dependent: {list}"
    );
    // A restart keeps the bound.
    daemon.kill();
    daemon.start();
    touch(&daemon, "go-2");
    daemon.until("the next runs", |daemon| daemon.lines("marks").contains(&mark(4)));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.lines("marks").len(), 3);
    let shown = daemon.ok(&["show", &format!("{array}_2")]);
    assert!(shown.contains(&format!("{array}, index 2")) && shown.contains("exit code 2"), "{shown}");
    daemon.ok(&["cancel", &format!("{array}_6")]);
    assert!(daemon.refused(&["cancel", &format!("{array}_3")]).contains(&format!("no job {array}_3")));
    daemon.ok(&["cancel", &array.to_string()]);
    daemon.until("all are over", |daemon| queue(daemon).is_empty());
    assert_eq!(daemon.end(then)["exit_code"], 0, "it ran after all of them");
    assert!(!daemon.lines("marks").contains(&mark(8)));
    let over = daemon.refused(&["cancel", &array.to_string()]);
    assert!(over.contains("is over"), "{over}");
}

#[test]
fn an_array_is_submitted_as_a_whole_or_not_at_all() {
    let daemon = Daemon::new("cpus = 1\njobs_per_user = 10\n");
    let refused = |indices: &str| {
        daemon.refused(&["submit", "--hold", "--gpus", "0", "--array", indices, "--", "true"])
    };
    assert!(refused("0-10").contains("jobs waiting and running"));
    assert!(queue(&daemon).is_empty());
    let array = submit(&daemon, &["--hold", "--array", "0-9"], "true");
    assert_eq!(queue(&daemon).len(), 10);
    assert!(daemon.ok(&["queue"]).contains(&format!("{array}_[0-9] ")));
    assert!(refused("0").contains("jobs waiting and running"));
    let done = daemon.output(&["submit", "--array", "3-1", "--", "true"]);
    assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_cancel_of_thousands_is_whole_after_a_kill_in_the_middle_of_it() {
    const JOBS: u64 = 3000;
    let mut daemon = Daemon::new("cpus = 1\njobs_per_user = 20000\n");
    let array = submit(&daemon, &["--hold", "--array", &format!("0-{}", JOBS - 1)], "true");
    let waiting = |daemon: &Daemon| queue(daemon).len() as u64;
    assert_eq!(waiting(&daemon), JOBS);
    let mut cancel = daemon.client(&["cancel", &array.to_string()]);
    let mut cancel = cancel.stderr(Stdio::null()).spawn().expect("radrm");
    // The first of its pieces is on disk once the next one is seen.
    daemon.until("several pieces are done", |daemon| waiting(daemon) < JOBS - 250);
    daemon.kill();
    cancel.wait().expect("an end");
    daemon.start();
    daemon.until("all of it is done", |daemon| queue(daemon).is_empty());
    for job in [array, array + JOBS / 2, array + JOBS - 1] {
        let shown = daemon.ok(&["show", &job.to_string()]);
        assert!(shown.contains("cancel requested by") && daemon.state(job) == "ended", "{shown}");
    }
}

#[test]
fn waiting_for_an_array_gives_the_worst_exit_code() {
    let daemon = Daemon::new(CPUS);
    let script = ["/bin/sh", "-c", "exit $RADRM_ARRAY_INDEX"];
    let done = daemon
        .output(&[&["submit", "--wait", "--gpus", "0", "--array", "0,7,3", "--"], &script[..]].concat());
    assert_eq!(done.status.code(), Some(7), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("array 1 submitted: 3 jobs"));
}

#[test]
fn words_that_are_no_text_reach_the_program_as_they_are() {
    let mut daemon = Daemon::new(CPUS);
    let word = OsStr::from_bytes(b"a\xff b\xc3(\xe2\x82");
    let folder = daemon.place().join(OsStr::from_bytes(b"folder-\xfe"));
    fs::create_dir(&folder).expect("folder");
    let script = "printf %s \"$1$WORD\" > output-of-it; exit 5";
    let mut client =
        daemon.client(&["submit", "--hold", "--quiet", "--gpus", "0", "--", "/bin/sh", "-c", script, "sh"]);
    let done = client.arg(word).env("WORD", word).current_dir(&folder).output().expect("radrm");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // It is on disk as it is, too.
    daemon.kill();
    daemon.start();
    assert!(daemon.ok(&["show", "1"]).contains("a\\xff b\\xc3("), "{}", daemon.ok(&["show", "1"]));
    daemon.ok(&["hold", "--release", "1"]);
    assert_eq!(daemon.end(1)["exit_code"], 5, "{}", daemon.ok(&["logs", "1"]));
    let written = fs::read(folder.join("output-of-it")).expect("what it wrote");
    assert_eq!(written, [word.as_bytes(), word.as_bytes()].concat());
}
