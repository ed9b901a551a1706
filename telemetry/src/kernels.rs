//! The kernel table: names and attributes of the kernels that a process launched.
//!
//! A kernel is found by a 64-bit hash of its name and attributes. Setting the hash claims the number, so two
//! threads that meet the same kernel get the same number without waiting; the record is complete a
//! moment later. Numbers are never given back.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::layout::{KERNEL_NAME_BYTES, KERNELS, KernelCell};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Number of a kernel in its process's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub(crate) u16);

impl KernelId {
    /// All kernels that have no number of their own.
    pub const OTHER: Self = Self(0);

    /// The number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The kernel with this number; those beyond the table are [`KernelId::OTHER`]. For callers that keep
    /// numbers in words of their own.
    pub const fn from_number(number: u64) -> Self {
        if number < KERNELS as u64 { Self(number as u16) } else { Self::OTHER }
    }
}

/// Attributes of a kernel, as the driver reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelAttributes {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, bytes.
    pub static_shared_bytes: u32,
    /// Local memory per thread, bytes.
    pub local_bytes: u32,
    /// Most threads per block.
    pub max_threads: u32,
}

/// Set in `name_len` if the name was longer than what is kept.
pub(crate) const TRUNCATED: u64 = 1 << 32;

/// Hash of a kernel; never 0.
pub(crate) fn hash(name: &[u8], attributes: &KernelAttributes) -> u64 {
    let KernelAttributes { registers, static_shared_bytes, local_bytes, max_threads } = *attributes;
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    // FNV-1a over the whole name, also what is not kept of it, then the attributes.
    for byte in name {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    for word in [registers, static_shared_bytes, local_bytes, max_threads] {
        h = (h ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 29;
    }
    h.max(1)
}

/// Result of a search for the place of a hash.
pub(crate) enum Place {
    /// Here already.
    Known(KernelId),
    /// Claimed just now: its record is to be written.
    Claimed(KernelId),
    /// No room.
    Full,
}

/// Finds or claims the number of a hash.
pub(crate) fn claim(hashes: &[AtomicU64], hash: u64) -> Place {
    // Number 0 is never claimed.
    for (number, place) in hashes.iter().enumerate().skip(1) {
        let seen = match place.load(Acquire) {
            0 => match place.compare_exchange(0, hash, Acquire, Acquire) {
                Ok(_) => return Place::Claimed(KernelId(number as u16)),
                Err(seen) => seen,
            },
            seen => seen,
        };
        if seen == hash {
            return Place::Known(KernelId(number as u16));
        }
    }
    Place::Full
}

/// Returns the part of a name that is kept: not cut inside a character.
pub(crate) fn kept(name: &[u8]) -> &[u8] {
    let Some(mut kept) = name.get(..KERNEL_NAME_BYTES) else { return name };
    if name.get(KERNEL_NAME_BYTES).is_some_and(|next| next & 0xc0 == 0x80) {
        // The next byte continues a character: drop the character's beginning too.
        while let Some((last, rest)) = kept.split_last() {
            kept = rest;
            if last & 0xc0 != 0x80 {
                break;
            }
        }
    }
    kept
}

impl KernelCell {
    /// Writes a record whose name lies in the arena already.
    pub(crate) fn publish(&self, at: u64, len: u64, truncated: bool, attributes: &KernelAttributes) {
        self.name_at.store(at, Relaxed);
        self.name_len.store(len | if truncated { TRUNCATED } else { 0 }, Relaxed);
        self.registers.store(attributes.registers.into(), Relaxed);
        self.static_shared.store(attributes.static_shared_bytes.into(), Relaxed);
        self.local_bytes.store(attributes.local_bytes.into(), Relaxed);
        self.max_threads.store(attributes.max_threads.into(), Relaxed);
        self.ready.store(1, Release); // the reader copies the record after it has seen this
    }
}
