//! The table as Markdown.

use std::{fmt::Write as _, process::Command};

use super::{Figures, Plan, Samples, Setup, median};
use crate::artifacts;

fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(artifacts::workspace()).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown processor");
    let processors = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
    format!(
        "{}, {processors} processors, Linux {}",
        model.trim_start_matches([' ', '\t', ':']),
        said_by("uname", &["-r"])
    )
}

/// `median (min-max)`.
fn spread(samples: &Samples, setup: Setup, scale: f64) -> String {
    let empty = Vec::new();
    let all = samples.get(&setup).unwrap_or(&empty);
    let (min, max) = all.iter().fold((f64::INFINITY, 0.0_f64), |(lo, hi), n| (lo.min(*n), hi.max(*n)));
    format!("{:.1} ({:.1}-{:.1})", median(all) / scale, min / scale, max / scale)
}

/// RADRM's figures less the pass-through shim's: round by round, and smallest less smallest.
fn over_passthrough(samples: &Samples) -> (Vec<f64>, f64) {
    let empty = Vec::new();
    let of = |setup| samples.get(&setup).unwrap_or(&empty);
    let (radrm, passed) = (of(Setup::Radrm), of(Setup::Passthrough));
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    (radrm.iter().zip(passed).map(|(r, p)| r - p).collect(), least(radrm) - least(passed))
}

/// The cells after a figure's name: three set-ups, the difference and the ratios.
fn cells(samples: &Samples, scale: f64) -> String {
    let of = |setup| samples.get(&setup).map_or(0.0, |s: &Vec<f64>| median(s));
    let (bare, passed, radrm) = (of(Setup::Bare), of(Setup::Passthrough), of(Setup::Radrm));
    let (differences, quietest) = over_passthrough(samples);
    format!(
        "{} | {} | {} | {:+.1} | {:+.1} | {:.2} | {:.2} |",
        spread(samples, Setup::Bare, scale),
        spread(samples, Setup::Passthrough, scale),
        spread(samples, Setup::Radrm, scale),
        median(&differences) / scale,
        quietest / scale,
        radrm / bare.max(f64::MIN_POSITIVE),
        radrm / passed.max(f64::MIN_POSITIVE),
    )
}

/// The whole document.
pub fn table(plan: &Plan, figures: &Figures) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("write to a string");
    line("# What the shim costs\n".into());
    line(format!("- machine: {}", machine()));
    line(format!("- date: {}", said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"])));
    let changed =
        if said_by("git", &["status", "--porcelain", "-uno"]).is_empty() { "" } else { ", with changes" };
    line(format!("- commit: {}{changed}", said_by("git", &["rev-parse", "--short", "HEAD"])));
    line(format!(
        "- command: `cargo xtask bench`{}",
        if plan.is_quick { " (quick: not for comparison)" } else { "" }
    ));
    line(format!(
        "- load average while measuring: {}",
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    ));
    line("- driver: one whose every call returns at once, so that what is left is the shim\n".into());
    line(format!(
        "Nanoseconds per call: median (smallest-largest) of {} fresh processes per set-up, the set-ups taking turns; \
         each process gives the median of {} batches of {} calls. With several threads: per call of each thread. \
         \"RADRM - pass-through\" is the median of the differences round by round, \"quietest\" the smallest figure of the \
         one less the smallest of the other: the machine is shared, and its speed changes by half from one second to the next. \
         \"New addresses\": the driver never hands out an address again, the hardest case for a table of live blocks.\n",
        plan.alternations, plan.batch.1, plan.batch.0
    ));
    line("| call | live blocks | threads | no shim | pass-through | RADRM | RADRM - pass-through | quietest | / no shim | / pass-through |".into());
    line("|---|---|---|---|---|---|---|---|---|---|".into());
    for (key, samples) in &figures.calls {
        line(format!("| {} | {} | {} | {}", key.call, key.live, key.threads, cells(samples, 1.0)));
    }
    line("\n## Instructions per call\n".into());
    match &figures.no_instructions {
        Some(reason) => line(format!("Not counted: {reason}.")),
        None => {
            line(format!("Counted by callgrind over {} calls, one thread, one live block.\n", plan.counted));
            line(
                "| call | no shim | pass-through | RADRM | RADRM - pass-through |\n|---|---|---|---|---|"
                    .into(),
            );
            for (call, by_setup) in &figures.instructions {
                let of = |setup| by_setup.get(&setup).copied().unwrap_or(0.0);
                line(format!(
                    "| {call} | {:.1} | {:.1} | {:.1} | {:+.1} |",
                    of(Setup::Bare),
                    of(Setup::Passthrough),
                    of(Setup::Radrm),
                    of(Setup::Radrm) - of(Setup::Passthrough)
                ));
            }
        }
    }
    line("\n## Process start (ms)\n".into());
    line(format!(
        "A whole program that only calls `cuInit`, {} times; and {} of them at once, {} times.\n",
        plan.starts, plan.at_once, plan.alternations
    ));
    line(
        "| what | no shim | pass-through | RADRM | RADRM - pass-through | quietest | / no shim | / pass-through |"
            .into(),
    );
    line("|---|---|---|---|---|---|---|---|".into());
    line(format!("| one | {}", cells(&figures.start, 1e6)));
    line(format!("| {} at once, all together | {}", plan.at_once, cells(&figures.at_once, 1e6)));
    line("\n## Memory over a long run\n".into());
    line("| set-up | launches | resident before (KiB) | after (KiB) | segment after 100,000 launches (KiB) | after all (KiB) |".into());
    line("|---|---|---|---|---|---|".into());
    for (setup, [before, after, few, many]) in &figures.growth {
        line(format!("| {setup:?} | {} | {before} | {after} | {} | {} |", plan.launches, few / 2, many / 2));
    }
    out
}
