//! Light jobs on one large GPU with default settings: what starts when, and for what reason.

use std::fs;
use std::time::Instant;

use radrm_preload_tests::{node::Daemon, programs};

/// As many jobs as a GPU of 140 GiB could hold more than twice.
const JOBS: usize = 12;

/// A job of 5 GiB whose kernels always run on one of the GPU's 132 multiprocessors: .76 % SM activity.
fn submit(daemon: &Daemon) -> u64 {
    let program = programs::compile("turns.c", &["-pthread"]).display().to_string();
    let times = daemon.path("times");
    fs::write(&times, "* 20000000\n").expect("kernel times");
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", times.display());
    let words = ["env", "RADRM_EMULATOR_TIME=real", &times, &program, "fill", "launches", "600", "1", "1"];
    daemon.submit(&["--gpu-mem", "5GiB"], &words)
}

fn why(daemon: &Daemon, job: u64) -> String {
    daemon.show(job)["job"]["why"].as_str().unwrap_or_default().to_owned()
}

/// Two of unknown activity are what a GPU is assumed to carry. They are never alone, so nothing is measured of each; what both do
/// together shows that there is room.
#[test]
fn twelve_light_jobs_run_on_one_gpu_soon_after_each_other() {
    for config in ["", "kernels = \"count\"\n"] {
        let daemon = Daemon::new(&format!("emulate = \"1xH200\"\n{config}"));
        let begun = Instant::now();
        let jobs: Vec<u64> = (0..JOBS).map(|_| submit(&daemon)).collect();
        let mut waits = vec![String::new(); JOBS];
        let mut since = [None; JOBS];
        // As many again as were seen together.
        for most in [2, 4, 8, JOBS] {
            daemon.until(&format!("{most} of them run"), |daemon| {
                let waiting: Vec<usize> = (0..JOBS).filter(|at| since[*at].is_none()).collect();
                for at in waiting {
                    match daemon.state(jobs[at]).as_str() {
                        "running" => since[at] = Some(begun.elapsed().as_secs_f64()),
                        _ => waits[at] = why(daemon, jobs[at]),
                    }
                }
                since.iter().flatten().count() >= most
            });
        }
        for (at, job) in jobs.iter().enumerate() {
            println!(
                "job {job}: {:.1} s, {}; before: {}",
                since[at].unwrap_or_default(),
                why(&daemon, *job),
                waits[at]
            );
        }
        let by_assumption = waits.iter().filter(|wait| wait.contains("SM activity assumed")).count();
        assert!((1..JOBS - 1).contains(&by_assumption), "{waits:?}");
        for job in jobs {
            assert!(daemon.show(job)["job"]["activity"].is_null(), "a sum is no measurement of one");
        }
    }
}

/// The kernels of the others show what they do, whatever a shell beside them waits for.
#[test]
fn a_job_that_launches_nothing_does_not_keep_light_jobs_waiting() {
    let daemon = Daemon::new("emulate = \"1xH200\"\n[scheduler]\npreconditions.window = \"15s\"\n");
    let shell = daemon.submit(&["--gpu-mem", "5GiB"], &["sleep", "1000"]);
    daemon.until_state(shell, "running");
    let jobs = [submit(&daemon), submit(&daemon)];
    jobs.iter().for_each(|job| daemon.until_state(*job, "running"));
}
