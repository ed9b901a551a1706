//! A request that did not fit at once in a scope that several users share.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::SharedLedger;
use crate::ledger::precedence::Precedence;
use crate::ledger::row::{LedgerRow, Refused};
use crate::sys;

/// Attempts.
const ATTEMPTS: u32 = 9;
/// Longest wait after the first of them, ns; each following one may last twice as long.
const BACKOFF_NS: u64 = 2_000;

/// Reserves after others have been given the chance to withdraw, and the dead's share is back.
///
/// Processes of one user line up; those of different users have no page that both could write, so each waits a
/// random while, longer after every attempt, and reads before it adds: while one waits the other is granted.
#[cold]
#[inline(never)]
pub(super) fn reserve(ledger: &SharedLedger, row: LedgerRow, bytes: u64) -> Result<(), Refused> {
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
