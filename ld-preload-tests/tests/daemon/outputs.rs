//! Room for what jobs print: by job, by user, and what stays for the queue.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use radrm_preload_tests::node::{Daemon, may};

/// Prints so many KiB, and shows that it went on.
fn printer(kib: u64) -> [String; 3] {
    let script =
        format!("head -c {}  /dev/zero | tr '\\0' x; echo; echo last; touch $PLACE/went-on", kib << 10);
    ["/bin/sh".to_owned(), "-c".to_owned(), script]
}

fn submit(daemon: &Daemon, kib: u64) -> u64 {
    let command = printer(kib);
    daemon.submit(&["--gpus", "0"], &command.each_ref().map(String::as_str))
}

fn output(daemon: &Daemon, job: u64) -> String {
    let row = daemon.show(job)["job"].clone();
    fs::read_to_string(row["output"].as_str().expect("output")).expect("output")
}

#[test]
fn a_job_that_prints_more_than_its_limit_goes_on_and_its_output_says_so() {
    let daemon = Daemon::new("max_output = \"64KiB\"\n");
    let job = submit(&daemon, 5000);
    assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
    assert!(daemon.path("went-on").exists());
    let text = output(&daemon, job);
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("radrmd: the output ends here: ") && last.contains("max_output"), "{last}");
    assert!(((64 << 10)..(65 << 10)).contains(&text.len()), "{}", text.len());
    let history = daemon.show(job)["history"].to_string();
    assert!(history.contains("the output ends here"), "{history}");
    let small = submit(&daemon, 1);
    assert_eq!(daemon.end(small)["exit_code"], 0);
    assert!(output(&daemon, small).ends_with("x\nlast\n"));
    // A file of the user's own choice is no business of radrmd.
    let own = daemon.path("own");
    let command = printer(200);
    let words = command.each_ref().map(String::as_str);
    let job = daemon.submit(&["--gpus", "0", "-o", &own.display().to_string()], &words);
    daemon.end(job);
    assert!(fs::metadata(own).expect("file").len() > 200 << 10);
    // Shown while it runs, too.
    let script = "head -c 100000 /dev/zero; while [ ! -e $PLACE/go ]; do sleep 0.05; done";
    let running = daemon.submit(&["--gpus", "0"], &["/bin/sh", "-c", script]);
    daemon.until("show says so", |daemon| {
        daemon.show(running)["history"].to_string().contains("the output ends here")
    });
    assert_eq!(daemon.state(running), "running");
    fs::write(daemon.path("go"), "").expect("file");
    daemon.end(running);
}

/// Submits until that is rejected, since folders are measured beside, and returns what is said.
fn rejection(daemon: &Daemon) -> String {
    let mut said = String::new();
    daemon.until("a submission is rejected", |daemon| {
        let ran = daemon.output(&["submit", "--gpus", "0", "--", "true"]);
        said = String::from_utf8_lossy(&ran.stderr).into_owned();
        !ran.status.success()
    });
    said
}

#[test]
fn a_user_over_the_limit_of_outputs_is_refused_until_there_is_room() {
    let mut daemon = Daemon::new("disk_per_user = \"1MiB\"\n");
    let job = submit(&daemon, 2000);
    daemon.end(job);
    let said = rejection(&daemon);
    assert!(said.contains("1.00 MiB is the most") && said.lines().count() == 1, "{said}");
    daemon.kill();
    daemon.start();
    assert!(!daemon.output(&["submit", "--gpus", "0", "--", "true"]).status.success(), "after a restart");
    // A folder within that of the job hides nothing.
    let output = PathBuf::from(daemon.show(job)["job"]["output"].as_str().expect("output"));
    let hidden = output.with_file_name("a/b");
    fs::create_dir_all(&hidden).expect("its owner may");
    fs::rename(&output, hidden.join("output")).expect("its owner may");
    rejection(&daemon);
    // Asked for by that rejection, and measured before the next.
    std::thread::sleep(Duration::from_secs(3));
    rejection(&daemon);
    fs::remove_file(hidden.join("output")).expect("its owner may");
    daemon.until("there is room again", |daemon| {
        daemon.output(&["submit", "--gpus", "0", "--", "true"]).status.success()
    });
}

#[test]
fn output_stops_before_the_queue_has_no_room_to_be_written() {
    let before = "mkdir -p $PLACE/state && mount -t tmpfs -o size=64m none $PLACE/state";
    if !may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]) {
        return;
    }
    let daemon = Daemon::with("", before);
    let job = submit(&daemon, 80_000);
    assert_eq!(daemon.end(job)["exit_code"], 0, "{}", daemon.show(job));
    assert!(daemon.path("went-on").exists());
    let history = daemon.show(job)["history"].to_string();
    assert!(history.contains("no more room"), "{history}");
    let next: Vec<u64> = (0..20).map(|_| daemon.submit(&["--gpus", "0"], &["true"])).collect();
    for job in next {
        assert_eq!(daemon.end(job)["exit_code"], 0);
    }
    assert!(!daemon.log().contains("cannot be written"), "{}", daemon.log());
}
