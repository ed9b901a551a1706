//! Data for the page's script: memory and load of each GPU over time, in a compact form.
//! Series of numbers are differences from one to the next, times whole microseconds.

use super::lines::{self, LinesOverTime};
use crate::model::stacks::StackTable;
use crate::model::{GpuSummary, LimitInForce, Summary};
use crate::view::columns;
use crate::view::flame::{micros, number};
use crate::view::phrases::failure_text;
use radrm_profile::model::{GpuIndex, GpuSpan, Kind, Profile, Share};
use radrm_profile::steps::{Step, gpu_steps, process_steps, thinned};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use serde::Serialize;
use std::collections::BTreeSet;

/// Numbers of memory over time in a page, all GPUs and series together: half a megabyte at the very most.
const NUMBERS: usize = 40_000;

/// Steps of a GPU that are kept however many GPUs there are.
const MIN_STEPS: usize = 200;

/// Processes of a GPU that have a series of their own: those with the highest peaks.
const PROCESSES: usize = 8;

/// Colours of series; the last is that of the rest.
const COLOURS: u8 = 9;

/// Points of NVML's line for a GPU.
const NVML_POINTS: usize = 600;

/// Columns of the picture of load.
const LOAD_COLUMNS: usize = 400;

/// Refused requests of a GPU that are marked.
const REFUSED: usize = 200;

/// All that is drawn.
#[derive(Debug, Serialize)]
pub(super) struct Timeline {
    /// The end of the time axis.
    end: u64,
    gpus: Vec<GpuTimeline>,
}

/// One GPU.
#[derive(Debug, Serialize)]
struct GpuTimeline {
    index: u8,
    /// Memory of the device; 0 if unknown.
    capacity: u64,
    quotas: Vec<Quota>,
    /// Times from which on the values hold.
    t: Vec<u64>,
    /// Each adds up to the device total.
    stacks: Vec<Stack>,
    /// Memory outside the device total.
    beside: Vec<Series>,
    nvml: Vec<Run>,
    load: Vec<LoadLine>,
    refused: Vec<Refused>,
}

/// A limit over time.
#[derive(Debug, Serialize)]
struct Quota {
    name: &'static str,
    /// Times from which on the values hold; not differences.
    t: Vec<u64>,
    values: Vec<Option<u64>>,
}

/// One way to divide the device total.
#[derive(Debug, Serialize)]
struct Stack {
    by: &'static str,
    /// Times from which on its values hold, where these are not those of the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<Vec<u64>>,
    series: Vec<Series>,
}

/// A part of it over time.
#[derive(Debug, Serialize)]
struct Series {
    name: String,
    colour: u8,
    values: Vec<i64>,
}

/// NVML's figure of the job, where there is one without a gap.
#[derive(Debug, Serialize)]
struct Run {
    t: Vec<u64>,
    values: Vec<i64>,
    until: u64,
}

/// A line of load: thousandths over columns of equal width.
#[derive(Debug, Serialize)]
struct LoadLine {
    name: &'static str,
    colour: u8,
    values: Vec<Option<u32>>,
}

#[derive(Debug, Serialize)]
struct Refused {
    t: u64,
    text: String,
}

impl Timeline {
    pub(super) fn new(profile: &Profile, summary: &Summary, tables: &[StackTable<'_>]) -> Self {
        let steps: Vec<_> = summary.gpus.iter().map(|gpu| gpu_steps(profile, GpuIndex(gpu.index))).collect();
        let last = steps.iter().filter_map(|steps| steps.last()).map(|step| step.t).max();
        let end = profile.duration().max(last.unwrap_or(Nanos::ZERO));
        let gpus = summary.gpus.iter().zip(&steps);
        let lines_of =
            |gpu: &GpuSummary| lines::over_time(tables, gpu.index, summary.gpus.len()).map(by_line);
        let gpus = gpus.map(|(gpu, steps)| {
            let mut timeline = GpuTimeline::new(profile, summary, gpu, steps, end);
            if !timeline.stacks.is_empty() {
                timeline.stacks.extend(lines_of(gpu));
            }
            timeline
        });
        let gpus = gpus.collect();
        Self { end: micros(end).max(1), gpus }
    }

    /// Returns true if there is nothing to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.gpus.iter().all(|gpu| gpu.t.is_empty() && gpu.load.is_empty())
    }

