//! A dry run's outcome as text and JSON.

use std::fmt::Write as _;

use radrm_profile::Bytes;

use super::cards::{Fit, Verdict};
use super::outcome::{GpuOutcome, Outcome, Phase};

const PHASES: [(Phase, &str); 4] = [
    (Phase::Load, "load"),
    (Phase::FirstStep, "first step"),
    (Phase::Steady, "steady"),
    (Phase::Whole, "whole run"),
];

/// The outcome for people.
#[must_use]
pub fn text(outcome: &Outcome) -> String {
    let mut out = format!("dry run on {} · {:.1} s", outcome.machine, outcome.seconds);
    if let (false, Some(allocator)) = (outcome.frameworks.is_empty(), &outcome.allocator) {
        let _ = write!(out, " · {} ({allocator} allocator)", outcome.frameworks.join(", "));
        let _ = write!(out, " · {} of host memory", Bytes(outcome.host_memory));
    }
    if outcome.steps > 0 {
        let _ = write!(out, " · {}", many(outcome.steps, "optimizer step"));
    }
    out.push('\n');
    for remark in &outcome.remarks {
        let _ = writeln!(out, "  {remark}");
    }
    if let Some(reason) = &outcome.withheld {
        let _ = writeln!(out, "\nNO FIGURE: {reason}.");
    } else {
        figures(&mut out, outcome);
    }
    uncertainties(&mut out, outcome);
    out
}

fn figures(out: &mut String, outcome: &Outcome) {
    if outcome.gpus.is_empty() {
        out.push_str("\nThe program took no GPU memory.\n");
    }
    for gpu in &outcome.gpus {
        one_gpu(out, gpu);
    }
    if outcome.out_of_memory > 0 {
        let _ = writeln!(
            out,
            "\nOUT OF MEMORY on {}. The figures are those up to then; a larger --emulate shows the need.",
            outcome.machine
        );
    } else if outcome.retries > 0 {
        let _ = writeln!(
            out,
            "\nMemory ran short {}: the allocator gave its reserve back and went on.",
            many(outcome.retries, "time")
        );
    }
    if !outcome.fits.is_empty() {
        out.push_str("\nfits on\n");
        for fit in &outcome.fits {
            card(out, fit);
        }
        let unknown = outcome.fits.iter().find(|fit| fit.verdict == Verdict::Unknown);
        if let Some(fit) = unknown {
            let _ = writeln!(out, "  (--fits {} runs the program on such a card)", fit.card);
        }
    }
}

fn one_gpu(out: &mut String, gpu: &GpuOutcome) {
    let _ = writeln!(out, "\nGPU {} · {}", gpu.gpu, gpu.name);
    if !gpu.phases.is_empty() {
        let _ = writeln!(out, "  {:<22}{:>14}{:>16}", "peak in", "allocated", "reserved");
        for (phase, name) in PHASES {
            if let Some(peak) = gpu.phases.get(&phase) {
                let _ = writeln!(
                    out,
                    "  {name:<22}{:>10} MiB{:>12} MiB",
                    mib(peak.allocated),
                    mib(peak.reserved)
                );
            }
        }
        if gpu.processes > 1 {
            let _ = writeln!(out, "  (sums of the peaks of {} processes)", gpu.processes);
        }
    }
    let reserved = gpu.phases.get(&Phase::Whole).map_or(0, |peak| peak.reserved);
    let besides = gpu.requested_peak.saturating_sub(reserved);
    if reserved > 0 && besides > 0 {
        let _ = writeln!(out, "  besides, by libraries {:>10} MiB", mib(besides));
    }
    let _ = writeln!(
        out,
        "  the driver would hold {:>10} MiB, of which {} MiB for contexts and code ({})",
        mib(gpu.held_peak),
        mib(gpu.context),
        gpu.context_origin
    );
}

fn card(out: &mut String, fit: &Fit) {
    let remark = match fit.verdict {
        Verdict::Yes | Verdict::No => "",
        Verdict::Tight => "  only if the allocator gives its reserve back",
        Verdict::Unknown => "  of another architecture: estimate only",
    };
    let _ = writeln!(out, "  {:<12}{:<8}{:>4.0} %{remark}", fit.card, fit.verdict.word(), fit.percent());
}

