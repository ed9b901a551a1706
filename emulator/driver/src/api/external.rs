//! Memory of other interfaces (Vulkan and the like), as far as files stand for it.

use core::ffi::{c_int, c_uint, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_machine::Kind;

use crate::engine::memory::charge::charge;
use crate::engine::memory::objects::External;
use crate::engine::memory::space::{Block, Use};
use crate::util::ffi::{In, Out};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: c_uint = 1;

entry_points! {
    /// Takes over a file that stands for memory.
    fn cuImportExternalMemory(out: Out<CUexternalMemory>, desc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) |driver| {
        out.required()?;
        let desc = desc.get()?;
        driver.current()?;
        if desc.kind != OPAQUE_FD {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let fd = desc.handle[0] as u32 as c_int;
        // SAFETY: only asks; a bad descriptor is an error.
        if desc.size == 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a successful import takes the descriptor over, and nothing is needed of it here.
        unsafe { libc::close(fd) };
        let handle = driver.handles.next();
        driver.memory.lock().external.insert(handle, External { size: desc.size });
        out.set(CUexternalMemory(handle as *mut c_void))
    }

    /// An address for a part of external memory; freed by `cuMemFree`.
    fn cuExternalMemoryGetMappedBuffer(
        out: Out<CUdeviceptr>, memory: CUexternalMemory, desc: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>,
    ) |driver| {
        out.required()?;
        let desc = desc.get()?;
        let context = driver.current()?;
        let mut state = driver.memory.lock();
        let whole = state.external.get(&memory.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)?.size;
        if desc.size == 0 || desc.offset.checked_add(desc.size).is_none_or(|end| end > whole) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let base = state.space.take(desc.size, 0)?;
        charge(driver, context.gpu, Kind::Imported, desc.size, 0)?;
        let kind = Use::External(memory.addr());
        state.blocks.insert(Block::new(base, desc.size, kind, Some(&context), context.device, context.gpu));
        out.set(base)
    }

    /// Ends external memory; its addresses are freed on their own.
    fn cuDestroyExternalMemory(memory: CUexternalMemory) |driver| {
        let found = driver.memory.lock().external.remove(&memory.addr());
        found.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
