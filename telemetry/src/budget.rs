//! Launch budgets: how much of its GPUs' time a job may fill with launches, and when.
//!
//! A budget is one word in the segment's header, so a reader never sees half of one, and a process that sets it may
//! die at any moment. Time is divided into periods, on `CLOCK_MONOTONIC`, which all processes of the machine
//! share. In each period a job has one launch slot:
//!
//! ```text
//!            phase      phase + share
//!   |----------[============)----------|----------[============)---------- ...
//!   0        the job's launch slot          period
//! ```
//!
//! Jobs whose launch slots do not meet have the GPU to themselves in theirs; without MPS the driver runs
//! processes one after another anyway, so nothing is lost by it, and the time that a kernel takes need not be known.
//!
//! Work that was launched in a launch slot may go on after its end. That time is owed: with own time `W(t)`, the sum of
//! all parts of launch slots before `t`, and work that was done `d` after the end `c` of its launch slot, the job
//! launches nothing before `W(t) >= W(c) + d`.

/// The whole of a GPU's time, in the unit of [`Budget::share`].
pub const WHOLE: u16 = 1000;
/// The usual period: long against what waking up costs, short against what a user notices.
pub const PERIOD_MS: u16 = 100;
/// Largest number of launches in flight that a budget can state.
pub const MAX_IN_FLIGHT: u16 = 0xfff;

/// A job's launch budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Part of each period in which the job may launch, in thousandths. 0: not at all, until the budget changes.
    pub share: u16,
    /// Start of its launch slot within the period, in thousandths of the period.
    pub phase: u16,
    /// Most launches of a context that are not done yet; 0: any number.
    pub in_flight: u16,
    /// Length of a period, ms, at least 1.
    pub period_ms: u16,
}

impl Budget {
    /// A budget with the usual period, whose launch slot begins with the period.
    pub const fn new(share: u16, in_flight: u16) -> Self {
        Self { share, phase: 0, in_flight, period_ms: PERIOD_MS }
    }

    /// The budget as one word, never 0. Figures beyond their range are brought to its end.
    pub const fn word(self) -> u64 {
        const fn smaller(a: u16, b: u16) -> u64 {
            (if a < b { a } else { b }) as u64
        }
        let period = if self.period_ms == 0 { 1 } else { self.period_ms as u64 };
        smaller(self.share, WHOLE)
            | smaller(self.phase, WHOLE - 1) << 10
            | smaller(self.in_flight, MAX_IN_FLIGHT) << 20
            | period << 32
    }

    /// The budget of a word; `None` for 0, which is no budget, and for a word that no budget has.
    pub const fn from_word(word: u64) -> Option<Self> {
        let budget = Self {
            share: (word & 0x3ff) as u16,
            phase: (word >> 10 & 0x3ff) as u16,
            in_flight: (word >> 20 & 0xfff) as u16,
            period_ms: (word >> 32) as u16,
        };
        if word >> 48 == 0 && budget.period_ms > 0 && budget.share <= WHOLE && budget.phase < WHOLE {
            Some(budget)
        } else {
            None
        }
    }

    /// The launch slots of this budget.
    pub const fn launch_slots(self) -> LaunchSlots {
        let period = self.period_ms as u64 * 1_000_000;
        let thousandth = period / WHOLE as u64;
        LaunchSlots { period, own: thousandth * self.share as u64, offset: thousandth * self.phase as u64 }
    }
}

/// Returns the start of a slot of `share` thousandths that overlaps the others least, in thousandths of the period: the
/// first of those that are equally good. `others`: phase and share of each.
pub fn place(others: &[(u16, u16)], share: u16) -> u16 {
    let whole = usize::from(WHOLE);
    let share = usize::from(share.min(WHOLE));
    // How many slots each thousandth of the period belongs to, twice over: a slot may go past the period's end.
    let mut taken = vec![0u64; 2 * whole];
    for (phase, other) in others {
        for part in 0..usize::from((*other).min(WHOLE)) {
            let at = (usize::from(*phase) + part) % whole;
            for place in [at, at + whole] {
                if let Some(count) = taken.get_mut(place) {
                    *count += 1;
                }
            }
        }
    }
    let met = |phase: &usize| taken.iter().skip(*phase).take(share).sum::<u64>();
    (0..whole).min_by_key(met).map_or(0, |phase| phase as u16)
}

