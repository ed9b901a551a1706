//! The environment with which the process was started.
//!
//! The kernel puts its strings above those of the arguments, at the top of the first thread's stack. They stay there when
//! the program empties or moves its environment: libc's functions change pointers only. Finding them takes no descriptor
//! and no `/proc`, so it works in a chroot and under a seccomp filter too.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::resolve;

/// Arguments, or pages of strings, that are accepted.
const MAX_ENTRIES: usize = 1 << 24;
/// Bytes of zeros that the kernel leaves at the very top of a stack.
const TOP: usize = 8;

/// The value of a variable in the initial environment.
pub(super) fn value(name: &[u8]) -> Option<&'static [u8]> {
    strings().split(|byte| *byte == 0).find_map(|entry| super::value_of(entry, name))
}

/// The strings, each with a zero behind it; empty where they cannot be found.
pub(super) fn strings() -> &'static [u8] {
    /// End address of the strings; 0: not known yet, 1: nowhere.
    static END: AtomicUsize = AtomicUsize::new(0);
    static START: AtomicUsize = AtomicUsize::new(0);
    // Acquire pairs with the Release below.
    let mut end = END.load(Ordering::Acquire);
    if end == 0 {
        let found = find();
        START.store(found.map_or(1, |(start, _)| start), Ordering::Relaxed);
        end = found.map_or(1, |(_, end)| end);
        // Release: a thread that sees the end sees the start. Two threads that get here at once find the same.
        END.store(end, Ordering::Release);
    }
    let start = START.load(Ordering::Relaxed);
    // SAFETY: this part of the first thread's stack stays mapped until the process ends. The program may write there
    // (a title): then what is read is some bytes, of which only a whole entry counts.
    unsafe { core::slice::from_raw_parts(start as *const u8, end.wrapping_sub(start)) }
}

/// First and last address of the strings.
fn find() -> Option<(usize, usize)> {
    // The dynamic linker notes where the kernel has put the number of arguments. Above it lie the pointers to the
    // arguments, a null, the pointers to the environment, the auxiliary vector, and at last the strings.
    // SAFETY: a variable of the dynamic linker, which is never unloaded.
    let stack = unsafe { *resolve::variable(c"__libc_stack_end")?.cast::<*const usize>() };
    // SAFETY: the linker has it from the kernel.
    let count = unsafe { stack.as_ref() }.copied().filter(|count| *count < MAX_ENTRIES)?;
    let arguments = stack.wrapping_add(1);
    // SAFETY: so many pointers stand there, and a null behind them.
    let arguments = unsafe { core::slice::from_raw_parts(arguments, count + 1) };
    if arguments.last() != Some(&0) {
        return None;
    }
    let pointers = arguments.as_ptr_range().end.addr();
    // SAFETY: without precondition.
    let stated = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    // The name of the program's file stands behind the strings. A dynamic linker that was started as a program makes
    // it the name among the arguments.
    let lowest = arguments.iter().copied().filter(|at| *at > pointers).min().unwrap_or(pointers);
    let end = if stated > lowest { stated } else { top(lowest) };
    // Arguments may look like entries, so they are left out. A program may have pointed them elsewhere.
    let last = arguments.iter().copied().filter(|at| (pointers..end).contains(at)).max();
    let start = last.map_or(pointers, |at| {
        // SAFETY: between the pointers and the end of the strings all is mapped.
        let rest = unsafe { core::slice::from_raw_parts(at as *const u8, end - at) };
        at + rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())
    });
    Some((start, end))
}

/// The top of a stack, from an address in it: the kernel leaves zeros there, and others map nothing above it.
#[cold]
fn top(inside: usize) -> usize {
    // SAFETY: without precondition.
    let page = (unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize).max(TOP);
    let mut at = inside.next_multiple_of(page);
    for _ in 0..MAX_ENTRIES {
        // SAFETY: the end of a mapped page.
        let below = unsafe { *(at.wrapping_sub(TOP) as *const [u8; TOP]) };
        if below == [0; TOP] || !is_mapped(at, page) {
            break;
        }
        at = at.wrapping_add(page);
    }
    at
}

/// Returns true if a page is mapped: to write it back does nothing where no file is behind it.
fn is_mapped(page: usize, bytes: usize) -> bool {
    // SAFETY: changes nothing, and the kernel checks the address.
    unsafe { rustix::mm::msync(page as *mut core::ffi::c_void, bytes, rustix::mm::MsyncFlags::ASYNC) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strings_are_those_that_the_kernel_shows() {
        // A test program that changed its environment would still have them.
        let shown = std::fs::read("/proc/self/environ").unwrap();
        let entries = |strings: &[u8]| -> Vec<Vec<u8>> {
            strings.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).map(<[u8]>::to_vec).collect()
        };
        assert!(!shown.is_empty());
        assert_eq!(entries(strings()), entries(&shown));
    }

    #[test]
    fn the_top_of_the_stack_is_found_without_the_name_of_the_program() {
        let (start, end) = find().unwrap();
        // SAFETY: without precondition.
        let page = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
        assert_eq!(top(start), end.next_multiple_of(page));
    }
}
