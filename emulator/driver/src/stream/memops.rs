//! Values that streams wait for and write: `cuStreamWaitValue`, `cuStreamWriteValue` and batches.
//!
//! Memory is read and written through the kernel (`process_vm_readv`), so that memory without pages
//! behind it, as device memory normally has none here, is no danger. For such memory the last value
//! that a stream wrote counts; where none was written the wait is over at once, because only a kernel
//! could have written it, and kernels do not run.

use std::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use super::queue::{Op, not_in_callback};
use super::sched::{Sched, sched};
use crate::ffi::{Answer, In};
use crate::graph::NodeKind;
use crate::state::Driver;

/// One operation on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOp {
    /// Place.
    pub address: CUdeviceptr,
    /// Value that is waited for, written or combined.
    pub value: u64,
    /// 8 bytes, not 4.
    pub wide: bool,
    /// What is done.
    pub action: Action,
}

/// What a [`MemoryOp`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Waits until the word compares so.
    Wait(Compare),
    /// Writes the value.
    Write,
    /// Combines word and value.
    Reduce(Reduction),
    /// Barriers and flushes: nothing to do.
    Nothing,
}

/// Comparison of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `(signed)(word - value) >= 0`.
    AtLeast,
    /// `word == value`.
    Equal,
    /// `word & value != 0`.
    AnyBit,
    /// `!(word | value) != 0`.
    AnyClear,
}

/// Reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Bitwise or.
    Or,
    /// Bitwise and.
    And,
    /// Addition that wraps.
    Add,
}

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

fn compares(op: &MemoryOp, how: Compare, word: u64) -> bool {
    let difference = if op.wide {
        word.wrapping_sub(op.value) as i64
    } else {
        i64::from((word as u32).wrapping_sub(op.value as u32) as i32)
    };
    let mask = if op.wide { u64::MAX } else { u64::from(u32::MAX) };
    match how {
        Compare::AtLeast => difference >= 0,
        Compare::Equal => difference == 0,
        Compare::AnyBit => word & op.value & mask != 0,
        Compare::AnyClear => !(word | op.value) & mask != 0,
    }
}

/// Whether an operation can be done now.
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

