//! File of a ledger, and the byte of it that a member locks ([`crate::lock`]).
//!
//! Members of a group may read a ledger, and its owner alone may write into it.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::layout::*;
use super::place::Place;
use crate::sys;
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::offset_of;

/// File of a ledger. Kept for as long as the process lives; plain data without a destructor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    path: &'static CStr,
    place: Place,
}

impl Home {
    /// Keeps a copy of the path.
    pub fn new(path: &CStr, place: Place) -> Result<Self, Errno> {
        let bytes = path.to_bytes_with_nul();
        let room = sys::map_private(bytes.len())?;
        // SAFETY: mapped just now with at least as many bytes, never unmapped, and nothing else refers to it.
        let copy = unsafe { std::slice::from_raw_parts_mut(room.as_ptr(), bytes.len()) };
        for (place, byte) in copy.iter_mut().zip(bytes) {
            *place = *byte;
        }
        let path = CStr::from_bytes_with_nul(copy).map_err(|_| Errno::INVAL)?;
        Ok(Self { path, place })
    }

    pub const fn path(&self) -> &'static CStr {
        self.path
    }

    pub const fn place(&self) -> Place {
        self.place
    }
}

/// The byte of the file that a member locks.
pub(super) const fn byte_of(place: Place, index: usize) -> u64 {
    place.offset() + (offset_of!(LedgerArea, members) + index * size_of::<LedgerMember>()) as u64
}

#[cfg(all(test, not(loom)))]
impl super::Ledger {
    /// Returns true if the process holds the lock of its place.
    pub(super) fn is_locked(&self) -> bool {
        let member = self.area().members.get(usize::from(self.member));
        member.is_some_and(|member| member.lock.load(crate::sync::Ordering::Relaxed) == 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Ledger;
    use super::super::file::tests::scratch;
    use super::*;

    #[test]
    fn a_member_that_was_kept_from_its_lock_counts_without_one() {
        let file = scratch(&[]);
        let reader = sys::open_ro(file.path_c()).unwrap();
        sys::tests::read_lock_all(&reader);
        assert!(!Ledger::join_file(file.path_c()).unwrap().is_locked());
        drop(reader);
        assert!(Ledger::join_file(file.path_c()).unwrap().is_locked());
    }
}
