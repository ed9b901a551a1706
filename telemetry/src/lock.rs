//! The lock by which a process of another pid namespace is known to live.
//!
//! A pid says nothing outside its namespace, and a killed container leaves no process to ask. So a process holds a write
//! lock on one byte of a file, that at which its own record begins. The lock is one of an open file, not of a process:
//! the kernel releases it when nothing refers to that open file any more. The only reference is a page that is mapped
//! and not inherited by forked children; its descriptor is closed at once. So no descriptor of the program's is taken,
//! the program cannot close the lock, a child does not keep its parent's, and it ends with the image of the process: by
//! exit, by any signal, by `execve`.
//!
//! Locks keep no secret and grant nothing. A write lock needs the right to write into the file. Those who may only read
//! it may hold read locks, which keep a process from its lock: that one counts without one, and its pid is all that is
//! known of it.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::ptr::NonNull;

/// Returns true if a lock is held; an error where locks cannot be queried.
pub(crate) fn is_held(file: impl AsFd, at: u64) -> Result<bool, Errno> {
    sys::is_write_locked(file, at)
}

/// An open file that can hold one lock, and the mapping that keeps it open.
#[derive(Debug)]
pub(crate) struct LifeLock {
    file: OwnedFd,
    page: NonNull<u8>,
}

/// Outcome of a request for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// It is held now.
    Held,
    /// A living process has it.
    Occupied,
    /// The file system has no such locks, or a read lock is in the way.
    Impossible,
}

impl LifeLock {
    /// Opens the file once more; a mapping that children inherit must not hold the lock.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        let file = sys::open_rw(path)?;
        let page = sys::map_unforked(&file, crate::layout::PAGE)?;
        Ok(Self { file, page })
    }

    /// Asks for the lock of the record that begins at this byte.
    pub fn take(&self, at: u64) -> Taken {
        match sys::write_lock(&self.file, at) {
            Ok(true) => Taken::Held,
            Ok(false) if is_held(&self.file, at).unwrap_or(false) => Taken::Occupied,
            Ok(false) | Err(_) => Taken::Impossible,
        }
    }

    /// Gives it back: another process was faster.
    pub fn give_back(&self, at: u64) {
        sys::unlock(&self.file, at);
    }

    /// Holds what was taken until the process's image ends.
    pub fn keep(self) {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once, and what it is read from is never dropped. Closing leaves the mapping's reference.
        drop(unsafe { std::ptr::read(&raw const this.file) });
    }
}

impl Drop for LifeLock {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`; no memory of it is ever used.
        unsafe { sys::unmap(self.page, crate::layout::PAGE) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn file() -> (tempfile::TempDir, CString) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [0; 64]).unwrap();
        (directory, CString::new(path.as_os_str().as_bytes()).unwrap())
    }

    fn held(path: &CStr, at: u64) -> bool {
        is_held(sys::open_ro(path).unwrap(), at).unwrap()
    }

    #[test]
    fn a_lock_outlives_its_descriptor_and_ends_with_its_mapping() {
        let (_directory, path) = file();
        let lock = LifeLock::open(&path).unwrap();
        assert_eq!(lock.take(7), Taken::Held);
        let page = lock.page;
        lock.keep();
        assert_eq!([6, 7, 8].map(|at| held(&path, at)), [false, true, false]);
        assert_eq!(LifeLock::open(&path).unwrap().take(7), Taken::Occupied);
        // SAFETY: the lock's own mapping, which nothing uses.
        unsafe { sys::unmap(page, crate::layout::PAGE) };
        assert!(!held(&path, 7));
    }

    #[test]
    fn a_forked_child_does_not_keep_its_parents_lock() {
        let (_directory, path) = file();
        let lock = LifeLock::open(&path).unwrap();
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
        let held = held(&path, 7);
        // SAFETY: the child of above, which nothing else waits for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(!held, "the child holds it");
    }

    #[test]
    fn a_read_lock_of_another_process_is_no_sign_of_life() {
        let (_directory, path) = file();
        let reader = sys::open_ro(&path).unwrap();
        sys::tests::read_lock_all(&reader);
        assert!(!held(&path, 7));
        assert_eq!(LifeLock::open(&path).unwrap().take(7), Taken::Impossible);
        drop(reader);
        assert_eq!(LifeLock::open(&path).unwrap().take(7), Taken::Held);
    }
}
