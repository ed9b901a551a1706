//! A child that uses the memory of this process until it executes its program, while this process waits.
//!
//! `fork` copies the page tables, and both processes then copy each page that they write.
//! `posix_spawn` of the C library works as this does, but cannot restore an inherited "ignore" of a signal.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;

use super::child::Program;
use super::child_stack::ChildStack;
use super::inherited::Inherited;

/// Stack of the child, bytes: execvpe keeps a path and a file name there, and a library that stands before it what it likes.
const STACK: usize = 256 << 10;

/// Data that the child reads in the memory of its parent.
struct Task<'a> {
    program: &'a Program<'a>,
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
pub(crate) fn start(program: &Program<'_>, inherited: &Inherited, errors: RawFd) -> io::Result<libc::pid_t> {
    let task = Task { program, inherited, errors };
    // The C library copies the arguments there if it hands a script to the shell.
    let stack = ChildStack::new(STACK + program.pointers() * size_of::<*const u8>())?;
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
