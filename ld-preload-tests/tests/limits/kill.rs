//! Quota while programs are killed: never a byte above it, and the dead one's share is there for the next request.
//!
//! The emulated card is exactly as large as the quota and contexts take nothing on it, so that a single
//! byte granted above the quota is a request that the driver refuses, which its ledger counts.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use radrm_preload_tests::{
    child::Running,
    programs,
    random::Random,
    rig::{PATIENCE, Rig},
};
use radrm_telemetry::ledger::{LedgerView, Place};

const MIB: u64 = 1 << 20;
/// Size of the card and of the quota.
const QUOTA: u64 = 64 * MIB;

/// A rig whose card holds the quota and nothing more.
fn rig() -> (Rig, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("directory");
    let spec = directory.path().join("machine.toml");
    let text = format!("[[gpu]]\nmodel = \"H100-80GB\"\nmemory_mib = {}\ncontext_mib = 0\n", QUOTA / MIB);
    fs::write(&spec, text).expect("description");
    (Rig::emulated(spec.to_str().expect("text")).limited("64MiB"), directory)
}

fn start(rig: &Rig, program: &PathBuf, args: &[&str]) -> Running {
    let mut command = rig.command(program);
    command.args(args);
    let mut running = Running::start(command, 1800);
    running.until_ready();
    running
}

/// No request was let through that the card had no room for, and nothing is charged that takes nothing.
#[track_caller]
fn assert_never_above(rig: &Rig) {
    let ledger = LedgerView::open(Path::new(&rig.segment()), Place::Segment).expect("the job's ledger");
    assert_eq!(ledger.gpus()[0].context, 0, "contexts take nothing here");
    for ledger in rig.ledgers() {
        for gpu in &ledger.gpus {
            assert_eq!(gpu.failed, 0, "process {} was let through to a full card: {gpu:?}", ledger.pid);
        }
    }
}

/// Kills `count` allocating programs while two others allocate, and asks for all that the two cannot hold
/// after every kill.
fn kill_beside_others(count: u64, seed: u64) {
    let (rig, _directory) = rig();
    let (storm, asker) = (programs::compile("quota_storm.c", &[]), programs::compile("quota_ask.c", &[]));
    // Half of the quota at most.
    let others = [start(&rig, &storm, &["8"]), start(&rig, &storm, &["8"])];
    let mut asker = start(&rig, &asker, &[]);
    let mut random = Random(seed);
    for kill in 0..count {
        let victim = start(&rig, &storm, &["16"]);
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        victim.signal(libc::SIGKILL);
        assert!(!victim.end().status.success());
        let answer = asker.ask("0x2000000");
        assert_eq!(answer, "granted", "kill {kill} (seed {seed}): the dead one's share is not back");
        assert_never_above(&rig);
    }
    for other in others {
        other.signal(libc::SIGKILL);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&other.end().status), Some(libc::SIGKILL));
    }
    assert_eq!(asker.ask(&QUOTA.to_string()), "granted", "something of the quota is lost");
    assert_never_above(&rig);
}

#[test]
fn case_01_random_kills_free_the_share_and_the_quota_holds() {
    kill_beside_others(150, 0x5eed_0101);
}

#[test]
#[ignore = "minutes: the same with 10,000 kills"]
fn case_01_the_same_with_10000_kills() {
    kill_beside_others(10_000, 0x5eed_0102);
}

/// Walks a process through one request instruction by instruction and kills it after each `stride`-th.
fn kill_at_instructions(stride: u64) {
    let (rig, _directory) = rig();
    let program = programs::compile("quota_ask.c", &[]);
    let mut asker = start(&rig, &program, &[]);
    let mut steps = 0;
    loop {
        let mut victim = start(&rig, &program, &[]);
        victim.say("step 0x2800000\n");
        let pid = victim.pid() as libc::pid_t;
        let ended = walk(pid, steps);
        victim.signal(libc::SIGKILL);
        assert!(!victim.end().status.success());
        assert_eq!(asker.ask(&QUOTA.to_string()), "granted", "killed after {steps} instructions");
        assert_never_above(&rig);
        if ended {
            break;
        }
        steps += stride;
    }
    eprintln!("a request and its release are {steps} instructions long");
    assert!(steps > 500, "the walk was over after {steps} instructions");
}

/// Lets a process that stops itself make so many instructions. True: it was through before.
fn walk(pid: libc::pid_t, steps: u64) -> bool {
    assert_eq!(stopped(pid), libc::SIGSTOP);
    (0..steps).any(|_| step(pid) == libc::SIGSTOP)
}

