//! Fate of jobs while single writes of radrmd, of supervisors and of SQLite below them fail, or all from one on.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use radrm_preload_tests::{
    faults::{self, Fault, Faults, kinds},
    node::{Daemon, may},
};
use serde_json::Value;

/// A daemon whose writes below its state can be made to fail; `None` where that cannot be.
fn daemon(config: &str) -> Option<(Daemon, Faults)> {
    if !may(&["unshare", "--mount", "true"]) || !faults::are_possible() {
        return None;
    }
    let mut daemon = Daemon::prepare(config);
    let faults = Faults::new(&daemon.mark("faults"));
    let words = faults.words(&daemon.path("state")).join(" ");
    daemon.behind(&format!("set -- {words} \"$@\""));
    Some((daemon, faults))
}

/// Distance from one failing call to the next in tests that are run by default; `RADRM_TEST_STRIDE=1` takes all.
fn stride(usual: usize) -> usize {
    std::env::var("RADRM_TEST_STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A job that adds a line to `marks` each time it begins, and ends with 5 when `go` is there.
fn script(name: &str) -> String {
    format!("echo {name} >> $PLACE/marks; while [ ! -e $PLACE/go.{name} ]; do sleep 0.02; done; exit 5")
}

/// Submits a job; `None` if it is refused, which is one sentence.
fn submit(daemon: &Daemon, name: &str) -> Option<u64> {
    let done = daemon.output(&["submit", "--quiet", "--", "/bin/sh", "-c", &script(name)]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() {
        return Some(String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number"));
    }
    assert_eq!((done.status.code(), said.lines().count()), (Some(1), 1), "{name}: {said}");
    None
}

/// Number of times that the job of this name began.
fn begun(daemon: &Daemon, name: &str) -> usize {
    daemon.lines("marks").iter().filter(|line| *line == name).count()
}

/// A short life: a job is submitted, runs and ends with 5, another one is cancelled, while calls fail from the one
/// with this number on. Returns false if none did.
fn life(daemon: &Daemon, faults: &Faults, fault: Fault, number: u64) -> bool {
    let [ends, goes] =
        ["ends", "goes"].map(|what| format!("{what}-{number}-{}-{}", fault.errno, fault.length == 1));
    faults.begin(fault, number);
    let (kept, cancelled) = (submit(daemon, &ends), submit(daemon, &goes));
    // What fails for good does so while they would begin, end and be cancelled; what fails once may come at any time.
    let patience = Duration::from_millis(if fault.length == 1 { 2000 } else { 300 });
    let since = Instant::now();
    let awaited = [(kept, &ends), (cancelled, &goes)];
    let is_awaited = |(job, name): &(Option<u64>, &String)| job.is_some() && begun(daemon, name) == 0;
    while since.elapsed() < patience && awaited.iter().any(is_awaited) {
        thread::sleep(Duration::from_millis(20));
    }
    fs::write(daemon.path(&format!("go.{ends}")), "").expect("file");
    let mut was_cancelled = true;
    if let Some(job) = cancelled {
        let done = daemon.output(&["cancel", &job.to_string()]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() || said.lines().count() == 1, "{said}");
        was_cancelled = done.status.success();
    }
    // It ends.
    thread::sleep(Duration::from_millis(200));
    let failed = faults.end();
    let failures = || format!("{fault:?} from call {number} on\n{}\n{}", faults.log(), daemon.log());
    if let Some(job) = kept {
        let ended = ended(daemon, job, &failures);
        assert_eq!(ended["exit_code"], 5, "{ended}\n{}\n{}", daemon.show(job)["history"], failures());
    }
    assert_eq!(begun(daemon, &ends), usize::from(kept.is_some()), "{}", failures());
    if let Some(job) = cancelled {
        if !was_cancelled {
            // It may be cancelled, and over, although that could not be written.
            daemon.output(&["cancel", &job.to_string()]);
        }
        let ended = ended(daemon, job, &failures);
        assert_eq!(ended["end"], "cancelled", "{ended}\n{}", failures());
    }
    assert!(begun(daemon, &goes) <= usize::from(cancelled.is_some()), "{}", failures());
    failed > 0
}

/// The row of a job that ends now that nothing fails.
fn ended(daemon: &Daemon, job: u64, failures: &dyn Fn() -> String) -> Value {
    daemon.until(&format!("job {job} ends: {}", failures()), |daemon| daemon.state(job) == "ended");
    daemon.show(job)["job"].clone()
}

/// Sweeps the first failing call over a life until none fails.
fn sweep(fault: Fault, usual: usize) {
    let Some((mut daemon, faults)) = daemon("") else { return };
    daemon.start();
    for number in (1..).step_by(stride(usual)) {
        if !life(&daemon, &faults, fault, number) {
            assert!(number > 20, "only {number} calls in a life");
            break;
        }
    }
    // Nothing is left of the faults: neither in what radrmd says of itself, nor of attempts.
    daemon.until("radrmd is well", |daemon| !daemon.ok(&["nodes"]).contains("cannot be"));
    daemon.stop();
    daemon.start();
    daemon.until("no file of an attempt is left", |daemon| {
        fs::read_dir(daemon.path("state/attempts")).expect("attempts").count() == 0
    });
}

#[test]
fn a_call_that_fails_once_loses_and_doubles_no_job() {
    sweep(Fault::ONE_ERROR, 9);
}

#[test]
fn a_disk_that_fails_for_a_time_loses_and_doubles_no_job() {
    sweep(Fault::ERRORS, 17);
}

#[test]
fn a_disk_that_is_read_only_for_a_time_loses_and_doubles_no_job() {
    sweep(Fault::READ_ONLY, 17);
}

#[test]
fn a_disk_without_inodes_for_a_time_loses_and_doubles_no_job() {
    let Some((mut daemon, faults)) = daemon("") else { return };
    daemon.start();
    for number in 1..40 {
        if !life(&daemon, &faults, Fault::NO_INODES, number) {
            break;
        }
    }
}

#[test]
fn a_submission_that_was_refused_does_not_run_after_a_kill() {
    let Some((mut daemon, faults)) = daemon("") else { return };
    daemon.start();
    let unsynced = Fault { kinds: kinds::SYNC, errno: libc::EIO, length: 1 };
    let mut refused = 0;
    // The number of the job is synced first, once; then the log.
    for (round, number) in [1, 1, 1, 2, 3].into_iter().enumerate() {
        let name = format!("kill-{round}");
        fs::write(daemon.path(&format!("go.{name}")), "").expect("file");
        faults.begin(unsynced, number);
        let job = submit(&daemon, &name);
        // All of it may be in the log of the queue.
        daemon.kill();
        faults.end();
        daemon.start();
        if let Some(job) = job {
            assert_eq!(daemon.end(job)["exit_code"], 5);
        } else {
            refused += 1;
            let after = daemon.submit(&[], &["true"]);
            daemon.end(after);
        }
        assert_eq!(begun(&daemon, &name), usize::from(job.is_some()), "{name}: {}", faults.log());
    }
    assert!(refused > 1, "only {refused} were refused");
}

#[test]
fn a_start_whose_writes_fail_loses_and_doubles_no_job() {
    let Some((mut daemon, faults)) = daemon("") else { return };
    daemon.start();
    let runs = submit(&daemon, "runs").expect("a job");
    let waits = submit(&daemon, "waits").expect("a job");
    let held: u64 = daemon.submit(&["--hold"], &["/bin/sh", "-c", &script("held")]);
    daemon.until("they run", |daemon| begun(daemon, "runs") + begun(daemon, "waits") == 2);
    for fault in [Fault::ONE_ERROR, Fault::ERRORS, Fault::READ_ONLY, Fault::NO_INODES] {
        for number in (1..).step_by(stride(5)) {
            daemon.kill();
            faults.begin(fault, number);
            let is_there = daemon.tries_to_start();
            let failed = faults.end();
            let failures = || format!("{fault:?} from call {number} on\n{}\n{}", faults.log(), daemon.log());
            if let Err(said) = &is_there {
                assert_eq!(
                    said.lines().filter(|line| line.contains("radrmd: ")).count(),
                    1,
                    "{said}\n{}",
                    failures()
                );
                daemon.start();
            }
            for (job, name, state, count) in
                [(runs, "runs", "running", 1), (waits, "waits", "running", 1), (held, "held", "held", 0)]
            {
                daemon.until(&format!("job {job} is {state}: {}", daemon.show(job)), |daemon| {
                    daemon.state(job) == state
                });
                assert_eq!(begun(&daemon, name), count, "{name}");
            }
            if failed == 0 {
                break;
            }
        }
    }
    for name in ["runs", "waits"] {
        fs::write(daemon.path(&format!("go.{name}")), "").expect("file");
    }
    for job in [runs, waits] {
        assert_eq!(daemon.end(job)["exit_code"], 5);
    }
}
