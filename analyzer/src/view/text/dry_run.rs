//! Result of a dry run.

use std::fmt::Write as _;

use super::sections::{Report, more};
use super::{choice, step};
use crate::model::{DryRunSummary, Summary, TrainingSummary};
use crate::view::phrases::counted;
use radrm_profile::model::Uncounted;
use radrm_profile::model::dry_run::{
    DryRunFigures, Expected, Fit, GpuFigures, Phase, Ranks, Verdict, number_list,
};
use radrm_profile::model::step::StepTime;
use radrm_profile::{Bytes, Nanos};
use radrm_text::{Table, clean, left, right, wrapped};

/// Rows of a table in a report that is not full.
const ROWS: usize = 10;

impl Report<'_> {
    /// Returns true if the report is a dry run's that leaves details out.
    pub(super) fn is_short(&self) -> bool {
        let options = self.options;
        self.summary.dry_run.is_some() && !(options.full || options.timeline || options.features)
    }

    /// The figures, the cards, and what is uncertain.
    pub(super) fn dry_run(&self, out: &mut String) {
        let Some(of) = &self.summary.dry_run else { return };
        let DryRunSummary { figures, fits, expected, ranks, step, training } = of;
        let _ = writeln!(out, "\n{}", self.paint.bold(&clean(&title(figures))));
        if let Some(ranks) = ranks {
            let _ = writeln!(out, "  {}", of_ranks(ranks));
        }
        for remark in &figures.remarks {
            let _ = writeln!(out, "  {}", clean(remark));
        }
        if let Some(reason) = &figures.withheld {
            let _ = writeln!(out, "\nNO FIGURE: {}.", clean(reason));
        } else {
            needs(out, figures, ranks.as_ref());
            if let Some(sentence) = shortage(figures, self.summary) {
                let _ = writeln!(out, "\n{sentence}");
            }
        }
        if let Some(expected) = expected {
            let [figure, basis] = of_expected(expected, figures);
            let _ = writeln!(out, "\n{figure}\n  {}", clean(&basis));
        }
        if let Some(step) = step {
            step::section(out, step, if self.is_short() { ROWS } else { usize::MAX });
        }
        if !fits.is_empty() {
            let steps = step.as_ref().map_or(&[][..], |step| &step.cards);
            // With times each card has its own row.
            let guessed = |fit: &&Fit| is_guessed(fit) && (steps.is_empty() || self.is_short());
            let (guessed, judged): (Vec<&Fit>, Vec<&Fit>) = fits.iter().partition(guessed);
            let listed = if self.is_short() { judged.len().min(ROWS) } else { judged.len() };
            let rows = if judged.is_empty() {
                String::new()
            } else {
                table(&judged[..listed], steps, training.as_ref())
            };
            let _ = write!(out, "\nfits on\n{rows}");
            more(out, (judged.len() - listed) as u64);
            for line in others(&guessed).iter().flat_map(|text| wrapped(text, self.width.saturating_sub(2))) {
                let _ = writeln!(out, "  {line}");
            }
        }
        for (what, lines) in uncertainties(figures, ranks.as_ref()) {
            let _ = writeln!(out, "\n{what}");
            lines.iter().for_each(|line| {
                let _ = writeln!(out, "  {}", clean(line));
            });
        }
    }
}

/// Title: the machine, the time, the frameworks and the steps.
pub(crate) fn title(figures: &DryRunFigures) -> String {
    let mut out = format!("dry run on {} · {}", figures.machine, duration(figures.seconds));
    if let (false, Some(allocator)) = (figures.frameworks.is_empty(), &figures.allocator) {
        let _ = write!(out, " · {} ({allocator} allocator)", figures.frameworks.join(", "));
        if figures.host_memory > 0 {
            let _ = write!(out, " · {} of host memory", Bytes(figures.host_memory));
        }
    }
    if figures.steps > 0 {
        let _ = write!(out, " · {}", counted(figures.steps, "optimizer step", "optimizer steps"));
    }
    out
}

/// As the duration of the run reads.
fn duration(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9).round() as u64)
}

