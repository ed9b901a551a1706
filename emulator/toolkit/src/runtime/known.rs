//! Contents of device memory, as far as they are known.
//!
//! Kernels are not computed, so mostly nothing is. But what the host has just written is known until a kernel
//! may have changed it, and what other processes sent is known too. That is enough for the small messages by
//! which the processes of a job agree on shapes and sizes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The largest message whose content is kept.
pub(crate) const LARGEST: usize = 16 << 20;
/// Bytes that are kept altogether: the oldest go first.
const MAX_TOTAL: usize = 64 << 20;
/// Launches for which a content stands: by then its address may belong to something else.
const LIFETIME: u64 = 64;

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static CONTENTS: LazyLock<Mutex<Contents>> = LazyLock::new(Mutex::default);

/// Origin of a content.
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

impl Content {
    fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    /// The bytes of a range that lies inside of it.
    fn part(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.address) as usize..(range.end - self.address) as usize]
    }
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
        self.all.retain(|own| own.address >= end || own.end() <= address);
        self.size = self.all.iter().map(|own| own.bytes.len()).sum();
    }

    fn keep(&mut self, content: Content) {
        self.forget(content.address, content.bytes.len() as u64);
        self.size += content.bytes.len();
        self.all.push_back(content);
        while self.size > MAX_TOTAL
            && let Some(oldest) = self.all.pop_front()
        {
            self.size -= oldest.bytes.len();
        }
    }

    /// The contents that stand in a range, with what of the range they are. No two overlap.
    fn within(&self, address: u64, bytes: u64) -> impl Iterator<Item = (&Content, Range<u64>)> {
        let (now, end) = (launches(), address.saturating_add(bytes));
        self.all.iter().filter(move |own| now - own.launch < LIFETIME).filter_map(move |own| {
            let part = own.address.max(address)..own.end().min(end);
            (!part.is_empty()).then_some((own, part))
        })
    }

    /// All of a range as one content, if every byte of it is known. It is as old as its oldest part.
    fn whole(&self, address: u64, bytes: usize) -> Option<Content> {
        // Of most memory nothing is known, and room for it would cost more than the copy that is asked for.
        let parts: Vec<_> = self.within(address, bytes as u64).collect();
        let known: u64 = parts.iter().map(|(_, part)| part.end - part.start).sum();
        if bytes > LARGEST || known != bytes as u64 {
            return None;
        }
        let mut out = Content { address, bytes: vec![0; bytes], launch: launches(), origin: Origin::Peer };
        for (own, part) in parts {
            out.launch = out.launch.min(own.launch);
            if own.origin == Origin::Host {
                out.origin = Origin::Host;
            }
            let at = (part.start - address) as usize;
            out.bytes[at..][..own.part(&part).len()].copy_from_slice(own.part(&part));
        }
        Some(out)
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
    match all.whole(source, bytes) {
        Some(own) => all.keep(Content { address: target, ..own }),
        None => all.forget(target, bytes as u64),
    }
}

/// Content at an address, for a message to another process.
pub(crate) fn content(address: u64, bytes: usize) -> Option<Vec<u8>> {
    contents().whole(address, bytes).map(|own| own.bytes)
}

/// The host reads: it gets what a peer sent, and what it wrote itself if no kernel ran since. What is not known
/// stays as it is.
///
/// # Safety
/// `target` has room for `bytes`.
pub(super) unsafe fn read(target: u64, source: u64, bytes: usize) {
    let (all, now) = (contents(), launches());
    for (own, part) in all.within(source, bytes as u64) {
        if own.origin == Origin::Host && own.launch != now {
            continue;
        }
        let (from, place) = (own.part(&part), target + (part.start - source));
        // SAFETY: the part lies inside of the range that the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place as *mut u8, from.len()) };
    }
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

    #[test]
    fn neighbouring_contents_are_read_as_one() {
        keep(0x4_0000, vec![1, 2], Origin::Peer);
        keep(0x4_0002, vec![3], Origin::Peer);
        assert_eq!(content(0x4_0000, 3), Some(vec![1, 2, 3]));
        let mut out = [9_u8; 5];
        // SAFETY: five bytes.
        unsafe { read(out.as_mut_ptr() as u64, 0x4_0000 - 1, 5) };
        assert_eq!(out, [9, 1, 2, 3, 9], "what is not known stays as it is");
    }
}
