//! Stream-ordered memory calls that become nodes of a graph where their stream captures.

use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::graph::memory;
use crate::engine::graph::node::NodeKind;
use crate::models::copy::{CopyNode, SetNode};
use crate::util::ffi::Answer;

/// A stream-ordered memory call as a capture sees it.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// `cuMemAllocAsync` and its kin.
    Alloc {
        /// Device of the pool.
        device: CUdevice,
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// `cuMemFreeAsync`.
    Free {
        /// Address.
        address: CUdeviceptr,
    },
    /// Any copy: one row has `width` bytes.
    Copy {
        /// First byte written.
        target: CUdeviceptr,
        /// Distance of the rows written, in bytes.
        target_pitch: u64,
        /// First byte read.
        source: CUdeviceptr,
        /// Distance of the rows read, in bytes.
        source_pitch: u64,
        /// Bytes of a row.
        width: u64,
        /// Rows, over all planes.
        rows: u64,
    },
    /// Any memset.
    Set {
        /// First byte written.
        target: CUdeviceptr,
        /// Distance of rows in bytes.
        pitch: u64,
        /// Value of an element.
        value: u32,
        /// Bytes of an element: 1, 2 or 4.
        element: u32,
        /// Elements of a row.
        width: u64,
        /// Rows.
        rows: u64,
    },
}

/// Outcome of offering an operation to a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded {
    /// The stream is not capturing: go on.
    No,
    /// It is a node of the graph now.
    Yes,
    /// It is an allocation node; the memory will be here.
    At(CUdeviceptr),
}

/// Offers a stream-ordered memory call to the capture that its stream may be part of.
///
/// # Errors
/// CUDA_ERROR_STREAM_CAPTURE_INVALIDATED and the like.
pub fn offer(
    driver: &'static Driver,
    _context: &Arc<Context>,
    stream: CUstream,
    operation: Operation,
) -> Answer<Recorded> {
    let mut state = driver.sched();
    let key = state.find(driver, stream)?;
    let Some(capture) = state.admit(key)? else { return Ok(Recorded::No) };
    let handle = state.stream(key)?.context;
    let context = state.context(driver, handle)?;
    let (kind, outcome) = match operation {
        Operation::Alloc { device, bytes } => {
            let address = memory::reserve(&mut state, driver, device, bytes)?;
            (NodeKind::alloc(device, bytes, address), Recorded::At(address))
        }
        Operation::Free { address } => (NodeKind::Free { address }, Recorded::Yes),
        Operation::Copy { target, target_pitch, source, source_pitch, width, rows } => {
            let copy = CopyNode::linear(target, target_pitch, source, source_pitch, width, rows);
            (NodeKind::Copy { copy, context: context.handle.addr() }, Recorded::Yes)
        }
        Operation::Set { target, pitch, value, element, width, rows } => {
            let set = SetNode {
                dst: target,
                pitch: pitch as usize,
                value,
                elementSize: element,
                width: width as usize,
                height: rows as usize,
            };
            (NodeKind::Set { set, context: context.handle.addr() }, Recorded::Yes)
        }
    };
    state.record(capture, key, kind)?;
    Ok(outcome)
}
