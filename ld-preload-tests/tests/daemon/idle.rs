//! Consumption of the node daemon while nothing happens: a measurement, run by hand, that prints its figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use radrm_preload_tests::{node::Daemon, programs};
use radrm_telemetry::process::Stat;

/// CPU time of a process or thread (clock ticks), of `/proc/.../stat`.
fn ticks(stat: &Path) -> u64 {
    Stat::parse(&fs::read(stat).expect("stat")).expect("a line").own_ticks
}

/// The daemon's threads by name, with their CPU time.
fn threads(daemon: u32) -> BTreeMap<String, u64> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{daemon}/task")).expect("threads").flatten() {
        if let Ok(name) = fs::read_to_string(task.path().join("comm")) {
            *threads.entry(name.trim().to_owned()).or_default() += ticks(&task.path().join("stat"));
        }
    }
    threads
}

/// A number in the environment.
fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// `cargo test --release -p radrm-preload-tests --test daemon idle:: -- --ignored --nocapture`; `JOBS` (100) and
/// `SECONDS` (60) may be in the environment.
#[test]
#[ignore = "a measurement that takes minutes"]
fn what_a_hundred_idle_jobs_cost() {
    let (jobs, seconds) = (asked("JOBS", 100), asked("SECONDS", 60));
    let holds = programs::compile("holds_context.c", &[]).display().to_string();
    for (what, words) in
        [("with a CUDA context", vec![holds.as_str()]), ("without a context", vec!["sleep", "100000"])]
    {
        let mut daemon = Daemon::prepare("");
        // Looks and audits as often as a daemon without configuration.
        fs::write(
            daemon.path("config.toml"),
            "metrics = \"\"\nemulate = \"1xH200\"\ncpus = 1000\n[scheduler]\npolicy = \"best-fit\"\npreconditions.most_jobs = 200\n",
        )
        .expect("configuration");
        daemon.start();
        let all: Vec<u64> = (0..jobs).map(|_| daemon.submit(&["--gpu-mem", "1GiB"], &words)).collect();
        all.iter().for_each(|job| daemon.until_state(*job, "running"));
        // Until all have come to their sleep, and the daemon to its rest.
        thread::sleep(Duration::from_secs(15));
        let pid = daemon.pid();
        let stat = format!("/proc/{pid}/stat");
        let (before, by_thread, begun) = (ticks(stat.as_ref()), threads(pid), Instant::now());
        thread::sleep(Duration::from_secs(seconds));
        let passed = begun.elapsed().as_secs_f64();
        // SAFETY: asks the system for a number.
        let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let share = |ticks: u64| ticks as f64 / hertz / passed * 100.0;
        println!(
            "{jobs} idle jobs {what}: {:.2} % of a core over {passed:.0} s",
            share(ticks(stat.as_ref()) - before)
        );
        for (name, now) in threads(pid) {
            let own = now.saturating_sub(by_thread.get(&name).copied().unwrap_or_default());
            if own > 0 {
                println!("    thread {name}: {:.2} %", share(own));
            }
        }
    }
}
