//! Time and instructions per call.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::batch::Batch;
use super::{Figures, Plan, Setup, paced};
use crate::{child, programs, rig::Rig};

/// Calls that are measured, as `bench_client.c` names them.
pub const CALLS: [&str; 8] = [
    "launch",
    "launchEx",
    "alloc+free",
    "pool pair",
    "create+release",
    "memGetInfo",
    "graph of 1",
    "graph of 50",
];

/// The client under one set-up, and the rig that it runs on.
pub fn client(rig: &Rig, setup: Setup) -> Command {
    command(rig, setup, &programs::compile("bench_client.c", &[]))
}

/// A program in a set-up.
pub fn command(rig: &Rig, setup: Setup, program: &Path) -> Command {
    match setup {
        Setup::Bare => rig.bare_command(program),
        Setup::Passthrough => {
            let mut command = rig.bare_command(program);
            command.env("LD_PRELOAD", crate::artifacts::file("libradrm_passthrough.so"));
            command
        }
        Setup::Radrm => rig.command(program),
    }
}

/// Times the calls in all set-ups in turn.
pub fn time(plan: &Plan, figures: &mut Figures) -> Result<()> {
    for round in 0..plan.alternations {
        eprintln!("calls: round {} of {}", round + 1, plan.alternations);
        for threads in &plan.threads {
            for setup in Setup::ALL {
                time_once(plan, round, setup, *threads, false, figures)?;
            }
        }
        for setup in Setup::ALL {
            time_once(plan, round, setup, 1, true, figures)?;
        }
        paced::time(plan, round, figures)?;
    }
    Ok(())
}

fn time_once(
    plan: &Plan,
    round: usize,
    setup: Setup,
    threads: u64,
    fresh: bool,
    figures: &mut Figures,
) -> Result<()> {
    let rig = Rig::instant();
    let mut command = client(&rig, setup);
    if fresh {
        command.env("RADRM_INSTANT_FRESH", "1");
    }
    run(command, plan, threads, &plan.live, |call, live, threads, batches| {
        if fresh && !["alloc+free", "pool pair", "create+release"].contains(&call) {
            return;
        }
        let call = if fresh { format!("{call}, new addresses") } else { call.to_owned() };
        figures.add(call, live, threads, (setup, round, batches));
    })
}

/// Runs a client and hands over what it says: call, live blocks, threads, batches.
pub fn run(
    mut client: Command,
    plan: &Plan,
    threads: u64,
    live: &[u64],
    mut take: impl FnMut(&str, u64, u64, Vec<Batch>),
) -> Result<()> {
    client.arg("time").args([threads, plan.batch.0, plan.batch.1].map(|n| n.to_string()));
    client.args(live.iter().map(u64::to_string));
    for line in child::run(client, 300).ok().stdout.lines() {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().with_context(|| format!("the client said {line:?}"));
        let (call, live, threads) = (cell()?, cell()?.parse()?, cell()?.parse()?);
        take(call, live, threads, cells.map(Batch::parse).collect::<Result<_>>()?);
    }
    Ok(())
}

/// Counts instructions per call with callgrind: the difference of two runs, so that start-up and
/// the program's own work before the calls drop out.
pub fn count_instructions(plan: &Plan, figures: &mut Figures) -> Result<()> {
    if plan.counted == 0 {
        return Ok(());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        figures.no_instructions = Some("valgrind is not installed".to_owned());
        return Ok(());
    }
    let calls = if plan.is_quick { &CALLS[..1] } else { &CALLS[..] };
    for call in calls {
        eprintln!("instructions: {call}");
        for setup in Setup::ALL {
            let few = instructions(call, setup, plan.counted / 5)?;
            let many = instructions(call, setup, plan.counted / 5 + plan.counted)?;
            let (Some(few), Some(many)) = (few, many) else {
                figures.no_instructions = Some("callgrind did not run the client".to_owned());
                return Ok(());
            };
            let each = many.saturating_sub(few) as f64 / plan.counted as f64;
            figures.instructions.entry((*call).to_owned()).or_default().insert(setup, each);
        }
    }
    Ok(())
}

fn instructions(call: &str, setup: Setup, calls: u64) -> Result<Option<u64>> {
    let rig = Rig::instant();
    let inner = client(&rig, setup);
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["count", call, "1", &calls.to_string()]);
    let ended = child::run(command, 300);
    if !ended.status.success() {
        eprintln!("callgrind, {setup:?}: {}", ended.stderr.lines().last().unwrap_or(""));
        return Ok(None);
    }
    Ok(ended
        .stderr
        .lines()
        .find_map(|l| l.split_once("Collected :"))
        .and_then(|(_, n)| n.trim().parse().ok()))
}
