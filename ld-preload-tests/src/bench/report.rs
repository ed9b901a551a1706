//! The table as Markdown.

use std::fmt::Write as _;

use super::batch::Pair;
use super::cores::pairs_by_core;
use super::paced;
use super::processes::WATCHED;
use super::{Figures, Plan, Samples, Setup, median};
use crate::measured::{commit, date, machine};

/// `median (min-max)`.
fn spread(samples: &Samples, setup: Setup, scale: f64) -> String {
    let all: Vec<f64> = samples.get(&setup).into_iter().flat_map(|s| s.values().copied()).collect();
    if all.is_empty() {
        return "-".to_owned();
    }
    let (min, max) = all.iter().fold((f64::INFINITY, 0.0_f64), |(lo, hi), n| (lo.min(*n), hi.max(*n)));
    format!("{:.1} ({:.1}-{:.1})", median(&all) / scale, min / scale, max / scale)
}

/// Quantile: value that this part of the samples is not above; 0 of none.
fn quantile(samples: impl IntoIterator<Item = f64>, part: f64) -> f64 {
    let mut all: Vec<f64> = samples.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all.get((all.len() as f64 * part) as usize).copied().unwrap_or(0.0)
}

/// The parts of the samples that the tables of short programs name: a busy machine is felt by the last of them most.
const PARTS: [(&str, f64); 3] = [("median", 0.5), ("fastest tenth", 0.1), ("lowest 5 %", 0.05)];

/// RADRM's figures less the pass-through shim's, in the rounds that have both.
fn over_passthrough(samples: &Samples) -> Vec<f64> {
    let (Some(radrm), Some(passed)) = (samples.get(&Setup::Radrm), samples.get(&Setup::Passthrough)) else {
        return Vec::new();
    };
    radrm.iter().filter_map(|(round, r)| Some(r - passed.get(round)?)).collect()
}

/// A number, or that there is none.
fn number(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| "-".to_owned(), text)
}

/// The cells after a figure's name: three set-ups, the difference and the ratios.
fn cells(samples: &Samples, scale: f64) -> String {
    let of = |setup| {
        let all: Vec<f64> = samples.get(&setup)?.values().copied().collect();
        (!all.is_empty()).then(|| median(&all))
    };
    let (bare, passed, radrm) = (of(Setup::Bare), of(Setup::Passthrough), of(Setup::Radrm));
    let differences = over_passthrough(samples);
    let difference = (!differences.is_empty()).then(|| median(&differences));
    let ratio = |over: Option<f64>| radrm.zip(over).map(|(r, o)| r / o.max(f64::MIN_POSITIVE));
    format!(
        "{} | {} | {} | {} | {} | {} |",
        spread(samples, Setup::Bare, scale),
        spread(samples, Setup::Passthrough, scale),
        spread(samples, Setup::Radrm, scale),
        number(difference, |d| format!("{:+.1}", d / scale)),
        number(ratio(bare), |r| format!("{r:.3}")),
        number(ratio(passed), |r| format!("{r:.3}")),
    )
}

/// The section on the loop that launches every 4 us.
fn paced(plan: &Plan, figures: &Figures) -> String {
    let all = || figures.paced.values().flat_map(|rounds| rounds.values().flatten());
    let best = all().flat_map(Pair::yardsticks).fold(f64::INFINITY, f64::min);
    let mut out = format!(
        "## A launch every 4 us\n\n\
         A loop that launches and then computes for about 4 us, as a program that is bound by its launches: {} processes \
         per set-up, each with {} pairs of batches of {} launches, one past the shim and one through it, in turn. What \
         is added: the median of a process's pairs, of those the median (smallest to largest). Time is the thread's own on the \
         processor. Sampled with the default budget of 0.5 %; a call for an event takes {} ns in this driver.\n\n\
         | --kernels | set-up | past the shim | added, ns | added, % | while the core's other thread is busy, % |\n\
         |---|---|---|---|---|---|\n",
        plan.alternations,
        plan.pairs,
        paced::LAUNCHES,
        paced::EVENT_NS
    );
    for ((mode, setup), rounds) in &figures.paced {
        let each = |shared: bool, part: fn(&Pair) -> f64| -> Vec<f64> {
            let some = rounds.values().map(|pairs| pairs_by_core(pairs, best, shared));
            some.filter(|pairs| !pairs.is_empty())
                .map(|pairs| median(&pairs.iter().map(part).collect::<Vec<_>>()))
                .collect()
        };
        let share = |shared| range(&each(shared, |pair| 100.0 * pair.added()), |p| format!("{p:+.2}"));
        let _ = writeln!(
            out,
            "| {mode} | {} | {} | {} | {} | {} |",
            match setup {
                Setup::Bare => "no shim",
                Setup::Passthrough => "pass-through",
                Setup::Radrm => "RADRM",
            },
            range(&each(false, |pair| pair.past.nanos), |ns| format!("{ns:.0}")),
            range(&each(false, |pair| pair.through.nanos - pair.past.nanos), |ns| format!("{ns:+.1}")),
            share(false),
            share(true),
        );
    }
    out
}