/// Need on a real GPU, and what it is concluded from.
pub(crate) fn of_expected(expected: &Expected, figures: &DryRunFigures) -> [String; 2] {
    let Expected { runs, gpu_model, basis, .. } = expected;
    let on = if figures.gpus.len() > 1 { "the real GPU that holds most" } else { "a real GPU" };
    let model = gpu_model.as_deref().unwrap_or("real GPUs");
    let basis = match (basis, runs) {
        (Some(basis), _) => basis.clone(),
        (None, 0) => "by measurements elsewhere; runs of dry-run programs here will correct it".to_owned(),
        (None, _) => {
            format!("corrected by {} of dry-run programs on {model} here", counted(*runs, "run", "runs"))
        }
    };
    [format!("expected on {on}: {}", bounded(expected)), basis]
}

/// A need with its bound.
pub(super) fn bounded(expected: &Expected) -> String {
    let Expected { bytes, upper, confidence, .. } = expected;
    let confidence = confidence.map(|part| format!(" ({:.0} % confidence)", 100.0 * part));
    let bound = match upper {
        Some(upper) => format!("at most {}{}", Bytes(*upper), confidence.unwrap_or_default()),
        None => "without a bound".to_owned(),
    };
    format!("{}, {bound}", Bytes(*bytes))
}

/// Ranks that ran.
pub(crate) fn of_ranks(ranks: &Ranks) -> String {
    let ran = if ranks.ran.len() == 1 { "rank" } else { "ranks" };
    let others = (ranks.world as usize).saturating_sub(ranks.ran.len());
    let modelled = match others {
        0 => String::new(),
        1 => "; the other one was modelled".to_owned(),
        others => format!("; the other {others} were modelled"),
    };
    format!("{ran} {} of {}, nodes of {}{modelled}", ranks.list(), ranks.world, counted_gpus(ranks.per_node))
}

fn counted_gpus(gpus: u32) -> String {
    counted(gpus.into(), "GPU", "GPUs")
}

/// GPUs with equal figures together, each with the heading of the group.
pub(crate) fn groups<'a>(gpus: &'a [GpuFigures], ranks: Option<&Ranks>) -> Vec<(String, &'a GpuFigures)> {
    let mut groups: Vec<(Vec<usize>, &GpuFigures)> = Vec::new();
    for gpu in gpus {
        let is_like = |other: &GpuFigures| GpuFigures { gpu: other.gpu, ..gpu.clone() } == *other;
        match groups.iter_mut().find(|(_, first)| is_like(first)) {
            Some((numbers, _)) => numbers.push(gpu.gpu),
            None => groups.push((vec![gpu.gpu], gpu)),
        }
    }
    let heading = |(numbers, gpu): (Vec<usize>, &'a GpuFigures)| {
        let on = ranks.map(|ranks| ranks.on(&numbers)).filter(|on| !on.is_empty());
        let on = on.map_or(String::new(), |on| {
            format!(" ({} {})", if on.len() == 1 { "rank" } else { "ranks" }, number_list(on))
        });
        let each = if numbers.len() > 1 { ", each" } else { "" };
        let numbers = number_list(numbers.into_iter().map(|number| number as u64));
        (format!("GPU {numbers}{on} · {}{each}", gpu.name), gpu)
    };
    groups.into_iter().map(heading).collect()
}

fn needs(out: &mut String, figures: &DryRunFigures, ranks: Option<&Ranks>) {
    if figures.gpus.is_empty() {
        out.push_str("\nThe program took no GPU memory.\n");
    }
    for (heading, gpu) in groups(&figures.gpus, ranks) {
        one_gpu(out, &heading, gpu);
    }
}

/// Advice on memory that did not suffice.
/// A larger card helps only if neither a limit nor a process that could not join was the cause.
pub(crate) fn shortage(figures: &DryRunFigures, summary: &Summary) -> Option<String> {
    let is_refused = summary.uncounted.iter().any(|process| process.kind == Uncounted::Refused);
    let is_limited = summary.gpus.iter().any(|gpu| !gpu.quotas.is_empty());
    let next = match (is_refused, is_limited) {
        (true, _) => "the notes say why a process got no memory.",
        (false, true) => "a higher limit, or none, shows the need.",
        (false, false) => "a larger --emulate shows the need.",
    };
    match (figures.out_of_memory, figures.retries) {
        (0, 0) => None,
        (0, retries) => Some(format!(
            "Memory ran short {}: the allocator gave its reserve back and went on.",
            counted(retries, "time", "times")
        )),
        (refused, _) if summary.outcome.exit_code == Some(0) => Some(format!(
            "{} refused on {}, and the program went on. The figures are of what it did instead; {next}",
            counted(refused, "request was", "requests were"),
            clean(&figures.machine)
        )),
        _ => Some(format!(
            "OUT OF MEMORY on {}. The figures are those up to then; {next}",
            clean(&figures.machine)
        )),
    }
}

