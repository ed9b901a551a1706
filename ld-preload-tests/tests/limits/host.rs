//! Jobs that share a host, with real processes: what the estimator predicts from what each does alone, and what happens.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use radrm_preload_tests::programs;
use radrm_scheduler_core::interference::{HostLoad, HostSpec, host_speeds};

/// Rate and load of a process of `loads.c`.
#[derive(Clone, Copy, Debug)]
struct Made {
    /// Steps in a second.
    rate: f64,
    load: HostLoad,
}

fn start(program: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("loads")
}

fn made(mut child: Child) -> Made {
    let mut text = String::new();
    child.stdout.take().expect("pipe").read_to_string(&mut text).expect("output");
    assert!(child.wait().expect("wait").success(), "{text}");
    let figures: Vec<f64> = text.split_whitespace().map(|word| word.parse().expect("figure")).collect();
    let &[steps, bytes, cpu, seconds] = figures.as_slice() else { panic!("{text}") };
    let load = HostLoad {
        cores: cpu / seconds,
        threads: 1.0,
        memory_bytes_per_s: Some(bytes / seconds),
        ..HostLoad::default()
    };
    Made { rate: steps / seconds, load }
}

/// Prints the table "Jobs on one host" of bench/RESULTS.md. Takes four minutes of a quiet machine:
/// `cargo nextest run -p radrm-preload-tests --run-ignored only -E "test(slowdown_on_a_shared_host)" --no-capture`
#[test]
#[ignore = "takes four minutes of a quiet machine"]
fn slowdown_on_a_shared_host_is_as_predicted() {
    const SECONDS: &str = "3";
    const LONGER: &str = "4.5";
    let program = programs::compile("loads.c", &[]);
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("samples");
    fs::write(&file, vec![7u8; 8 << 20]).expect("file");
    let file = file.display().to_string();
    let cores = thread::available_parallelism().expect("cores").get();
    // The most that goes through the memory: with a process on each core.
    let streams: Vec<Child> = (0..cores).map(|_| start(&program, &["memory", SECONDS])).collect();
    let streams: Vec<Made> = streams.into_iter().map(made).collect();
    let most: f64 = streams.iter().filter_map(|made| made.load.memory_bytes_per_s).sum();
    let host = HostSpec {
        cores: cores as f64,
        memory_bytes_per_s: Some(most),
        memory_bytes: None,
        disk_bytes_per_s: None,
    };
    println!("memory: {:.1} GB/s by {cores} processes", most / 1e9);
    let alone = |words: &[&str]| made(start(&program, words)).load;
    let neighbours = [("cpu", alone(&["cpu", SECONDS])), ("memory", alone(&["memory", SECONDS]))];
    let load_of = |name: &str| neighbours.iter().find(|(kind, _)| *kind == name).expect("kind").1;
    println!("| loader: cores alone | beside | predicted speed | observed | difference |");
    println!("|--:|---|--:|--:|--:|");
    let mut worst = 0.0_f64;
    // The formula was made from the first three; it did not know the others.
    for (rounds, wait) in [("14", "10000"), ("14", "60000"), ("60", "5000"), ("14", "30000"), ("28", "8000")]
    {
        let loader = ["loader", &file, "8388608", rounds, wait, SECONDS];
        let own = made(start(&program, &loader));
        for beside in
            [&["cpu"][..], &["cpu"; 2], &["cpu"; 3], &["memory"], &["memory"; 2], &["cpu", "memory"]]
        {
            let others: Vec<Child> = beside.iter().map(|kind| start(&program, &[kind, LONGER])).collect();
            thread::sleep(Duration::from_millis(700));
            let there = made(start(&program, &loader));
            others.into_iter().for_each(|other| _ = made(other));
            let mut jobs = vec![own.load];
            jobs.extend(beside.iter().map(|kind| load_of(kind)));
            let (predicted, observed) = (host_speeds(&jobs, &host)[0], there.rate / own.rate);
            let difference = predicted - observed;
            worst = worst.max(difference.abs());
            println!(
                "| {:.2} | {} | {predicted:.2} | {observed:.2} | {difference:+.2} |",
                own.load.cores,
                beside.join(", ")
            );
        }
    }
    assert!(worst <= 0.1, "{worst}");
}
