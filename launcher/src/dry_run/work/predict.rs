//! The time that the work of a step takes on cards.

use std::collections::HashMap;

use radrm_clock::{Card, Clock, HostTime, Kind, Limit, Precision, Prediction, Shape, Step, Work};
use radrm_emulator_machine::{GpuSpec, Models};
use radrm_profile::model::PredictedStep;
use radrm_profile::model::step::{KindTime, MAX_ORDER, MAX_ROWS, StepLimit, StepTime, WorkRow};

use super::operators::{Found, Known};
use crate::dry_run::notes::Traced;

/// Work and time of a step on all known cards. `host`: CPU time of a step of the dry run, s. `gpu`: where the program ran.
///
/// Returns `None` if the step has no work on a GPU.
#[must_use]
pub fn step(
    clock: &Clock,
    found: &Found,
    traced: &Traced,
    host: Option<f64>,
    gpu: &GpuSpec,
) -> Option<PredictedStep> {
    let (rows, order) = equal_together(&found.known);
    let unknown: Vec<(String, u64)> =
        found.unknown.iter().map(|(name, count)| (name.clone(), *count)).collect();
    let unknown_operations: u64 = unknown.iter().map(|(_, count)| count).sum();
    let operations = rows.iter().map(|row| row.count).sum::<u64>() + unknown_operations;
    if operations == 0 {
        return None;
    }
    let mut specs = Models::known().map(|models| models.gpu).unwrap_or_default();
    if !specs.iter().any(|spec| spec.id == gpu.id) {
        specs.push(gpu.clone());
    }
    let incomplete = incomplete(traced);
    let mut kinds = Vec::new();
    let mut cards = Vec::new();
    let mut work: Vec<WorkRow> = rows.iter().take(MAX_ROWS).map(Row::written).collect();
    for spec in &specs {
        let Some(card) = card(spec) else { continue };
        let Some(sums) = Sums::of(clock, &rows, &card, traced, unknown_operations) else { continue };
        cards.push(sums.step_time(spec, traced, host));
        if spec.id == gpu.id {
            kinds = sums.kinds;
            for (written, row) in work.iter_mut().zip(&rows) {
                written.seconds = row.time(clock, &card, traced).map(|(time, _)| time.time);
            }
        }
    }
    kinds.sort_by(|a: &KindTime, b| b.seconds.total_cmp(&a.seconds));
    let total = |of: fn(&Work) -> f64| rows.iter().map(|row| row.count as f64 * of(&row.known.work)).sum();
    Some(PredictedStep {
        number: traced.step,
        processes: 1,
        card: gpu.id.clone(),
        unknown,
        operations,
        flop: total(|work| work.flop),
        bytes: total(Work::bytes),
        host_seconds: host,
        incomplete,
        kinds,
        cards,
        order: if rows.len() <= MAX_ROWS && order.len() <= MAX_ORDER { order } else { Vec::new() },
        work,
    })
}

/// Facts of a card as the clock reads them, from the emulator's.
fn card(spec: &GpuSpec) -> Option<Card> {
    let card: Card = serde_json::to_value(spec).and_then(serde_json::from_value).ok()?;
    card.fault().is_none().then_some(card)
}

/// Reasons why the operators are not all that the step does.
fn incomplete(traced: &Traced) -> Vec<String> {
    let reasons = [
        (traced.compiled, "functions were compiled, and their kernels are no operators"),
        (traced.graphs, "CUDA graphs were replayed, and their kernels are no operators"),
        (
            traced.streams,
            "the program uses several streams, and operations that overlap take less time than their sum",
        ),
    ];
    reasons.into_iter().filter(|(is, _)| *is).map(|(_, why)| why.to_owned()).collect()
}

/// Equal operations.
struct Row {
    known: Known,
    count: u64,
}

