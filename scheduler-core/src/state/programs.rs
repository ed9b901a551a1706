//! Activity of programs by their running jobs: what is assumed of a job of which nothing is known gives way to it.

use std::collections::BTreeMap;

use crate::interference::{Activity, Program};
use crate::units::Permille;

/// As many programs are kept.
const MAX_PROGRAMS: usize = 4096;
/// A smaller change decides nothing.
const MIN_CHANGE: u32 = 20;

/// Activity of programs, by what was seen last of a job of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs(BTreeMap<Program, Activity>);

impl Programs {
    /// Activity of a program, if it was seen.
    pub(super) fn of(&self, program: Program) -> Option<Activity> {
        self.0.get(&program).copied()
    }

    /// Keeps what was seen. Returns true if that is news.
    pub(super) fn observe(&mut self, program: Program, seen: Activity) -> bool {
        let moved = |a: Permille, b: Permille| a.0.abs_diff(b.0) >= MIN_CHANGE;
        let before = self.0.get(&program);
        if before.is_some_and(|before| !moved(before.smact, seen.smact) && !moved(before.drama, seen.drama)) {
            return false;
        }
        if before.is_none() && self.0.len() >= MAX_PROGRAMS {
            self.0.pop_first();
        }
        self.0.insert(program, seen);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_programs_is_kept() {
        let mut programs = Programs::default();
        let seen = |smact| Activity { smact: Permille(smact), ..Activity::default() };
        for program in 0..2 * MAX_PROGRAMS as u64 {
            assert!(programs.observe(Program(program), seen(100)));
        }
        assert_eq!(programs.0.len(), MAX_PROGRAMS);
        let last = Program(2 * MAX_PROGRAMS as u64 - 1);
        assert!(!programs.observe(last, seen(110)) && programs.observe(last, seen(130)));
    }
}
