//! Jobs with latency targets under `radrmd`, beside jobs that keep the GPU busy, in real time.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use radrm_preload_tests::{node::Daemon, programs};

use super::throttle_node::{POLICY, budget_of, kernel_times, segment_of, submit, until_share};

/// An inference loop: requests of `kernels` kernels of half a millisecond, one every `period_ms`.
fn serve(daemon: &Daemon, options: &[&str], before: &str, arguments: &str, after: &str) -> u64 {
    let program = programs::compile("serve.c", &[]).display().to_string();
    let times = kernel_times(daemon);
    let words = format!("{program} {arguments} {after}");
    let times = format!("RADRM_EMULATOR_KERNEL_TIMES={}", times.display());
    let options = [&["--gpu-mem", "2GiB"], options].concat();
    let mut command = vec!["env", "RADRM_EMULATOR_TIME=real", &times];
    command.extend(Some(before).filter(|before| !before.is_empty()));
    command.extend(["sh", "-c", &words]);
    daemon.submit(&options, &command)
}

fn why(daemon: &Daemon) -> String {
    daemon.ok(&["queue", "--why"])
}

#[test]
fn fillers_give_way_while_a_target_is_missed_and_come_back() {
    let daemon = Daemon::new(POLICY);
    let filler = submit(&daemon, &[], "");
    daemon.until_state(filler, "running");
    // Five milliseconds of kernels are never done in one.
    let target = serve(&daemon, &["--latency", "request:p99=1ms"], "", "10 20 8", "; sleep 1000");
    daemon.until_state(target, "running");
    until_share(&daemon, filler, Some(50));
    let period = budget_of(&daemon, filler).map(|budget| budget.period_ms);
    assert_eq!(period, Some(10), "short slots, so that steps meet slots and gaps alike");
    let listed = why(&daemon);
    assert!(listed.contains(&format!("job {target} is to keep its target")), "{listed}");
    assert!(listed.contains("request:p99=1ms: "), "{listed}");
    assert_eq!(budget_of(&daemon, target), None);
    // Its requests have ended, the job has not: there is nothing to give way to.
    daemon.until("the filler gets more again", |daemon| {
        budget_of(daemon, filler).is_none_or(|budget| budget.share >= 300)
    });
    let history = daemon.show(filler)["history"].to_string();
    assert!(
        history.contains(&format!("% of the time: job {target} is to keep its target and is at ")),
        "{history}"
    );
    daemon.ok(&["cancel", &target.to_string()]);
    daemon.end(target);
    until_share(&daemon, filler, None);
}

#[test]
fn a_target_of_which_nothing_is_observed_holds_no_job_back() {
    let daemon = Daemon::new(POLICY);
    let filler = submit(&daemon, &[], "");
    let options = ["--latency", "p99=1ms"];
    let counted = serve(&daemon, &options, "RADRM_KERNELS=count", "10 20 1000 bare", "");
    [filler, counted].into_iter().for_each(|job| daemon.until_state(job, "running"));
    daemon.until("it is said", |daemon| why(daemon).contains("marked no steps or ranges yet"));
    let listed = why(&daemon);
    assert!(listed.contains("p99=1ms is not kept") && listed.contains("are not held back"), "{listed}");
    assert_eq!(budget_of(&daemon, filler), None);
    // Where its launches are timed, as they are unless the job says otherwise, these are what is kept.
    daemon.ok(&["cancel", &counted.to_string()]);
    daemon.end(counted);
    serve(&daemon, &["--latency", "p99=200us"], "", "10 20 1000 bare", "");
    until_share(&daemon, filler, Some(50));
}

#[test]
fn fillers_launch_between_requests_and_go_on_when_the_service_is_killed() {
    let daemon = Daemon::new(POLICY);
    let filler = submit(&daemon, &[], "");
    daemon.until_state(filler, "running");
    let target = serve(&daemon, &["--latency", "request:p99=20ms"], "", "20 100 1000", "");
    daemon.until_state(target, "running");
    // A job runs some moments before its program has a segment.
    let gate = || segment_of(&daemon, filler).map(|segment| segment.gate());
    daemon.until("its launches wait for a request", |_| gate() > Some(0));
    daemon.until("and go when it has ended", |_| gate() == Some(0));
    let listed = why(&daemon);
    assert!(listed.contains("the job beside it launches between its requests"), "{listed}");
    let history = daemon.show(filler)["history"].to_string();
    assert!(
        history.contains(&format!("launches between the requests of job {target}, at most ")),
        "{history}"
    );
    daemon.ok(&["cancel", &target.to_string()]);
    daemon.end(target);
    until_share(&daemon, filler, None);
    assert_eq!(gate(), Some(0));
    let before = launches(&daemon, filler);
    daemon.until("it launches", |daemon| launches(daemon, filler) > before);
}