/// Launch slots of a job. Times are ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSlots {
    period: u64,
    own: u64,
    offset: u64,
}

impl LaunchSlots {
    /// Number of the period that a moment belongs to, as counted from the beginnings of launch slots, and how far in.
    const fn place(self, now: u64) -> (u64, u64) {
        // One period later, so that nothing is negative.
        let shifted = now.saturating_add(self.period - self.offset);
        (shifted / self.period, shifted % self.period)
    }

    const fn begin(self, slot: u64) -> u64 {
        slot.saturating_mul(self.period).saturating_sub(self.period - self.offset)
    }

    /// Returns true if the job may launch at any time.
    pub const fn is_whole(self) -> bool {
        self.own >= self.period
    }

    /// The number of the launch slot at this moment; `None` between launch slots.
    pub const fn slot(self, now: u64) -> Option<u64> {
        let (slot, within) = self.place(now);
        if within < self.own { Some(slot) } else { None }
    }

    /// End of a launch slot, exclusive.
    pub const fn end(self, slot: u64) -> u64 {
        self.begin(slot).saturating_add(self.own)
    }

    /// Own time up to a moment, ns: the sum of the launch slots before it.
    pub const fn own_time(self, now: u64) -> u64 {
        let (slot, within) = self.place(now);
        let part = if within < self.own { within } else { self.own };
        slot.saturating_mul(self.own).saturating_add(part)
    }

    /// The first moment, not before `now`, that lies in a launch slot and by which there was `due` of own time.
    /// `None`: never.
    pub const fn next(self, now: u64, due: u64) -> Option<u64> {
        if self.own == 0 {
            return None;
        }
        if self.own_time(now) < due {
            return Some(self.begin(due / self.own).saturating_add(due % self.own));
        }
        match self.slot(now) {
            Some(_) => Some(now),
            None => Some(self.begin(self.place(now).0 + 1)),
        }
    }

