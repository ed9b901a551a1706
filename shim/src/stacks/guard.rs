//! Checks before a call stack is recorded: it may ask for system calls that a filter of the program answers by killing it,
//! and for more room than the stack of a signal handler has.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::OwnedFd;

use crate::environ;
use crate::telemetry::Bypass;

/// Room for recording on the calling thread's stack, bytes. A handler's whole call took 11,432 of its stack, with the signal's frame
/// and the emulated driver; without recording 6,776.
const ROOM: usize = 24 << 10;

/// Bytes below the stack of a signal handler at which a call can have arrived that has left it: from there on the kernel does
/// not take it for the handler's stack any more.
const BELOW: usize = 8 << 10;

/// Filters under which the process has joined, and which the launcher has tried; 0: none.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Looks at the filters of this process while it joins. Those of the launcher's own session permit what it tried
/// (`RADRM_STACKS_FILTERS`, their number); of others it is not known what they do.
pub(super) fn begin() {
    let mut buffer = [0u8; 32];
    let text = environ::value(b"RADRM_STACKS_FILTERS", &mut buffer).and_then(|text| text.to_str().ok());
    let permitted = text.and_then(|text| text.parse().ok()).unwrap_or(0);
    let own = if is_filtered() { filters().filter(|own| *own <= permitted) } else { None };
    TRIED.store(own.unwrap_or(0), Ordering::Relaxed);
}

/// Reason that no stack may be recorded here and now.
pub(super) fn obstacle() -> Option<Bypass> {
    // The first, since it needs the least that a filter may forbid.
    let is_filtered = is_filtered();
    let tried = TRIED.load(Ordering::Relaxed);
    if is_filtered && tried == 0 {
        return Some(Bypass::SeccompFilter);
    }
    if !has_room() {
        return Some(Bypass::SmallStack);
    }
    // A program without rights gives up new ones before it adds a filter of its own.
    let may_have_more = is_filtered && prctl(libc::PR_GET_NO_NEW_PRIVS) != 0;
    (may_have_more && filters() != Some(tried)).then_some(Bypass::SeccompFilter)
}

/// Returns true if system calls of this thread go through a filter.
fn is_filtered() -> bool {
    prctl(libc::PR_GET_SECCOMP) > 0
}

/// By number, as below: the loader would look for one more name in every program of a job.
fn prctl(option: libc::c_int) -> libc::c_long {
    const NONE: libc::c_ulong = 0;
    // SAFETY: an option that only answers.
    unsafe { libc::syscall(libc::SYS_prctl, libc::c_long::from(option), NONE, NONE, NONE, NONE) }
}

/// Returns true unless this is the stack of a signal handler with less than [`ROOM`] left, or one that was left downwards: a
/// signal's frame alone takes 3.3 KiB with AVX-512, of 4 KiB that some programs have.
fn has_room() -> bool {
    let here = 0u8;
    let at = (&raw const here).addr();
    let mut current = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: changes nothing, and stores into `current`.
    let answer =
        unsafe { libc::syscall(libc::SYS_sigaltstack, core::ptr::null::<libc::stack_t>(), &raw mut current) };
    if answer != 0 || current.ss_flags & libc::SS_DISABLE != 0 {
        return true;
    }
    let lowest = current.ss_sp.addr();
    if current.ss_flags & libc::SS_ONSTACK != 0 {
        return at.saturating_sub(lowest) >= ROOM;
    }
    !(lowest.saturating_sub(BELOW)..lowest).contains(&at)
}

/// Number of filters of this thread. Kernels before 5.9 state only that there are any: 1.
fn filters() -> Option<u64> {
    /// `/proc` states a thread's own.
    const STATUS: &CStr = c"/proc/thread-self/status";
    const NUMBER: &[u8] = b"Seccomp_filters:\t";
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(STATUS, flags, rustix::fs::Mode::empty()).ok()?;
    let mut buffer = [0u8; 512];
    let mut filled = 0;
    loop {
        let got = rustix::io::read(&file, buffer.get_mut(filled..)?).ok()?;
        if got == 0 {
            return Some(1);
        }
        filled += got;
        let mut next = 0;
        while let Some(length) = buffer.get(next..filled)?.iter().position(|byte| *byte == b'\n') {
            let line = buffer.get(next..next + length)?;
            if let Some(number) = line.strip_prefix(NUMBER) {
                return core::str::from_utf8(number).ok()?.parse().ok();
            }
            next += length + 1;
        }
        // A line that fills the buffer is a long one of another name.
        let kept = if next == 0 && filled == buffer.len() { filled } else { next };
        buffer.copy_within(kept..filled, 0);
        filled -= kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_of_this_thread_are_counted() {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let stated = text.lines().find_map(|line| line.strip_prefix("Seccomp_filters:\t"));
        assert_eq!(filters(), Some(stated.map_or(1, |number| number.parse().unwrap())));
    }

    #[test]
    fn a_stack_that_is_no_signal_handlers_has_room() {
        assert!(has_room());
    }
}
