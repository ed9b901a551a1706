//! Activity of a run over time, as curves that can be laid over those of other runs.

use crate::model::Summary;
use crate::view::columns;
use crate::view::flame::micros;
use radrm_base::step;
use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, ProcessKey, Profile, RangeEvent};
use radrm_profile::steps::{gpu_steps, thinned};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Points of the curve of memory.
const POINTS: usize = 800;
/// Columns of the other curves.
const COLUMNS: usize = 300;

/// The curves of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curves {
    /// The end of the time axis, microseconds since the start.
    pub end: u64,
    /// Index and name of the GPU that memory, power and measured SM activity are of: where the run held most.
    pub gpu: Option<(u8, String)>,
    /// The curves, in a fixed order.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Stable name: `memory` (bytes), `sm_activity` (0 to 1), `steps` (per second) or `power` (watt).
    pub key: &'static str,
    /// Method that gave the values; without points, the reason that there are none.
    pub how: &'static str,
    /// Times from which on the values hold, microseconds since the start.
    pub t: Vec<u64>,
    /// The values; null where nothing is known.
    pub v: Vec<Option<f64>>,
}

impl Curves {
    /// The curves of a profile.
    #[must_use]
    pub fn new(profile: &Profile, summary: &Summary) -> Self {
        let gpu = summary.gpus.iter().max_by_key(|gpu| gpu.peak_bytes);
        let index = gpu.map(|gpu| GpuIndex(gpu.index));
        let steps = index.map(|index| gpu_steps(profile, index)).unwrap_or_default();
        let last = steps.last().map_or(Nanos::ZERO, |step| step.t);
        let end = profile.duration().max(last);
        let held = thinned(&steps, end, POINTS);
        let memory = Curve {
            key: "memory",
            how: if held.is_empty() { "no GPU memory was held" } else { "counted" },
            t: held.iter().map(|step| micros(step.t)).collect(),
            v: held.iter().map(|step| Some(step.total.0 as f64)).collect(),
        };
        Self {
            end: micros(end).max(1),
            gpu: gpu.map(|gpu| (gpu.index, gpu.name.clone())),
            curves: vec![
                memory,
                sm_activity(profile, index),
                steps_per_second(profile),
                power(profile, index),
            ],
        }
    }
}

/// A curve of columns of equal width; equal neighbours are one point.
fn of_columns(profile: &Profile, key: &'static str, how: &'static str, columns: &[Option<f64>]) -> Curve {
    let width = micros(profile.duration()) as f64 / columns.len().max(1) as f64;
    let mut curve = Curve { key, how, t: Vec::new(), v: Vec::new() };
    for (at, value) in columns.iter().enumerate() {
        if curve.v.last() != Some(value) {
            curve.t.push((at as f64 * width) as u64);
            curve.v.push(*value);
        }
    }
    curve
}

fn nothing(key: &'static str, why: &'static str) -> Curve {
    Curve { key, how: why, t: Vec::new(), v: Vec::new() }
}

/// By a meter where there was one, else by the shapes of timed launches.
fn sm_activity(profile: &Profile, gpu: Option<GpuIndex>) -> Curve {
    const KEY: &str = "sm_activity";
    let is_any = |columns: &[Option<f64>]| columns.iter().any(Option::is_some);
    if !profile.gpu_clock.is_real() {
        return nothing(KEY, "not measured: emulated GPU");
    }
    let Some(gpu) = gpu else { return nothing(KEY, "not measured: no GPU was used") };
    let measured = columns::gpu(profile, gpu, COLUMNS, |span| span.sm_active);
    if is_any(&measured) {
        return of_columns(profile, KEY, "measured, of the whole GPU", &measured);
    }
    let launched = columns::launches(profile, COLUMNS);
    match is_any(&launched) {
        true => of_columns(profile, KEY, "by the shapes of timed launches, of the run", &launched),
        false => nothing(KEY, "not measured: no meter, and no launch was timed"),
    }
}

fn power(profile: &Profile, gpu: Option<GpuIndex>) -> Curve {
    const KEY: &str = "power";
    if !profile.gpu_clock.is_real() {
        return nothing(KEY, "not measured: emulated GPU");
    }
    let watts = gpu.map(|gpu| {
        columns::gpu_value(profile, gpu, COLUMNS, |span| Some(f64::from(span.power_mw?) / 1000.0))
    });
    match watts.filter(|watts| watts.iter().any(Option::is_some)) {
        Some(watts) => of_columns(profile, KEY, "measured, of the whole GPU", &watts),
        None => nothing(KEY, "not measured: NVML reported no power"),
    }
}

