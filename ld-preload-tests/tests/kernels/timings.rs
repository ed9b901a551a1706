//! Timed launches: what is said of kernels' times on the GPU, on the emulator, where they are known.

use std::collections::HashMap;
use std::process::Command;

use radrm_preload_tests::{child, programs, rig::Rig};
use radrm_telemetry::{CopyWay, KernelsMode, LaunchSample, ProcessSnapshot, SampleReader, SegmentFile};

/// A program with its arguments.
fn program(rig: &Rig, source: &str, args: &[String]) -> Command {
    let mut command = rig.bare_command(programs::compile(source, &[]));
    command.args(args);
    command
}

/// The share of the time that timing may take where none is asked for.
const DEFAULT: &str = "";

/// A machine for one run: a program that has ended still slows down the next for as long as its kernels would
/// have taken.
fn rig() -> Rig {
    Rig::emulated("1xH200")
}

/// Figures that the program has measured itself. Without the shim: to ask the emulator for an event moves its
/// clock, which what is queued later feels.
fn truth_of(args: &[String]) -> HashMap<String, (u64, f64)> {
    truth(&child::run(program(&rig(), "timed.c", args), 120).ok().stdout)
}

/// Record of the shim of `timed.c`.
fn observed(args: &[String], mode: &str, budget: &str) -> ProcessSnapshot {
    run("timed.c", args, mode, budget).1
}

/// Output of a program under the shim, and the record of the shim, in a segment of its own.
fn run(source: &str, args: &[String], mode: &str, budget: &str) -> (String, ProcessSnapshot) {
    let (said, process, _) = sampled(source, args, mode, budget);
    (said, process)
}

/// And the launches that it has put down one by one.
fn sampled(
    source: &str,
    args: &[String],
    mode: &str,
    budget: &str,
) -> (String, ProcessSnapshot, Vec<LaunchSample>) {
    let rig = rig();
    let segment = SegmentFile::create_unnamed(1).expect("segment");
    let mut command = program(&rig, source, args);
    command.env("RADRM_SEGMENT", segment.path()).env("LD_PRELOAD", rig.preload()).env("RADRM_KERNELS", mode);
    if budget != DEFAULT {
        command.env("RADRM_KERNELS_BUDGET", budget);
    }
    let said = child::run(command, 120).ok().stdout;
    let segment = segment.segment().expect("own segment");
    let mut all = segment.processes().expect("processes");
    assert_eq!(all.len(), 1, "{all:?}");
    let process = all.remove(0);
    let samples = SampleReader::new(&process.slot).poll(&segment, true);
    (said, process, samples)
}

/// Launches and nanoseconds of each kernel, as the program has measured them.
fn truth(said: &str) -> HashMap<String, (u64, f64)> {
    let line = |line: &str| {
        let cells: Vec<&str> = line.split(' ').collect();
        let [name, launches, ns] = cells[..] else { panic!("{line:?}") };
        (name.to_owned(), (launches.parse().expect("launches"), ns.parse().expect("ns")))
    };
    said.lines().map(line).collect()
}

/// Runs the program with many seeds: the interval must hold the truth in at least 95 of 100 kernels, and be
/// narrow enough to say something: in the median half as wide as such a share of the truth.
#[track_caller]
fn assert_held(seeds: std::ops::Range<u64>, launches: u64, budget: &str, width: f64, more: &[&str]) {
    let (mut held, mut widths) = (0, Vec::new());
    for seed in seeds {
        let mut args = vec![seed.to_string(), (launches + launches * 3 / 20 * (seed % 11)).to_string()];
        args.extend(more.iter().map(|m| (*m).to_owned()));
        let process = observed(&args, "sample", budget);
        assert_eq!(process.kernels_mode, Some(KernelsMode::Sample));
        for (name, (launches, ns)) in truth_of(&args) {
            let Some(kernel) = process.kernels.iter().find(|k| k.name == name) else {
                assert_eq!(launches, 0, "{name}");
                continue;
            };
            assert_eq!(kernel.launches, launches, "{name}: launches are exact");
            // The only launch of a kernel may come when the budget is spent, which on a busy machine is soon.
            let Some(time) = kernel.time else {
                eprintln!("seed {seed}, {name}: nothing is known of {kernel:?}");
                widths.push(f64::INFINITY);
                continue;
            };
            widths.push(time.half_width_ns as f64 / ns);
            let is_held = (time.total_ns as f64 - ns).abs() <= time.half_width_ns as f64;
            held += u32::from(is_held);
            if !is_held {
                eprintln!("seed {seed}, {name}: {ns} ns in truth, {time:?}");
            }
        }
    }
    let cases = widths.len();
    widths.sort_by(f64::total_cmp);
    eprintln!("held in {held} of {cases}, median half-width {:.4}", widths[cases / 2]);
    assert!(cases > 120 && f64::from(held) >= 0.95 * cases as f64, "{held} of {cases}");
    assert!(widths[cases / 2] < width, "half-widths as shares of the truth: {widths:?}");
}

