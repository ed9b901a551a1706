//! Pages of physical memory that several processes map: a file in memory, where memory is backed.
//!
//! Processes then see each other's writes, as on a GPU.
//! A descriptor of physical memory also describes the memory, behind the pages: it stands for the memory when its
//! exporter has released it, or has ended.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{ObjectId, SharedKind, SharedObject};

use crate::engine::driver::Driver;
use crate::engine::memory::ipc;
use crate::engine::memory::objects::Physical;
use crate::util::ffi::Answer;

/// Pages for so many bytes.
pub(crate) fn of(size: u64) -> Answer<OwnedFd> {
    let file = ipc::memory_file()?;
    file.set_len(size).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    Ok(file.into())
}

/// A descriptor of physical memory: its pages, if there are any, and what it is.
pub(crate) fn exported(physical: &Physical, id: ObjectId) -> Answer<OwnedFd> {
    let no_memory = |_| CUDA_ERROR_OUT_OF_MEMORY;
    let (file, at) = match &physical.pages {
        Some(pages) => (File::from(pages.try_clone().map_err(no_memory)?), physical.size),
        None => (ipc::memory_file()?, 0),
    };
    let mut bytes = [0; ipc::NAME];
    ipc::write_name(&mut bytes, id, 0);
    bytes[32..40].copy_from_slice(&physical.size.to_le_bytes());
    bytes[40..44].copy_from_slice(&(physical.gpu as u32).to_le_bytes());
    bytes[44] = u8::from(physical.host);
    file.write_all_at(&bytes, at).map_err(no_memory)?;
    Ok(file.into())
}

/// Object that a descriptor of [`exported`] stands for.
/// Its owner is none if the memory is not there any more in the process that made it.
pub(crate) fn read(driver: &Driver, fd: i32) -> Answer<SharedObject> {
    let bytes = ipc::end_of(fd)?;
    let (id, _) = ipc::read_name(&bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if let Some(object) = driver.machine.object(id) {
        return Ok(object);
    }
    let [size, rest] = [32, 40].map(|at| {
        let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        u64::from_le_bytes(word.unwrap_or_default())
    });
    // A pool's name says no size: a pool ends with its owner.
    if size == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (gpu, host) = (rest as u32 as usize, rest >> 32);
    Ok(SharedObject { kind: SharedKind::Physical, gpu, size, address: 0, extra: host, pid: 0 })
}

/// The pages behind a descriptor of [`exported`]; none if its exporter's memory is not backed. The descriptor stays
/// the caller's.
pub(crate) fn behind(fd: i32, size: u64) -> Option<OwnedFd> {
    // SAFETY: the program vouches for its descriptor during the call; a closed one fails to be copied.
    let pages = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().ok()?;
    let file = File::from(pages);
    (file.metadata().ok()?.len() > size).then(|| file.into())
}

/// Puts pages to a reserved range.
pub(crate) fn map(pages: &OwnedFd, base: u64, size: u64, offset: u64) -> Answer {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    replace(base, size, both, libc::MAP_SHARED, pages.as_raw_fd(), offset)
}

/// Takes them away: the range is empty again.
pub(crate) fn unmap(base: u64, size: u64) {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // It fails only where the process may have no more mappings; then the pages stay until the range is mapped anew.
    let _ = replace(base, size, both, flags, -1, 0);
}

fn replace(base: u64, size: u64, protection: i32, flags: i32, fd: i32, offset: u64) -> Answer {
    let start = base as *mut libc::c_void;
    // SAFETY: the range lies in an arena of this process's driver, in a reservation that the program has made for mappings,
    // and nothing else is mapped there.
    let mapped = unsafe {
        libc::mmap(start, size as usize, protection, flags | libc::MAP_FIXED, fd, offset as libc::off_t)
    };
    if mapped == libc::MAP_FAILED { Err(CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(()) }
}
