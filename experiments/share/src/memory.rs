//! Memory that batches lie in: files in memory of a fixed size, written through one mapping of the producer.
//!
//! Once that mapping exists, the seals forbid every further way to write: a consumer that gets the descriptor can
//! neither write, nor map it shared and writable, nor make it shorter under another consumer's feet.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

use crate::pin::Pin;
use crate::{Error, sys};

/// Size and alignment of a huge page. Memory of at least this size asks for them.
const HUGE: u64 = 2 << 20;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Not yet in all C libraries' headers.
const F_SEAL_FUTURE_WRITE: libc::c_int = 0x10;

/// Seals that make a descriptor harmless: no process can change the size, write anew, or remove these seals.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

/// A mapping, until it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory of the process, not of a thread; what is written through it is the owner's matter.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: RawFd, bytes: u64, protection: libc::c_int, flags: libc::c_int) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the system's choice touches no other memory.
        let start = unsafe { libc::mmap(null_mut(), bytes, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    fn advise(&self, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is inside of this mapping, and the advices used here keep what others see of it.
        let done = unsafe { libc::madvise(self.start.as_ptr().cast(), bytes.min(self.bytes), advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size; the owner promises that no pointer into it is used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The producer's side of memory for one batch.
#[derive(Debug)]
pub struct Slot {
    /// Descriptor for the consumers: open for reading only.
    reader: OwnedFd,
    mapping: Mapping,
    bytes: u64,
}

impl Slot {
    /// Memory for at least so many bytes; all of its pages are there when this returns.
    ///
    /// # Errors
    /// There is too little memory, or the system is too old to seal it.
    pub fn new(bytes: u64) -> Result<Self, Error> {
        let unit = if bytes >= 4 * HUGE { HUGE } else { PAGE };
        let bytes =
            bytes.max(1).checked_next_multiple_of(unit).ok_or(Error::Misuse("a batch is too large"))?;
        let fd = sys::memory_file("radrm-share").map_err(Error::io("memory for batches"))?;
        let file = File::from(fd);
        file.set_len(bytes).map_err(Error::io("memory for batches"))?;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let mapping = Mapping::new(file.as_raw_fd(), bytes, both, libc::MAP_SHARED)
            .map_err(Error::io("mapping memory for batches"))?;
        // Advice only: without huge pages, and in a worker of the loader that is forked, all works as well.
        if bytes >= HUGE {
            let _ = mapping.advise(usize::MAX, libc::MADV_HUGEPAGE);
        }
        let _ = mapping.advise(usize::MAX, libc::MADV_DONTFORK);
        match mapping.advise(usize::MAX, libc::MADV_POPULATE_WRITE) {
            // Before Linux 5.14: pages come when they are written.
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => {
                return Err(Error::System { what: "memory for batches", error });
            }
            _ => {}
        }
        sys::seal(file.as_raw_fd(), SEALS).map_err(Error::io("sealing memory for batches"))?;
        let reader = reopened(&file).map_err(Error::io("opening memory for batches anew"))?;
        Ok(Self { reader, mapping, bytes })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.mapping.start.as_ptr()
    }

    /// Descriptor for the consumers.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Copies its first bytes to a file without a name in a folder, which is returned as consumers get it.
    ///
    /// # Errors
    /// The disk is full, or the folder takes no such file. Nothing is left there.
    pub fn spill(&self, bytes: u64, folder: &Path) -> io::Result<OwnedFd> {
        let bytes = usize::try_from(bytes.min(self.bytes)).map_err(io::Error::other)?;
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).mode(0o400);
        let file = options.open(folder)?;
        let length = (bytes as u64).max(1).next_multiple_of(PAGE);
        file.set_len(length)?;
        // SAFETY: the range is inside of the mapping, and no one writes there while its batch is leased or pending.
        let data = unsafe { std::slice::from_raw_parts(self.start(), bytes) };
        file.write_all_at(data, 0)?;
        reopened(&file)
    }
}

/// The same file, open for reading only and apart from the other descriptor.
fn reopened(file: &File) -> io::Result<OwnedFd> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map(OwnedFd::from)
}

/// Way in which a consumer maps batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read-only: a write ends the program with SIGSEGV.
    Shared,
    /// Likewise, and registered with the CUDA driver once the program uses it.
    Pinned,
    /// Writes of the consumer stay its own, and are undone when it releases the batch.
    Private,
}

/// A consumer's side of memory for one batch.
#[derive(Debug)]
pub struct View {
    // First, so that it goes before the mapping.
    pin: Mutex<Option<Pin>>,
    mapping: Mapping,
    bytes: u64,
    access: Access,
}

impl View {
    /// Maps what the producer has sent; reads it where its size is not sealed, as that of a batch on disk.
    ///
    /// # Errors
    /// The descriptor is none of a file with so many bytes, or the system does not map it.
    pub fn new(fd: &OwnedFd, bytes: u64, access: Access) -> Result<Self, Error> {
        let file = File::from(fd.try_clone().map_err(Error::io("a descriptor"))?);
        let found = file.metadata().map_err(Error::io("a descriptor"))?;
        if bytes == 0 || !found.is_file() || found.len() < bytes {
            return Err(Error::Message(crate::message::BadMessage::Descriptor));
        }
        let mapped = Error::io("mapping memory of batches");
        if sys::seals(fd.as_raw_fd()).is_ok_and(|seals| seals & SEALS == SEALS) {
            let (protection, flags) = match access {
                Access::Shared | Access::Pinned => (libc::PROT_READ, libc::MAP_SHARED),
                Access::Private => {
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_NORESERVE)
                }
            };
            let mapping = Mapping::new(fd.as_raw_fd(), bytes, protection, flags).map_err(mapped)?;
            if bytes >= HUGE {
                let _ = mapping.advise(usize::MAX, libc::MADV_HUGEPAGE);
            }
            return Ok(Self { pin: Mutex::default(), mapping, bytes, access });
        }
        let (both, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let mapping = Mapping::new(-1, bytes, both, own).map_err(mapped)?;
        // SAFETY: the mapping is new, has this size and can be written; no other code knows it.
        let to = unsafe { std::slice::from_raw_parts_mut(mapping.start.as_ptr(), mapping.bytes) };
        file.read_exact_at(to, 0).map_err(Error::io("reading a batch from disk"))?;
        Ok(Self { pin: Mutex::default(), mapping, bytes, access: Access::Private })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.mapping.start.as_ptr()
    }

    /// Registers it with the CUDA driver if that is wanted, possible and not done yet.
    pub fn pin(&self) {
        if self.access != Access::Pinned {
            return;
        }
        let mut pin = self.pin.lock().unwrap_or_else(PoisonError::into_inner);
        if pin.is_none() {
            *pin = Pin::new(self.start(), self.mapping.bytes);
        }
    }

    /// Some of its bytes, copied, so that they do not change while they are read.
    pub fn copy(&self, from: u64, bytes: u64) -> Option<Vec<u8>> {
        if from.checked_add(bytes)? > self.bytes {
            return None;
        }
        let (from, bytes) = (usize::try_from(from).ok()?, usize::try_from(bytes).ok()?);
        let mut copy = Vec::with_capacity(bytes);
        // SAFETY: the range is inside of the mapping, the copy has room for it. The producer may write at the same time if
        // it misbehaves: any bytes are valid, and only the copy is looked at.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start().add(from), copy.as_mut_ptr(), bytes);
            copy.set_len(bytes);
        }
        Some(copy)
    }

    /// Undoes what the consumer has written into the first bytes, so that the producer's next batch is seen there.
    pub fn reset(&self, bytes: u64) {
        if self.access == Access::Private && self.is_written(bytes).unwrap_or(true) {
            // It cannot fail for a range of a mapping that is not locked.
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let _ = self.mapping.advise(bytes.next_multiple_of(PAGE as usize), libc::MADV_DONTNEED);
        }
    }

    /// Returns true if a page is no longer the file's, by the system's page table.
    fn is_written(&self, bytes: u64) -> io::Result<bool> {
        /// The page is of a file, or shared.
        const OF_FILE: u64 = 1 << 61;
        /// The page is in memory, or swapped out.
        const THERE: u64 = 3 << 62;
        let file = File::open("/proc/self/pagemap")?;
        let (mut page, mut left) = (self.start() as u64 / PAGE, bytes.div_ceil(PAGE));
        let mut buffer = [0u8; 32 << 10];
        while left > 0 {
            let count = left.min(buffer.len() as u64 / 8);
            let Some(part) = buffer.get_mut(..count as usize * 8) else { break };
            file.read_exact_at(part, page * 8)?;
            let written = |entry: &[u8; 8]| {
                let entry = u64::from_le_bytes(*entry);
                entry & THERE != 0 && entry & OF_FILE == 0
            };
            if part.as_chunks().0.iter().any(written) {
                return Ok(true);
            }
            (page, left) = (page + count, left - count);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
