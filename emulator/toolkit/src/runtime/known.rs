//! What little is known of device memory's contents.
//!
//! Kernels are not computed, so mostly nothing is. But what the host has just written is known until a kernel
//! may have changed it, and what other processes sent is known too. That is enough for the small messages by
//! which the processes of a job agree on shapes and sizes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The largest message whose content is kept.
pub(crate) const LARGEST: usize = 1 << 20;
/// Bytes that are kept altogether: the oldest go first.
const MOST: usize = 16 << 20;
/// Launches for which a content stands: by then its address may belong to something else.
const LIFETIME: u64 = 64;

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static CONTENTS: LazyLock<Mutex<Contents>> = LazyLock::new(Mutex::default);

/// Where a content comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The host wrote it.
    Host,
    /// Another process sent it.
    Peer,
}

#[derive(Clone, Debug)]
struct Content {
    address: u64,
    bytes: Vec<u8>,
    launch: u64,
    origin: Origin,
}

#[derive(Default)]
struct Contents {
    all: VecDeque<Content>,
    size: usize,
}

fn contents() -> MutexGuard<'static, Contents> {
    CONTENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Launches so far.
pub(crate) fn launches() -> u64 {
    // Relaxed: only an order of magnitude matters.
    LAUNCHES.load(Ordering::Relaxed)
}

/// A kernel was launched.
pub(crate) fn launched() {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

impl Contents {
    fn forget(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        self.all.retain(|own| own.address >= end || own.address + own.bytes.len() as u64 <= address);
        self.size = self.all.iter().map(|own| own.bytes.len()).sum();
    }

    fn keep(&mut self, content: Content) {
        self.forget(content.address, content.bytes.len() as u64);
        self.size += content.bytes.len();
        self.all.push_back(content);
        while self.size > MOST
            && let Some(oldest) = self.all.pop_front()
        {
            self.size -= oldest.bytes.len();
        }
    }

    fn find(&self, address: u64, bytes: usize) -> Option<(Content, usize)> {
        let now = launches();
        let own = self.all.iter().rev().find(|own| {
            own.address <= address
                && address + bytes as u64 <= own.address + own.bytes.len() as u64
                && now - own.launch < LIFETIME
        })?;
        Some((own.clone(), (address - own.address) as usize))
    }
}

/// Something that is not known was written.
pub(crate) fn forget(address: u64, bytes: u64) {
    contents().forget(address, bytes);
}

/// Remembers what stands at an address from now on.
pub(crate) fn keep(address: u64, bytes: Vec<u8>, origin: Origin) {
    contents().keep(Content { address, bytes, launch: launches(), origin });
}

/// The host writes `bytes` from `source`.
///
/// # Safety
/// `source` points to that many bytes.
pub(super) unsafe fn written(address: u64, source: u64, bytes: usize) {
    if bytes > LARGEST {
        return forget(address, bytes as u64);
    }
    // SAFETY: as the caller promises.
    let content = unsafe { std::slice::from_raw_parts(source as *const u8, bytes) }.to_vec();
    keep(address, content, Origin::Host);
}

/// Device memory is copied.
pub(super) fn copied(target: u64, source: u64, bytes: usize) {
    let mut all = contents();
    match all.find(source, bytes) {
        Some((own, at)) => {
            let part = own.bytes[at..at + bytes].to_vec();
            all.keep(Content { address: target, bytes: part, launch: own.launch, origin: own.origin });
        }
        None => all.forget(target, bytes as u64),
    }
}

/// What stands at an address, as far as a message to another process is concerned.
pub(crate) fn content(address: u64, bytes: usize) -> Option<Vec<u8>> {
    let (own, at) = contents().find(address, bytes)?;
    Some(own.bytes[at..at + bytes].to_vec())
}

/// The host reads: it gets what a peer sent, and what it wrote itself if no kernel ran since.
///
/// # Safety
/// `target` has room for `bytes`.
pub(super) unsafe fn read(target: u64, source: u64, bytes: usize) {
    if bytes > LARGEST {
        return;
    }
    let Some((own, at)) = contents().find(source, bytes) else { return };
    if own.origin == Origin::Host && own.launch != launches() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { std::ptr::copy_nonoverlapping(own.bytes[at..].as_ptr(), target as *mut u8, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    // The tests of a process share the store: each has addresses of its own.

    #[test]
    fn what_the_host_wrote_is_read_back_until_a_kernel_runs() {
        let value = 7_u64;
        // SAFETY: eight bytes on both sides.
        unsafe { written(0x1_0000, &raw const value as u64, 8) };
        copied(0x1_1000, 0x1_0000, 8);
        let mut read_value = 0_u64;
        let place = &raw mut read_value as u64;
        // SAFETY: eight bytes on both sides.
        unsafe { read(place, 0x1_1000, 8) };
        assert_eq!(read_value, 7);
        launched();
        read_value = 0;
        // SAFETY: eight bytes on both sides.
        unsafe { read(place, 0x1_1000, 8) };
        assert_eq!(read_value, 0, "a kernel may have changed it");
        assert_eq!(content(0x1_1000, 8), Some(7_u64.to_le_bytes().to_vec()), "for messages it stands");
    }

    #[test]
    fn a_write_over_a_part_makes_all_of_it_unknown() {
        keep(0x2_0000, vec![1; 16], Origin::Peer);
        forget(0x2_0008, 4);
        assert_eq!(content(0x2_0000, 4), None);
    }

    #[test]
    fn parts_of_a_content_are_known() {
        keep(0x3_0000, vec![1, 2, 3, 4], Origin::Peer);
        assert_eq!(content(0x3_0002, 2), Some(vec![3, 4]));
        assert_eq!(content(0x3_0002, 3), None);
    }
}
