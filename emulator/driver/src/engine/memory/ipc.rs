//! Memory of other processes: handles, file descriptors, and what opening them gives.
//!
//! Memory is charged to the process that took it. Opening it is shown in the opener's ledger and
//! charged to no process a second time. Contents are shared where memory is backed and stands behind a file
//! descriptor (`pages`); otherwise each process sees its own pages.

use core::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{Kind, Mark, ObjectId, SharedKind, SharedObject};

use crate::engine::context::Context;
use crate::engine::driver::Driver;
use crate::engine::memory::charge::charge;
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::state::State;
use crate::util::ffi::Answer;

const MAGIC: &[u8; 8] = b"RADRMIPC";
/// Bytes of a name in a file.
pub(crate) const NAME: usize = 48;

/// Object, and offset in it, as bytes that go from process to process.
pub(crate) fn write_name(bytes: &mut [u8], id: ObjectId, offset: u64) {
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&id.index.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.generation.to_le_bytes());
    bytes[24..32].copy_from_slice(&offset.to_le_bytes());
}

pub(crate) fn read_name(bytes: &[u8]) -> Option<(ObjectId, u64)> {
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    (bytes.get(..8)? == MAGIC)
        .then_some(())
        .and_then(|()| Some((ObjectId { index: word(8)? as u32, generation: word(16)? }, word(24)?)))
}

/// A file in memory for a handle.
pub(crate) fn memory_file() -> Answer<File> {
    // SAFETY: a constant name.
    let fd = unsafe { libc::memfd_create(c"radrm-emulated-handle".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    // SAFETY: opened just now, and held here only.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Makes a file that names an object.
pub(crate) fn file_of(id: ObjectId) -> Answer<OwnedFd> {
    let file = memory_file()?;
    let mut bytes = [0; NAME];
    write_name(&mut bytes, id, 0);
    file.write_all_at(&bytes, 0).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(file.into())
}

/// Reads the name at the end of a file; the descriptor stays the caller's.
pub(crate) fn read_file(fd: c_int) -> Answer<ObjectId> {
    let bytes = end_of(fd)?;
    read_name(&bytes).map(|(id, _)| id).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The end of a file, where an object is named.
pub(crate) fn end_of(fd: c_int) -> Answer<[u8; NAME]> {
    let mut bytes = [0u8; NAME];
    // SAFETY: all zeros is a valid stat, which lives for the call; a bad descriptor is an error.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let at = stat.st_size.saturating_sub(NAME as i64).max(0);
    // SAFETY: reads at most as many bytes as there are; a bad descriptor is an error.
    let read = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast::<c_void>(), bytes.len(), at) };
    if read == bytes.len() as isize { Ok(bytes) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Ordinal of a GPU of the machine.
pub(crate) fn device_of(driver: &Driver, gpu: usize) -> Answer<CUdevice> {
    driver.devices.iter().find(|d| d.gpu == gpu).map(|d| d.ordinal).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// Makes another process's memory a block of this one, or counts another opening.
pub(crate) fn open(
    driver: &Driver,
    state: &mut State,
    context: &Arc<Context>,
    id: ObjectId,
    object: SharedObject,
) -> Answer<u64> {
    if let Some(base) = state.opened.get(&id).copied()
        && let Some(block) = state.blocks.at(base)
    {
        block.count += 1;
        return Ok(base);
    }
    driver.process.mark(Mark::Ipc);
    let device = device_of(driver, object.gpu)?;
    let base = state.space.take(object.size, 0)?;
    charge(driver, object.gpu, Kind::Imported, object.size, 0)?;
    let mut block = Block::new(base, object.size, Use::Imported(id), Some(context), device, object.gpu);
    block.count = 1;
    state.blocks.insert(block);
    state.opened.insert(id, base);
    Ok(base)
}

/// Offers a block to other processes, once.
pub(crate) fn offer(driver: &Driver, block: &mut Block, kind: SharedKind, extra: u64) -> Answer<ObjectId> {
    if let Some(id) = block.offered {
        return Ok(id);
    }
    let object = SharedObject { kind, gpu: block.gpu, size: block.size, address: block.base, extra, pid: 0 };
    driver.process.mark(Mark::Ipc);
    let id = driver.process.offer(object).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    block.offered = Some(id);
    Ok(id)
}