    /// The ways in which memory can be divided.
    pub(super) fn stacks(&self) -> BTreeSet<&'static str> {
        self.gpus.iter().flat_map(|gpu| &gpu.stacks).map(|stack| stack.by).collect()
    }

    /// Returns true if a GPU has memory to draw, and true if it has load.
    pub(super) fn shows(&self, gpu: u8) -> (bool, bool) {
        let found = self.gpus.iter().find(|it| it.index == gpu);
        found.map_or((false, false), |gpu| (!gpu.t.is_empty(), !gpu.load.is_empty()))
    }

    /// Returns true if NVML's line is drawn for a GPU, and true if refused requests are.
    pub(super) fn marks(&self, gpu: u8) -> (bool, bool) {
        let found = self.gpus.iter().find(|it| it.index == gpu);
        found.map_or((false, false), |gpu| (!gpu.nvml.is_empty(), !gpu.refused.is_empty()))
    }

    /// Names and colours of a GPU's load.
    pub(super) fn load(&self, gpu: u8) -> Vec<(&'static str, u8)> {
        let found = self.gpus.iter().filter(|it| it.index == gpu);
        found.flat_map(|gpu| &gpu.load).map(|line| (line.name, line.colour)).collect()
    }
}

impl GpuTimeline {
    fn new(profile: &Profile, summary: &Summary, gpu: &GpuSummary, steps: &[Step], end: Nanos) -> Self {
        let index = GpuIndex(gpu.index);
        let used = |kind: &Kind| steps.iter().any(|step| !step.kinds[kind.index()].is_zero());
        let kinds: Vec<Kind> = Kind::DEVICE.into_iter().filter(used).collect();
        let beside: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kind.in_total() && used(kind)).collect();
        let holders = Holders::new(profile, index);
        let series = 1 + kinds.len() + beside.len() + holders.count();
        let limit = (NUMBERS / summary.gpus.len().max(1) / series).max(MIN_STEPS);
        let held = if kinds.is_empty() { Vec::new() } else { thinned(steps, end, limit) };
        let of = |kind: &Kind, colour| Series {
            name: kind.label().to_owned(),
            colour,
            values: differences(held.iter().map(|step| step.kinds[kind.index()])),
        };
        let mut stacks = vec![Stack {
            by: "kind",
            t: None,
            series: kinds.iter().map(|kind| of(kind, *kind as u8)).collect(),
        }];
        stacks.extend(holders.stack(&held));
        Self {
            index: gpu.index,
            capacity: number(gpu.total_bytes),
            quotas: gpu.quotas.iter().map(quota).collect(),
            t: steps_of(held.iter().map(|step| micros(step.t))),
            stacks: if held.is_empty() { Vec::new() } else { stacks },
            beside: beside.iter().map(|kind| of(kind, COLOURS - 1)).collect(),
            nvml: nvml(profile, index, end),
            load: load(profile, index),
            refused: refused(summary, gpu.index),
        }
    }
}

/// Memory of each process, for those with the highest peaks, and of all others together.
struct Holders {
    named: Vec<(String, Vec<Step>)>,
    others: bool,
}

impl Holders {
    fn new(profile: &Profile, gpu: GpuIndex) -> Self {
        let steps = process_steps(profile, gpu).into_iter().zip(&profile.processes);
        let mut found: Vec<_> = steps
            .filter_map(|(steps, process)| {
                let peak = steps.iter().map(|step| step.total).max().filter(|peak| !peak.is_zero())?;
                let identity = &process.identity;
                let program = identity.command.split(' ').next().unwrap_or_default();
                let name = format!("{} {}", identity.pid, program.rsplit('/').next().unwrap_or_default());
                Some((peak, clean(name.trim_end()).into_owned(), steps))
            })
            .collect();
        found.sort_by_key(|(peak, ..)| std::cmp::Reverse(*peak));
        let others = found.len() > PROCESSES;
        let named = found.into_iter().take(PROCESSES).map(|(_, name, steps)| (name, steps)).collect();
        Self { named, others }
    }

    fn count(&self) -> usize {
        if self.named.len() > 1 { self.named.len() + usize::from(self.others) } else { 0 }
    }