fn uncertainties(out: &mut String, outcome: &Outcome) {
    if !outcome.modelled.is_empty() {
        out.push_str("\nnot measured, but modelled (upper bounds, contained in the figures above)\n");
        for size in &outcome.modelled {
            let _ = writeln!(out, "  {}: up to {} MiB at a time", size.what, mib(size.bytes));
        }
    }
    if !outcome.filled.is_empty() {
        let _ = writeln!(
            out,
            "\ndepends on data: {} % of the elements were taken to be kept (--fill)",
            outcome.fill
        );
        for (what, count) in &outcome.filled {
            let _ = writeln!(out, "  {what}: {} or more", many(*count, "time"));
        }
    }
    if !outcome.missing.is_empty() {
        out.push_str("\nreached without semantics\n");
        for call in &outcome.missing {
            let _ = writeln!(out, "  {} ({} or more): {}", call.name, many(call.calls, "call"), call.effect);
        }
    }
}

fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// The outcome as JSON, in bytes and seconds.
#[must_use]
pub fn json(outcome: &Outcome) -> serde_json::Value {
    let mut value = serde_json::to_value(outcome).unwrap_or_default();
    if outcome.withheld.is_some()
        && let Some(object) = value.as_object_mut()
    {
        // What is not to be trusted is not there to be read by accident.
        object.remove("gpus");
        object.remove("fits");
    }
    value
}

/// Adds the outcome to a report in JSON, under `dry_run`.
#[must_use]
pub fn into_json(report: &str, outcome: &Outcome) -> Option<String> {
    let mut whole: serde_json::Value = serde_json::from_str(report).ok()?;
    whole.as_object_mut()?.insert("dry_run".to_owned(), json(outcome));
    let mut text = serde_json::to_string_pretty(&whole).ok()?;
    text.push('\n');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{MissingCall, ModelledSize, Peak};
    use super::*;
    use std::collections::BTreeMap;

    fn outcome() -> Outcome {
        let peak = Peak { allocated: 5 << 20, reserved: 8 << 20 };
        Outcome {
            machine: "H200".to_owned(),
            torch: Some("2.15.0".to_owned()),
            frameworks: vec!["PyTorch 2.15.0".to_owned()],
            allocator: Some("native".to_owned()),
            steps: 3,
            seconds: 9.0,
            host_memory: 1 << 30,
            gpus: vec![GpuOutcome {
                gpu: 0,
                name: "NVIDIA H200".to_owned(),
                capability: (9, 0),
                processes: 1,
                phases: BTreeMap::from([(Phase::Whole, peak)]),
                requested_peak: 10 << 20,
                held_peak: 530 << 20,
                context: 520 << 20,
                context_constant: 510 << 20,
                context_origin: "estimate".to_owned(),
            }],
            out_of_memory: 0,
            retries: 0,
            fits: Vec::new(),
            missing: Vec::new(),
            modelled: vec![ModelledSize { what: "workspace".to_owned(), bytes: 1 << 20 }],
            filled: Vec::new(),
            fill: 50,
            remarks: Vec::new(),
            withheld: None,
        }
    }

    #[test]
    fn figures_are_told_with_what_is_only_modelled() {
        let text = text(&outcome());
        for part in [
            "5.0 MiB",
            "8.0 MiB",
            "530.0 MiB",
            "besides, by libraries        2.0 MiB",
            "workspace: up to 1.0 MiB",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn what_cannot_be_trusted_is_nowhere() {
        let mut outcome = outcome();
        outcome.withheld = Some("the program called x".to_owned());
        outcome.missing =
            vec![MissingCall { name: "x".to_owned(), calls: 1, effect: "e".to_owned(), matters: true }];
        let text = text(&outcome);
        assert!(text.contains("NO FIGURE: the program called x.") && !text.contains("530.0"), "{text}");
        let whole = into_json("{\"schema\": 1}", &outcome).unwrap();
        assert!(!whole.contains("held_peak") && whole.contains("\"schema\": 1"), "{whole}");
    }
}
