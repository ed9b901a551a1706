//! Entry points of values that streams wait for and write: `cuStreamWaitValue`, `cuStreamWriteValue` and batches.

use std::ffi::c_uint;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::NodeKind;
use crate::engine::stream::op::{Op, not_in_callback};
use crate::models::memop::{Action, MemoryOp, compare, parse};
use crate::util::ffi::{Answer, In};

fn submit(driver: &'static Driver, stream: CUstream, ops: &[MemoryOp]) -> Answer {
    not_in_callback()?;
    if ops.iter().any(|op| op.action != Action::Nothing && op.address == 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    if let Some(capture) = state.admit(key)? {
        let context = state.stream(key)?.context;
        return state
            .record(capture, key, NodeKind::MemoryOps { context, ops: ops.to_vec(), raw: None })
            .map(drop);
    }
    for op in ops {
        state.enqueue(driver, key, Op::Memory(*op));
    }
    Ok(())
}

fn batch(driver: &'static Driver, stream: CUstream, count: c_uint, ops: In<[u64; 6]>) -> Answer {
    const MAX_OPERATIONS: c_uint = 256;
    if count > MAX_OPERATIONS {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let ops: Vec<MemoryOp> = ops.list(count as usize)?.iter().map(parse).collect::<Answer<_>>()?;
    submit(driver, stream, &ops)
}

/// Writes the entry points of one value: which call, the type of the value, and the action that the flags say.
macro_rules! values {
    ($($(#[$meta:meta])* fn $name:ident($ty:ty): $action:path;)*) => { entry_points! { $(
        $(#[$meta])*
        fn $name(stream: CUstream, address: CUdeviceptr, value: $ty, flags: c_uint) |driver| {
            let (value, wide) = (value.into(), size_of::<$ty>() == 8);
            submit(driver, stream, &[MemoryOp { address, value, wide, action: $action(flags)? }])
        }
    )* } };
}

fn wait(flags: c_uint) -> Answer<Action> {
    compare(flags).map(Action::Wait)
}

/// The flag leaves a memory barrier out, which nothing here can see.
fn put(flags: c_uint) -> Answer<Action> {
    if flags > 1 { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(Action::Write) }
}

values! {
    /// Waits for a 32-bit value.
    fn cuStreamWaitValue32(u32): wait;
    /// Waits for a 32-bit value.
    fn cuStreamWaitValue32_v2(u32): wait;
    /// Waits for a 64-bit value.
    fn cuStreamWaitValue64(u64): wait;
    /// Waits for a 64-bit value.
    fn cuStreamWaitValue64_v2(u64): wait;
    /// Writes a 32-bit value.
    fn cuStreamWriteValue32(u32): put;
    /// Writes a 32-bit value.
    fn cuStreamWriteValue32_v2(u32): put;
    /// Writes a 64-bit value.
    fn cuStreamWriteValue64(u64): put;
    /// Writes a 64-bit value.
    fn cuStreamWriteValue64_v2(u64): put;
}

entry_points! {
    /// Several operations in order.
    fn cuStreamBatchMemOp(stream: CUstream, count: c_uint, ops: In<[u64; 6]>, _flags: c_uint) |driver| {
        batch(driver, stream, count, ops)
    }

    /// Several operations in order.
    fn cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, ops: In<[u64; 6]>, _flags: c_uint) |driver| {
        batch(driver, stream, count, ops)
    }
}