    /// Nothing where there is one process only.
    fn stack(&self, held: &[&Step]) -> Option<Stack> {
        if self.count() == 0 {
            return None;
        }
        let mut rest: Vec<u64> = held.iter().map(|step| step.total.0).collect();
        let mut series = Vec::new();
        for (colour, (name, steps)) in self.named.iter().enumerate() {
            let mut next = steps.iter().peekable();
            let mut level = Bytes::ZERO;
            let values: Vec<Bytes> = held
                .iter()
                .zip(&mut rest)
                .map(|(step, rest)| {
                    while let Some(now) = next.next_if(|now| now.t <= step.t) {
                        level = now.total;
                    }
                    // Never more than is there, whatever a damaged profile says.
                    let value = level.0.min(*rest);
                    *rest -= value;
                    Bytes(value)
                })
                .collect();
            series.push(Series { name: name.clone(), colour: colour as u8, values: differences(values) });
        }
        if self.others {
            let values = differences(rest.into_iter().map(Bytes));
            series.push(Series { name: "other processes".into(), colour: COLOURS - 1, values });
        }
        Some(Stack { by: "process", t: None, series })
    }
}

fn quota(limit: &LimitInForce) -> Quota {
    Quota {
        name: limit.label(),
        t: limit.spans.iter().map(|span| micros(span.from_ns)).collect(),
        values: limit.spans.iter().map(|span| span.limit_bytes.map(number)).collect(),
    }
}

fn by_line(lines: LinesOverTime) -> Stack {
    let series = |(colour, (name, values)): (usize, (String, Vec<Bytes>))| Series {
        name: clean(&name).into_owned(),
        colour: colour as u8,
        values: differences(values),
    };
    let mut all: Vec<Series> = lines.named.into_iter().enumerate().map(series).collect();
    if !lines.others.is_empty() {
        let values = differences(lines.others);
        all.push(Series { name: "other lines".into(), colour: COLOURS - 1, values });
    }
    Stack { by: "line", t: Some(steps_of(lines.t)), series: all }
}

/// Memory of this job as NVML reports it.
/// The line is broken where NVML lists none of its processes, or was not queried for much longer than usual.
fn nvml(profile: &Profile, gpu: GpuIndex, end: Nanos) -> Vec<Run> {
    let samples = profile.samples.iter().filter(|sample| sample.gpu == gpu);
    let points: Vec<_> =
        samples.map(|s| (s.t, s.processes.iter().filter_map(|p| p.used).reduce(|a, b| a + b))).collect();
    let mut pauses: Vec<Nanos> = points.windows(2).map(|pair| pair[1].0.minus(pair[0].0)).collect();
    pauses.sort_unstable();
    let usual = pauses.get(pauses.len() / 2).map_or(u64::MAX, |usual| usual.0);
    let longest = Nanos(usual.saturating_mul(5));
    let mut runs: Vec<Vec<(Nanos, Bytes)>> = Vec::new();
    let mut before = None;
    for (t, bytes) in points {
        let goes_on = before.is_some_and(|before| t.minus(before) <= longest);
        before = bytes.map(|_| t);
        match (bytes, runs.last_mut()) {
            (Some(bytes), Some(run)) if goes_on => run.push((t, bytes)),
            (Some(bytes), _) => runs.push(vec![(t, bytes)]),
            (None, Some(run)) if goes_on => {
                // It held what it held until NVML no longer listed it.
                let last = run.last().map_or(Bytes::ZERO, |point| point.1);
                run.push((t, last));
            }
            (None, _) => {}
        }
    }
    let all: usize = runs.iter().map(Vec::len).sum();
    let thin = all > NVML_POINTS;
    let width = Nanos((end.0 / NVML_POINTS as u64).max(1));
    let run = |points: Vec<(Nanos, Bytes)>| {
        let until = points.last().map_or(0, |point| micros(point.0));
        let kept: Vec<_> = if thin {
            let columns = points.chunk_by(|a, b| a.0.0 / width.0 == b.0.0 / width.0);
            columns.filter_map(|points| points.iter().max_by_key(|point| point.1)).copied().collect()
        } else {
            points
        };
        Run {
            t: steps_of(kept.iter().map(|point| micros(point.0))),
            values: differences(kept.iter().map(|point| point.1)),
            until,
        }
    };
    runs.into_iter().map(run).collect()
}

