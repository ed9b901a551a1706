//! Launch budgets: real processes on emulated GPUs, in real time.
//!
//! Figures are parts of a sum over the same interval, or kernels of a stated length in an interval, so that a busy machine
//! matters little, and what is too little may be measured again. Nothing is asserted about how fast anything is.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_telemetry::budget::{Budget, WHOLE};
use radrm_telemetry::process::Stat;
use radrm_telemetry::{Segment, Writer};

/// Time of a kernel, ns.
const KERNEL_NS: u64 = 500_000;
/// Length of the measured interval, seconds.
const SECONDS: f64 = 4.0;
/// Budget under which no process may launch.
const CLOSED: Budget = Budget::new(0, 10);

fn program() -> PathBuf {
    programs::compile("turns.c", &["-pthread"])
}

fn rig() -> Rig {
    let rig = Rig::emulated("1xH200");
    std::fs::write(rig.path().join("times"), format!("* {KERNEL_NS}\n")).expect("kernel times");
    rig
}

fn in_real_time(mut command: Command, rig: &Rig) -> Command {
    command.env("RADRM_EMULATOR_TIME", "real").env("RADRM_EMULATOR_KERNEL_TIMES", rig.path().join("times"));
    command
}

/// A job of its own on the rig's machine.
fn job(rig: &Rig, options: &[&str], args: &[&str]) -> Command {
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--no-profile", "--no-dataset", "--quiet", "--machine"]).arg(rig.machine_path());
    command.args(options).arg("--").arg(program()).args(args);
    in_real_time(command, rig)
}

/// Jobs that fill the GPU at the same time, with these options of `radrm-run`: the kernels of each that were done.
fn filled(jobs: &[(&[&str], &str)]) -> Vec<f64> {
    filled_on(&rig(), jobs)
}

fn filled_on(rig: &Rig, jobs: &[(&[&str], &str)]) -> Vec<f64> {
    for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
        artifacts::file(library);
    }
    let seconds = SECONDS.to_string();
    let mut running: Vec<Running> = Vec::new();
    for (options, way) in jobs {
        let mut one = Running::start(job(rig, options, &["fill", way, &seconds]), PATIENCE);
        one.until_ready();
        running.push(one);
    }
    running.iter_mut().for_each(Running::go_on);
    running
        .into_iter()
        .map(|one| {
            let said = one.end().ok().stdout;
            said.trim().parse().unwrap_or_else(|_| panic!("{said:?}"))
        })
        .collect()
}

/// Measures until it comes out as it should: where the machine has no time for the programs they cannot use theirs.
fn until_fair(mut measure: impl FnMut() -> Result<(), String>) {
    let mut tries: Vec<String> = Vec::new();
    while let Err(why) = measure() {
        tries.push(why);
        assert!(tries.len() < 6, "{tries:#?}");
    }
}

/// That a job alone with 30 % never gets more, and gets that much.
fn until_thirty(options: &[&str], way: &str) {
    until_fair(|| {
        let part = part_of_time(filled(&[(options, way)])[0]);
        assert!(part <= 0.33, "{options:?} {way}: {part}");
        if part >= 0.27 { Ok(()) } else { Err(format!("{options:?} {way}: {part}")) }
    });
}

/// The part of the GPU's time that so many kernels take.
fn part_of_time(kernels: f64) -> f64 {
    kernels * KERNEL_NS as f64 / 1e9 / SECONDS
}

#[test]
fn shares_of_30_and_70_percent_hold_for_launches_and_graphs() {
    for (first, second) in [("launches", "launches"), ("graphs", "graphs"), ("graphs", "ex")] {
        until_fair(|| {
            let done = filled(&[(&["--sm-limit", "30%"], first), (&["--sm-limit", "70%"], second)]);
            let (part, whole) = (done[0] / (done[0] + done[1]), part_of_time(done[0] + done[1]));
            let is_fair = (0.27..=0.33).contains(&part) && whole > 0.8;
            if is_fair {
                Ok(())
            } else {
                Err(format!("{first} beside {second}: {part} of {whole}: {done:?}"))
            }
        });
    }
}

#[test]
fn a_job_alone_with_30_percent_gets_30_percent() {
    for way in ["launches", "ex", "graphs"] {
        until_thirty(&["--sm-limit", "30%"], way);
    }
}