/// Of the process that made the most steps: between two steps that the profile lists, the numbers that they differ by over
/// the time between their beginnings.
fn steps_per_second(profile: &Profile) -> Curve {
    const KEY: &str = "steps";
    let mut by_name: BTreeMap<(ProcessKey, u32), Vec<&RangeEvent>> = BTreeMap::new();
    let steps = step_names(profile);
    for event in profile.range_events.iter().filter(|event| steps.contains(&(event.process, event.name))) {
        by_name.entry((event.process, event.name)).or_default().push(event);
    }
    let Some(mut events) = by_name.into_values().max_by_key(Vec::len).filter(|events| events.len() > 1)
    else {
        return nothing(KEY, "no steps were recorded: the program names none, or fewer than two");
    };
    events.sort_by_key(|event| event.start);
    let is_whole =
        profile.processes.iter().filter_map(|process| process.ranges.as_ref()).all(|of| of.unlisted == 0);
    let mut spans = Vec::new();
    for pair in events.windows(2) {
        let [before, after] = pair else { continue };
        // Where the profile lists some steps only, their numbers say how many lie between.
        let count = match (before.step, after.step) {
            (Some(a), Some(b)) => b.checked_sub(a),
            _ => is_whole.then_some(1),
        };
        let rate = count.and_then(|count| step::per_second(count, before.start.0, after.start.0));
        spans.extend(rate.map(|rate| (before.start, after.start.minus(before.start), rate)));
    }
    let columns = columns::of(&spans, profile.duration(), COLUMNS);
    match columns.iter().any(Option::is_some) {
        true => of_columns(profile, KEY, "counted", &columns),
        false => nothing(KEY, "the profile lists some steps only, without numbers"),
    }
}

/// The names of ranges that are steps.
fn step_names(profile: &Profile) -> BTreeSet<(ProcessKey, u32)> {
    let processes =
        profile.processes.iter().filter_map(|process| Some((process.key, process.ranges.as_ref()?)));
    let names = processes.flat_map(|(key, ranges)| ranges.names.iter().map(move |name| (key, name)));
    names.filter(|(_, name)| step::is_step(&name.name)).map(|(key, name)| (key, name.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{Exit, GpuSpan, Job, Outcome, Process, RangeName, Ranges, Share};

    fn profile() -> Profile {
        let mut profile = Profile::new(Job::default());
        profile.gpus = vec![radrm_profile::model::Gpu { name: "T4".into(), ..Default::default() }];
        profile.outcome = Some(Outcome { exit: Exit::Code(0), duration: Nanos::from_secs(3), reason: None });
        profile
    }

    fn curve(profile: &Profile, key: &str) -> Curve {
        let curves = Curves::new(profile, &Summary::from_profile(profile)).curves;
        curves.into_iter().find(|curve| curve.key == key).unwrap()
    }

    #[test]
    fn what_was_not_recorded_says_why() {
        for key in ["memory", "sm_activity", "steps", "power"] {
            let curve = curve(&profile(), key);
            assert!(curve.t.is_empty() && !curve.how.is_empty(), "{curve:?}");
        }
        let emulated = Profile { gpu_clock: radrm_profile::model::GpuClock::Modelled, ..profile() };
        assert_eq!(curve(&emulated, "power").how, "not measured: emulated GPU");
    }

    #[test]
    fn steps_between_listed_ones_count_by_their_numbers() {
        let mut profile = profile();
        let name = RangeName { id: 1, name: "step".into(), ranges: 30, ..RangeName::default() };
        let ranges = Ranges { names: vec![name], unlisted: 27, ..Ranges::default() };
        profile.processes = vec![Process { ranges: Some(ranges), ..Process::default() }];
        let event = |second, step| RangeEvent {
            name: 1,
            start: Nanos::from_secs(second),
            step: Some(step),
            ..RangeEvent::default()
        };
        profile.range_events = vec![event(0, 0), event(1, 10), event(2, 30)];
        let found = curve(&profile, "steps");
        assert_eq!((found.t, found.v), (vec![0, 1_000_000, 2_000_000], vec![Some(10.0), Some(20.0), None]));
        profile.range_events.iter_mut().for_each(|event| event.step = None);
        assert!(curve(&profile, "steps").t.is_empty(), "27 more steps lie in between");
    }

    #[test]
    fn power_and_activity_are_of_the_gpu_with_the_highest_peak() {
        let mut profile = profile();
        let span = |t, gpu, watts: u32| GpuSpan {
            t: Nanos::from_secs(t),
            span: Nanos::from_secs(1),
            gpu: GpuIndex(gpu),
            power_mw: Some(watts * 1000),
            sm_active: Share::new(0.5),
            ..GpuSpan::default()
        };
        profile.activity = vec![span(0, 0, 70), span(1, 0, 90), span(0, 1, 300)];
        let summary = Summary::from_profile(&profile);
        assert_eq!(summary.gpus.len(), 1);
        let power = curve(&profile, "power");
        assert_eq!((power.t, power.v), (vec![0, 1_000_000, 2_000_000], vec![Some(70.0), Some(90.0), None]));
        assert_eq!(curve(&profile, "sm_activity").v, [Some(0.5), None]);
    }
}
