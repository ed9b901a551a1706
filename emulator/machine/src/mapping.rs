//! The file in memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::MachineError;
use crate::layout::Layout;
use crate::lock;

/// A shared mapping of the whole file. The file stays open because pages are reserved in it later.
pub(crate) struct Mapping {
    layout: NonNull<Layout>,
    file: File,
}

// SAFETY: the mapping is only ever read and written through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub const SIZE: usize = size_of::<Layout>();

    /// Maps a file that has [`Self::SIZE`] bytes.
    pub fn new(file: File, path: &Path) -> Result<Self, MachineError> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                Self::SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        };
        let layout = address
            .ok()
            .and_then(|a| NonNull::new(a.cast::<Layout>()))
            .ok_or_else(|| MachineError::io(path, std::io::Error::last_os_error()))?;
        Ok(Self { layout, file })
    }

    pub fn get(&self) -> &Layout {
        // SAFETY: the mapping is as long as the layout, page-aligned, and lives as long as `self`;
        // every field is an atomic, for which all bit patterns are valid.
        unsafe { self.layout.as_ref() }
    }

    /// Takes the file's pages under `part` from the file system now, so that a full one is an error
    /// here and not a SIGBUS later.
    pub fn reserve<T>(&self, part: &T) -> std::io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), self.offset_of(part), size_of::<T>() as u64) {
            // A file system without the call gives the pages on first touch.
            Err(e) if e == rustix::io::Errno::OPNOTSUPP || e == rustix::io::Errno::NOSYS => Ok(()),
            other => other.map_err(Into::into),
        }
    }
}

impl Mapping {
    /// Offset of a part in the file, bytes.
    pub fn offset_of<T>(&self, part: &T) -> u64 {
        (std::ptr::from_ref(part).addr() - self.layout.as_ptr().addr()) as u64
    }

    /// Returns true if the lock of a slot is held.
    pub fn is_locked<T>(&self, slot: &T) -> bool {
        lock::is_held(&self.file, self.offset_of(slot))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing outlives `self` that points into it.
        let _ = unsafe { munmap(self.layout.as_ptr().cast(), Self::SIZE) };
    }
}

/// Writes `bytes` into words, cut to what fits; gives the number of bytes written.
pub(crate) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) -> u32 {
    let bytes = &bytes[..bytes.len().min(words.len() * 8)];
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
    }
    bytes.len() as u32
}

/// Reads `len` bytes back, cut to what is there.
pub(crate) fn load_bytes(words: &[AtomicU64], len: u32) -> Vec<u8> {
    let len = (len as usize).min(words.len() * 8);
    let mut bytes: Vec<u8> =
        words[..len.div_ceil(8)].iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}