#[test]
fn without_budgets_processes_share_evenly_and_the_killed_leave() {
    until_fair(|| {
        let done = filled(&[(&[], "launches"), (&[], "graphs")]);
        let (part, whole) = (done[0] / (done[0] + done[1]), part_of_time(done[0] + done[1]));
        assert!(whole <= 1.03, "more than there is of the GPU: {done:?}");
        let is_fair = (0.4..=0.6).contains(&part) && whole > 0.7;
        if is_fair { Ok(()) } else { Err(format!("{part}, {whole}: {done:?}")) }
    });
    let rig = rig();
    let mut killed = Running::start(job(&rig, &[], &["fill", "launches", "60"]), PATIENCE);
    let pid = killed.until_ready();
    killed.go_on();
    let mut other = Running::start(job(&rig, &[], &["fill", "launches", &SECONDS.to_string()]), PATIENCE);
    other.until_ready();
    // SAFETY: plain system call; the program waits only for its launcher.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    other.go_on();
    let done: f64 = other.end().ok().stdout.trim().parse().expect("a number");
    assert!(part_of_time(done) > 0.55, "as if the killed one were still there: {done}");
    killed.end();
}

#[test]
fn the_report_says_what_was_held_back() {
    let rig = rig();
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--no-profile", "--no-dataset", "--sm-limit", "30%", "--machine"]).arg(rig.machine_path());
    command.arg("--").arg(program()).args(["fill", "launches", "1"]);
    let mut running = Running::start(in_real_time(command, &rig), PATIENCE);
    running.until_ready();
    running.go_on();
    let said = running.end().ok().stderr;
    assert!(said.contains("held back by a launch budget of 30 %: 0."), "{said}");
}

#[test]
fn launches_of_which_only_some_are_timed_get_no_more_than_their_share() {
    // Short ones: long ones are all timed.
    const SHORT_NS: u64 = 60_000;
    for way in ["launches", "ex"] {
        let rig = rig();
        std::fs::write(rig.path().join("times"), format!("* {SHORT_NS}\n")).expect("kernel times");
        let options: &[&str] = &["--sm-limit", "20%", "--kernels", "sample"];
        let done = filled_on(&rig, &[(options, way)]);
        let part = done[0] * SHORT_NS as f64 / 1e9 / SECONDS;
        assert!(part > 0.01 && part <= 0.23, "{way}: {part}");
    }
}

#[test]
fn held_launches_are_also_held_while_launches_are_timed() {
    for kernels in ["all", "sample"] {
        for way in ["launches", "ex"] {
            until_thirty(&["--sm-limit", "30%", "--kernels", kernels], way);
        }
    }
}

/// A program of the rig's session, paused before it launches, and the session's segment.
fn paused(rig: &Rig, args: &[&str]) -> (Running, Segment) {
    paused_with(rig, "count", args)
}

/// The same, with this setting of `radrm-run --kernels`.
fn paused_with(rig: &Rig, kernels: &str, args: &[&str]) -> (Running, Segment) {
    let mut command = rig.command(program());
    command.args(args).env("RADRM_KERNELS", kernels);
    let mut running = Running::start(in_real_time(command, rig), PATIENCE);
    running.until_ready();
    let segment = Segment::open(PathBuf::from(rig.segment()).as_path()).expect("the session's segment");
    (running, segment)
}