/// Lets a process that has stopped make one instruction; the signal that stops it again.
fn step(pid: libc::pid_t) -> i32 {
    // SAFETY: the child is stopped and this thread is its tracer.
    let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
    assert_eq!(stepped, 0, "{}", std::io::Error::last_os_error());
    stopped(pid)
}

/// Waits until a process stops; the signal that does it.
fn stopped(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a plain system call on a child of this thread.
    let got = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert_eq!(got, pid, "the child is being traced");
    assert!(libc::WIFSTOPPED(status), "status {status:#x}");
    libc::WSTOPSIG(status)
}

#[test]
fn case_01_a_kill_at_any_instruction_loses_no_memory() {
    kill_at_instructions(193);
}

#[test]
#[ignore = "minutes: the same after every 25th instruction"]
fn case_01_killed_after_every_25th_instruction_of_a_request_nothing_is_lost() {
    kill_at_instructions(25);
}

#[test]
fn case_05_a_request_that_hangs_is_not_taken_for_a_context() {
    let (rig, _directory) = rig();
    let program = programs::compile("quota_ask.c", &[]);
    let mut victim = start(&rig, &program, &[]);
    victim.say("step 0x2800000\n");
    let pid = victim.pid();
    let granted = || {
        let ledgers = rig.ledgers().into_iter().filter(|ledger| ledger.pid == pid);
        ledgers.flat_map(|ledger| ledger.gpus).any(|gpu| gpu.total_requested_now >= 0x280_0000)
    };
    assert!(!walk(pid as libc::pid_t, 0));
    while !granted() {
        for _ in 0..20 {
            assert_eq!(step(pid as libc::pid_t), libc::SIGTRAP, "the request was over before it was granted");
        }
    }
    // Long enough for several samples of the launcher's, all of which agree; then it is gone.
    std::thread::sleep(Duration::from_secs(2));
    victim.signal(libc::SIGKILL);
    assert!(!victim.end().status.success());
    let mut next = start(&rig, &program, &[]);
    assert_eq!(next.ask(&QUOTA.to_string()), "granted", "a context is charged that takes nothing");
}

#[test]
fn case_03_of_two_requests_of_60_percent_one_is_granted() {
    let (rig, _directory) = rig();
    const ROUNDS: u64 = 100_000;
    let program = programs::compile("sixty.c", &[]);
    let mut command = rig.command(program);
    // In the driver's steps: what it rounds up would count as taken by a context.
    let bytes = (QUOTA / 10 * 6).next_multiple_of(2 * MIB);
    command.args([ROUNDS.to_string(), bytes.to_string()]);
    let ended = radrm_preload_tests::child::run(command, 600).ok();
    let counts: Vec<u64> = ended.stdout.split_whitespace().map(|n| n.parse().expect("a count")).collect();
    let [both, one, none, undisturbed] = counts[..] else { panic!("{}", ended.stdout) };
    eprintln!(
        "both {both}, one {one}, none {none}, of these {undisturbed} in which no request was interrupted"
    );
    assert_eq!((both, both + one + none), (0, ROUNDS));
    // One that is interrupted between its addition and its withdrawal has the other refused, and is refused itself.
    assert!(undisturbed * 1000 <= ROUNDS, "in {undisturbed} of {ROUNDS} rounds neither got the memory");
    assert_never_above(&rig);
}

#[test]
fn case_02_a_crowd_of_300_gets_exactly_the_quota() {
    let (rig, _directory) = rig();
    let program = programs::compile("quota_ask.c", &[]);
    let mut crowd: Vec<Running> = (0..300)
        .map(|_| {
            let command = rig.command(&program);
            Running::start(command, 4 * PATIENCE)
        })
        .collect();
    for member in &mut crowd {
        member.until_ready();
    }
    // Each wants a thirty-second part and keeps it; all at once.
    crowd.iter_mut().for_each(|member| member.say("keep 0x200000\n"));
    let granted =
        crowd.iter_mut().filter_map(|member| (member.line().trim() == "granted").then_some(())).count();
    assert_eq!(granted as u64, QUOTA / (2 * MIB));
    for member in &crowd {
        member.signal(libc::SIGKILL);
    }
    crowd.into_iter().for_each(|member| drop(member.end()));
    let mut asker = start(&rig, &program, &[]);
    assert_eq!(asker.ask(&QUOTA.to_string()), "granted");
    assert_never_above(&rig);
}
