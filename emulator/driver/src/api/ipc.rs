//! Entry points of memory of other processes.

use core::ffi::{c_int, c_uint, c_void};
use std::os::fd::IntoRawFd;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{Mark, SharedKind, SharedObject};

use crate::engine::memory::free;
use crate::engine::memory::ipc::{device_of, file_of, offer, open, read_file, read_name, write_name};
use crate::engine::memory::objects::Pool;
use crate::engine::memory::pool::{self, POSIX_FD};
use crate::engine::memory::space::Use;
use crate::util::ffi::{In, Out};

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
            free::free_block(driver, state, &block);
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
        let handle = driver.handles.next();
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