/// Waits until so many launches are held, over all processes.
fn until_held(segment: &Segment, launches: u64) {
    let began = Instant::now();
    // Longer than any of the programs lives.
    while began.elapsed() < Duration::from_secs(2 * PATIENCE) {
        let slots = segment.slots().expect("directory");
        let held: u64 = slots.iter().map(|slot| segment.throttled(slot).expect("slot").held).sum();
        assert!(held <= launches, "{held} are held");
        if held == launches {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{launches} launches are to be held, and never were");
}

/// Kernels that the driver was told to launch, as it counts them.
fn launched(rig: &Rig) -> u64 {
    rig.ledgers().iter().flat_map(|ledger| &ledger.gpus).map(|gpu| gpu.launches).sum()
}

/// The state of a program that was not waited for, as `/proc` says it.
fn state(program: &Running) -> char {
    char::from(Stat::now(program.pid()).expect("not waited for").state)
}

/// The same under a closed budget, when so many launches are held.
fn held(rig: &Rig, args: &[&str], launches: u64) -> (Running, Segment) {
    let (mut program, segment) = paused(rig, args);
    segment.set_budget(Some(CLOSED)).expect("budget");
    program.go_on();
    until_held(&segment, launches);
    (program, segment)
}

/// Waits until so many kernels were launched.
fn until_launched(rig: &Rig, program: &Running, kernels: u64) {
    while launched(rig) < kernels {
        assert_ne!(state(program), 'Z', "{} of {kernels} kernels were launched", launched(rig));
        thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a program between two instructions.
fn stop(program: &Running) {
    program.signal(libc::SIGSTOP);
    while state(program) != 'T' {
        thread::sleep(Duration::from_millis(1));
    }
}

/// That nothing was let through.
fn assert_still_held(segment: &Segment) {
    thread::sleep(Duration::from_millis(300));
    for slot in segment.slots().expect("directory") {
        assert_eq!(segment.throttled(&slot).expect("slot").passed, 0);
    }
}

#[test]
fn a_launch_waits_for_a_request_until_it_ends_or_its_time_is_over() {
    const AHEAD_NS: u64 = radrm_telemetry::gate::MAX_AHEAD_NS;
    let now = radrm_telemetry::monotonic_ns;
    let whole = Budget::new(WHOLE, 10);
    // Set anew, as for one request behind another, until it is opened.
    let rig = rig();
    let (mut program, segment) = paused(&rig, &["once"]);
    segment.set_budget(Some(whole)).expect("budget");
    segment.set_gate(now() + AHEAD_NS).expect("gate");
    program.go_on();
    until_held(&segment, 1);
    for _ in 0..4 {
        let until = now() + AHEAD_NS;
        segment.set_gate(until).expect("gate");
        thread::sleep(Duration::from_millis(300));
        let slots = segment.slots().expect("directory");
        let passed: u64 = slots.iter().map(|slot| segment.throttled(slot).expect("slot").passed).sum();
        assert!(passed == 0 || now() >= until, "it waits for as long as the request does");
    }
    let before = launched(&rig);
    segment.set_gate(0).expect("gate");
    program.end().ok();
    assert_eq!(launched(&rig), before + 1);
}

#[test]
fn a_gate_that_no_daemon_opens_holds_no_program_for_ever() {
    let now = radrm_telemetry::monotonic_ns;
    // A daemon that died, a time that is over, and one that is too far ahead to be true.
    let rig = rig();
    for gate in [now() + 400_000_000, now(), u64::MAX, now() + (1 << 40)] {
        let before = launched(&rig);
        let (mut program, segment) = paused(&rig, &["once"]);
        segment.set_budget(Some(Budget::new(WHOLE, 10))).expect("budget");
        segment.set_gate(gate).expect("gate");
        program.go_on();
        program.end().ok();
        assert!(launched(&rig) > before && segment.gate() == gate);
    }
    // Without a budget no launch looks at it.
    let (mut program, segment) = paused(&rig, &["once"]);
    let held = || -> u64 {
        let slots = segment.slots().expect("directory");
        slots.iter().map(|slot| segment.throttled(slot).expect("slot").held).sum()
    };
    let before = held();
    segment.set_budget(None).expect("budget");
    segment.set_gate(now() + 500_000_000).expect("gate");
    program.go_on();
    program.end().ok();
    assert_eq!(held(), before);
}

#[test]
fn a_launch_that_is_held_goes_when_the_budget_is_lifted() {
    let rig = rig();
    let (program, segment) = held(&rig, &["once"], 1);
    assert_still_held(&segment);
    segment.set_budget(None).expect("lifted");
    assert_eq!(program.end().ok().stdout, "launched, errno 77\n");
}

#[test]
fn a_launch_that_is_held_goes_when_the_budget_is_changed() {
    let rig = rig();
    let (program, segment) = held(&rig, &["once"], 1);
    assert_still_held(&segment);
    segment.set_budget(Some(Budget::new(500, 10))).expect("half");
    program.end().ok();
    let slots = segment.slots().expect("directory");
    let done = segment.throttled(&slots[0]).expect("slot");
    assert!(done.obeys && done.passed == 1 && done.held == 1 && done.held_ns > 300_000_000, "{done:?}");
}

/// Launches of which only counts are kept take a short way, which must not lead past a budget. The program is stopped
/// while the budget is closed, so that it cannot launch unseen: it goes on with at most the one launch that it was
/// making. Kernels are so short that hundreds of launches are made between two that are timed.
#[test]
fn the_very_next_launch_is_held_when_a_budget_closes() {
    for kernels in ["count", "sample", "all"] {
        for way in ["launches", "ex"] {
            let rig = rig();
            std::fs::write(rig.path().join("times"), "* 2000\n").expect("kernel times");
            let (mut program, segment) = paused_with(&rig, kernels, &["fill", way, "600"]);
            program.go_on();
            until_launched(&rig, &program, 5_000);
            stop(&program);
            let before = launched(&rig);
            segment.set_budget(Some(CLOSED)).expect("budget");
            program.signal(libc::SIGCONT);
            until_held(&segment, 1);
            let after = launched(&rig);
            assert!(after <= before + 1, "{kernels} {way}: {} launches", after - before);
            assert_still_held(&segment);
            assert_eq!(launched(&rig), after, "{kernels} {way}");
            program.signal(libc::SIGKILL);
            program.end();
        }
    }
}

#[test]
fn no_more_launches_are_under_way_than_a_budget_allows() {
    const LONG: Duration = Duration::from_millis(400);
    let rig = rig();
    std::fs::write(rig.path().join("times"), format!("* {}\n", LONG.as_nanos())).expect("kernel times");
    let (mut program, segment) = paused(&rig, &["fill", "launches", "600"]);
    segment.set_budget(Some(Budget::new(WHOLE, 2))).expect("budget");
    let began = Instant::now();
    program.go_on();
    until_launched(&rig, &program, 4);
    // The fourth one goes when two are done.
    assert!(began.elapsed() >= 2 * LONG, "{:?}", began.elapsed());
    program.signal(libc::SIGKILL);
    program.end();
}

/// A kernel may wait for one that is launched later.
#[test]
fn a_launch_does_not_wait_for_ever_for_work_of_its_own_process() {
    // The whole time, and turns that end long before the kernel.
    for share in [WHOLE, 500] {
        let rig = rig();
        std::fs::write(rig.path().join("times"), "* 600000000000\n").expect("kernel times");
        let (mut program, segment) = paused(&rig, &["threads", "3"]);
        segment.set_budget(Some(Budget::new(share, 1))).expect("budget");
        program.go_on();
        until_launched(&rig, &program, 3);
        program.signal(libc::SIGKILL);
        program.end();
    }
}

#[test]
fn signal_handlers_run_while_a_launch_is_held() {
    let rig = rig();
    let (mut program, segment) = held(&rig, &["signals"], 1);
    for _ in 0..3 {
        program.signal(libc::SIGUSR1);
        assert_eq!(program.line(), "handled\n");
    }
    assert_still_held(&segment);
    segment.set_budget(None).expect("lifted");
    assert_eq!(program.end().ok().stdout, "launched, errno 77\n");
}

#[test]
fn a_held_program_can_be_killed() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let rig = rig();
        let (program, _segment) = held(&rig, &["threads", "4"], 4);
        program.signal(signal);
        let status = program.end().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal));
    }
}

