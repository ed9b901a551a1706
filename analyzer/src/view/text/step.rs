//! The predicted time of a step of a dry run.

use std::fmt::Write as _;

use radrm_profile::model::PredictedStep;
use radrm_profile::model::step::{KindTime, StepLimit, StepTime};
use radrm_text::number::grouped;
use radrm_text::{Table, clean, left, right};

use super::sections::more;
use crate::model::{Predicted, TrainingSummary};
use crate::view::phrases::counted;

/// Unknown operators that are named.
const NAMED: usize = 8;
/// Part of the time that may be assumed where a bound is shown with its coverage.
const MOSTLY_MEASURED: f64 = 0.2;

/// Predicted figures of a whole training on the card of the run, on one line.
pub(crate) fn of_training(training: &TrainingSummary, card: &str) -> Option<String> {
    let on = training.on_card(card)?;
    let mut parts = vec![predicted(&on.seconds, &long(on.seconds.low))];
    parts.extend(on.joules.map(|joules| predicted(&joules, &(1.0 / 3.6e6, "kWh"))));
    parts.extend(on.cost.map(|cost| predicted(&cost, &(1.0, &training.currency))));
    let steps = counted(training.steps, "step", "steps");
    let gpus = if training.gpus > 1 { format!(" on {} GPUs", grouped(training.gpus)) } else { String::new() };
    Some(format!("{steps}{gpus}: {}", parts.join(", ")))
}

/// A figure with its bound, or its lower end, in a unit.
pub(super) fn predicted(figure: &Predicted, (factor, name): &(f64, &str)) -> String {
    let shown = |value: f64| format!("{} {name}", digits(value * factor)).trim_end().to_owned();
    match (figure.expected, figure.high) {
        (Some(expected), Some(high)) => {
            format!("{} ({} to {})", shown(expected), digits(figure.low * factor), digits(high * factor))
        }
        _ => format!("at least {}", shown(figure.low)),
    }
}

/// Time and cost of a whole training for a table of cards.
pub(crate) fn training_cells(training: &TrainingSummary, card: &str) -> [String; 2] {
    let cell = |figure: Option<&Predicted>, unit: fn(f64) -> (f64, &'static str)| match figure {
        None => "n/a".to_owned(),
        Some(Predicted { expected: Some(expected), .. }) => in_unit(*expected, unit(*expected)),
        Some(Predicted { low, .. }) => format!(">= {}", in_unit(*low, unit(*low))),
    };
    let on = training.on_card(card);
    [cell(on.map(|on| &on.seconds), long), cell(on.and_then(|on| on.cost.as_ref()), |_| (1.0, ""))]
}

/// Predicted time of a step on the card of the run, on one line.
pub(crate) fn of_step(step: &PredictedStep) -> Option<String> {
    let time = step.on(&step.card)?;
    let limit = match time.limit {
        StepLimit::Gpu => ", GPU-bound",
        StepLimit::Host => ", host-bound",
        StepLimit::Unclear => "",
    };
    Some(format!("{} on {}{limit}", amount(time), time.card))
}

/// Predicted time: the expected one with its bound, or its lower end.
fn amount(time: &StepTime) -> String {
    match (time.seconds, time.high) {
        (Some(seconds), Some(high)) => bounded([seconds, time.low, high], time),
        _ => format!("at least {}", span(time.low)),
    }
}

/// Predicted time for a table of cards.
pub(crate) fn cell(time: Option<&StepTime>) -> String {
    match time {
        Some(StepTime { seconds: Some(seconds), .. }) => span(*seconds),
        Some(time) => format!(">= {}", span(time.low)),
        None => "n/a".to_owned(),
    }
}

/// A time with its bound. Its coverage is that of measured kinds, so it is shown where they have most of the time.
fn bounded([seconds, low, high]: [f64; 3], time: &StepTime) -> String {
    let (factor, _) = unit(seconds);
    let (low, high) = (digits(low * factor), digits(high * factor));
    let coverage = match time.assumed < MOSTLY_MEASURED && time.coverage > 0.0 {
        true => format!("{:.0} %", 100.0 * time.coverage),
        false => "partly assumed".to_owned(),
    };
    format!("{} ({low} to {high}, {coverage})", span(seconds))
}

/// Factor and name of the unit for a time in seconds.
fn unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        seconds if seconds >= 1.0 => (1.0, "s"),
        seconds if seconds >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "us"),
    }
}

/// The same for the time of a training.
pub(super) fn long(seconds: f64) -> (f64, &'static str) {
    const HOUR: f64 = 3600.0;
    match seconds {
        seconds if seconds >= 72.0 * HOUR => (1.0 / (24.0 * HOUR), "days"),
        seconds if seconds >= HOUR => (1.0 / HOUR, "h"),
        seconds if seconds >= 120.0 => (1.0 / 60.0, "min"),
        seconds => unit(seconds),
    }
}

