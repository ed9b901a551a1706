//! The highest memory of a job on a GPU, all processes together, as far as
//! their timelines show.
//!
//! One process alone: its account, which is exact. Several: a timeline shows
//! of a busy span its maximum but not when within the span it was reached, and
//! of a quiet one everything. So the sum has a bound from above (every busy
//! process at its span's maximum) and one from below (one process at its
//! maximum, the others at what they certainly held during that span; or all of
//! them at a moment between spans). Where the two meet the figure is exact.

use crate::bounds::{Reach, bounds};
use crate::life::{Span, lives, spans};
use crate::model::{Account, GpuIndex, KIND_COUNT, Kind, Process, Profile, TimelinePoint, device_total};
use crate::steps::gpu_steps;
use crate::units::{Bytes, Nanos};

/// The highest device memory of a job on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Device total.
    pub total: Bytes,
    /// The true peak is not lower.
    pub at_least: Bytes,
    /// True if `total` is the true peak. Otherwise several processes were busy
    /// at once, and the true peak lies between `at_least` and `total`.
    pub exact: bool,
    /// Time of the peak.
    pub t: Nanos,
    /// By kind at that moment.
    pub kinds: [Bytes; KIND_COUNT],
}

/// The most that a job held of one kind on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindPeak {
    /// Bytes; an upper bound unless `exact`.
    pub bytes: Bytes,
    /// The true figure is not lower.
    pub at_least: Bytes,
    /// True if `bytes` is the true figure.
    pub exact: bool,
}

/// The job's peak on a GPU.
pub fn gpu_peak(profile: &Profile, gpu: GpuIndex) -> Peak {
    let mut accounts = profile.processes.iter().filter_map(|process| process.account(gpu));
    // `max_by_key` gives the last of equals; the first is the honest time.
    let Some(highest) = accounts.clone().rev().max_by_key(|account| account.peak) else {
        let zero = Bytes::ZERO;
        return Peak { total: zero, at_least: zero, exact: true, t: Nanos::ZERO, kinds: [zero; KIND_COUNT] };
    };
    let alone = Peak {
        total: highest.peak,
        at_least: highest.peak,
        exact: true,
        t: highest.peak_at,
        kinds: highest.kinds.map(|kind| kind.at_peak),
    };
    if accounts.nth(1).is_none() {
        return alone;
    }
    let found = bounds(&reaches(profile, gpu, Figure::Total));
    if found.most <= alone.total {
        return alone;
    }
    let at_least = found.at_least.max(alone.total).min(found.most);
    let steps = gpu_steps(profile, gpu);
    let step = steps.partition_point(|step| step.t <= found.t).checked_sub(1).and_then(|at| steps.get(at));
    let kinds = step.map_or([Bytes::ZERO; KIND_COUNT], |step| step.kinds);
    Peak { total: found.most, at_least, exact: at_least == found.most, t: found.t, kinds }
}

/// The most that a job held of each kind on a GPU, by [`Kind::index`].
pub fn gpu_kind_peaks(profile: &Profile, gpu: GpuIndex) -> [KindPeak; KIND_COUNT] {
    let accounts: Vec<&Account> = profile.processes.iter().filter_map(|p| p.account(gpu)).collect();
    Kind::ALL.map(|kind| {
        let figure = Figure::Kind(kind);
        let peaks = accounts.iter().map(|account| figure.peak(account)).filter(|peak| !peak.is_zero());
        let highest = peaks.clone().max().unwrap_or_default();
        if peaks.count() < 2 {
            return KindPeak { bytes: highest, at_least: highest, exact: true };
        }
        let found = bounds(&reaches(profile, gpu, figure));
        let bytes = found.most.max(highest);
        let at_least = found.at_least.max(highest).min(bytes);
        KindPeak { bytes, at_least, exact: at_least == bytes }
    })
}

/// The highest sum of a figure over processes that lived at the same time;
/// `None` if no process has it.
pub fn highest_sum(profile: &Profile, of: impl Fn(&Process) -> Option<i128>) -> Option<i128> {
    let mut changes: Vec<(Nanos, bool, i128)> = Vec::new();
    for (process, life) in profile.processes.iter().zip(lives(profile)) {
        if let Some(figure) = of(process) {
            changes.extend([(life.joined, true, figure), (life.gone_by, false, figure)]);
        }
    }
    // At one moment, processes leave before others come.
    changes.sort_by_key(|(t, comes, _)| (*t, *comes));
    let mut sum = 0i128;
    let sums = changes.iter().map(|(_, comes, figure)| {
        sum = if *comes { sum.saturating_add(*figure) } else { sum.saturating_sub(*figure) };
        comes.then_some(sum)
    });
    sums.flatten().max()
}

/// A figure of a process that is to be added up.
#[derive(Clone, Copy)]
enum Figure {
    Total,
    Kind(Kind),
}

