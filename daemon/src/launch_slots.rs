//! Launch budgets of the jobs on a node: who may launch when.
//!
//! Each job's share becomes a slot in the period that all budgets have; slots on one GPU are put side by side, so
//! that in its slot a job has the GPU to itself. Where shares add up to more than the whole, or a job with several GPUs
//! cannot have the same slot on all of them, slots overlap as little as can be.
//!
//! A job that has launched nothing for a while keeps its slot, so that it can begin at any moment, but the
//! others get longer ones meanwhile, in proportion to their shares, as if it were not there; when it launches again
//! they give them back.
//!
//! Jobs that meet on GPUs have one period, the shortest that one of them is to have, since slots of different periods do not
//! stay side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use radrm_scheduler_core::LaunchBudget;
use radrm_telemetry::budget::{self, Budget, MAX_IN_FLIGHT, PERIOD_MS, WHOLE};
use radrm_telemetry::{Liveness, Segment};

/// A job that has launched nothing for so long gives its part to the others.
const IDLE: Duration = Duration::from_secs(1);

/// A job's part of the GPUs, as the layout needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// UUIDs of its GPUs.
    pub(crate) gpus: Vec<String>,
    /// Thousandths of their time.
    pub(crate) share: u16,
    /// True if others may have it for now.
    pub(crate) idle: bool,
    /// The longest period that its slots may have, ms.
    pub(crate) period_ms: u16,
}

impl Part {
    fn meets(&self, other: &Self) -> bool {
        self.gpus.iter().any(|gpu| other.gpus.contains(gpu))
    }
}

/// Lays out the slots: phase and length of each, thousandths of the period, in the order of the parts.
///
/// The slots of those that are not idle do not overlap on a GPU where that can be.
pub(crate) fn layout(parts: &[Part]) -> Vec<(u16, u16)> {
    let sum = |gpu: &String, idle_too: bool| -> u32 {
        let there = parts.iter().filter(|part| part.gpus.contains(gpu) && (idle_too || !part.idle));
        there.map(|part| u32::from(part.share)).sum()
    };
    let length = |part: &Part| -> u16 {
        if part.idle {
            return part.share;
        }
        // On each GPU what the idle ones have is shared out; of several GPUs the least counts.
        let longer = part.gpus.iter().filter_map(|gpu| {
            let (all, active) = (sum(gpu, true), sum(gpu, false));
            (u32::from(part.share) * all).checked_div(active)
        });
        longer.min().map_or(part.share, |longer| longer.min(u32::from(WHOLE)) as u16)
    };
    let lengths: Vec<u16> = parts.iter().map(length).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    // The job that is hardest to place comes first; the idle last, since they only wait for their own.
    order.sort_by_key(|at| {
        let part = &parts[*at];
        (part.idle, std::cmp::Reverse((part.gpus.len(), lengths[*at])), *at)
    });
    let mut slots = vec![(0, 0); parts.len()];
    for (nth, at) in order.iter().enumerate() {
        let placed = order[..nth].iter().filter(|other| parts[**other].meets(&parts[*at]));
        let taken: Vec<(u16, u16)> = placed.map(|other| slots[*other]).collect();
        slots[*at] = (budget::place(&taken, lengths[*at]), lengths[*at]);
    }
    slots
}

/// The period of each part, ms: the shortest of all that it meets, directly or through others.
pub(crate) fn periods(parts: &[Part]) -> Vec<u16> {
    let mut periods: Vec<u16> = parts.iter().map(|part| part.period_ms).collect();
    loop {
        let shortest = |at: usize| {
            let meets = parts.iter().zip(&periods).filter(|(other, _)| other.meets(&parts[at]));
            meets.map(|(_, period)| *period).min().unwrap_or(periods[at])
        };
        let next: Vec<u16> = (0..parts.len()).map(shortest).collect();
        if next == periods {
            return periods;
        }
        periods = next;
    }
}

/// A job under a budget.
#[derive(Debug)]
struct Held {
    gpus: Vec<String>,
    budget: LaunchBudget,
    /// Budget that was written into its segment.
    set: Option<Budget>,
    /// Launches of its processes and the time that launches waited, ns; and when these were last seen to change.
    seen: (u64, u64),
    active: Instant,
    /// Processes that do not follow budgets: those that were reported, and those found at the last poll, which
    /// may only be about to begin.
    unheld: Vec<u32>,
    doubtful: Vec<u32>,
}

/// The budgets of a node's jobs.
#[derive(Debug, Default)]
pub(crate) struct LaunchSlots {
    jobs: BTreeMap<u64, Held>,
    /// Jobs that were seen to run: a job may have a budget of an earlier daemon when it is first seen.
    known: BTreeSet<u64>,
    /// Jobs whose budget is to be lifted.
    lifted: Vec<u64>,
}