/// Measurements of an inference loop and two trainings in one set-up.
struct Made {
    /// p99 of each window, ms.
    windows: Vec<f64>,
    /// GPU time of the trainings, parts of the time.
    fillers: f64,
    /// And of the inference loop.
    served: f64,
}

const MEASURED: Duration = Duration::from_secs(40);
const WINDOW_US: u64 = 4_000_000;
const KERNEL_S: f64 = 0.0005;
const KERNELS: usize = 20;

fn launches(daemon: &Daemon, job: u64) -> u64 {
    let segment = segment_of(daemon, job).expect("segment");
    let processes = segment.processes().expect("processes");
    processes.iter().flat_map(|process| &process.kernels).map(|kernel| kernel.launches).sum()
}

fn measure(served: &[&str], fillers: &[&str], count: usize) -> Made {
    let daemon = Daemon::new(POLICY);
    let job = serve(&daemon, served, "", &format!("{KERNELS} 40 1000"), "");
    daemon.until_state(job, "running");
    let fills: Vec<u64> = (0..count).map(|_| submit(&daemon, fillers, "")).collect();
    fills.iter().for_each(|fill| daemon.until_state(*fill, "running"));
    fills.iter().for_each(|fill| daemon.until("it launches", |daemon| launches(daemon, *fill) > 0));
    thread::sleep(Duration::from_secs(12));
    let before: u64 = fills.iter().map(|fill| launches(&daemon, *fill)).sum();
    let (begun, from_us) = (Instant::now(), radrm_telemetry::monotonic_ns() / 1000);
    thread::sleep(MEASURED);
    let after: u64 = fills.iter().map(|fill| launches(&daemon, *fill)).sum();
    let (passed, until_us) = (begun.elapsed().as_secs_f64(), radrm_telemetry::monotonic_ns() / 1000);
    let output = daemon.show(job)["job"]["output"].as_str().expect("path").to_owned();
    let mut windows: Vec<Vec<u64>> = Vec::new();
    for line in fs::read_to_string(output).expect("output").lines() {
        let Some((at, took)) = line.split_once(' ') else { continue };
        let (Ok(at), Ok(took)) = (at.parse::<u64>(), took.parse::<u64>()) else { continue };
        if (from_us..until_us).contains(&at) {
            let window = ((at - from_us) / WINDOW_US) as usize;
            windows.resize(windows.len().max(window + 1), Vec::new());
            windows[window].push(took);
        }
    }
    windows.retain(|window| window.len() >= 20);
    let requests: usize = windows.iter().map(Vec::len).sum();
    let p99 = |window: &mut Vec<u64>| {
        window.sort_unstable();
        window[(window.len() * 99).div_ceil(100) - 1] as f64 / 1000.0
    };
    Made {
        windows: windows.iter_mut().map(p99).collect(),
        fillers: (after - before) as f64 * KERNEL_S / passed,
        served: (requests * KERNELS) as f64 * KERNEL_S / passed,
    }
}

/// Prints the table "Latency beside trainings" of bench/RESULTS.md. Takes four minutes on a quiet machine:
/// `cargo nextest run -p radrm-preload-tests --run-ignored only -E "test(inference_beside_trainings)" --no-capture`
#[test]
#[ignore = "takes four minutes of a quiet machine"]
fn inference_beside_trainings_keeps_its_latency() {
    const LIMIT_MS: f64 = 18.0;
    let target = ["--latency", "request:p99=18ms"];
    let arms = [
        ("alone", &[][..], &[][..], 0),
        ("no control", &[], &[], 2),
        ("fixed shares of 30 % each", &[], &["--gpu-share", "30"][..], 2),
        ("target p99=18ms", &target[..], &[], 2),
    ];
    println!(
        "| set-up | p99 of windows, median (largest), ms | windows within 18 ms | trainings, of what is left |"
    );
    println!("|---|--:|--:|--:|");
    let mut last = None;
    for (name, served, fillers, count) in arms {
        let made = measure(served, fillers, count);
        let mut sorted = made.windows.clone();
        sorted.sort_by(f64::total_cmp);
        let within = sorted.iter().filter(|p99| **p99 <= LIMIT_MS).count() as f64 / sorted.len() as f64;
        let kept = made.fillers / (1.0 - made.served);
        println!(
            "| {name} | {:.1} ({:.1}) | {:.0} % of {} | {:.0} % |",
            sorted[sorted.len() / 2],
            sorted[sorted.len() - 1],
            within * 100.0,
            sorted.len(),
            kept * 100.0
        );
        last = Some((within, kept));
    }
    let (within, kept) = last.expect("arms");
    assert!(within >= 0.95 && kept >= 0.7, "{within} of the windows, {kept} of what is left");
}