fn one_gpu(out: &mut String, heading: &str, gpu: &GpuFigures) {
    let _ = writeln!(out, "\n{}", clean(heading));
    if !gpu.phases.is_empty() {
        let mut table = Table::new([left("peak in"), right("allocated"), right("reserved")]).indented(2);
        for phase in Phase::ALL {
            if let Some(peak) = gpu.phases.get(&phase) {
                table.row([
                    phase.label().to_owned(),
                    Bytes(peak.allocated).to_string(),
                    Bytes(peak.reserved).to_string(),
                ]);
            }
        }
        let _ = write!(out, "{table}");
    }
    if let Some(sums) = sums(gpu) {
        let _ = writeln!(out, "  ({sums})");
    }
    for (label, value) in held(gpu) {
        let _ = writeln!(out, "  {label:<22}{value}");
    }
}

/// Over which processes figures are summed, if there are several.
pub(crate) fn sums(gpu: &GpuFigures) -> Option<String> {
    let (all, reporting) = (gpu.processes, gpu.reporting_processes);
    let is_of_some = (1..all).contains(&reporting);
    (all > 1).then(|| match is_of_some {
        true => format!(
            "{reporting} of {all} processes reported allocated and reserved; the driver's figure is of all"
        ),
        false => format!("sums of the peaks of {all} processes"),
    })
}

/// Memory that the driver holds besides the framework's, and in all.
pub(crate) fn held(gpu: &GpuFigures) -> Vec<(&'static str, String)> {
    let reserved = gpu.phases.get(&Phase::Whole).map_or(0, |peak| peak.reserved);
    let row = |label, bytes| (reserved > 0 && bytes > 0).then(|| (label, Bytes(bytes).to_string()));
    let besides = row("besides, by libraries", gpu.reporting_requested_peak.saturating_sub(reserved));
    let others = gpu.requested_peak.saturating_sub(gpu.reporting_requested_peak);
    let others = row("by other processes", others);
    let (held, context, origin) = (Bytes(gpu.held_peak), Bytes(gpu.context), clean(&gpu.context_origin));
    let driver = format!("{held}, of which {context} for contexts and code ({origin})");
    besides.into_iter().chain(others).chain([("the driver would hold", driver)]).collect()
}