impl LaunchSlots {
    /// Gives a job a budget, or takes it away.
    pub(crate) fn set(&mut self, job: u64, gpus: &[String], budget: Option<LaunchBudget>) {
        self.lifted.retain(|lifted| *lifted != job);
        let Some(budget) = budget else {
            if self.jobs.remove(&job).is_some() {
                self.lifted.push(job);
            }
            return;
        };
        let fresh = || Held {
            gpus: Vec::new(),
            budget,
            set: None,
            seen: (0, 0),
            active: Instant::now(),
            unheld: Vec::new(),
            doubtful: Vec::new(),
        };
        let held = self.jobs.entry(job).or_insert_with(fresh);
        (held.gpus, held.budget) = (gpus.to_vec(), budget);
    }

    /// Takes note of the jobs whose program runs, and forgets those that are over.
    pub(crate) fn running(&mut self, runs: &BTreeSet<u64>, lives: impl Fn(u64) -> bool) {
        self.jobs.retain(|job, _| lives(*job));
        self.lifted.retain(|job| lives(*job));
        let new = runs.difference(&self.known).filter(|job| !self.jobs.contains_key(job));
        self.lifted.extend(new);
        self.known.clone_from(runs);
    }

    /// Returns true if there is nothing to do for any job.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.lifted.is_empty()
    }

    /// The jobs that launch between another one's requests, each with that one.
    pub(crate) fn between(&self) -> impl Iterator<Item = (u64, u64)> {
        self.jobs.iter().filter_map(|(job, held)| Some((*job, held.budget.between?.0)))
    }

    /// Returns true if a job's segment is needed.
    pub(crate) fn concerns(&self, job: u64) -> bool {
        self.jobs.contains_key(&job) || self.lifted.contains(&job)
    }

    /// Reads the jobs' segments, lays the slots out and writes them into the segments. `segments` gives a job's segment where
    /// it is known. Gives sentences about jobs.
    pub(crate) fn apply<'s>(&mut self, segments: impl Fn(u64) -> Option<&'s Segment>) -> Vec<(u64, String)> {
        let mut said = Vec::new();
        self.lifted.retain(|job| segments(*job).is_none_or(|segment| segment.set_budget(None).is_err()));
        for (job, held) in &mut self.jobs {
            if let Some(segment) = segments(*job) {
                held.observe(*job, segment, &mut said);
            }
        }
        let parts: Vec<Part> = self.jobs.values().map(Held::part).collect();
        let slots = layout(&parts).into_iter().zip(periods(&parts));
        for ((job, held), ((phase, share), period_ms)) in self.jobs.iter_mut().zip(slots) {
            let in_flight = held.budget.in_flight.min(MAX_IN_FLIGHT);
            let budget = Budget { share, phase, in_flight, period_ms };
            let Some(segment) = segments(*job) else { continue };
            // A job's user can write its segment, and may lower its share there.
            let is_raised = segment.budget().is_none_or(|found| found.share > share);
            let is_changed = held.set == Some(budget) && is_raised;
            if (held.set != Some(budget) || is_raised) && segment.set_budget(Some(budget)).is_ok() {
                held.set = Some(budget);
                if is_changed {
                    said.push((
                        *job,
                        "its launch budget was raised by another than radrmd: set back".to_owned(),
                    ));
                }
            }
        }
        said
    }
}

impl Held {
    fn part(&self) -> Part {
        let share = u16::try_from(self.budget.share.0).unwrap_or(WHOLE).min(WHOLE);
        let period = self.budget.period.and_then(|period| u16::try_from(period.0).ok());
        let period_ms = period.unwrap_or(PERIOD_MS).clamp(1, PERIOD_MS);
        Part { gpus: self.gpus.clone(), share, idle: self.active.elapsed() > IDLE, period_ms }
    }

