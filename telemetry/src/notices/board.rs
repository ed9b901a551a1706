//! A table of notices in System V shared memory: it is reached by a number, without a descriptor and from every mount
//! namespace, and ends with the process that made it.

use super::{Notice, NoticeSeen};
use crate::layout::{NOTICES, NoticeCell, NoticeTable};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use std::ptr::NonNull;

/// First word of a board: "RADRMNOT".
const MAGIC: u64 = u64::from_le_bytes(*b"RADRMNOT");

/// Raised when the table's layout changes.
const VERSION: u64 = 1;

#[repr(C)]
struct Area {
    magic: AtomicU64,
    version: AtomicU64,
    table: NoticeTable,
}

/// A mapped board, unmapped when it goes.
#[derive(Debug)]
struct Attached(NonNull<Area>);

// SAFETY: a shared mapping of atomics; unmapped once, by its owner.
unsafe impl Send for Attached {}
// SAFETY: as above.
unsafe impl Sync for Attached {}

impl Attached {
    /// Maps the memory with this number, if it is large enough.
    fn new(id: i32) -> Option<Self> {
        // SAFETY: zeros are a valid value of the structure.
        let mut found: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure.
        let known = unsafe { libc::syscall(libc::SYS_shmctl, id, libc::IPC_STAT, &raw mut found) } == 0;
        // Another program's memory may have got the number of a board that is gone.
        if !known || found.shm_segsz < size_of::<Area>() {
            return None;
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { libc::syscall(libc::SYS_shmat, id, std::ptr::null::<u8>(), 0) };
        // The kernel answers with an address or with -1.
        (address != -1).then(|| NonNull::new(address as *mut Area).map(Self))?
    }

    fn area(&self) -> &Area {
        // SAFETY: mapped for as long as this lives, with at least these bytes; atomics only.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it any more.
        unsafe { libc::syscall(libc::SYS_shmdt, self.0.as_ptr()) };
    }
}

/// Enters a notice on the board with this number. False: there is none.
pub(super) fn post(id: i32, pid: u32, notice: Notice) -> bool {
    let Some(attached) = Attached::new(id) else { return false };
    let area = attached.area();
    // Acquire pairs with the release in `create`.
    let is_board = area.magic.load(Acquire) == MAGIC && area.version.load(Relaxed) == VERSION;
    if is_board {
        area.table.post(pid, notice);
    }
    is_board
}

/// A board of this process's, for processes of the same user and IPC namespace.
#[derive(Debug)]
pub struct NoticeBoard {
    id: i32,
    attached: Attached,
}

impl NoticeBoard {
    /// Makes a board; `None` where the kernel or its limits (`kernel.shmmni`) do not allow one.
    pub fn create() -> Option<Self> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: makes memory that nothing else knows of.
        let id = unsafe { libc::syscall(libc::SYS_shmget, libc::IPC_PRIVATE, size_of::<Area>(), flags) };
        let id = i32::try_from(id).ok().filter(|id| *id >= 0)?;
        let attached = Attached::new(id);
        // From here on it goes with its last user, however that ends; until then its number still leads to it.
        // SAFETY: the number of the memory made above.
        unsafe { libc::syscall(libc::SYS_shmctl, id, libc::IPC_RMID, std::ptr::null_mut::<u8>()) };
        let attached = attached?;
        attached.area().version.store(VERSION, Relaxed);
        attached.area().magic.store(MAGIC, Release);
        Some(Self { id, attached })
    }

    /// Number by which processes reach it.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The notices, in their order, and how many there was no room for.
    pub fn notices(&self) -> (Vec<NoticeSeen>, u64) {
        let table = &self.attached.area().table;
        let words = |cell: &NoticeCell| {
            // Acquire pairs with the release in `post`: pid and time are written.
            let what = cell.what.load(Acquire);
            [cell.pid.load(Relaxed), what, cell.ns.load(Relaxed)]
        };
        let seen = table.cells.iter().take(NOTICES).filter_map(|cell| NoticeSeen::from_words(words(cell)));
        (seen.collect(), table.lost.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_takes_notices_without_a_file_and_ends_with_its_owner() {
        let Some(board) = NoticeBoard::create() else {
            return eprintln!("skipped: no System V shared memory");
        };
        assert!(super::super::post(None, Some(board.id()), Notice::InitFailed(999)));
        let (seen, lost) = board.notices();
        assert_eq!((seen.len(), seen[0].notice, lost), (1, Notice::InitFailed(999), 0));
        let id = board.id();
        drop(board);
        assert!(!super::super::post(None, Some(id), Notice::InitFailed(999)));
    }

    #[test]
    fn memory_of_other_programs_is_left_alone() {
        for bytes in [1, 64 << 10] {
            // SAFETY: makes memory that nothing else knows of.
            let id = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600) };
            if id < 0 {
                return eprintln!("skipped: no System V shared memory");
            }
            assert!(!post(id, 1, Notice::InitFailed(1)), "{bytes}");
            // SAFETY: the memory made above.
            unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        }
        assert!(!post(i32::MAX, 1, Notice::InitFailed(1)));
    }
}
