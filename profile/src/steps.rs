//! A GPU's memory over time, all processes together.

use crate::life::{Life, lives, spans};
use crate::model::{GpuIndex, KIND_COUNT, Process, Profile, device_total};
use crate::units::{Bytes, Nanos};

/// Memory that all processes held on a GPU from a moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The moment.
    pub t: Nanos,
    /// Device total. Within the span of a timeline point this is the span's
    /// maximum; with several processes the sum of their maxima, which need
    /// not have coincided.
    pub total: Bytes,
    /// By kind.
    pub kinds: [Bytes; KIND_COUNT],
    /// Number of processes that held device memory.
    pub holders: u32,
}

/// The steps of a GPU, by time. Empty if no process has a timeline there.
pub fn gpu_steps(profile: &Profile, gpu: GpuIndex) -> Vec<Step> {
    let mut changes: Vec<(Nanos, usize, Level)> = Vec::new();
    let lives = lives(profile);
    for (index, (process, life)) in profile.processes.iter().zip(lives).enumerate() {
        process_levels(process, life, gpu, |t, level| changes.push((t, index, level)));
    }
    // Stable: what a process says of one moment stays in its order.
    changes.sort_by_key(|change| change.0);

    let mut levels = vec![Level::default(); profile.processes.len()];
    let mut sum = Sum::default();
    let mut steps: Vec<Step> = Vec::new();
    for (t, index, level) in changes {
        sum.replace(&levels[index], &level);
        levels[index] = level;
        let step = sum.step(t);
        match steps.last_mut() {
            Some(last) if last.t == t => *last = step,
            _ => steps.push(step),
        }
    }
    steps
}

/// At most about `limit` of the steps until `end`: of each part of the time the highest one, at its own time, and the
/// last one.
pub fn thinned(steps: &[Step], end: Nanos, limit: usize) -> Vec<&Step> {
    if steps.len() <= limit {
        return steps.iter().collect();
    }
    let parts = (limit / 2).max(1) as u128;
    let part = |step: &Step| u128::from(step.t.0) * parts / u128::from(end.0.max(1));
    let mut kept = Vec::with_capacity(limit);
    for steps in steps.chunk_by(|a, b| part(a) == part(b)) {
        let highest = steps.iter().enumerate().rev().max_by_key(|(_, step)| step.total).map(|(at, _)| at);
        kept.extend(highest.filter(|at| at + 1 < steps.len()).map(|at| &steps[at]));
        kept.extend(steps.last());
    }
    kept
}

/// The steps of each process on a GPU, in the order of the profile's processes; empty for one without a timeline there.
/// At each moment their totals add up to that of [`gpu_steps`].
pub fn process_steps(profile: &Profile, gpu: GpuIndex) -> Vec<Vec<Step>> {
    let of = |(process, life): (&Process, Life)| {
        let mut steps: Vec<Step> = Vec::new();
        process_levels(process, life, gpu, |t, Level { total, kinds }| {
            let step = Step { t, total, kinds, holders: u32::from(!total.is_zero()) };
            match steps.last_mut() {
                Some(last) if last.t == t => *last = step,
                _ => steps.push(step),
            }
        });
        steps
    };
    profile.processes.iter().zip(lives(profile)).map(of).collect()
}

#[derive(Clone, Copy, Default)]
struct Level {
    total: Bytes,
    kinds: [Bytes; KIND_COUNT],
}

/// Calls `at` with every change of one process, by time.
fn process_levels(process: &Process, life: Life, gpu: GpuIndex, mut at: impl FnMut(Nanos, Level)) {
    let spans = spans(process, gpu, life);
    for span in &spans {
        let total = span.point.map_or(device_total(&span.before), |point| point.max_total);
        at(span.start, Level { total, kinds: *span.kinds() });
    }
    if let (Some(last), true) = (spans.last(), life.is_over()) {
        at(last.end, Level::default());
    }
}

/// Sums of all processes' levels. Wide, so that damaged figures cannot make
/// them wrong for good.
#[derive(Default)]
struct Sum {
    total: u128,
    kinds: [u128; KIND_COUNT],
    holders: u32,
}

impl Sum {
    fn replace(&mut self, old: &Level, new: &Level) {
        let change = |sum: &mut u128, old: Bytes, new: Bytes| {
            *sum = sum.saturating_sub(u128::from(old.0)) + u128::from(new.0);
        };
        change(&mut self.total, old.total, new.total);
        for kind in 0..KIND_COUNT {
            change(&mut self.kinds[kind], old.kinds[kind], new.kinds[kind]);
        }
        self.holders =
            (self.holders + u32::from(!new.total.is_zero())).saturating_sub(u32::from(!old.total.is_zero()));
    }

    fn step(&self, t: Nanos) -> Step {
        let narrow = |sum: u128| Bytes(u64::try_from(sum).unwrap_or(u64::MAX));
        Step { t, total: narrow(self.total), kinds: self.kinds.map(narrow), holders: self.holders }
    }
}

/// A span of a picture's time axis: the highest step in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Start of the span.
    pub t: Nanos,
    /// Highest device total in it.
    pub total: Bytes,
    /// By kind at that moment; `Managed`, `PinnedHost`, `PoolUsed` and
    /// `Imported` are at that moment too.
    pub kinds: [Bytes; KIND_COUNT],
}