#[test]
fn the_interval_holds_the_truth_in_95_of_100_cases() {
    assert_held(0..25, 2000, "20", 0.1, &[]);
}

#[test]
fn shares_of_graphs_are_told_like_launches() {
    assert_held(100..120, 2000, "20", 0.1, &["graphs"]);
}

/// Default for users who ask for nothing else: few times, most of them of the first launches.
#[test]
fn the_interval_holds_the_truth_at_the_default_budget() {
    assert_held(200..218, 20_000, DEFAULT, 0.25, &[]);
    assert_held(218..236, 4_000, DEFAULT, 0.25, &["graphs"]);
}

#[test]
fn all_launches_are_timed_where_all_are_asked_for() {
    let args = ["5", "3000"].map(str::to_owned);
    let process = observed(&args, "all", "0");
    for (name, (launches, ns)) in truth_of(&args) {
        let kernel = process.kernels.iter().find(|k| k.name == name).expect("the kernel");
        let time = kernel.time.expect("times");
        assert_eq!(time.samples, launches, "{name}");
        assert!((time.total_ns as f64 - ns).abs() <= 1.0 + ns * 1e-5, "{name}: {ns} in truth, {time:?}");
    }
    assert_eq!(process.timings_lost, 0);
}

#[test]
fn single_launches_are_put_down_and_no_more_of_them_than_the_rate_allows() {
    // Graphs come later than the first launches of each tenth of a second: it takes several to see one.
    let long = ["5", "60000", "graphs"].as_slice();
    for (args, mode, budget) in
        [(&["5", "3000"][..], "all", "0"), (&["5", "3000"], "sample", "20"), (long, "all", "0")]
    {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let (_, process, samples) = sampled("timed.c", &args, mode, budget);
        let life = process.ended_ns.expect("its end") - process.joined_ns;
        let most = 16 * (life / 100_000_000 + 2);
        assert!(!samples.is_empty() && samples.len() as u64 <= most, "{} in {life} ns", samples.len());
        for sample in &samples {
            assert!(sample.launched_ns >= process.joined_ns && sample.launched_ns <= sample.seen_ns);
            assert!(sample.end_ns.is_some_and(|end| end + 1 >= sample.duration_ns), "{sample:?}");
            let of = |kernel: &&radrm_telemetry::KernelSnapshot| kernel.id == sample.kernel.number();
            if !sample.is_graph {
                let kernel = process.kernels.iter().find(of).unwrap_or_else(|| panic!("{sample:?}"));
                assert!(kernel.time.is_some() && sample.blocks > 0 && sample.threads > 0, "{sample:?}");
            }
        }
        assert_eq!(samples.iter().any(|sample| sample.is_graph), args.len() > 2, "{samples:?}");
    }
    let (_, _, samples) = sampled("timed.c", &["5", "300"].map(str::to_owned), "count", "1");
    assert_eq!(samples, []);
}

#[test]
fn counting_times_nothing_and_off_counts_nothing() {
    let args = ["5", "500", "graphs"].map(str::to_owned);
    let expected: u64 = truth_of(&args).values().map(|(launches, _)| launches).sum();
    for (mode, is_counted) in [("count", true), ("off", false)] {
        let process = observed(&args, mode, "1");
        assert_eq!(process.launches(), if is_counted { expected } else { 0 }, "{mode}");
        assert_eq!(process.graph_launches > 0, is_counted, "{mode}");
        assert!(process.kernels.iter().all(|k| k.time.is_none()), "{mode}");
        assert_eq!(process.timing_cost_ns, 0, "{mode}");
    }
}