/// `median (smallest to largest)`.
fn range(all: &[f64], text: impl Fn(f64) -> String) -> String {
    let (min, max) =
        all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), n| (lo.min(*n), hi.max(*n)));
    match all {
        [] => "-".to_owned(),
        _ => format!("{} ({} to {})", text(median(all)), text(min), text(max)),
    }
}

/// The whole document.
pub fn table(plan: &Plan, figures: &Figures) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("write to a string");
    line("# What the shim costs\n".into());
    line(format!("- machine: {}", machine()));
    line(format!("- date: {}", date()));
    line(format!("- commit: {}", commit()));
    line(format!(
        "- command: `cargo xtask bench`{}",
        if plan.is_quick { " (quick: not for comparison)" } else { "" }
    ));
    line(format!(
        "- load average while measuring: {}",
        std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim()
    ));
    line("- driver: one whose every call returns at once, so that what is left is the shim\n".into());
    let (calls, whole) = figures.calls();
    line(format!(
        "Nanoseconds per call: median (smallest-largest) of {} fresh processes per set-up, the set-ups taking turns; \
         each process gives the median of up to {} batches of {} calls. With several threads: per call of each thread. \
         \"RADRM - pass-through\" is the median of the differences round by round. \
         \"New addresses\": the driver never hands out an address again, the hardest case for a table of live blocks.\n",
        plan.alternations, plan.batch.1, plan.batch.0
    ));
    line(format!(
        "A loop of plain additions before and after each batch tells whether the core's other thread was idle \
         ({:.0} % of the batches) or busy, on a rented machine for another tenant. While it is busy a core takes in about half as \
         many instructions for this one, and whatever is added to a call costs twice as much: those batches stand in a \
         table of their own.\n",
        whole * 100.0
    ));
    for (title, shared) in [("## Calls", false), ("## Calls while the core's other thread is busy", true)] {
        line(format!("{title}\n"));
        line("| call | live blocks | threads | no shim | pass-through | RADRM | RADRM - pass-through | / no shim | / pass-through |".into());
        line("|---|---|---|---|---|---|---|---|---|".into());
        for (key, figure) in &calls {
            let samples = if shared { &figure.shared } else { &figure.whole };
            if !(shared && samples.is_empty()) {
                line(format!("| {} | {} | {} | {}", key.call, key.live, key.threads, cells(samples, 1.0)));
            }
        }
        line(String::new());
    }
    line(paced(plan, figures));
    line("## Instructions per call\n".into());
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
        "| what | no shim | pass-through | RADRM | RADRM - pass-through | / no shim | / pass-through |"
            .into(),
    );
    line("|---|---|---|---|---|---|---|".into());
    line(format!("| one | {}", cells(&figures.start, 1e6)));
    line(format!("| {} at once, all together | {}", plan.at_once, cells(&figures.at_once, 1e6)));
    line("\n## Programs without CUDA (us)\n".into());
    line(format!("`/bin/true` from start to end, {} times each in turn.\n", plan.execs));
    line("| figure | no shim | pass-through | RADRM | pass-through - no shim | RADRM - no shim |".into());
    line("|---|---|---|---|---|---|".into());
    for (name, part) in PARTS {
        let of = |setup| {
            quantile(figures.exec.get(&setup).into_iter().flat_map(|s| s.values().copied()), part) / 1e3
        };
        let [bare, passed, radrm] = Setup::ALL.map(of);
        line(format!(
            "| {name} | {bare:.1} | {passed:.1} | {radrm:.1} | {:+.1} | {:+.1} |",
            passed - bare,
            radrm - bare
        ));
    }
    line("\n## Start of a program under `radrm-run` (ms)\n".into());
    line(format!(
        "From the start of `radrm-run` to the first line of a program's `main`, {} times each in turn; in brackets what that is \
         over the program alone.\n",
        plan.watched
    ));
    line(format!("| how |{}", PARTS.map(|(name, _)| format!(" {name} |")).concat()));
    line("|---|---|---|---|".into());
    let [(alone, _), ..] = WATCHED;
    for (name, _) in WATCHED {
        let cells = PARTS.map(|(_, part)| {
            let of = |name| quantile(figures.watched.get(name).into_iter().flatten().copied(), part) / 1e6;
            if name == alone {
                format!(" {:.2} |", of(name))
            } else {
                format!(" {:.2} ({:+.2}) |", of(name), of(name) - of(alone))
            }
        });
        line(format!("| {name} |{}", cells.concat()));
    }
    line("\n## Memory over a long run\n".into());
    line("| set-up | launches | resident before (KiB) | after (KiB) | segment after 100,000 launches (KiB) | after all (KiB) |".into());
    line("|---|---|---|---|---|---|".into());
    for (setup, [before, after, few, many]) in &figures.growth {
        line(format!("| {setup:?} | {} | {before} | {after} | {} | {} |", plan.launches, few / 2, many / 2));
    }
    out
}
