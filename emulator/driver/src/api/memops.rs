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

fn wait(
    driver: &'static Driver,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    wide: bool,
    flags: c_uint,
) -> Answer {
    submit(driver, stream, &[MemoryOp { address, value, wide, action: Action::Wait(compare(flags)?) }])
}

fn put(
    driver: &'static Driver,
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

fn batch(driver: &'static Driver, stream: CUstream, count: c_uint, ops: In<[u64; 6]>) -> Answer {
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