/// A line and the figure that it shows.
type Shown = (&'static str, u8, fn(&GpuSpan) -> Option<Share>);

/// Lines that are drawn, as far as they were measured; the last one only if SM activity was not.
const LINES: [Shown; 4] = [
    ("SMs active", 0, |span| span.sm_active),
    ("memory bandwidth", 1, |span| span.dram_active),
    ("tensor cores", 3, |span| span.tensor_active),
    ("a kernel ran", 2, |span| span.utilization),
];

fn load(profile: &Profile, gpu: GpuIndex) -> Vec<LoadLine> {
    let mut lines: Vec<LoadLine> = Vec::new();
    for (name, colour, value) in LINES {
        if name == "a kernel ran" && lines.iter().any(|line| line.name == "SMs active") {
            continue;
        }
        let columns = columns::gpu(profile, gpu, LOAD_COLUMNS, value);
        if columns.iter().any(Option::is_some) {
            let permille = |share: f64| (share.clamp(0.0, 1.0) * 1000.0).round() as u32;
            let values = columns.into_iter().map(|share| share.map(permille)).collect();
            lines.push(LoadLine { name, colour, values });
        }
    }
    lines
}

fn refused(summary: &Summary, gpu: u8) -> Vec<Refused> {
    let with_pid = summary.processes.len() > 1;
    let failures = summary.failed_requests.iter().filter(|failure| failure.gpu == gpu);
    failures
        .take(REFUSED)
        .map(|failure| Refused { t: micros(failure.t_ns), text: failure_text(failure, with_pid) })
        .collect()
}

fn steps_of(values: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut last = 0;
    values.into_iter().map(|value| value.saturating_sub(std::mem::replace(&mut last, value))).collect()
}

fn differences(values: impl IntoIterator<Item = Bytes>) -> Vec<i64> {
    let mut last = 0;
    let values = values.into_iter().map(|bytes| i64::try_from(number(bytes)).unwrap_or(i64::MAX));
    values.map(|value| value - std::mem::replace(&mut last, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{Job, NvmlSample, ProcessUse};

    #[test]
    fn the_line_of_nvml_is_broken_where_it_reported_nothing() {
        let runs = |points: &[(u64, Option<u64>)]| {
            let sample = |(t, bytes): &(u64, Option<u64>)| NvmlSample {
                t: Nanos::from_millis(*t),
                processes: bytes
                    .map(|bytes| ProcessUse { pid: 1, used: Some(Bytes(bytes)) })
                    .into_iter()
                    .collect(),
                ..NvmlSample::default()
            };
            let samples = points.iter().map(sample).collect();
            let profile = Profile { samples, ..Profile::new(Job::default()) };
            let runs = nvml(&profile, GpuIndex(0), Nanos::from_millis(100));
            runs.iter().map(|run| (run.t[0] / 1000, run.until / 1000)).collect::<Vec<_>>()
        };
        let steady: Vec<_> = (0..10).map(|t| (t * 10, Some(50))).collect();
        assert_eq!(runs(&steady), [(0, 90)]);
        assert_eq!(
            runs(&[(0, Some(5)), (10, None), (20, None), (30, Some(5)), (40, Some(7))]),
            [(0, 10), (30, 40)]
        );
        assert_eq!(
            runs(&[(0, Some(5)), (1, Some(5)), (2, Some(5)), (90, Some(5)), (91, Some(5))]),
            [(0, 2), (90, 91)]
        );
        assert_eq!((runs(&[(0, None)]), runs(&[])), (vec![], vec![]));
    }

    #[test]
    fn numbers_come_back_from_their_differences() {
        let values = [5, 5, 900, 0, u64::MAX].map(Bytes);
        let mut sum = 0;
        let back: Vec<i64> = differences(values)
            .into_iter()
            .map(|d| {
                sum += d;
                sum
            })
            .collect();
        assert_eq!(back, [5, 5, 900, 0, 1 << 53]);
        assert_eq!(steps_of([3, 3, 10]), [3, 0, 7]);
    }
}