impl Row {
    fn written(&self) -> WorkRow {
        let Known { kind, work, .. } = &self.known;
        WorkRow {
            kind: (*kind).to_owned(),
            operand: name(work.types.operand).to_owned(),
            result: name(work.types.result).to_owned(),
            sizes: sizes(&work.shape),
            count: self.count,
            flop: work.flop,
            read: work.read,
            written: work.written,
            seconds: None,
        }
    }

    /// Predicted time on a card, and whether it is assumed.
    fn time(&self, clock: &Clock, card: &Card, traced: &Traced) -> Option<(Prediction, bool)> {
        let mut work = self.known.work;
        let is_convolution = matches!(work.shape, Shape::Convolution { .. });
        let may_round = if is_convolution { traced.tf32_convolutions } else { traced.tf32_products };
        if self.known.single && may_round && card.rate(Precision::Tf32).is_some() {
            work.types.operand = Precision::Tf32;
        }
        let measured = self.known.measured.then(|| clock.time(&work, card)).flatten();
        measured.map(|time| (time, false)).or_else(|| Some((clock.assumed(&work, card)?, true)))
    }

    /// Returns true if the arithmetic units limit the operation, so that others beside it slow it down.
    fn computes(&self) -> bool {
        matches!(
            self.known.work.kind(),
            Kind::Gemm | Kind::GemmSimt | Kind::Convolution | Kind::AttentionPrefill | Kind::AttentionDecode
        )
    }
}

/// Equal operations together, those with the largest sum of FLOP and bytes first; and the row of each operation.
fn equal_together(known: &[Known]) -> (Vec<Row>, Vec<u32>) {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let mut order = Vec::new();
    for known in known {
        let place = *places.entry(format!("{known:?}")).or_insert(rows.len());
        match rows.get_mut(place) {
            Some((_, row)) => row.count += 1,
            None => rows.push((place, Row { known: known.clone(), count: 1 })),
        }
        order.push(place);
    }
    let weight = |row: &Row| row.count as f64 * (row.known.work.flop + row.known.work.bytes());
    rows.sort_by(|(_, a), (_, b)| weight(b).total_cmp(&weight(a)));
    let mut sorted = vec![0; rows.len()];
    for (now, (before, _)) in (0..).zip(&rows) {
        sorted[*before] = now;
    }
    let order = order.into_iter().map(|place| sorted[place]).collect();
    (rows.into_iter().map(|(_, row)| row).collect(), order)
}

/// Sums over the operations of a step on one card.
struct Sums {
    step: Step,
    kinds: Vec<KindTime>,
    /// Lower end of the operations that the arithmetic units limit, s.
    low_of_arithmetic: f64,
    coverage: f64,
}

impl Sums {
    /// Returns `None` if the card lacks a type in which the step computes.
    fn of(clock: &Clock, rows: &[Row], card: &Card, traced: &Traced, unknown: u64) -> Option<Self> {
        let mut step = Step::default();
        let mut kinds: Vec<KindTime> = Vec::new();
        let (mut low_of_arithmetic, mut coverage) = (0.0, None);
        for row in rows {
            let Known { kind, work, .. } = &row.known;
            let count = row.count as f64;
            let place = kinds.iter().position(|own| own.kind == *kind).unwrap_or_else(|| {
                kinds.push(KindTime { kind: (*kind).to_owned(), ..KindTime::default() });
                kinds.len() - 1
            });
            let own = &mut kinds[place];
            own.operations += row.count;
            own.flop += count * work.flop;
            own.bytes += count * work.bytes();
            match row.time(clock, card, traced) {
                None if row.computes() && work.types.operand != Precision::F64 => return None,
                None => {
                    own.without_time += row.count;
                    step.add(None, row.count);
                }
                Some((time, is_assumed)) => {
                    own.seconds += count * time.time;
                    if is_assumed {
                        own.assumed_seconds += count * time.time;
                        step.add_assumed(Some(&time), row.count);
                    } else {
                        coverage =
                            Some(coverage.map_or(time.coverage, |other: f64| other.min(time.coverage)));
                        step.add(Some(&time), row.count);
                    }
                    if row.computes() {
                        low_of_arithmetic += count * time.low;
                    }
                }
            }
        }
        step.add(None, unknown);
        Some(Self { step, kinds, low_of_arithmetic, coverage: coverage.unwrap_or(0.0) })
    }

