//! `radrm top` on a terminal, with the daemon: what its keys do.

use radrm_preload_tests::node::Daemon;

use super::screen::Screen;

#[test]
fn a_job_is_chosen_shown_and_cancelled_by_keys_after_a_question() {
    let daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    let long = "name-of-a-job-".repeat(12);
    let job = daemon.submit(&["--name", "train", "--time", "2h"], &["/bin/sleep", "300"]);
    let other = daemon.submit(&["--name", "other"], &["/bin/sh", "-c", "sleep 300", &long]);
    daemon.until("both run", |daemon| [job, other].iter().all(|job| daemon.state(*job) == "running"));
    let mut screen = Screen::new(daemon.client(&["top", "--every", "0.2"]), 24, 80);
    screen.until("2 running");
    screen.until("LEFT");
    // Help, and back.
    screen.type_in("h");
    screen.until("all about the job");
    screen.type_in("h");
    // All of a command that 80 columns cut.
    screen.type_in("/other\r\r");
    screen.until("directory");
    screen.type_in("\u{1b}");
    screen.until("search: other");
    screen.type_in("\u{1b}");
    screen.until("Enter details");
    screen.type_in("/train\rC");
    screen.until(&format!("cancel job {job} (train)"));
    screen.type_in("n");
    screen.until("search: train");
    assert_eq!(daemon.state(job), "running", "no is no");
    screen.type_in("C");
    screen.until("y/n");
    screen.type_in("y");
    screen.until(&format!("job {job} is asked to end"));
    assert_eq!(daemon.end(job)["end"], "cancelled");
    assert_eq!(daemon.state(other), "running");
    screen.type_in("q");
    assert_eq!(screen.code(), Some(0));
    daemon.ok(&["cancel", &other.to_string()]);
}
