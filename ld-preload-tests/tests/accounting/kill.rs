//! Programs and launchers killed at random moments.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use radrm_preload_tests::{
    child::Running,
    figures::Outcome,
    programs,
    random::Random,
    rig::{PATIENCE, Rig},
};
use radrm_profile::{Profile, model::Kind};

/// Largest block of `storm.c`: what one call in flight may amount to.
const ONE_CALL: u64 = 1 << 20;

/// Process ids of the launcher's children.
fn children(pid: u32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

fn kill(pid: i32) {
    // SAFETY: a plain system call on a process that this test started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Figures that are further from the ledger than one call can explain.
fn beyond_one_call(outcome: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    for ledger in &outcome.ledgers {
        for gpu in &ledger.gpus {
            let page = gpu.kinds[Kind::Device.index()];
            let process = outcome.profile.processes.iter().find(|p| p.identity.pid == ledger.pid);
            let account = process.and_then(|p| outcome.account_of(p, gpu.gpu));
            let ours = account.map(|a| a.kinds[Kind::Device.index()]).unwrap_or_default();
            if ours.now.0.abs_diff(page.requested_now) > ONE_CALL
                || ours.peak.0.abs_diff(page.requested_peak) > ONE_CALL
                || ours.allocations.abs_diff(page.allocations) > 1
                || ours.frees.abs_diff(page.frees) > 1
            {
                wrong.push(format!("profile {ours:?}, ledger {page:?}"));
            }
        }
    }
    wrong
}

/// Kills an allocating program `count` times, one time in four while it starts.
fn kill_programs(count: u64, seed: u64) {
    let program = programs::compile("storm.c", &[]);
    let mut random = Random(seed);
    let (mut mid_run, mut exact) = (0, 0);
    for i in 0..count {
        let rig = Rig::emulated("1xH200");
        let mut command = rig.launched(&program);
        command.args(["0", "64"]);
        let mut running = Running::start(command, PATIENCE);
        let is_start = i % 4 == 3;
        let victim = if is_start {
            loop {
                if let Some(pid) = children(running.pid()).first() {
                    break *pid;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        } else {
            running.until_ready() as i32
        };
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        kill(victim);
        let ended = running.end();
        let outcome = rig.outcome(ended);
        let wrong = beyond_one_call(&outcome);
        assert!(wrong.is_empty(), "kill {i} (seed {seed}): {}", wrong.join("\n"));
        assert!(outcome.profile.outcome.is_some(), "kill {i}: the profile has no end");
        mid_run +=
            u64::from(outcome.ledgers.iter().any(|b| b.gpus.iter().any(|g| g.kinds[0].allocations > 100)));
        exact += u64::from(outcome.compare().1.is_empty());
    }
    eprintln!("{count} kills: {mid_run} while allocating, {exact} with figures that agree to the byte");
    assert!(mid_run * 2 > count, "only {mid_run} of {count} kills hit an allocating program");
}

#[test]
fn a_program_killed_at_random_moments_leaves_figures_within_one_call() {
    kill_programs(60, 0x5eed_0001);
}

#[test]
#[ignore = "minutes: the same with 1,000 kills"]
fn a_program_killed_at_1000_random_moments_leaves_figures_within_one_call() {
    kill_programs(1000, 0x5eed_1000);
}

#[test]
fn a_launcher_killed_at_random_moments_leaves_a_readable_profile() {
    let program = programs::compile("storm.c", &[]);
    let mut random = Random(0x5eed_0002);
    for i in 0..15 {
        let rig = Rig::emulated("1xH200");
        let mut command = rig.launched(&program);
        command.args(["0", "64"]);
        let mut running = Running::start(command, PATIENCE);
        let pid = running.until_ready() as i32;
        // The program may be ready before the launcher has written for the first time.
        let began = Instant::now();
        while let Err(error) = Profile::open(&rig.profile_path()) {
            assert!(began.elapsed() < Duration::from_secs(PATIENCE), "no profile is begun: {error}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(200_000)));
        running.signal(libc::SIGKILL);
        kill(pid);
        let _ = running.end();
        let profile = Profile::open(&rig.profile_path()).unwrap_or_else(|e| panic!("kill {i}: {e}"));
        assert!(profile.outcome.is_none());
    }
}

#[test]
fn a_profile_cut_at_any_byte_is_readable_or_named_as_no_profile() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("storm.c", &[]), &["5000", "64"]).ok();
    outcome.assert_equals_ledger();
    let whole = fs::read(rig.profile_path()).expect("profile");
    let cut: &Path = &rig.path().join("cut.radrm");
    let mut random = Random(0x5eed_0003);
    for _ in 0..200 {
        let length = random.below(whole.len() as u64) as usize;
        fs::write(cut, &whole[..length]).expect("cut");
        match Profile::open(cut) {
            Ok(profile) => assert!(profile.processes.len() <= 1),
            Err(error) => assert!(length < 4096, "cut at {length} of {}: {error}", whole.len()),
        }
    }
}
