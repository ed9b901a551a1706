//! Rules for what follows an out-of-memory, shared by radrmd and other engines.

use crate::reason::{Impossible, Reason};
use crate::settings::Recovery;
use crate::units::Bytes;

impl Recovery {
    /// Memory to reserve on each device for a job that needs at least `floor`: more, as far as a device has it.
    #[must_use]
    pub fn raised(&self, floor: Bytes, largest: Bytes) -> Bytes {
        floor.plus(self.step).min(largest.max(floor))
    }

    /// Returns the reason that a job that ran out of memory in `ooms` attempts is not tried again, if there is one.
    /// `own`: the job's own limit on attempts. `why`: what keeps every device from holding it.
    #[must_use]
    pub fn ends(&self, ooms: u32, own: Option<u32>, why: Option<Impossible>) -> Option<Reason> {
        let most = own.map_or(self.attempts, |own| own.min(self.attempts));
        match why {
            Some(why) => Some(Reason::Impossible { why }),
            None => (ooms >= most).then_some(Reason::TooManyAttempts { attempts: ooms }),
        }
    }

    /// Memory of a job on its one device in the next attempt, where an engine other than radrmd places it.
    /// `had`: what the attempt could take, of which it held and requested `seen`.
    ///
    /// # Errors
    /// Why it is not tried again.
    pub fn next(&self, ooms: u32, seen: Bytes, had: Bytes, largest: Bytes) -> Result<Bytes, Reason> {
        // What it held under its limit is a lower bound, however little of it a process counted.
        let floor = seen.max(had);
        let why = (seen > largest || had >= largest).then_some(Impossible::Memory { need: seen, largest });
        self.ends(ooms, None, why).map_or_else(|| Ok(self.raised(floor, largest)), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: fn(u64) -> Bytes = Bytes::from_gib;

    #[test]
    fn each_attempt_gets_more_until_a_device_is_full() {
        let recovery = Recovery::default();
        let next = |ooms, seen, had| recovery.next(ooms, GIB(seen), GIB(had), GIB(40));
        assert_eq!(next(1, 8, 4), Ok(GIB(13)));
        assert_eq!(next(2, 38, 13), Ok(GIB(40)), "no more than a device has");
        assert_eq!(next(1, 1, 4), Ok(GIB(9)), "never less than it had");
        let full = Err(Reason::Impossible { why: Impossible::Memory { need: GIB(41), largest: GIB(40) } });
        assert_eq!(next(3, 41, 13), full);
        assert_eq!(recovery.ends(1, None, None), None);
        assert_eq!(recovery.ends(1, Some(1), None), Some(Reason::TooManyAttempts { attempts: 1 }));
        assert_eq!(recovery.ends(4, Some(9), None), Some(Reason::TooManyAttempts { attempts: 4 }), "no more");
        assert!(matches!(next(1, 40, 40), Err(Reason::Impossible { .. })), "it had a whole device");
        assert_eq!(next(4, 8, 4), Err(Reason::TooManyAttempts { attempts: 4 }));
    }
}