/// Cuts the time from zero to `end` into `count` columns of equal width. No
/// maximum is lost.
pub fn columns(steps: &[Step], end: Nanos, count: usize) -> Vec<Column> {
    let count = count.max(1);
    let end = end.0.max(1);
    let start_of = |column: usize| (u128::from(end) * column as u128 / count as u128) as u64;
    let mut out = Vec::with_capacity(count);
    let mut held = Step::default();
    let mut next = steps.iter().peekable();
    for column in 0..count {
        // What was held before goes on into this column, unless it changes
        // right where the column begins.
        let changes_at_once = next.peek().is_some_and(|step| step.t.0 <= start_of(column));
        let mut highest = if changes_at_once { Step::default() } else { held };
        let limit = if column + 1 == count { u64::MAX } else { start_of(column + 1) };
        while let Some(step) = next.next_if(|step| step.t.0 < limit) {
            held = *step;
            if column_rank(&held) >= column_rank(&highest) {
                highest = held;
            }
        }
        out.push(Column { t: Nanos(start_of(column)), total: highest.total, kinds: highest.kinds });
    }
    out
}

/// The device total decides; among equals, what stands beside it.
fn column_rank(step: &Step) -> (u64, u64) {
    (step.total.0, step.kinds.iter().copied().sum::<Bytes>().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Job, Kind, Timeline, TimelinePoint};

    fn kinds(bytes: u64) -> [Bytes; KIND_COUNT] {
        let mut kinds = [Bytes::ZERO; KIND_COUNT];
        kinds[Kind::Device.index()] = Bytes(bytes);
        kinds
    }

    /// A process from (start, span, maximum, last) and its end.
    fn process(points: &[(u64, u64, u64, u64)], ended: Option<u64>) -> Process {
        let points = points
            .iter()
            .map(|&(t, span, max, last)| TimelinePoint {
                t: Nanos(t),
                span: Nanos(span),
                max_total: Bytes(max),
                at_max: kinds(max),
                last: kinds(last),
            })
            .collect();
        let mut process =
            Process { timelines: vec![Timeline { gpu: GpuIndex(0), points }], ..Process::default() };
        process.state.ended = ended.map(Nanos);
        process
    }

    /// The steps as a line: `time:total`.
    fn line(processes: Vec<Process>) -> String {
        let profile = Profile { processes, ..Profile::new(Job::default()) };
        let steps = gpu_steps(&profile, GpuIndex(0));
        steps.iter().map(|step| format!("{}:{}", step.t.0, step.total.0)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_span_shows_its_maximum_and_then_what_was_left() {
        assert_eq!(line(vec![process(&[(0, 10, 5, 5), (10, 10, 9, 2)], None)]), "0:5 10:9 20:2");
        assert_eq!(
            line(vec![process(&[(0, 10, 5, 3), (40, 10, 9, 2)], Some(60))]),
            "0:5 10:3 40:9 50:2 60:0"
        );
        assert_eq!(line(vec![process(&[(0, 10, 5, 5)], Some(4))]), "0:5 4:0");
    }

    #[test]
    fn processes_add_up() {
        assert_eq!(
            line(vec![process(&[(0, 10, 5, 5)], Some(30)), process(&[(20, 10, 7, 1)], Some(50))]),
            "0:5 10:5 20:12 30:1 50:0"
        );
    }

    #[test]
    fn steps_of_processes_add_up_to_those_of_the_gpu() {
        let processes = vec![
            process(&[(0, 10, 5, 5), (12, 3, 8, 1)], Some(30)),
            process(&[(20, 10, 7, 1)], Some(50)),
            Process::default(),
        ];
        let profile = Profile { processes, ..Profile::new(Job::default()) };
        let each = process_steps(&profile, GpuIndex(0));
        assert!(each[2].is_empty() && each.len() == 3);
        for step in gpu_steps(&profile, GpuIndex(0)) {
            let at = |steps: &Vec<Step>| steps.iter().rev().find(|s| s.t <= step.t).map_or(0, |s| s.total.0);
            assert_eq!(each.iter().map(at).sum::<u64>(), step.total.0, "at {}", step.t);
        }
    }

    #[test]
    fn columns_lose_no_maximum() {
        let profile = Profile {
            processes: vec![process(&[(0, 10, 5, 3), (42, 1, 100, 2)], Some(80))],
            ..Profile::new(Job::default())
        };
        let steps = gpu_steps(&profile, GpuIndex(0));
        let totals = |count| -> Vec<u64> {
            columns(&steps, Nanos(100), count).iter().map(|column| column.total.0).collect()
        };
        assert_eq!(totals(10), [5, 3, 3, 3, 100, 2, 2, 2, 0, 0]);
        assert_eq!(totals(2), [100, 2]);
        assert_eq!(totals(1), [100]);
        assert_eq!(columns(&[], Nanos(0), 3).len(), 3);
    }

    #[test]
    fn thinning_keeps_every_parts_peak_and_what_is_left_after_it() {
        let step = |t, total| Step { t: Nanos(t), total: Bytes(total), ..Step::default() };
        let steps: Vec<Step> = (0..1000).map(|t| step(t, if t == 503 { 9000 } else { t % 10 })).collect();
        let kept = thinned(&steps, Nanos(1000), 40);
        assert!(kept.len() <= 40 && kept.is_sorted_by_key(|step| step.t), "{}", kept.len());
        assert!(kept.contains(&&steps[503]) && kept.contains(&&steps[999]));
        assert!(kept.iter().filter(|step| step.total == Bytes(9)).count() >= 19);
        assert_eq!(thinned(&steps, Nanos(1000), 1000).len(), 1000);
        // Times that no clock has ever shown.
        assert_eq!(thinned(&[step(u64::MAX, 1); 3], Nanos(1), 2).len(), 2);
    }
}
