//! Starts of processes, and growth over a long life.

use std::{
    process::{Child, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use super::{
    Figures, Plan, Setup,
    calls::{client, command},
};
use crate::{artifacts, child, programs, rig::Rig};

/// It has no libraries but the C library.
const WITHOUT_CUDA: &str = "/bin/true";

/// Ways to start a program, with the options of `radrm-run`; the first is the program alone.
pub const WATCHED: [(&str, Option<&[&str]>); 3] = [
    ("the program alone", None),
    ("`radrm-run -q --no-profile --no-dataset`", Some(&["-q", "--no-profile", "--no-dataset"])),
    ("`radrm-run -q`, with profile and dataset", Some(&["-q"])),
];

fn spawn(rig: &Rig, setup: Setup) -> Result<Child> {
    client(rig, setup).arg("start").stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("client")
}

/// Times programs that only initialise the driver: one by one, and many at once.
pub fn starts(plan: &Plan, figures: &mut Figures) -> Result<()> {
    eprintln!("process starts");
    let rig = Rig::instant();
    for round in 0..plan.starts {
        for setup in Setup::ALL {
            let begin = Instant::now();
            let status = spawn(&rig, setup)?.wait()?;
            ensure!(status.success(), "{setup:?}: the client ended with {status}");
            figures.start.entry(setup).or_default().insert(round, begin.elapsed().as_nanos() as f64);
        }
    }
    for round in 0..plan.alternations {
        for setup in Setup::ALL {
            let rig = Rig::instant();
            let begin = Instant::now();
            let children: Vec<Child> =
                (0..plan.at_once).map(|_| spawn(&rig, setup)).collect::<Result<_>>()?;
            for mut child in children {
                let status = child.wait()?;
                ensure!(status.success(), "{setup:?}: the client ended with {status}");
            }
            figures.at_once.entry(setup).or_default().insert(round, begin.elapsed().as_nanos() as f64);
        }
    }
    Ok(())
}

/// Times programs that never touch CUDA, as a shell script or a build starts them.
pub fn execs(plan: &Plan, figures: &mut Figures) -> Result<()> {
    eprintln!("programs without CUDA");
    let rig = Rig::instant();
    let mut commands = Setup::ALL.map(|setup| (setup, command(&rig, setup, WITHOUT_CUDA.as_ref())));
    for round in 0..plan.execs {
        for (setup, command) in &mut commands {
            let begin = Instant::now();
            let status = command.status().context(WITHOUT_CUDA)?;
            ensure!(status.success(), "{setup:?}: {WITHOUT_CUDA} ended with {status}");
            figures.exec.entry(*setup).or_default().insert(round, begin.elapsed().as_nanos() as f64);
        }
    }
    Ok(())
}

/// Times the way from the start of `radrm-run` to the first line of a program's `main`, and the program's own way there.
pub fn watched(plan: &Plan, figures: &mut Figures) -> Result<()> {
    eprintln!("starts under radrm-run");
    let rig = Rig::instant();
    let program = programs::compile("bench_client.c", &[]);
    let mut commands = WATCHED.map(|(name, options)| {
        let mut command = match options {
            None => rig.bare_command(&program),
            Some(options) => {
                let mut command = rig.bare_command(artifacts::file("radrm-run"));
                command.env("RADRM_LIB_DIR", artifacts::directory()).args(options).arg("--").arg(&program);
                command
            }
        };
        command.arg("clock");
        (name, command)
    });
    for _ in 0..plan.watched {
        for (name, command) in &mut commands {
            let begin = radrm_telemetry::monotonic_ns();
            let output = command.stderr(Stdio::inherit()).output().context(*name)?;
            ensure!(output.status.success(), "{name}: ended with {}", output.status);
            let said = String::from_utf8_lossy(&output.stdout);
            let main: u64 =
                said.trim().parse().with_context(|| format!("{name}: the client said {said:?}"))?;
            figures.watched.entry(*name).or_default().push(main.saturating_sub(begin) as f64);
        }
    }
    Ok(())
}

/// Memory before and after many launches.
pub fn growth(plan: &Plan, figures: &mut Figures) -> Result<()> {
    eprintln!("growth over {} launches", plan.launches);
    for setup in [Setup::Passthrough, Setup::Radrm] {
        let rig = Rig::instant();
        let few = segment_blocks_after(&rig, setup, 100_000)?.1;
        let rig = Rig::instant();
        let (resident, many) = segment_blocks_after(&rig, setup, plan.launches)?;
        figures.growth.insert(setup, [resident[0], resident[1], few, many]);
    }
    Ok(())
}

fn segment_blocks_after(rig: &Rig, setup: Setup, launches: u64) -> Result<([u64; 2], u64)> {
    let mut command = client(rig, setup);
    command.args(["launches", &launches.to_string()]);
    let said = child::run(command, 600).ok().stdout;
    let numbers: Vec<u64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [before, after] = numbers[..] else { anyhow::bail!("the client said {said:?}") };
    Ok(([before, after], rig.segment_disk_blocks()))
}