/// Reads one element of a batch, 48 bytes as C lays them out.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn parse(raw: &[u64; 6]) -> Answer<MemoryOp> {
    let flags = |at: usize| raw[at] as u32;
    let kind = raw[0] as u32;
    let plain = |wide, action| MemoryOp { address: raw[1], value: raw[2], wide, action };
    Ok(match kind {
        1 | 4 => plain(kind == 4, Action::Wait(compare(flags(3))?)),
        2 | 5 => plain(kind == 5, Action::Write),
        3 | 6 => plain(false, Action::Nothing),
        8 => {
            // operation, flags | reduction, data type | address | value
            let reduction = match raw[1] as u32 {
                5 => Reduction::And,
                6 => Reduction::Or,
                0 => Reduction::Add,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            };
            const SCALAR_64: u32 = 1 << 4;
            let wide = (raw[1] >> 32) as u32 & SCALAR_64 != 0;
            MemoryOp { address: raw[2], value: raw[3], wide, action: Action::Reduce(reduction) }
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

fn compare(flags: u32) -> Answer<Compare> {
    const FLUSH: u32 = 1 << 30;
    Ok(match flags & !FLUSH {
        0 => Compare::AtLeast,
        1 => Compare::Equal,
        2 => Compare::AnyBit,
        3 => Compare::AnyClear,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

fn submit(driver: &Driver, stream: CUstream, ops: &[MemoryOp]) -> Answer {
    not_in_callback()?;
    if ops.iter().any(|op| op.action != Action::Nothing && op.address == 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = sched();
    let key = state.find(driver, stream)?;
    if let Some(capture) = state.admit(key)? {
        let context = state.stream(key)?.context;
        return state
            .record(capture, key, NodeKind::MemoryOps { context, ops: ops.to_vec(), raw: None })
            .map(drop);
    }
    for op in ops {
        state.enqueue(key, Op::Memory(*op));
    }
    Ok(())
}

fn wait(
    driver: &Driver,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    wide: bool,
    flags: c_uint,
) -> Answer {
    submit(driver, stream, &[MemoryOp { address, value, wide, action: Action::Wait(compare(flags)?) }])
}

fn put(
    driver: &Driver,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    wide: bool,
    flags: c_uint,
) -> Answer {
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    submit(driver, stream, &[MemoryOp { address, value, wide, action: Action::Write }])
}

fn batch(driver: &Driver, stream: CUstream, count: c_uint, ops: In<[u64; 6]>) -> Answer {
    const MOST: c_uint = 256;
    if count > MOST {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let ops: Vec<MemoryOp> = ops.list(count as usize)?.iter().map(parse).collect::<Answer<_>>()?;
    submit(driver, stream, &ops)
}

entry_points! {
    /// Waits for a 32-bit value.
    fn cuStreamWaitValue32(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |driver| {
        wait(driver, stream, address, value.into(), false, flags)
    }

    /// Waits for a 32-bit value.
    fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |driver| {
        wait(driver, stream, address, value.into(), false, flags)
    }

    /// Waits for a 64-bit value.
    fn cuStreamWaitValue64(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |driver| {
        wait(driver, stream, address, value, true, flags)
    }

    /// Waits for a 64-bit value.
    fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |driver| {
        wait(driver, stream, address, value, true, flags)
    }

    /// Writes a 32-bit value.
    fn cuStreamWriteValue32(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |driver| {
        put(driver, stream, address, value.into(), false, flags)
    }

    /// Writes a 32-bit value.
    fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |driver| {
        put(driver, stream, address, value.into(), false, flags)
    }

    /// Writes a 64-bit value.
    fn cuStreamWriteValue64(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |driver| {
        put(driver, stream, address, value, true, flags)
    }

    /// Writes a 64-bit value.
    fn cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |driver| {
        put(driver, stream, address, value, true, flags)
    }

    /// Several operations in order.
    fn cuStreamBatchMemOp(stream: CUstream, count: c_uint, ops: In<[u64; 6]>, _flags: c_uint) |driver| {
        batch(driver, stream, count, ops)
    }

    /// Several operations in order.
    fn cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, ops: In<[u64; 6]>, _flags: c_uint) |driver| {
        batch(driver, stream, count, ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(value: u64, wide: bool, action: Action) -> MemoryOp {
        MemoryOp { address: 0, value, wide, action }
    }

    #[test]
    fn comparisons_are_those_of_the_interface() {
        let narrow = op(0xffff_ffff, false, Action::Nothing);
        assert!(compares(&narrow, Compare::AtLeast, 0), "the comparison is cyclic");
        assert!(!compares(&narrow, Compare::AtLeast, 0xffff_fffe));
        assert!(compares(&op(6, true, Action::Nothing), Compare::AnyBit, 2));
        assert!(!compares(&narrow, Compare::AnyClear, 0), "only 32 bits count");
        assert!(compares(&op(5, true, Action::Nothing), Compare::Equal, 5));
    }

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

    #[test]
    fn batch_elements_are_read_as_c_lays_them_out() {
        let wait = parse(&[4, 0x1000, 17, 1, 0, 0]);
        assert_eq!(
            wait,
            Ok(MemoryOp { address: 0x1000, value: 17, wide: true, action: Action::Wait(Compare::Equal) })
        );
        let add = parse(&[8, (1 << 4) << 32, 0x2000, 3, 0, 0]);
        assert_eq!(
            add,
            Ok(MemoryOp { address: 0x2000, value: 3, wide: true, action: Action::Reduce(Reduction::Add) })
        );
        assert!(parse(&[99, 0, 0, 0, 0, 0]).is_err());
    }
}