impl Figure {
    fn peak(self, account: &Account) -> Bytes {
        match self {
            Figure::Total => account.peak,
            Figure::Kind(kind) => account.kinds[kind.index()].peak,
        }
    }

    fn of(self, kinds: &[Bytes; KIND_COUNT]) -> Bytes {
        match self {
            Figure::Total => device_total(kinds),
            Figure::Kind(kind) => kinds[kind.index()],
        }
    }

    /// Imported memory is in the accounts, not in the timelines.
    fn has_timeline(self) -> bool {
        !matches!(self, Figure::Kind(Kind::Imported))
    }

    /// Bound that a busy span cannot have exceeded, and the figure that was reached in it.
    fn in_point(self, point: &TimelinePoint, before: Bytes, account: &Account) -> (Bytes, Bytes) {
        let known = before.max(self.of(&point.last));
        match self {
            Figure::Total => (known.max(point.max_total), point.max_total),
            Figure::Kind(kind) => {
                // A timeline has the kinds at the total's maximum only; in
                // between a kind's own peak may have been reached.
                let at_max = point.at_max[kind.index()];
                let part_of_total = kind.in_total() || kind == Kind::PoolUsed;
                let cap = if part_of_total { point.max_total } else { Bytes(u64::MAX) };
                let most = self.peak(account).min(cap).max(known).max(at_max);
                (most, if account.kinds_approximate { before } else { at_max })
            }
        }
    }
}