#[test]
fn what_is_captured_is_not_held() {
    let rig = rig();
    let (mut program, segment) = paused(&rig, &["capture"]);
    segment.set_budget(Some(CLOSED)).expect("budget");
    program.go_on();
    assert_eq!(program.end().ok().stdout, "4 nodes\n");
    until_held(&segment, 0);
}

#[test]
fn children_of_a_fork_are_held_too() {
    let rig = rig();
    let (program, segment) = held(&rig, &["fork"], 2);
    assert_still_held(&segment);
    segment.set_budget(None).expect("lifted");
    assert_eq!(program.end().ok().stdout, "both launched\n");
}

#[test]
fn all_threads_are_held_and_all_of_them_go() {
    let rig = rig();
    let (program, segment) = held(&rig, &["threads", "16"], 16);
    assert_still_held(&segment);
    // One at a time.
    segment.set_budget(Some(Budget::new(900, 1))).expect("budget");
    assert_eq!(program.end().ok().stdout, "all launched\n");
}

#[test]
fn a_share_needs_the_shim_and_says_how_it_is_held() {
    let rig = rig();
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--no-profile", "--no-dataset", "--sm-limit", "30%", "--machine"]).arg(rig.machine_path());
    command.arg("--").arg("true");
    let said = child::run(command, PATIENCE).ok().stderr;
    assert!(said.contains("launch budget, 30 % of the time"), "{said}");
    let mut command = job(&rig, &["--sm-limit", "30%"], &["once"]);
    command.env("RADRM_DISABLE", "1");
    let ended = child::run(command, PATIENCE);
    assert_eq!(ended.status.code(), Some(125));
    assert!(ended.stderr.contains("a share of the GPUs is asked for that cannot hold"), "{ended:?}");
}

/// A process that has the job's segment but makes its launches without looking at budgets: this test itself.
#[test]
fn a_process_that_cannot_be_held_is_named_when_a_share_is_set() {
    let rig = rig();
    let mut program = Running::start(job(&rig, &[], &["once"]), PATIENCE);
    let pid = program.until_ready();
    let environ = std::fs::read(format!("/proc/{pid}/environ")).expect("environment");
    let path = environ.split(|byte| *byte == 0).find_map(|line| line.strip_prefix(b"RADRM_SEGMENT="));
    Writer::join(&CString::new(path.expect("a segment")).expect("no NUL")).expect("a slot");
    let mut command = rig.bare_command(artifacts::file("radrm"));
    command.args(["quota", "set", &pid.to_string(), "--sm-limit", "30%"]);
    let said = child::run(command, PATIENCE).ok().stdout;
    let unheld = |pid: u32| said.contains(&format!("process {pid} of it cannot be held to that"));
    assert!(unheld(std::process::id()) && !unheld(pid), "{said}");
    program.go_on();
    program.end().ok();
}