fn span(seconds: f64) -> String {
    in_unit(seconds, unit(seconds))
}

fn in_unit(value: f64, (factor, name): (f64, &str)) -> String {
    format!("{} {name}", digits(value * factor)).trim_end().to_owned()
}

/// Three digits are more than a prediction has.
fn digits(value: f64) -> String {
    match value {
        value if value >= 99.5 => format!("{value:.0}"),
        value if value >= 9.95 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The section on a step: its time, its work by kind in so many rows, and what is not known of it.
pub(super) fn section(out: &mut String, step: &PredictedStep, rows: usize) {
    let (Some(line), Some(time)) = (of_step(step), step.on(&step.card)) else { return };
    let _ = writeln!(out, "\na step, predicted from the shapes of its operators: {}", clean(&line));
    for line in remarks(step, time) {
        let _ = writeln!(out, "  {}", clean(&line));
    }
    let columns =
        [left("operations"), right("count"), right("time"), right("share"), right("TFLOP"), right("GB")];
    let mut table = Table::new(columns).indented(2);
    for kind in step.kinds.iter().take(rows) {
        table.row(row(kind, time.gpu_seconds[0]));
    }
    let _ = write!(out, "{table}");
    more(out, step.kinds.len().saturating_sub(rows) as u64);
}

fn row(kind: &KindTime, all: f64) -> [String; 6] {
    let share = if all > 0.0 { 100.0 * kind.seconds / all } else { 0.0 };
    [
        kind.kind.clone(),
        grouped(kind.operations),
        if kind.without_time == kind.operations { "n/a".to_owned() } else { span(kind.seconds) },
        format!("{share:.1} %"),
        format!("{:.2}", kind.flop / 1e12),
        format!("{:.2}", kind.bytes / 1e9),
    ]
}

/// Limit of the step, and the parts that its time leaves out or assumes.
pub(crate) fn remarks(step: &PredictedStep, time: &StepTime) -> Vec<String> {
    let mut lines = Vec::new();
    let gpu = bounded(time.gpu_seconds, time);
    if time.seconds.is_none() {
        let without = match time.without_time {
            0 => String::new(),
            1 => " without one operation that has no predicted time".to_owned(),
            count => format!(" without {} operations that have no predicted time", grouped(count)),
        };
        lines.push(format!("its operations one after another take {gpu} of the GPU{without}"));
    }
    match (time.limit, step.host_seconds) {
        (StepLimit::Unclear, Some(host)) => {
            lines.push(format!(
                "the host took {} in the dry run, which is a lower end: it may limit the step",
                span(host)
            ));
        }
        (StepLimit::Unclear, None) => {
            lines.push("the host's time is not known, as no later step was timed for it".to_owned());
        }
        (StepLimit::Host, Some(host)) => {
            lines.push(format!("the host took {} in the dry run, longer than the GPU will", span(host)));
        }
        _ => {}
    }
    if let (StepLimit::Gpu, Some(_), [joules, low, high]) = (time.limit, time.seconds, time.joules)
        && joules > 0.0
    {
        let [watts, low, high] = [joules, low, high].map(|joules| digits(joules / time.gpu_seconds[0]));
        lines.push(format!(
            "the card draws {watts} W meanwhile ({low} to {high} were measured of busy cards, without a coverage)"
        ));
    }
    lines.extend(step.incomplete.iter().cloned());
    if time.assumed > 0.0 {
        let kinds: Vec<&str> = step
            .kinds
            .iter()
            .filter(|kind| kind.assumed_seconds > 0.0)
            .map(|kind| kind.kind.as_str())
            .collect();
        lines.push(format!(
            "{:.1} % of the GPU's time is assumed, as no measurement was at hand: of {}",
            100.0 * time.assumed,
            kinds.join(", ")
        ));
    }
    if !step.unknown.is_empty() {
        let mut names: Vec<String> = step
            .unknown
            .iter()
            .take(NAMED)
            .map(|(name, count)| format!("{name} {}", grouped(*count)))
            .collect();
        if step.unknown.len() > NAMED {
            names.push(format!("{} more", step.unknown.len() - NAMED));
        }
        let unknown = step.unknown_operations();
        lines.push(format!(
            "unknown work: {} of {}: {}",
            grouped(unknown),
            counted(step.operations, "operation", "operations"),
            names.join(", ")
        ));
    }
    if step.processes > 1 {
        lines.push(format!("of {} processes the one that takes longest", step.processes));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Prices, Training};
    use std::collections::BTreeMap;

    fn time(limit: StepLimit, seconds: Option<f64>) -> StepTime {
        StepTime {
            card: "H100-80GB".to_owned(),
            seconds,
            low: 0.15,
            high: seconds.map(|_| 0.225),
            coverage: 0.9,
            limit,
            gpu_seconds: [0.182, 0.15, 0.225],
            assumed: 0.125,
            ..StepTime::default()
        }
    }

    fn step(limit: StepLimit, seconds: Option<f64>) -> PredictedStep {
        PredictedStep {
            number: 2,
            processes: 1,
            card: "H100-80GB".to_owned(),
            cards: vec![time(limit, seconds)],
            operations: 1240,
            host_seconds: Some(0.02),
            kinds: vec![KindTime {
                kind: "gemm".to_owned(),
                operations: 145,
                flop: 12.3e12,
                bytes: 10.1e9,
                seconds: 0.091,
                assumed_seconds: 0.01,
                without_time: 0,
            }],
            ..PredictedStep::default()
        }
    }

    #[test]
    fn a_step_has_its_bound_and_what_limits_it() {
        let line = of_step(&step(StepLimit::Gpu, Some(0.182))).unwrap();
        assert_eq!(line, "182 ms (150 to 225, 90 %) on H100-80GB, GPU-bound");
        let line = of_step(&step(StepLimit::Host, None)).unwrap();
        assert_eq!(line, "at least 150 ms on H100-80GB, host-bound");
        assert_eq!(of_step(&PredictedStep::default()), None);
    }

    #[test]
    fn unknown_and_assumed_work_is_named() {
        let mut step = step(StepLimit::Unclear, None);
        step.unknown = (0..10).map(|number| (format!("aten::op{number}"), 2)).collect();
        step.cards[0].without_time = 20;
        let mut out = String::new();
        section(&mut out, &step, usize::MAX);
        for part in [
            "a step, predicted from the shapes of its operators: at least 150 ms on H100-80GB\n",
            "take 182 ms (150 to 225, 90 %) of the GPU without 20 operations that have no predicted time",
            "the host took 20.0 ms in the dry run, which is a lower end",
            "12.5 % of the GPU's time is assumed, as no measurement was at hand: of gemm",
            "unknown work: 20 of 1,240 operations: aten::op0 2",
            ", 2 more\n",
            "50.0 %  12.30  10.10",
        ] {
            assert!(out.contains(part), "{part}\n{out}");
        }
    }

    fn training(currency: &str) -> Training {
        let per_hour = BTreeMap::from([("H100-80GB".to_owned(), 3.5)]);
        Training { steps: 28_000, prices: Prices { currency: currency.to_owned(), per_hour } }
    }

    #[test]
    fn a_training_has_its_time_energy_and_cost() {
        let mut card = time(StepLimit::Gpu, Some(0.182));
        card.joules = [110.0, 90.0, 125.0];
        let of = TrainingSummary::on(&training("USD"), 1, &[card.clone()]);
        let line = of_training(&of, "H100-80GB").unwrap();
        assert_eq!(
            line,
            "28,000 steps: 1.42 h (1.17 to 1.75), 0.86 kWh (0.70 to 0.97), 4.95 USD (4.08 to 6.12)"
        );
        assert_eq!(training_cells(&of, "H100-80GB"), ["1.42 h", "4.95"]);
        assert_eq!(training_cells(&of, "T4"), ["n/a", "n/a"]);
        let step = PredictedStep { cards: vec![card.clone()], ..step(StepLimit::Gpu, Some(0.182)) };
        let lines = remarks(&step, &card);
        assert!(
            lines[0].starts_with("the card draws 604 W meanwhile (495 to 687 were measured"),
            "{lines:?}"
        );
        let of = TrainingSummary::on(&training(""), 8, &[time(StepLimit::Host, None)]);
        let line = of_training(&of, "H100-80GB").unwrap();
        assert_eq!(line, "28,000 steps on 8 GPUs: at least 1.17 h, at least 32.7");
        assert_eq!(training_cells(&of, "H100-80GB"), [">= 1.17 h", ">= 32.7"]);
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        let spans = [0.0000123, 0.00912, 0.0123, 0.456, 12.3, 123.4].map(span);
        assert_eq!(spans, ["12.3 us", "9.12 ms", "12.3 ms", "456 ms", "12.3 s", "123 s"]);
        assert_eq!(cell(None), "n/a");
        let training = [90.0, 600.0, 7200.0, 86400.0 * 5.5].map(|seconds| in_unit(seconds, long(seconds)));
        assert_eq!(training, ["90.0 s", "10.0 min", "2.00 h", "5.50 days"]);
    }
}
