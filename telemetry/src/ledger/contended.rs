//! A request that did not fit at once.
//!
//! Perhaps a dead member still holds something; perhaps others were only trying at the same moment. Both
//! are found out here, one contender at a time. The word that picks the one is advice and nothing more: it
//! keeps contenders out of each other's way, and a contender that waits too long for it, or finds its holder dead,
//! goes on without. That the limit holds depends on [`words`] alone.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::layout::LedgerGpu;
use super::living::{self, Living};
use super::{Ledger, LedgerRow, Refused, SharedLedger};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::sys;

/// Longest wait of a contender for the one before it, ns.
const TIMEOUT_NS: u64 = 2_000_000;
/// After this long it checks whether that one is alive, ns.
const CHECK_NS: u64 = 50_000;
/// Attempts before a request is refused. Others that were only trying need some tens of ns
/// to withdraw, unless they were interrupted between two instructions: so the last attempts let others run.
const SPINS: u32 = 16;
/// Attempts that let others run.
const YIELDS: u32 = 4;
/// Attempts in a scope that several users share.
const ATTEMPTS: u32 = 9;
/// Longest wait after the first of them, ns; each following one may last twice as long.
const BACKOFF_NS: u64 = 2_000;

/// Reserves after others have been given the chance to withdraw, and the dead's share is back.
#[cold]
#[inline(never)]
pub(super) fn reserve(ledger: &Ledger, row: LedgerRow, bytes: u64) -> Result<(), Refused> {
    sys::keep_errno(|| {
        let refused = Refused { limit: 0, used: 0 };
        let (Some(cell), Some((all, own))) = (ledger.cell(row), ledger.words(row)) else {
            return Err(refused);
        };
        let limit = cell.limit.load(Relaxed);
        if bytes <= limit {
            super::sweep(ledger.area(), ledger.home, row, Some(ledger.member));
            let first = Precedence::wait(ledger, cell);
            let granted = (0..SPINS + YIELDS).any(|attempt| {
                if all.sum().saturating_add(bytes) <= limit && all.reserve(own, bytes, limit).is_ok() {
                    return true;
                }
                if attempt < SPINS {
                    (0..8).for_each(|_| std::hint::spin_loop())
                } else {
                    sys::yield_now()
                }
                false
            });
            drop(first);
            if granted {
                return Ok(());
            }
        }
        // The one figure that a person is shown: without contenders, as far as can be known.
        Err(Refused { limit, used: all.sum() })
    })
}

/// The same in a scope that several users share.
///
/// Processes of one user line up; those of different users have no page that both could write, so each waits a
/// random while, longer after every attempt, and reads before it adds: while one waits the other is granted.
#[cold]
#[inline(never)]
pub(super) fn reserve_shared(ledger: &SharedLedger, row: LedgerRow, bytes: u64) -> Result<(), Refused> {
    sys::keep_errno(|| {
        ledger.sweep(row);
        let Some(cell) = ledger.own().cell(row) else { return Err(Refused { limit: 0, used: 0 }) };
        let _first = Precedence::wait(ledger.own(), cell);
        let mut random = sys::monotonic_ns() ^ (u64::from(std::process::id()) << 32) | 1;
        let mut refused = Refused { limit: 0, used: 0 };
        for attempt in 0..ATTEMPTS {
            match ledger.retry(row, bytes) {
                Ok(()) => return Ok(()),
                Err(why) => refused = why,
            }
            if bytes > refused.limit {
                break;
            }
            // Xorshift.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let until = sys::monotonic_ns() + random % (BACKOFF_NS << attempt);
            while sys::monotonic_ns() < until {
                if attempt < 4 { std::hint::spin_loop() } else { sys::yield_now() }
            }
        }
        Err(refused)
    })
}

/// The right to try first.
struct Precedence<'c> {
    cell: &'c LedgerGpu,
    token: u64,
    held: bool,
}

impl<'c> Precedence<'c> {
    fn wait(ledger: &Ledger, cell: &'c LedgerGpu) -> Self {
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
    use super::super::file::tests::scratch;
    use super::super::words;
    use super::*;
    use crate::ledger::{Amount, Limit};

    #[test]
    fn a_contender_that_did_not_run_checks_before_it_leaves() {
        assert_eq!(Step::after(0, false), Step::Yield);
        for waited in [CHECK_NS + 1, TIMEOUT_NS + 1, u64::MAX] {
            assert_eq!(Step::after(waited, false), Step::Check);
        }
        assert_eq!(Step::after(TIMEOUT_NS, true), Step::Yield);
        assert_eq!(Step::after(TIMEOUT_NS + 1, true), Step::Leave);
    }

    #[test]
    fn precedence_of_a_dead_member_blocks_no_member() {
        let file = scratch(&[Limit { gpu: None, amount: Amount::Bytes(100) }]);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&[1; 16], 1000).unwrap();
        ledger.reserve(row, 60).unwrap();
        // Held by member 700, which never existed.
        ledger.cell(row).unwrap().arbiter.store((5 << 32) | 701, Relaxed);
        assert_eq!(ledger.reserve(row, 60), Err(Refused { limit: 100, used: 60 }));
        assert_eq!(ledger.cell(row).unwrap().arbiter.load(Relaxed), 0);
        ledger.release(row, 60);
        assert_eq!(words::bytes_of(ledger.words(row).unwrap().1.load(Relaxed)), 0);
    }
}