    fn step_time(&self, spec: &GpuSpec, traced: &Traced, host: Option<f64>) -> StepTime {
        let mut step = self.step;
        let without_time = step.unknown;
        if traced.compiled || traced.graphs {
            step.add(None, 1);
        }
        let mut time = step.beside(host.map_or(HostTime::Unknown, HostTime::AtLeast));
        if traced.streams {
            time.time = None;
            time.low = self.low_of_arithmetic.max(host.unwrap_or(0.0));
        }
        let limit = match time.limit {
            Limit::Gpu => StepLimit::Gpu,
            Limit::Host => StepLimit::Host,
            Limit::Unclear => StepLimit::Unclear,
        };
        let (sm, dram) = step.activity(step.time);
        StepTime {
            card: spec.id.clone(),
            seconds: time.time,
            low: time.low,
            high: time.high,
            coverage: self.coverage,
            limit,
            gpu_seconds: [step.time, step.low, step.high],
            assumed: if step.time > 0.0 { step.assumed / step.time } else { 0.0 },
            without_time,
            activity: [sm, dram],
            joules: step.energy,
        }
    }
}

fn name(precision: Precision) -> &'static str {
    match precision {
        Precision::F64 => "8 bytes",
        Precision::F32 => "f32",
        Precision::Tf32 => "tf32",
        Precision::F16 => "f16",
        Precision::Bf16 => "bf16",
        Precision::F8 => "1 byte",
    }
}

