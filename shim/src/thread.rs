//! The calling thread.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// Source of the ids of a process's threads: glibc's own description of a thread, once it was seen to have the id.
pub(crate) struct Known(AtomicU32);

const HAS_ID: u32 = 1;
const HAS_NONE: u32 = 2;

impl Known {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The id of the calling thread by glibc's description of it, which is compared with the kernel's once in a process.
    fn id(&self) -> Option<u32> {
        let described = described()?;
        let mut known = self.0.load(Ordering::Relaxed);
        if known == 0 {
            known = if stated() == Some(described) { HAS_ID } else { HAS_NONE };
            self.0.store(known, Ordering::Relaxed);
        }
        (known == HAS_ID).then_some(described)
    }
}

/// Its id, where possible without a system call: a filter of the program may end it for asking, and may be newer than the
/// process's other threads.
pub(crate) fn id() -> u32 {
    let known = crate::state::page().threads.id();
    // glibc before 2.30 has no function for it.
    known.unwrap_or_else(|| rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
}

/// The id that glibc keeps in its `struct pthread`: behind the head that the ABI of thread-local storage fixes and two
/// pointers, in all versions since 2.4.
#[cfg(target_arch = "x86_64")]
fn described() -> Option<u32> {
    const AT: usize = 720;
    let (thread, itself): (*const u8, *const u8);
    // SAFETY: loads the first and the third word of the head, which all programs have.
    unsafe {
        core::arch::asm!(
            "mov {thread}, fs:[0]", "mov {itself}, fs:[16]",
            thread = out(reg) thread, itself = out(reg) itself,
            options(readonly, nostack, preserves_flags)
        );
    }
    // As glibc has it; of a thread of another library nothing is known.
    if thread.is_null() || thread != itself {
        return None;
    }
    // SAFETY: within glibc's structure, which is larger, aligned, and lives as long as the thread.
    Some(unsafe { thread.add(AT).cast::<u32>().read_volatile() }).filter(|id| *id != 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn described() -> Option<u32> {
    None
}

/// The id that the kernel states, by calls that joining makes anyway.
fn stated() -> Option<u32> {
    const STAT: &CStr = c"/proc/thread-self/stat";
    let file: OwnedFd = rustix::fs::open(STAT, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0u8; 32];
    let got = rustix::io::read(&file, &mut buffer).ok()?;
    let digits = buffer.get(..got)?.split(|byte| *byte == b' ').next()?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn the_id_of_each_thread_is_known_without_asking_the_kernel() {
        let own = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let known = Known::new();
        let check = || assert_eq!((known.id(), stated(), id()), (Some(own()), Some(own()), own()));
        check();
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(check))));
    }

    #[test]
    fn an_id_that_is_not_the_kernels_is_not_used() {
        let known = Known::new();
        known.0.store(HAS_NONE, Ordering::Relaxed);
        assert_eq!(known.id(), None);
    }
}