    /// Own time that there must have been before the next launch, after work of a slot that ended at `end` was done
    /// at `done`.
    pub const fn due(self, end: u64, done: u64) -> u64 {
        self.own_time(end).saturating_add(done.saturating_sub(end))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn budgets() -> impl Strategy<Value = Budget> {
        (0..=WHOLE, 0..WHOLE, 0..=MAX_IN_FLIGHT, 1..=2_000u16)
            .prop_map(|(share, phase, in_flight, period_ms)| Budget { share, phase, in_flight, period_ms })
    }

    #[test]
    fn no_budget_is_a_zero_and_damage_is_no_budget() {
        assert_eq!(Budget::from_word(0), None);
        for word in [1, u64::MAX, 1 << 63, 1 << 20, 1023 | 1 << 32, 1001 | 1 << 32, 1000 << 10 | 1 << 32] {
            assert_eq!(Budget::from_word(word), None, "{word:#x}");
        }
        assert_ne!(Budget::new(0, 0).word(), 0, "closed is not the same as none");
    }

    #[test]
    fn thirty_percent_of_a_hundred_milliseconds() {
        const MS: u64 = 1_000_000;
        let slots = Budget { phase: 700, ..Budget::new(300, 0) }.launch_slots();
        let start = 1_000 * MS;
        assert_eq!(slots.slot(start + 69 * MS), None);
        assert!(slots.slot(start + 70 * MS).is_some());
        assert_eq!(slots.slot(start + 100 * MS), None);
        assert_eq!(slots.next(start, 0), Some(start + 70 * MS));
        let slot = slots.slot(start + 80 * MS).expect("inside");
        assert_eq!(slots.end(slot), start + 100 * MS);
        // Work that was done 45 ms after its launch slot costs the next launch slot and half of the one after.
        let due = slots.due(start + 100 * MS, start + 145 * MS);
        assert_eq!(slots.next(start + 145 * MS, due), Some(start + 285 * MS));
    }

    proptest! {
        #[test]
        fn words_come_back(budget in budgets()) {
            prop_assert_eq!(Budget::from_word(budget.word()), Some(budget));
            prop_assert_ne!(budget.word(), 0);
        }

        #[test]
        fn any_word_is_a_budget_or_none(word: u64, now: u64) {
            if let Some(budget) = Budget::from_word(word) {
                prop_assert_eq!(budget.word(), word);
                let _ = budget.launch_slots().next(now, now);
            }
        }

        #[test]
        fn own_time_passes_in_launch_slots_only(budget in budgets(), now in 0..1u64 << 60, step in 0..1u64 << 34) {
            let slots = budget.launch_slots();
            let own = slots.own_time(now + step) - slots.own_time(now);
            prop_assert!(own <= step);
            if slots.slot(now).is_none() && slots.next(now, 0).is_none_or(|next| next >= now + step) {
                prop_assert_eq!(own, 0);
            }
            if let Some(slot) = slots.slot(now) && now + step <= slots.end(slot) {
                prop_assert_eq!(own, step);
            }
        }

        #[test]
        fn over_many_periods_the_share_is_kept(budget in budgets(), now in 0..1u64 << 60, periods in 1..1_000u64) {
            let slots = budget.launch_slots();
            let passed = periods * slots.period;
            prop_assert_eq!(slots.own_time(now + passed) - slots.own_time(now), periods * slots.own);
        }

        #[test]
        fn the_next_launch_is_the_first_that_may_be(
            budget in budgets(), now in 0..1u64 << 60, owed in 0..1u64 << 34, earlier in 1..1u64 << 34,
        ) {
            let slots = budget.launch_slots();
            let due = slots.own_time(now) + owed;
            let may = |moment: u64| slots.slot(moment).is_some() && slots.own_time(moment) >= due;
            match slots.next(now, due) {
                None => prop_assert_eq!(budget.share, 0),
                Some(next) => {
                    prop_assert!(next >= now && may(next));
                    for before in [next.saturating_sub(1), next.saturating_sub(earlier)] {
                        prop_assert!(before < now || before == next || !may(before));
                    }
                }
            }
        }

        #[test]
        fn a_launch_slot_is_placed_where_it_overlaps_others_least(
            mut shares in prop::collection::vec(1..WHOLE / 8, 1..12),
        ) {
            let mut placed: Vec<(u16, u16)> = Vec::new();
            while let Some(share) = shares.pop() {
                let sum: u32 = placed.iter().map(|(_, share)| u32::from(*share)).sum();
                let phase = place(&placed, share);
                prop_assert!(phase < WHOLE);
                let meets = |(other, length): &(u16, u16)| {
                    (0..share).any(|part| (phase + part + WHOLE - other) % WHOLE < *length)
                };
                // Placed one after another they lie side by side as long as there is room.
                if sum + u32::from(share) <= u32::from(WHOLE) {
                    prop_assert!(!placed.iter().any(meets), "{placed:?} and {share} at {phase}");
                }
                placed.push((phase, share));
            }
        }

        #[test]
        fn launch_slots_that_follow_each_other_never_overlap(
            first in 1..WHOLE, phase in 0..WHOLE, period_ms in 1..2_000u16, now in 0..1u64 << 60,
        ) {
            let one = Budget { share: first, phase, in_flight: 0, period_ms };
            let other = Budget { share: WHOLE - first, phase: (phase + first) % WHOLE, ..one };
            prop_assert!(one.launch_slots().slot(now).is_some() != other.launch_slots().slot(now).is_some());
        }

        /// A job that fills its launch slots, whatever its kernels take, gets its share in the long run.
        #[test]
        fn work_that_overruns_is_paid_back(share in 50..950u16, kernels in prop::collection::vec(1..300_000_000u64, 200)) {
            let slots = Budget::new(share, 0).launch_slots();
            let start = 1 << 40;
            let (mut now, mut due, mut busy) = (start, 0, 0);
            for kernel in kernels {
                now = slots.next(now, due).unwrap_or(u64::MAX);
                let slot = slots.slot(now).unwrap_or(u64::MAX);
                let done = now + kernel;
                busy += kernel;
                if done > slots.end(slot) {
                    due = slots.due(slots.end(slot), done);
                }
                now = done;
            }
            // Up to the moment at which the next one may go.
            let whole = slots.next(now, due).unwrap_or(u64::MAX) - start;
            let got = busy as f64 / whole as f64 * 1000.0;
            prop_assert!((got - f64::from(share)).abs() < 0.1 * f64::from(share) + 10.0, "{got} of {share}");
        }
    }
}
