//! The right of one contender to try first.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::layout::LedgerGpu;
use super::living::{self, Living};
use super::member::Ledger;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys;

/// Longest wait of a contender for the one before it, ns.
const TIMEOUT_NS: u64 = 2_000_000;
/// After this long it checks whether that one is alive, ns.
const CHECK_NS: u64 = 50_000;

/// The right to try first.
pub(super) struct Precedence<'c> {
    cell: &'c LedgerGpu,
    token: u64,
    held: bool,
}

impl<'c> Precedence<'c> {
    pub(super) fn wait(ledger: &Ledger, cell: &'c LedgerGpu) -> Self {
        // Never 0; different for each member and for each generation of one.
        let token = (u64::from(ledger.generation) << 32) | (u64::from(ledger.member) + 1);
        let began = sys::monotonic_ns();
        let mut checked = false;
        loop {
            let Err(holder) = cell.arbiter.compare_exchange(0, token, AcqRel, Acquire) else {
                return Self { cell, token, held: true };
            };
            match Step::after(sys::monotonic_ns().saturating_sub(began), checked) {
                Step::Leave => return Self { cell, token, held: false },
                Step::Check => {
                    checked = true;
                    if is_abandoned(ledger, holder) {
                        let _ = cell.arbiter.compare_exchange(holder, 0, AcqRel, Relaxed);
                    }
                }
                Step::Yield => sys::yield_now(),
            }
        }
    }
}

impl Drop for Precedence<'_> {
    fn drop(&mut self) {
        if self.held {
            let _ = self.cell.arbiter.compare_exchange(self.token, 0, AcqRel, Relaxed);
        }
    }
}

/// Next step of a contender that has waited for the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Lets others run.
    Yield,
    /// Checks whether the holder is alive.
    Check,
    /// Goes on without.
    Leave,
}

impl Step {
    /// After `waited` ns. One that did not run for long checks before it leaves: else a dead holder's word would stay
    /// for the next one.
    const fn after(waited: u64, checked: bool) -> Self {
        match checked {
            false if waited > CHECK_NS => Self::Check,
            true if waited > TIMEOUT_NS => Self::Leave,
            _ => Self::Yield,
        }
    }
}

/// Returns true if the holder of precedence is dead or gone.
fn is_abandoned(ledger: &Ledger, token: u64) -> bool {
    let index = (token & 0xffff_ffff).wrapping_sub(1) as usize;
    let Some(member) = ledger.area().members.get(index) else { return true };
    living::generation(member) != (token >> 32) as u32
        || Living::of(ledger.home).dead(index, member).is_some()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_contender_that_did_not_run_checks_before_it_leaves() {
        assert_eq!(Step::after(0, false), Step::Yield);
        for waited in [CHECK_NS + 1, TIMEOUT_NS + 1, u64::MAX] {
            assert_eq!(Step::after(waited, false), Step::Check);
        }
        assert_eq!(Step::after(TIMEOUT_NS, true), Step::Yield);
        assert_eq!(Step::after(TIMEOUT_NS + 1, true), Step::Leave);
    }
}
