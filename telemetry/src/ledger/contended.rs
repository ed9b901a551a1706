//! A request that did not fit at once.
//!
//! Perhaps a dead member still holds something; perhaps others were only trying at the same moment. Both
//! are found out here, one contender at a time ([`super::precedence`]). The word that picks the one is advice and nothing more: it
//! keeps contenders out of each other's way, and a contender that waits too long for it, or finds its holder dead,
//! goes on without. That the limit holds depends on [`words`] alone.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::member::Ledger;
use super::precedence::Precedence;
use super::row::{LedgerRow, Refused};
use super::sweep;
use crate::sync::Ordering::Relaxed;
use crate::sys;

/// Attempts before a request is refused. Others that were only trying need some tens of ns
/// to withdraw, unless they were interrupted between two instructions: so the last attempts let others run.
const SPINS: u32 = 16;
/// Attempts that let others run.
const YIELDS: u32 = 4;

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
            sweep::sweep(ledger.area(), ledger.home, row, Some(ledger.member));
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::file::tests::scratch;
    use super::super::words;
    use super::*;
    use crate::ledger::{Amount, Limit};

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
