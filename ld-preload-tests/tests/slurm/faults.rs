//! Daemons, steps, tasks and recorders that are killed at random moments: no node is drained, no share is lost, and no
//! process is left.

use std::{
    cell::Cell,
    fs, thread,
    time::{Duration, Instant},
};

use radrm_preload_tests::{
    programs,
    slurm::{Setup, Slurm},
};

const MIB: u64 = 1 << 20;
/// Memory of each of the two GPUs of the two nodes, MiB.
const MEMORY: u64 = 1024;

/// Process that is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Node(usize),
    Controller,
    /// `slurmstepd`, of which there is one for each step.
    Step,
    Task,
    Recorder,
}

const VICTIMS: [Victim; 6] =
    [Victim::Step, Victim::Node(1), Victim::Task, Victim::Controller, Victim::Recorder, Victim::Node(2)];

/// A step of a sequence of numbers that a seed determines.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Processes that ask for memory: the name of a compiled program goes on with a number.
fn askers(slurm: &Slurm) -> Vec<u32> {
    let is_asker = |process: &radrm_os::Process| process.name().starts_with("quota_ask");
    slurm.of_jobs().into_iter().filter(is_asker).map(|process| process.0).collect()
}

fn kill(slurm: &Slurm, victim: Victim, number: u64) {
    let kill_one = |found: Vec<u32>| {
        if let Some(pid) = found.get(number as usize % found.len().max(1)) {
            // SAFETY: a plain system call on a process of this test's jobs.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
    };
    match victim {
        Victim::Node(node) => {
            slurm.kill_daemon(&format!("slurmd-node{node}"));
            thread::sleep(Duration::from_millis(number % 500));
            slurm.start_node(node);
        }
        Victim::Controller => {
            slurm.kill_daemon("slurmctld");
            thread::sleep(Duration::from_millis(number % 500));
            slurm.start_controller();
        }
        Victim::Step => kill_one(slurm.steps()),
        Victim::Task => kill_one(askers(slurm)),
        Victim::Recorder => {
            kill_one(slurm.all_recorders());
        }
    }
}

/// Times at which nodes register, by restarts of slurmd, s. A controller that was killed as it started a job has
/// forgotten it, or takes it for a waiting one, and its nodes go on with it. They state their jobs when slurmd
/// starts, and otherwise only every some minutes. A job that it has cancelled as a waiting one counts as just ended
/// for `MessageTimeout` (30 s), and only a later registration has it killed. All of that is so without the plug-in.
const REGISTRATIONS: [u64; 2] = [5, 40];

/// Resumes nodes that the controller drained because they still had a job whose number it had forgotten and given again.
/// A plug-in has no part in that; any other reason stays.
fn resume_duplicates(slurm: &Slurm) {
    for node in slurm.said("sinfo", &["-h", "-N", "-o", "%N %E"]).lines() {
        if let Some((name, "Duplicate jobid")) = node.trim().split_once(' ') {
            eprintln!("{name} is resumed: a number was given twice");
            let _ = slurm.said("scontrol", &["update", &format!("nodename={name}"), "state=resume"]);
        }
    }
}

/// Nothing is left of a round.
fn assert_clean(slurm: &Slurm, round: &str) {
    let (since, registrations) = (Instant::now(), Cell::new(0));
    slurm.until(&format!("{round}: no process of a job is left, and all nodes are idle"), || {
        if slurm.of_jobs().is_empty() && slurm.is_idle() {
            return true;
        }
        resume_duplicates(slurm);
        let next = REGISTRATIONS.get(registrations.get()).copied();
        if next.is_some_and(|next| since.elapsed() > Duration::from_secs(next)) {
            registrations.set(registrations.get() + 1);
            let states = slurm.said("sinfo", &["-h", "-N", "-o", "%T: %E"]);
            eprintln!("{round}: the nodes register anew, as {}", states.trim().replace("\n", ", "));
            for node in 1..=slurm.machines().len() {
                slurm.kill_daemon(&format!("slurmd-node{node}"));
                slurm.start_node(node);
            }
        }
        false
    });
    slurm.until(&format!("{round}: no recorder is left"), || slurm.all_recorders().is_empty());
    for machine in slurm.machines() {
        for gpu in 0..machine.gpu_count() {
            assert_eq!(machine.memory(gpu).used, 0, "{round}: memory of GPU {gpu} is lost");
        }
    }
}

fn survives(rounds: u64) {
    let setup = Setup { nodes: 2, gpus: 2, mib: MEMORY, script: None, further: "" };
    let Some(slurm) = Slurm::start_with(&setup) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let mut state = std::env::var("RADRM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(18);
    for round in 0..rounds {
        let victim = VICTIMS[round as usize % VICTIMS.len()];
        let said = format!("round {round}, {victim:?}");
        // The driver gives memory in pieces of 2 MiB, and what it takes above a request counts too.
        let mib = 64 + next(&mut state) % 50 * 4;
        let task = format!("{{ echo keep {}; sleep 1000; }} | {}", mib * MIB / 2, asker.display());
        let script = format!("srun --overlap /bin/sh -c '{task} > there.$SLURM_JOB_ID' & {task}; wait");
        let jobs: Vec<u32> =
            (0..4).map(|_| slurm.sbatch(&[&format!("--gres=shard:{mib}")], &script)).collect();
        // Also in the middle of a start.
        let is_early = next(&mut state).is_multiple_of(3);
        let holds = |job: &u32| {
            let text = fs::read_to_string(slurm.path(&format!("work/there.{job}"))).unwrap_or_default();
            text.contains("granted")
        };
        let wanted = if is_early { 1 } else { jobs.len() };
        slurm.until(&said, || jobs.iter().filter(|job| holds(job)).count() >= wanted);
        kill(&slurm, victim, next(&mut state));
        thread::sleep(Duration::from_millis(next(&mut state) % 700));
        slurm.until_none(&said, || {
            // A controller that was killed may have forgotten that it was asked, and remember older jobs.
            let jobs = slurm.said("squeue", &["-h", "-o", "%A"]);
            let _ = slurm.said("scancel", &jobs.split_whitespace().collect::<Vec<_>>());
        });
        assert_clean(&slurm, &said);
    }
    // All of each GPU is there for one job, at the same time.
    let script =
        format!("{{ echo keep {}; sleep 1000; }} | {} > all.$SLURM_JOB_ID", MEMORY * MIB, asker.display());
    let jobs: Vec<u32> =
        (0..4).map(|_| slurm.sbatch(&[&format!("--gres=shard:{MEMORY}")], &script)).collect();
    let holds = |job: &u32| {
        let text = fs::read_to_string(slurm.path(&format!("work/all.{job}"))).unwrap_or_default();
        text.contains("granted")
    };
    slurm.until("four jobs have all memory of a GPU each", || jobs.iter().all(holds));
    for node in 1..=2 {
        let kept = fs::read_dir(slurm.path(&format!("state-radrm{node}"))).expect("kept files").count();
        assert_eq!(kept, 2, "files of jobs that are gone");
    }
}

#[test]
fn killed_daemons_steps_and_tasks_leave_nothing_behind() {
    survives(VICTIMS.len() as u64);
}

#[test]
#[ignore = "minutes: cargo nextest run -p radrm-preload-tests --run-ignored all a_hundred_rounds"]
fn a_hundred_rounds_of_kills_leave_nothing_behind() {
    survives(100);
}
