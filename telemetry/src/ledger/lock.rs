//! The lock by which a member of another pid namespace is known to live.
//!
//! A pid says nothing outside its namespace, and a killed container leaves no process to ask. So each member holds a
//! write lock on the byte of the ledger's file at which its own record begins. The lock is one of an open file, not of
//! a process: the kernel releases it when nothing refers to that open file any more. The only reference is a page
//! that is mapped and not inherited by forked children; its descriptor is closed at once. So no descriptor of the
//! program's is taken, the program cannot close the lock, a child does not keep its parent's, and it ends with the
//! image of the process: by exit, by any signal, by `execve`.
//!
//! Locks keep no secret and grant nothing. A write lock needs the right to write into the ledger, which its owner alone
//! has. Members of a group may read it and so may hold read locks, which keep a new member from its lock: that one
//! counts without one, and its pid is all that is known of it.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::layout::*;
use super::{Ledger, Place};
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::offset_of;
use std::ptr::NonNull;

/// Which file a ledger lies in. Kept for as long as the process lives; plain data without a destructor.
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
const fn byte_of(place: Place, index: usize) -> u64 {
    place.offset() + (offset_of!(LedgerArea, members) + index * size_of::<LedgerMember>()) as u64
}

/// Whether a member's lock is held; an error where locks cannot be asked for.
pub(super) fn is_held(file: &OwnedFd, place: Place, index: usize) -> Result<bool, Errno> {
    sys::is_write_locked(file, byte_of(place, index))
}

/// An open file that can hold one member's lock, and the mapping that keeps it open.
#[derive(Debug)]
pub(super) struct MemberLock {
    file: OwnedFd,
    place: Place,
    page: NonNull<u8>,
}

/// What came of asking for a member's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It is held now.
    Held,
    /// A living member has it: the place is taken.
    Occupied,
    /// The file system has no such locks, or a read lock is in the way.
    Impossible,
}

impl MemberLock {
    /// Opens the file once more; the ledger's own mapping, which children inherit, must not hold the lock.
    pub fn open(home: Home) -> Result<Self, Errno> {
        let file = sys::open_rw(home.path)?;
        let page = sys::map_unforked(&file, crate::layout::PAGE)?;
        Ok(Self { file, place: home.place, page })
    }

    /// Asks for the lock of a member's place.
    pub fn take(&self, index: usize) -> Taken {
        match sys::write_lock(&self.file, byte_of(self.place, index)) {
            Ok(true) => Taken::Held,
            Ok(false) if is_held(&self.file, self.place, index).unwrap_or(false) => Taken::Occupied,
            Ok(false) | Err(_) => Taken::Impossible,
        }
    }

    /// Gives it back: another process was faster.
    pub fn give_back(&self, index: usize) {
        sys::unlock(&self.file, byte_of(self.place, index));
    }

    /// Holds what was taken until the process's image ends.
    pub fn keep(self) {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once, and what it is read from is never dropped. Closing leaves the mapping's reference.
        drop(unsafe { std::ptr::read(&raw const this.file) });
    }
}

impl Drop for MemberLock {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`; no memory of it is ever used.
        unsafe { sys::unmap(self.page, crate::layout::PAGE) };
    }
}

impl Ledger {
    /// Whether the process holds the lock of its place.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_locked(&self) -> bool {
        let member = self.area().members.get(usize::from(self.member));
        member.is_some_and(|member| member.lock.load(crate::sync::Ordering::Relaxed) == 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::file::tests::scratch;
    use super::*;

    fn asks(home: Home) -> OwnedFd {
        sys::open_ro(home.path()).unwrap()
    }

    #[test]
    fn a_lock_outlives_its_descriptor_and_ends_with_its_mapping() {
        let file = scratch(&[]);
        let home = Home::new(file.path_c(), Place::File).unwrap();
        let lock = MemberLock::open(home).unwrap();
        assert_eq!(lock.take(7), Taken::Held);
        let page = lock.page;
        lock.keep();
        let held = |index| is_held(&asks(home), Place::File, index).unwrap();
        assert_eq!((held(6), held(7), held(8)), (false, true, false));
        assert_eq!(MemberLock::open(home).unwrap().take(7), Taken::Occupied);
        // SAFETY: the lock's own mapping, which nothing uses.
        unsafe { sys::unmap(page, crate::layout::PAGE) };
        assert!(!held(7));
    }

    #[test]
    fn a_forked_child_does_not_keep_its_parents_lock() {
        let file = scratch(&[]);
        let home = Home::new(file.path_c(), Place::File).unwrap();
        let lock = MemberLock::open(home).unwrap();
        assert_eq!(lock.take(7), Taken::Held);
        let page = lock.page;
        lock.keep();
        // SAFETY: the child only waits to be killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            }
        }
        // SAFETY: the lock's own mapping, which nothing uses.
        unsafe { sys::unmap(page, crate::layout::PAGE) };
        let held = is_held(&asks(home), Place::File, 7).unwrap();
        // SAFETY: the child of above, which nothing else waits for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(!held, "the child holds it");
    }

    #[test]
    fn a_read_lock_of_another_process_is_no_sign_of_life() {
        let file = scratch(&[]);
        let home = Home::new(file.path_c(), Place::File).unwrap();
        let reader = asks(home);
        sys::tests::read_lock_all(&reader);
        assert!(!is_held(&asks(home), Place::File, 7).unwrap());
        // It keeps a new member from its lock, not from its place.
        assert_eq!(MemberLock::open(home).unwrap().take(7), Taken::Impossible);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        assert!(!ledger.is_locked());
        drop(reader);
        assert!(Ledger::join_file(file.path_c()).unwrap().is_locked());
    }
}
