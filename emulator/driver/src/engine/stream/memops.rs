//! Values that streams wait for and write: `cuStreamWaitValue`, `cuStreamWriteValue` and batches.
//!
//! Memory is read and written through the kernel (`process_vm_readv`), so that memory without pages
//! behind it, as device memory normally has none here, is no danger. For such memory the last value
//! that a stream wrote counts; where none was written the wait is over at once, because only a kernel
//! could have written it, and kernels do not run.

use std::ffi::c_void;

use radrm_cuda_abi::*;

use crate::engine::stream::state::Sched;
use crate::models::memop::{Action, MemoryOp, Reduction, compares};

fn vector(place: *mut c_void, length: usize) -> libc::iovec {
    libc::iovec { iov_base: place, iov_len: length }
}

fn read_word(address: CUdeviceptr, wide: bool) -> Option<u64> {
    let length = if wide { 8 } else { 4 };
    let mut word = 0_u64;
    let here = vector((&raw mut word).cast(), length);
    let there = vector(address as usize as *mut c_void, length);
    // SAFETY: `here` is a word on this stack; the other side is checked by the kernel.
    let done = unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) };
    (usize::try_from(done) == Ok(length)).then_some(word)
}

fn write_word(address: CUdeviceptr, wide: bool, mut word: u64) -> bool {
    let length = if wide { 8 } else { 4 };
    let here = vector((&raw mut word).cast(), length);
    let there = vector(address as usize as *mut c_void, length);
    // SAFETY: as in `read_word`.
    let done = unsafe { libc::process_vm_writev(libc::getpid(), &here, 1, &there, 1, 0) };
    usize::try_from(done) == Ok(length)
}

/// Returns true if an operation can be done now.
pub fn is_met(sched: &Sched, op: &MemoryOp) -> bool {
    let Action::Wait(how) = op.action else { return true };
    let word = read_word(op.address, op.wide).or_else(|| sched.written.get(&op.address).copied());
    word.is_none_or(|word| compares(op, how, word))
}

/// Does what an operation writes.
pub fn write(sched: &mut Sched, op: &MemoryOp) {
    let old =
        || read_word(op.address, op.wide).or_else(|| sched.written.get(&op.address).copied()).unwrap_or(0);
    let new = match op.action {
        Action::Write => op.value,
        Action::Reduce(Reduction::Or) => old() | op.value,
        Action::Reduce(Reduction::And) => old() & op.value,
        Action::Reduce(Reduction::Add) => old().wrapping_add(op.value),
        Action::Wait(_) | Action::Nothing => return,
    };
    if !write_word(op.address, op.wide, new) {
        sched.written.insert(op.address, if op.wide { new } else { new & u64::from(u32::MAX) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_only_where_there_is_memory() {
        let mut word = 7_u64;
        let address = (&raw mut word) as usize as u64;
        assert_eq!(read_word(address, true), Some(7));
        assert!(write_word(address, false, 9));
        assert_eq!(read_word(address, true), Some(9));
        assert_eq!(read_word(8, true), None);
        assert!(!write_word(8, true, 1));
    }
}