/// Cards with the verdict on each, as a table. `steps`: predicted times of a step, of which each stands beside its card, as do
/// the figures of a whole training. Below it are the cards of least time and cost.
#[must_use]
pub fn fits_text(fits: &[Fit], steps: &[StepTime], training: Option<&TrainingSummary>) -> String {
    let fits: Vec<&Fit> = fits.iter().collect();
    let mut text = table(&fits, steps, training);
    for line in choice::lines(&fits, steps, training) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn table(fits: &[&Fit], steps: &[StepTime], training: Option<&TrainingSummary>) -> String {
    let has_steps = !steps.is_empty();
    let training = training.filter(|_| has_steps);
    let has_cost = training.is_some_and(|of| of.cards.iter().any(|card| card.cost.is_some()));
    let columns = ["card", "fits"].map(left).into_iter().chain(["need", "of", "share"].map(right));
    let step = has_steps.then(|| right("a step, predicted"));
    let time = training.map(|of| right(counted(of.steps, "step", "steps")));
    let cost =
        training.filter(|_| has_cost).map(|of| right(format!("cost {}", clean(&of.currency)).trim_end()));
    let columns = columns.chain(step).chain(time).chain(cost).chain([left("")]);
    let mut table = Table::new(columns).indented(2);
    for fit in fits {
        let [cells @ .., remark] = fit_row(fit);
        let step = steps.iter().find(|step| step.card == fit.card);
        let step = has_steps.then(|| step::cell(step));
        let training = training.map(|of| step::training_cells(of, &fit.card));
        let training = training.into_iter().flat_map(|[time, cost]| [Some(time), has_cost.then_some(cost)]);
        table.row(cells.into_iter().chain(step).chain(training.flatten()).chain([remark]));
    }
    table.to_string()
}

/// Returns true for a card of another architecture on which the program did not run.
fn is_guessed(fit: &Fit) -> bool {
    fit.verdict == Verdict::Unknown && fit.seconds.is_none()
}

/// Sentence about all cards whose need is only an estimate; `None` if there is none.
fn others(fits: &[&Fit]) -> Option<String> {
    let first = &fits.first()?.card;
    let names: Vec<&str> = fits.iter().map(|fit| fit.card.as_str()).collect();
    let needs = || fits.iter().map(|fit| fit.need);
    let (least, most) = (Bytes(needs().min()?).to_string(), Bytes(needs().max()?).to_string());
    let range = if least == most { most } else { format!("{least} to {most}") };
    let names = clean(&names.join(", ")).into_owned();
    Some(format!(
        "not known (other architectures, about {range}): {names}; --fits {first} runs the program there"
    ))
}

/// The cells of a card's row.
pub(crate) fn fit_row(fit: &Fit) -> [String; 6] {
    let memory = Bytes(fit.memory).to_string();
    // A run that memory ended does not show how much the program needs: only that it is more than the card has.
    let (need, share) = match (fit.verdict, fit.seconds) {
        (Verdict::No, Some(_)) => (format!("> {memory}"), "> 100 %".to_owned()),
        _ => (Bytes(fit.need).to_string(), format!("{:.0} %", fit.percent())),
    };
    let ran = fit.seconds.map(|_| "ran on it".to_owned());
    let remark = ran.into_iter().chain(fit.why.clone()).collect::<Vec<_>>().join(": ");
    [fit.card.clone(), fit.verdict.word().to_owned(), need, memory, share, remark]
}

/// Figures that come from models or are unknown: headings with lines.
pub(crate) fn uncertainties(figures: &DryRunFigures, ranks: Option<&Ranks>) -> Vec<(String, Vec<String>)> {
    let times =
        |(what, count): &(String, u64)| format!("{what}: {} or more", counted(*count, "time", "times"));
    let calls = |count: u64| counted(count, "call", "calls");
    let sections: [(String, Vec<String>); 5] = [
        (
            "not measured, but modelled (upper bounds, contained in the figures above)".to_owned(),
            figures
                .modelled
                .iter()
                .map(|size| format!("{}: up to {} at a time", size.what, Bytes(size.bytes)))
                .collect(),
        ),
        (
            "asked of ranks that did not run: each was taken to have what the asking rank has".to_owned(),
            ranks.iter().flat_map(|ranks| &ranks.answered).map(times).collect(),
        ),
        (
            format!("depends on data: {} % of the elements were taken to be kept (--fill)", figures.fill),
            figures.filled.iter().map(times).collect(),
        ),
        (
            "library calls, kernels unknown (they are not among the launches)".to_owned(),
            figures
                .library_calls
                .iter()
                .map(|(library, count)| format!("{library}: {} or more", calls(*count)))
                .collect(),
        ),
        (
            "reached without semantics".to_owned(),
            figures
                .missing
                .iter()
                .map(|call| format!("{} ({} or more): {}", call.name, calls(call.calls), call.effect))
                .collect(),
        ),
    ];
    sections.into_iter().filter(|(_, lines)| !lines.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::TextOptions;
    use crate::{Summary, text};
    use radrm_profile::model::dry_run::{MissingCall, ModelledSize, Peak, RanRank};
    use radrm_profile::model::{Job, Profile};
    use std::collections::BTreeMap;

    fn figures() -> DryRunFigures {
        let peak = Peak { allocated: 5 << 20, reserved: 8 << 20 };
        DryRunFigures {
            machine: "H200".to_owned(),
            steps: 3,
            gpus: vec![GpuFigures {
                name: "NVIDIA H200".to_owned(),
                processes: 1,
                reporting_processes: 1,
                phases: BTreeMap::from([(Phase::Whole, peak)]),
                requested_peak: 10 << 20,
                reporting_requested_peak: 10 << 20,
                held_peak: 530 << 20,
                context: 520 << 20,
                context_origin: "estimate".to_owned(),
                ..GpuFigures::default()
            }],
            modelled: vec![ModelledSize { what: "workspace".to_owned(), bytes: 1 << 20 }],
            library_calls: vec![("cuBLAS".to_owned(), 100)],
            ..DryRunFigures::default()
        }
    }

    fn shown(figures: DryRunFigures, fits: Vec<Fit>) -> (String, String) {
        let mut profile = Profile::new(Job::default());
        profile.dry_run = Some(figures);
        profile.fits = fits;
        let summary = Summary::from_profile(&profile);
        (
            text(&profile, &summary, &TextOptions { full: true, ..TextOptions::default() }),
            crate::json(&summary),
        )
    }

    #[test]
    fn a_short_report_says_what_it_leaves_out_and_how_to_see_it() {
        let mut profile = crate::model::tensors::profile_with_tensors();
        let card = |number: u32| Fit {
            card: format!("CARD-{number}"),
            verdict: Verdict::Yes,
            why: None,
            need: 1 << 30,
            memory: 15 << 30,
            seconds: None,
        };
        (profile.dry_run, profile.fits) = (Some(figures()), (0..12).map(card).collect());
        let mut other = profile.processes[0].clone();
        (other.identity.pid, other.tensors) = (7, None);
        profile.processes.push(other);
        let summary = Summary::from_profile(&profile);
        let of = |full| {
            let options =
                TextOptions { full, profile_path: Some("a.radrm".into()), ..TextOptions::default() };
            text(&profile, &summary, &options)
        };
        let (short, full) = (of(false), of(true));
        assert!(short.contains("  ... 2 more\n") && !short.contains("CARD-10  yes"), "{short}");
        assert!(full.contains("CARD-11  yes") && !full.contains("not shown"), "{full}");
        let line = short.lines().find(|line| line.starts_with("not shown: ")).expect("what is left out");
        assert!(line.contains("processes"), "{short}");
        assert!(line.ends_with("; to see all: radrm report --full a.radrm"), "{line}");
        assert!(short.contains("tensors by line") && short.contains("fits on"), "{short}");
    }

    #[test]
    fn figures_come_with_what_is_only_modelled() {
        let (text, json) = shown(figures(), Vec::new());
        for part in [
            "5.00 MiB",
            "8.00 MiB",
            "530.0 MiB",
            "besides, by libraries 2.00 MiB",
            "workspace: up to 1.00 MiB",
            "cuBLAS: 100 calls or more",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(json.contains("\"held_peak\": 555745280"), "{json}");
    }

    #[test]
    fn memory_of_processes_without_figures_is_none_of_libraries() {
        let of = |reporting_processes, reporting_requested_peak, phases| {
            let gpu = GpuFigures {
                processes: 3,
                reporting_processes,
                requested_peak: 310 << 20,
                reporting_requested_peak,
                phases,
                ..figures().gpus[0].clone()
            };
            shown(DryRunFigures { gpus: vec![gpu], ..figures() }, Vec::new()).0
        };
        let phases = figures().gpus[0].phases.clone();
        let text = of(2, 10 << 20, phases.clone());
        for part in [
            "(2 of 3 processes reported allocated and reserved; the driver's figure is of all)",
            "besides, by libraries 2.00 MiB",
            "by other processes    300.0 MiB",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let text = of(3, 310 << 20, phases);
        assert!(text.contains("(sums of the peaks of 3 processes)"), "{text}");
        assert!(
            text.contains("besides, by libraries 302.0 MiB") && !text.contains("other processes"),
            "{text}"
        );
        let text = of(0, 0, BTreeMap::new());
        assert!(text.contains("(sums of the peaks of 3 processes)") && !text.contains("by other"), "{text}");
    }

    #[test]
    fn what_a_real_gpu_is_expected_to_hold_comes_with_its_bound_and_basis() {
        let of = |expected: Expected| {
            let mut profile = Profile::new(Job::default());
            (profile.dry_run, profile.expected) = (Some(figures()), Some(expected));
            let summary = Summary::from_profile(&profile);
            (
                text(&profile, &summary, &TextOptions { full: true, ..TextOptions::default() }),
                crate::json(&summary),
            )
        };
        let shipped = Expected {
            bytes: 900 << 20,
            upper: Some(990 << 20),
            confidence: Some(0.9),
            ..Expected::default()
        };
        let (text, json) = of(shipped.clone());
        let line =
            "expected on a real GPU: 900.0 MiB, at most 990.0 MiB (90 % confidence)\n  by measurements else";
        assert!(text.contains(line), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["dry_run"]["expected"]["upper"], 990 << 20);
        assert_eq!(json["dry_run"]["expected"]["source"], serde_json::Value::Null, "an older profile");
        let own = Expected {
            source: r#"{"equal_runs":{"runs":2}}"#.to_owned(),
            basis: Some("measured in 2 equal runs".to_owned()),
            ..shipped.clone()
        };
        let (text, json) = of(own);
        assert!(text.contains("(90 % confidence)\n  measured in 2 equal runs\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["dry_run"]["expected"]["source"]["equal_runs"]["runs"], 2);
        let here = Expected { upper: None, runs: 12, gpu_model: Some("NVIDIA L4".to_owned()), ..shipped };
        let (text, json) = of(here);
        for part in ["900.0 MiB, without a bound", "corrected by 12 runs of dry-run programs on NVIDIA L4"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(json.contains("\"upper\": null"), "{json}");
    }

    #[test]
    fn ranks_with_equal_figures_are_shown_once() {
        let gpu =
            |gpu: usize, held: u64| GpuFigures { gpu, held_peak: held << 20, ..figures().gpus[0].clone() };
        let ran = |rank: u32, gpu: usize| RanRank { rank, gpu, host_memory: None };
        let mut profile = Profile::new(Job::default());
        profile.dry_run =
            Some(DryRunFigures { gpus: vec![gpu(0, 530), gpu(1, 530), gpu(7, 600)], ..figures() });
        profile.ranks = Some(Ranks {
            world: 64,
            per_node: 8,
            ran: vec![ran(0, 0), ran(1, 1), ran(63, 7)],
            answered: vec![("Python objects".to_owned(), 10)],
        });
        let summary = Summary::from_profile(&profile);
        let (text, json) = (
            text(&profile, &summary, &TextOptions { full: true, ..TextOptions::default() }),
            crate::json(&summary),
        );
        for part in [
            "ranks 0,1,63 of 64, nodes of 8 GPUs; the other 61 were modelled",
            "GPU 0,1 (ranks 0,1) · NVIDIA H200, each\n",
            "GPU 7 (rank 63) · NVIDIA H200\n",
            "Python objects: 10 times or more",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(text.matches("530.0 MiB").count(), 1, "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["dry_run"]["ranks"]["world"], 64);
        assert_eq!(json["dry_run"]["ranks"]["ran"][2]["rank"], 63);
        assert_eq!(json["dry_run"]["gpus"].as_array().map(Vec::len), Some(3), "programs get each GPU");
    }

    #[test]
    fn a_withheld_figure_has_its_reason_and_its_calls() {
        let missing =
            vec![MissingCall { name: "x".to_owned(), calls: 1, effect: "e".to_owned(), matters: true }];
        let withheld = Some("the program called x".to_owned());
        let (text, json) =
            shown(DryRunFigures { gpus: Vec::new(), withheld, missing, ..figures() }, Vec::new());
        assert!(text.contains("NO FIGURE: the program called x.") && !text.contains("530.0"), "{text}");
        assert!(text.contains("x (1 call or more): e"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["dry_run"]["withheld"], "the program called x");
        assert!(json["dry_run"].get("gpus").is_none() && json["dry_run"].get("fits").is_none(), "{json:#}");
    }

    #[test]
    fn each_card_has_a_row_with_its_reason() {
        let fit = Fit {
            card: "T4".to_owned(),
            verdict: Verdict::Unknown,
            why: Some("the program ended there with exit code 1".to_owned()),
            need: 3 << 30,
            memory: 15 << 30,
            seconds: Some(1.0),
        };
        let (text, json) = shown(figures(), vec![fit.clone()]);
        for part in ["T4", "unknown", "3.00 GiB", "15.0 GiB", "20 %", "ran on it: the program ended there"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("--fits T4"), "it ran there: {text}");
        assert!(json.contains("\"verdict\": \"unknown\""), "{json}");
        let guess = Fit { seconds: None, ..fit };
        let other = Fit { card: "L4".to_owned(), need: 4 << 30, ..guess.clone() };
        let (text, _) = shown(figures(), vec![guess, other]);
        let line = "not known (other architectures, about 3.00 GiB to 4.00 GiB): T4, L4; --fits T4 runs the program there";
        assert!(text.replace("\n  ", " ").contains(line), "{text}");
    }

    #[test]
    fn a_run_that_memory_ended_shows_no_need() {
        let fit = |seconds| Fit {
            card: "T4".to_owned(),
            verdict: Verdict::No,
            why: None,
            need: 14 << 30,
            memory: 15 << 30,
            seconds,
        };
        let cells = fit_row(&fit(Some(1.0)));
        assert_eq!((&*cells[2], &*cells[4]), ("> 15.0 GiB", "> 100 %"));
        assert_eq!(fit_row(&fit(None))[2], "14.0 GiB", "a run on another card shows it");
    }
}
