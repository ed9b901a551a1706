//! A child that uses the memory of this process until it executes its program, while this process waits.
//!
//! `fork` copies the page tables, and both processes then copy each page that they write.
//! `posix_spawn` of the C library works as this does, but cannot restore an inherited "ignore" of a signal.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;

use super::child::Program;
use super::inherited::Inherited;

/// Stack of the child, bytes: execvpe keeps a path and a file name there, and a library that stands before it what it likes.
const STACK: usize = 256 << 10;
/// Below it, where nothing may be read or written. As large as the largest page.
const GUARD: usize = 64 << 10;

/// The child's stack.
struct Stack {
    at: *mut c_void,
    bytes: usize,
}

impl Stack {
    /// One with room for so many bytes more than usual.
    fn new(more: usize) -> io::Result<Self> {
        let bytes = (GUARD + STACK + more).next_multiple_of(GUARD);
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { at, bytes };
        // SAFETY: the lowest part of the mapping, which nothing refers to.
        match unsafe { libc::mprotect(at, GUARD, libc::PROT_NONE) } {
            0 => Ok(stack),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where it begins.
    fn top(&self) -> *mut c_void {
        self.at.wrapping_byte_add(self.bytes)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which no process uses any more.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

/// What the child reads in the memory of its parent.
struct Task<'a> {
    program: &'a Program,
    inherited: &'a Inherited,
    errors: RawFd,
}

/// Starts `program` in a new process, and returns once the program runs or the process has ended. Why a program could
/// not be executed goes to `errors`.
///
/// All signals must be blocked, and no handler may be set: a handler would run in the child with this process's memory.
///
/// # Errors
/// The system could make no further process.
pub(crate) fn start(program: &Program, inherited: &Inherited, errors: RawFd) -> io::Result<libc::pid_t> {
    let task = Task { program, inherited, errors };
    // The C library copies the arguments there if it hands a script to the shell.
    let stack = Stack::new(program.pointers() * size_of::<*const u8>())?;
    // SAFETY: the stack and the task outlive the child's use of them, since CLONE_VFORK holds this process until the child
    // has executed its program or ended. The child writes nothing else, see `Program::exec`.
    let pid = unsafe {
        libc::clone(
            execute,
            stack.top(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const task).cast_mut().cast(),
        )
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// The child.
extern "C" fn execute(task: *mut c_void) -> c_int {
    // SAFETY: `start` passes a task that lives until the program is executed.
    let task = unsafe { &*task.cast_const().cast::<Task<'_>>() };
    task.program.exec(task.inherited, task.errors)
}