/// Bounds of a figure over the lives of all processes.
fn reaches(profile: &Profile, gpu: GpuIndex, figure: Figure) -> Vec<Reach> {
    let mut all = Vec::new();
    for (process, life) in profile.processes.iter().zip(lives(profile)) {
        let Some(account) = process.account(gpu).filter(|account| !figure.peak(account).is_zero()) else {
            continue;
        };
        let spans = if figure.has_timeline() { spans(process, gpu, life) } else { Vec::new() };
        if spans.is_empty() {
            // All that is known is the peak: at any moment of the life.
            let (start, peak) = (life.joined, figure.peak(account));
            let end = life.gone_by.max(Nanos(start.0.saturating_add(1)));
            all.push(Reach {
                start,
                end,
                most: peak,
                least: Bytes::ZERO,
                before: Bytes::ZERO,
                reached: peak,
            });
        }
        for span in spans {
            let Span { start, end, .. } = span;
            let before = figure.of(&span.before);
            if let Some(point) = span.point {
                let (most, reached) = figure.in_point(point, before, account);
                all.push(Reach { start, end, most, least: Bytes::ZERO, before, reached });
                continue;
            }
            // Quiet; but it may have been killed before its absence was seen.
            let quiet = Reach { start, end, most: before, least: before, before, reached: before };
            let split = life.alive_until.max(start).min(end);
            if split > start {
                all.push(Reach { end: split, ..quiet });
            }
            if split < end {
                all.push(Reach {
                    start: split,
                    least: Bytes::ZERO,
                    before: Bytes::ZERO,
                    reached: Bytes::ZERO,
                    ..quiet
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{End, Identity, Job, ProcessState, Timeline};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// (start, span, maximum, last), device memory only.
    type Points<'a> = &'a [(u64, u64, u64, u64)];

    fn device(bytes: u64) -> [Bytes; KIND_COUNT] {
        let mut kinds = [Bytes::ZERO; KIND_COUNT];
        kinds[Kind::Device.index()] = Bytes(bytes);
        kinds
    }

    fn process(joined: u64, points: Points<'_>, end: End, ended: Option<u64>) -> Process {
        let points: Vec<TimelinePoint> = points
            .iter()
            .map(|&(t, span, max, last)| TimelinePoint {
                t: Nanos(t),
                span: Nanos(span),
                max_total: Bytes(max),
                at_max: device(max),
                last: device(last),
            })
            .collect();
        let mut account = Account { gpu: GpuIndex(0), ..Account::default() };
        account.peak = points.iter().map(|point| point.max_total).max().unwrap_or_default();
        account.kinds[0].peak = account.peak;
        static PID: AtomicU32 = AtomicU32::new(100);
        let pid = PID.fetch_add(1, Ordering::Relaxed);
        Process {
            identity: Identity { pid, joined: Nanos(joined), ..Identity::default() },
            state: ProcessState {
                accounts: vec![account],
                end,
                ended: ended.map(Nanos),
                ..ProcessState::default()
            },
            timelines: vec![Timeline { gpu: GpuIndex(0), points }],
            seen_alive: Nanos(ended.unwrap_or(0)),
            ..Process::default()
        }
    }

    /// Bounds of the total; those of its only kind must be the same.
    #[track_caller]
    fn check(processes: Vec<Process>, at_least: u64, at_most: u64) {
        let profile = Profile { processes, last_state: Nanos(1_000), ..Profile::new(Job::default()) };
        let peak = gpu_peak(&profile, GpuIndex(0));
        assert_eq!((peak.at_least.0, peak.total.0), (at_least, at_most));
        assert_eq!(peak.exact, at_least == at_most);
        let kind = gpu_kind_peaks(&profile, GpuIndex(0))[Kind::Device.index()];
        assert_eq!((kind.at_least.0, kind.bytes.0), (at_least, at_most));
    }

    const BYE: End = End::Exited(None);

    #[test]
    fn processes_one_after_the_other_are_not_added_up() {
        // All in one span of the timeline's grid, as short programs are.
        let grid = (0, 100, 80, 80);
        let one_by_one = vec![
            process(1, &[grid], BYE, Some(30)),
            process(30, &[(0, 100, 70, 70)], End::Exec, Some(50)),
            process(51, &[(0, 100, 75, 75)], BYE, Some(60)),
        ];
        check(one_by_one, 80, 80);
    }

    #[test]
    fn a_process_that_becomes_another_program_is_not_two() {
        // The first program's end was only noticed when the second ran.
        let mut first = process(1, &[(0, 100, 80, 80)], End::Exec, Some(60));
        let mut second = process(20, &[(0, 100, 70, 70)], BYE, Some(90));
        for process in [&mut first, &mut second] {
            process.identity.pid = 7;
        }
        check(vec![first, second], 80, 80);
    }

    #[test]
    fn what_is_held_quietly_counts_whole() {
        let holder = process(0, &[(0, 10, 80, 80)], BYE, Some(200));
        let burst = process(50, &[(50, 10, 70, 0)], BYE, Some(90));
        check(vec![holder, burst], 150, 150);
    }

    #[test]
    fn two_that_are_busy_at_once_give_the_tightest_bounds() {
        // Both change in the same spans; between these 30 and 40 are held.
        let a = process(0, &[(0, 10, 80, 30), (10, 10, 50, 0)], BYE, Some(100));
        let b = process(0, &[(0, 10, 40, 40), (10, 10, 45, 0)], BYE, Some(100));
        check(vec![a, b], 80, 120);
        let a = process(0, &[(0, 10, 60, 60), (10, 10, 60, 0)], BYE, Some(100));
        let b = process(0, &[(0, 10, 50, 50), (10, 10, 50, 0)], BYE, Some(100));
        check(vec![a, b], 110, 110);
    }

    #[test]
    fn a_killed_process_is_counted_on_only_while_it_was_seen_alive() {
        let other = || process(0, &[(500, 10, 70, 0)], BYE, Some(900));
        // Found missing at 600, after the other's peak: it may have been gone.
        let mut killed = process(0, &[(0, 10, 80, 80)], End::Signal(9), Some(600));
        killed.seen_alive = Nanos(400);
        check(vec![killed.clone(), other()], 80, 150);
        killed.seen_alive = Nanos(550);
        check(vec![killed.clone(), other()], 150, 150);
        killed.state.ended = Some(Nanos(450));
        check(vec![killed, other()], 80, 80);
    }

    #[test]
    fn a_sum_is_over_those_that_lived_at_once() {
        let sum = |lives: &[(u64, u64)], figures: &[Option<i128>]| {
            let processes = lives.iter().map(|&(joined, ended)| process(joined, &[], BYE, Some(ended)));
            let mut profile = Profile { processes: processes.collect(), ..Profile::new(Job::default()) };
            for (process, at) in profile.processes.iter_mut().zip(0..) {
                process.key.slot = at;
            }
            highest_sum(&profile, |process| figures[process.key.slot as usize])
        };
        assert_eq!(sum(&[(0, 10), (10, 20)], &[Some(3), Some(4)]), Some(4));
        assert_eq!(sum(&[(0, 10), (9, 20)], &[Some(3), Some(4)]), Some(7));
        assert_eq!(sum(&[(0, 10), (9, 20)], &[Some(-3), None]), Some(-3));
        assert_eq!(sum(&[(0, 10)], &[None]), None);
    }

    #[test]
    fn a_process_without_an_end_holds_on() {
        let holder = process(0, &[(0, 10, 80, 80)], End::Running, None);
        check(vec![holder, process(500, &[(500, 10, 70, 0)], BYE, Some(600))], 150, 150);
    }

    #[test]
    fn a_process_without_a_timeline_counts_for_its_whole_life() {
        let mut blind = process(0, &[(0, 10, 80, 0)], BYE, Some(100));
        blind.timelines.clear();
        check(vec![blind.clone(), process(50, &[(50, 10, 70, 0)], BYE, Some(90))], 80, 150);
        check(vec![blind, process(150, &[(150, 10, 70, 0)], BYE, Some(190))], 80, 80);
    }
}
