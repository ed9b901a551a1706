//! The directory of slots.

use super::DIRECTORY_AT;
use crate::sync::AtomicU64;

/// Offset of a slot's directory entry in the file. It is also the byte that a process of another pid namespace locks.
pub const fn entry_at(slot: usize) -> u64 {
    DIRECTORY_AT + (slot * size_of::<DirEntry>()) as u64
}

/// Directory entry of a slot.
#[repr(C)]
#[derive(Debug)]
pub struct DirEntry {
    /// State, generation and pid in one word, see [`SlotState`].
    pub state: AtomicU64,
    /// Start time of the process in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start: AtomicU64,
    /// Generation whose data the launcher has saved.
    pub harvested: AtomicU64,
    /// Pid namespace of the process id, see [`SlotNamespace`].
    pub namespace: AtomicU64,
}

/// State of a slot in the directory: state (8 bits), generation (24 bits), pid (32 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotState(pub u64);

impl SlotState {
    /// Never used.
    pub const FREE: u8 = 0;
    /// Being made ready by the process whose pid it carries; 0: by one of another pid namespace than the launcher's.
    pub const CLAIMING: u8 = 1;
    /// In use.
    pub const LIVE: u8 = 2;
    /// Its process left or became another program.
    pub const ENDED: u8 = 3;

    /// Packs a state.
    pub const fn new(state: u8, generation: u32, pid: u32) -> Self {
        Self((state as u64) << 56 | ((generation & 0xff_ffff) as u64) << 32 | pid as u64)
    }

    /// One of the constants above, or anything in damaged memory.
    pub const fn state(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// Number of processes that have had this slot.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }

    /// The process.
    pub const fn pid(self) -> u32 {
        self.0 as u32
    }
}

/// Pid namespace of a slot's process id: 0 for the launcher's; else the inode number of another one (32 bits), and a
/// bit that is set if the process holds the lock of its slot ([`crate::lock`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotNamespace(pub u64);

impl SlotNamespace {
    /// That of the launcher.
    pub const LAUNCHERS: Self = Self(0);
    const LOCKED: u64 = 1 << 32;

    /// Another one.
    pub const fn other(inode: u64, is_locked: bool) -> Self {
        Self(inode & (Self::LOCKED - 1) | if is_locked { Self::LOCKED } else { 0 })
    }

    /// Inode number of another one than the launcher's.
    pub const fn inode(self) -> Option<u64> {
        match self.0 & (Self::LOCKED - 1) {
            0 => None,
            inode => Some(inode),
        }
    }

    /// Returns true if the process holds its slot's lock.
    pub const fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }
}