#[test]
fn copies_are_counted_by_way() {
    let (_, process) = run("copies.c", &[], "count", "1");
    let counted: Vec<_> = process.copies.iter().map(|c| (c.way, c.count, c.bytes)).collect();
    let expected = [
        (CopyWay::HostToDevice, 4, 1 + 2 + 4 + 512),
        (CopyWay::DeviceToHost, 2, 8 + 16),
        (CopyWay::DeviceToDevice, 2, 32 + 64),
        (CopyWay::Unspecified, 2, 128 + 256),
        (CopyWay::Set, 5, 1 + 2 + 4 + 8 + 16),
    ];
    assert_eq!(counted, expected);
}

#[test]
fn captures_answer_the_same_with_and_without_timing() {
    let bare = child::run(program(&rig(), "captures.c", &[]), 120).ok().stdout;
    assert!(bare.contains("ended: 0") && bare.contains("took time"), "{bare}");
    for mode in ["count", "sample", "all"] {
        let (said, process) = run("captures.c", &[], mode, "50");
        assert_eq!(said, bare, "{mode}");
        let timed = process.kernels.iter().any(|k| k.time.is_some_and(|t| t.samples > 0));
        assert_eq!(timed, mode != "count", "{mode}: {process:?}");
        assert_eq!(process.timings_lost, 0, "{mode}: an event of ours was put into a capture");
    }
}

/// The instant driver keeps a function's name and nothing else, so that what grows is the shim.
#[test]
fn a_hundred_thousand_kernels_take_bounded_memory() {
    let rig = Rig::instant();
    let source = programs::compile("many_kernels.c", &[]);
    let grown = |is_shimmed: bool, mode: &str, how: &str| {
        let segment = SegmentFile::create_unnamed(1).expect("segment");
        let mut command = rig.bare_command(&source);
        command.args(["100000", how]);
        if is_shimmed {
            command
                .env("RADRM_SEGMENT", segment.path())
                .env("LD_PRELOAD", rig.preload())
                .env("RADRM_KERNELS", mode)
                .env("RADRM_KERNELS_BUDGET", "100");
        }
        let said = child::run(command, 120).ok().stdout;
        let mut numbers = said.split_whitespace().map(|n| n.parse::<i64>().expect("KiB"));
        let (early, late) = (numbers.next().expect("early"), numbers.next().expect("late"));
        let processes = segment.segment().expect("own segment").processes().expect("processes");
        if let Some(process) = processes.first() {
            assert_eq!(process.launches(), 300_000);
            assert!(process.kernels.len() <= 4096, "{}", process.kernels.len());
        }
        late - early
    };
    for how in ["keep", "drop"] {
        let bare = grown(false, "", how);
        for mode in ["count", "sample"] {
            let more = grown(true, mode, how) - bare;
            eprintln!("{mode}, {how}: {more} KiB more, {bare} KiB by the program itself");
            // What is known of handles has a fixed size, most of which the first 10,000 have filled. A word for each
            // of the others would take 700 KiB, and a map's place for each 1,400.
            assert!(more < 400, "{mode}, {how}: {more} KiB for 90,000 kernels more");
        }
    }
}

/// An H200 has 132 multiprocessors of 2048 threads.
#[test]
fn sm_activity_follows_from_geometry_and_time() {
    for (blocks, threads, launches, mode, active) in [
        (33, 1024, 2000, "all", 0.25),
        (132, 256, 2000, "all", 1.0),
        // Two of these fit on a multiprocessor: one full wave, then half of the multiprocessors.
        (264 + 66, 1024, 2000, "all", 0.75),
        (264 * 20 + 10, 1024, 2000, "all", (20.0 + 10.0 / 132.0) / 21.0),
        // Most of these come after the last one that is timed.
        (33, 1024, 20, "sample", 0.25),
        (264 + 66, 1024, 2000, "sample", 0.75),
    ] {
        let args = [blocks, threads, launches].map(|n| n.to_string());
        let (_, process) = run("steady.c", &args, mode, "100");
        let time = process.kernels[0].time.expect("times");
        let span: u64 = process.accounts.iter().map(|account| process.used_ns(account)).sum();
        assert!(time.total_ns.abs_diff(span) < span / 10, "nothing else ran: {time:?} of {span} ns");
        let busy = (time.total_ns as f64 / span as f64).min(1.0);
        let seen = f64::from(time.active_ppm.expect("activity")) / 1e6 * busy;
        assert!((seen - active).abs() < 0.05, "{blocks} blocks of {threads}: {seen}, {active} in truth");
        assert!(time.resident_ppm.expect("occupancy") > 0, "{time:?}");
    }
}