/// Sizes in the order in which `Shape` has them.
fn sizes(shape: &Shape) -> Vec<f64> {
    match *shape {
        Shape::Gemm { batch, m, n, k } => vec![batch, m, n, k],
        Shape::Convolution { batch, channels_in, channels_out, pixels_in, pixels_out, window, groups } => {
            vec![batch, channels_in, channels_out, pixels_in, pixels_out, window, groups]
        }
        Shape::AttentionPrefill { batch, queries, keys, heads, kv_heads, head_dim, causal } => {
            vec![batch, queries, keys, heads, kv_heads, head_dim, f64::from(u8::from(causal))]
        }
        Shape::AttentionDecode { batch, keys, heads, kv_heads, head_dim } => {
            vec![batch, keys, heads, kv_heads, head_dim]
        }
        Shape::Elementwise { elements, inputs } => vec![elements, inputs],
        Shape::Reduction { rows, columns }
        | Shape::Norm { rows, columns }
        | Shape::Softmax { rows, columns } => {
            vec![rows, columns]
        }
        Shape::Copy { bytes } | Shape::HostCopy { bytes } => vec![bytes],
        Shape::Collective { ranks, bytes, .. } => vec![ranks, bytes],
        Shape::Other => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_clock::Operands;
    use std::collections::BTreeMap;

    fn product(precision: Precision) -> Known {
        let shape = Shape::Gemm { batch: 1.0, m: 8192.0, n: 4096.0, k: 4096.0 };
        let work = Work::of(shape, Operands::of(precision));
        Known { kind: "gemm", work, measured: true, single: precision == Precision::F32 }
    }

    fn predicted(known: Vec<Known>, unknown: &[&str], traced: &Traced, host: Option<f64>) -> PredictedStep {
        let clock = Clock::shipped().unwrap();
        let gpu = Models::known().unwrap().find("A100-80GB").unwrap().clone();
        let unknown: BTreeMap<String, u64> = unknown.iter().map(|name| ((*name).to_owned(), 1)).collect();
        step(&clock, &Found { known, unknown }, traced, host, &gpu).unwrap()
    }

    fn own(step: &PredictedStep) -> &StepTime {
        step.on(&step.card).unwrap()
    }

    #[test]
    fn equal_operations_are_one_row_and_their_times_add_up() {
        let one = predicted(vec![product(Precision::Bf16)], &[], &Traced::default(), Some(1e-6));
        let many = predicted(vec![product(Precision::Bf16); 20], &[], &Traced::default(), Some(1e-6));
        assert_eq!((many.work.len(), many.work[0].count, many.operations), (1, 20, 20));
        let (one, many) = (own(&one).seconds.unwrap(), own(&many).seconds.unwrap());
        assert!((many / one - 20.0).abs() < 1e-9);
    }

    #[test]
    fn operations_keep_the_order_of_their_calls_and_have_a_time_each() {
        let small = |sizes| {
            let work =
                Work::of(Shape::Elementwise { elements: sizes, inputs: 1.0 }, Operands::of(Precision::F16));
            Known { kind: "elementwise", work, measured: true, single: false }
        };
        let all = vec![small(64.0), product(Precision::Bf16), small(64.0), small(1e8)];
        let step = predicted(all, &[], &Traced::default(), Some(1e-6));
        let kinds: Vec<(&str, f64)> = step
            .order
            .iter()
            .map(|at| &step.work[*at as usize])
            .map(|row| (row.kind.as_str(), row.sizes[0]))
            .collect();
        assert_eq!(
            kinds,
            [("elementwise", 64.0), ("gemm", 1.0), ("elementwise", 64.0), ("elementwise", 1e8)]
        );
        let sum: f64 = step.order.iter().filter_map(|at| step.work[*at as usize].seconds).sum();
        assert!((sum / own(&step).gpu_seconds[0] - 1.0).abs() < 1e-9, "the times are those of the step");
    }

    #[test]
    fn a_step_of_very_many_operations_has_no_order() {
        let step =
            predicted(vec![product(Precision::Bf16); MAX_ORDER + 1], &[], &Traced::default(), Some(1e-6));
        assert_eq!((step.order.len(), step.work.len()), (0, 1));
    }

    #[test]
    fn a_step_with_an_unknown_operation_has_no_upper_end() {
        let step =
            predicted(vec![product(Precision::Bf16)], &["aten::fancy"], &Traced::default(), Some(1e-6));
        let time = own(&step);
        assert_eq!((time.seconds, time.high, time.without_time), (None, None, 1));
        assert!(time.low > 0.0 && step.unknown_operations() == 1);
    }

    #[test]
    fn a_host_that_takes_longer_than_the_gpu_leaves_at_least() {
        let step = predicted(vec![product(Precision::Bf16)], &[], &Traced::default(), Some(5.0));
        let time = own(&step);
        assert_eq!((time.limit, time.low, time.high), (StepLimit::Host, 5.0, None));
    }

    #[test]
    fn cards_without_a_type_of_the_step_have_no_time() {
        let step = predicted(vec![product(Precision::Bf16)], &[], &Traced::default(), None);
        assert!(step.on("A100-80GB").is_some() && step.on("H100-80GB").is_some());
        assert!(step.on("T4").is_none(), "it has no brain floats");
    }

    #[test]
    fn tf32_counts_only_where_the_program_allows_it() {
        let time = |tf32_products| {
            let traced = Traced { tf32_products, ..Traced::default() };
            let step = predicted(vec![product(Precision::F32)], &[], &traced, Some(1e-6));
            (own(&step).seconds.unwrap(), own(&step).assumed)
        };
        let (single, rounded) = (time(false), time(true));
        assert!(single.0 > 2.0 * rounded.0, "{single:?} {rounded:?}");
        assert_eq!((single.1, rounded.1), (0.0, 1.0), "no table measured TF32");
    }

    #[test]
    fn what_the_trace_does_not_show_is_named() {
        let graphs = Traced { graphs: true, ..Traced::default() };
        let step = predicted(vec![product(Precision::Bf16)], &[], &graphs, Some(1e-6));
        assert_eq!((step.incomplete.len(), own(&step).high), (1, None));
    }
}