    fn observe(&mut self, job: u64, segment: &Segment, said: &mut Vec<(u64, String)>) {
        let mut sums = (0u64, 0u64);
        let before = std::mem::take(&mut self.doubtful);
        for slot in segment.slots().unwrap_or_default() {
            let Ok(throttled) = segment.throttled(&slot) else { continue };
            sums = (sums.0.wrapping_add(throttled.passed), sums.1.wrapping_add(throttled.held_ns));
            let is_new = slot.liveness == Liveness::Running && !throttled.obeys;
            let pid = slot.shown_pid();
            if is_new && !self.unheld.contains(&pid) {
                if !before.contains(&pid) {
                    self.doubtful.push(pid);
                    continue;
                }
                self.unheld.push(pid);
                said.push((job, format!("process {pid} cannot be held to its launch budget")));
            }
        }
        if sums != self.seen {
            (self.seen, self.active) = (sums, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(gpus: &[&str], share: u16, idle: bool) -> Part {
        Part { gpus: gpus.iter().map(|gpu| (*gpu).to_owned()).collect(), share, idle, period_ms: PERIOD_MS }
    }

    /// Thousandths of the period in which slots of both are.
    fn met(one: (u16, u16), other: (u16, u16)) -> usize {
        let covers = |slot: (u16, u16), at: u16| (at + WHOLE - slot.0) % WHOLE < slot.1;
        (0..WHOLE).filter(|at| covers(one, *at) && covers(other, *at)).count()
    }

    #[test]
    fn thirty_and_seventy_lie_side_by_side() {
        let slots = layout(&[part(&["a"], 300, false), part(&["a"], 700, false), part(&["b"], 500, false)]);
        assert_eq!(slots, [(700, 300), (0, 700), (0, 500)]);
    }

    #[test]
    fn an_idle_jobs_part_goes_to_the_others_and_it_keeps_a_slot() {
        let slots = layout(&[part(&["a"], 300, false), part(&["a"], 600, true), part(&["a"], 100, false)]);
        assert_eq!((slots[0].1, slots[1].1, slots[2].1), (750, 600, 250));
        assert_eq!(met(slots[0], slots[2]), 0);
        // Alone on the GPU a job keeps to its share: it was given no more.
        assert_eq!(layout(&[part(&["a"], 300, false)]), [(0, 300)]);
        assert_eq!(layout(&[part(&["a"], 300, true), part(&["b"], 300, false)]), [(0, 300), (0, 300)]);
    }

    #[test]
    fn a_job_on_two_gpus_has_one_turn_for_both() {
        let jobs = [part(&["a", "b"], 400, false), part(&["a"], 600, false), part(&["b"], 600, false)];
        let slots = layout(&jobs);
        assert_eq!((met(slots[0], slots[1]), met(slots[0], slots[2])), (0, 0));
        // What is idle on one of its GPUs only is of no use to it.
        let idle = [part(&["a", "b"], 400, false), part(&["a"], 600, true), part(&["b"], 600, false)];
        assert_eq!(layout(&idle)[0].1, 400);
    }

    #[test]
    fn jobs_that_meet_have_the_shortest_period_of_all_of_them() {
        let of = |gpus: &[&str], period_ms| Part { period_ms, ..part(gpus, 300, false) };
        let parts = [of(&["a"], 10), of(&["a", "b"], 100), of(&["b"], 50), of(&["c"], 80)];
        assert_eq!(periods(&parts), [10, 10, 10, 80]);
        assert_eq!(periods(&[]), [0u16; 0]);
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let one = (prop::collection::btree_set(0..4u8, 1..3), 1..=WHOLE, any::<bool>());
        let one = one.prop_map(|(gpus, share, idle)| Part {
            gpus: gpus.into_iter().map(|gpu| gpu.to_string()).collect(),
            share,
            idle,
            period_ms: PERIOD_MS,
        });
        prop::collection::vec(one, 0..8)
    }

    proptest! {
        #[test]
        fn no_job_gets_less_than_its_share_and_no_gpu_is_given_away_twice(parts in parts()) {
            let slots = layout(&parts);
            prop_assert_eq!(slots.len(), parts.len());
            for (part, (phase, length)) in parts.iter().zip(&slots) {
                prop_assert!(*phase < WHOLE && *length <= WHOLE && *length >= part.share);
                prop_assert!(!part.idle || *length == part.share);
            }
            for gpu in parts.iter().flat_map(|part| &part.gpus) {
                let on = || parts.iter().zip(&slots).filter(|(part, _)| part.gpus.contains(gpu));
                let all: u32 = on().map(|(part, _)| u32::from(part.share)).sum();
                let given: u32 = on().filter(|(part, _)| !part.idle).map(|(_, slot)| u32::from(slot.1)).sum();
                prop_assert!(given <= all, "{} of {}", given, all);
            }
        }

        #[test]
        fn slots_on_one_gpu_do_not_overlap_where_there_is_room(
            mut shares in prop::collection::vec((1..=WHOLE / 6, any::<bool>()), 1..6),
        ) {
            shares.sort_unstable();
            let parts: Vec<Part> = shares.iter().map(|(share, idle)| part(&["a"], *share, *idle)).collect();
            let slots = layout(&parts);
            let active: Vec<_> = slots.iter().zip(&parts).filter(|(_, part)| !part.idle).collect();
            for (nth, (one, _)) in active.iter().enumerate() {
                for (other, _) in &active[nth + 1..] {
                    prop_assert_eq!(met(**one, **other), 0, "{:?}", slots);
                }
            }
        }

        #[test]
        fn without_an_idle_job_each_gets_just_its_share(mut parts in parts()) {
            parts.iter_mut().for_each(|part| part.idle = false);
            for (part, (_, length)) in parts.iter().zip(layout(&parts)) {
                prop_assert_eq!(part.share, length);
            }
        }
    }
}
