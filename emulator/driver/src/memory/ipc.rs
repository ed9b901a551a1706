//! Memory of other processes: handles, file descriptors, and what opening them gives.
//!
//! Memory is charged to the process that took it. Opening it is shown in the opener's ledger and
//! charged to nobody. Contents are not shared: each process sees its own pages.

use core::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{Kind, Mark, ObjectId, SharedKind, SharedObject};

use crate::context::Context;
use crate::ffi::{Answer, In, Out};
use crate::memory::pool::{self, POSIX_FD, Pool};
use crate::memory::space::{Block, Use};
use crate::memory::{State, charge};
use crate::state::{self, Driver};

const MAGIC: &[u8; 8] = b"RADRMIPC";

/// Object, and offset in it, as bytes that go from process to process.
fn write_name(bytes: &mut [u8], id: ObjectId, offset: u64) {
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&id.index.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.generation.to_le_bytes());
    bytes[24..32].copy_from_slice(&offset.to_le_bytes());
}

fn read_name(bytes: &[u8]) -> Option<(ObjectId, u64)> {
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    (bytes.get(..8)? == MAGIC)
        .then_some(())
        .and_then(|()| Some((ObjectId { index: word(8)? as u32, generation: word(16)? }, word(24)?)))
}

/// Makes a file that names an object.
pub(super) fn file_of(id: ObjectId) -> Answer<OwnedFd> {
    // SAFETY: a constant name.
    let fd = unsafe { libc::memfd_create(c"radrm-emulated-handle".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    // SAFETY: opened just now, and nobody else has it.
    let file = unsafe { File::from_raw_fd(fd) };
    let mut bytes = [0; 32];
    write_name(&mut bytes, id, 0);
    file.write_all_at(&bytes, 0).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(file.into())
}

/// Reads a file of [`file_of`]; the descriptor stays the caller's.
pub(super) fn read_file(fd: c_int) -> Answer<ObjectId> {
    let mut bytes = [0u8; 32];
    // SAFETY: reads at most as many bytes as there are; a bad descriptor is an error.
    let read = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast::<c_void>(), bytes.len(), 0) };
    if read != bytes.len() as isize {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    read_name(&bytes).map(|(id, _)| id).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Ordinal of a GPU of the machine.
pub(super) fn device_of(driver: &Driver, gpu: usize) -> Answer<CUdevice> {
    driver.devices.iter().find(|d| d.gpu == gpu).map(|d| d.ordinal).ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// Makes another process's memory a block of this one, or counts another opening.
fn open(
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
fn offer(driver: &Driver, block: &mut Block, kind: SharedKind, extra: u64) -> Answer<ObjectId> {
    if let Some(id) = block.offered {
        return Ok(id);
    }
    let object = SharedObject { kind, gpu: block.gpu, size: block.size, address: block.base, extra, pid: 0 };
    driver.process.mark(Mark::Ipc);
    let id = driver.process.offer(object).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    block.offered = Some(id);
    Ok(id)
}

entry_points! {
    /// Names plain device memory for other processes.
    fn cuIpcGetMemHandle(out: Out<CUipcMemHandle>, address: CUdeviceptr) |driver| {
        out.required()?;
        driver.current()?;
        let mut state = driver.memory.lock();
        let block = state.blocks.find_mut(address).filter(|b| b.kind == Use::Device);
        let id = offer(driver, block.ok_or(CUDA_ERROR_INVALID_VALUE)?, SharedKind::Memory, 0)?;
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        write_name(&mut handle.reserved, id, 0);
        out.set(handle)
    }

    /// Opens memory of another process.
    fn cuIpcOpenMemHandle_v2(out: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: c_uint) |driver| {
        out.required()?;
        let context = driver.current()?;
        if flags != 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (id, _) = read_name(&handle.reserved).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let object = driver.machine.object(id).filter(|o| o.kind == SharedKind::Memory);
        let object = object.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if object.pid == std::process::id() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        out.set(open(driver, &mut driver.memory.lock(), &context, id, object)?)
    }

    /// Closes memory of another process: once for every time that it was opened.
    fn cuIpcCloseMemHandle(address: CUdeviceptr) |driver| {
        driver.current()?;
        let mut state = driver.memory.lock();
        let state = &mut *state;
        let block = state.blocks.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let Use::Imported(id) = block.kind else { return Err(CUDA_ERROR_INVALID_VALUE) };
        block.count -= 1;
        if block.count == 0 && let Some(block) = state.blocks.remove(address) {
            state.opened.remove(&id);
            super::free_block(driver, state, &block);
        }
        Ok(())
    }

    /// Makes a file descriptor that stands for a pool.
    fn cuMemPoolExportToShareableHandle(out: Out<c_int>, pool: CUmemoryPool, kind: c_uint, flags: u64) |driver| {
        out.required()?;
        if kind != POSIX_FD || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = driver.memory.lock();
        let handle = pool.addr();
        let pool = pool::find(&mut state, pool)?;
        if pool.handle_types() & POSIX_FD == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = match pool.offered {
            Some(id) => id,
            None => driver.process.offer(SharedObject {
                kind: SharedKind::Pool, gpu: pool.gpu(), size: 0, address: handle, extra: 0, pid: 0,
            }).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
        };
        pool.offered = Some(id);
        out.set(file_of(id)?.into_raw_fd())
    }

    /// Opens a pool of another process. Nothing can be allocated from it.
    fn cuMemPoolImportFromShareableHandle(out: Out<CUmemoryPool>, file: *mut c_void, kind: c_uint, flags: u64) |driver| {
        out.required()?;
        if kind != POSIX_FD || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = read_file(file as usize as c_int)?;
        let object = driver.machine.object(id).filter(|o| o.kind == SharedKind::Pool);
        let object = object.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        driver.process.mark(Mark::Imported);
        let mut pool = Pool::new(device_of(driver, object.gpu)?, object.gpu, 0, 0);
        pool.imported = Some(id);
        let handle = state::new_handle();
        driver.memory.lock().pools.insert(handle, pool);
        out.set(CUmemoryPool(handle as *mut c_void))
    }

    /// Names an allocation of an exported pool for other processes.
    fn cuMemPoolExportPointer(out: Out<CUmemPoolPtrExportData>, address: CUdeviceptr) |driver| {
        out.required()?;
        let mut state = driver.memory.lock();
        let state = &mut *state;
        let block = state.blocks.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let Use::Pool(handle) = block.kind else { return Err(CUDA_ERROR_INVALID_VALUE) };
        let pool = state.pools.get(&handle).and_then(|p| p.offered).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let id = offer(driver, block, SharedKind::PoolPointer, u64::from(pool.index))?;
        let mut data = CUmemPoolPtrExportData { reserved: [0; 64] };
        write_name(&mut data.reserved, id, 0);
        out.set(data)
    }

    /// Opens an allocation of another process's pool.
    fn cuMemPoolImportPointer(out: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<CUmemPoolPtrExportData>) |driver| {
        out.required()?;
        let context = driver.current()?;
        let (id, _) = read_name(&data.get()?.reserved).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let object = driver.machine.object(id).filter(|o| o.kind == SharedKind::PoolPointer);
        let object = object.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut state = driver.memory.lock();
        let from = pool::find(&mut state, pool)?.imported.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if u64::from(from.index) != object.extra {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(open(driver, &mut state, &context, id, object)?)
    }

    /// Memory as a dma-buf: not modelled, and the device's attributes say so.
    fn cuMemGetHandleForAddressRange(
        out: Out<c_int>, address: CUdeviceptr, size: usize, kind: c_uint, flags: u64,
    ) |driver| {
        let _ = (out, address, size, kind, flags);
        driver.current()?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}
