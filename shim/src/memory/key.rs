//! Keys of the live-block table: one name space per sort of handle, so that a pointer and a handle
//! with the same bits are two blocks.

/// Sort of handle that a block is known by.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    /// Address of device or managed memory; unified addressing keeps all of them apart.
    Pointer = 0,
    /// `CUmemGenericAllocationHandle`.
    Physical = 1,
    /// `CUarray`.
    Array = 2,
    /// `CUmipmappedArray`.
    Mipmap = 3,
    /// `CUexternalMemory`.
    External = 4,
    /// Address of page-locked memory that the driver allocated.
    Host = 5,
    /// Address of the program's own memory that the driver page-locked.
    Registered = 6,
    /// Address that physical memory of another process is mapped at.
    Mapping = 7,
}

/// Bits of a key below the name space. User addresses have 56 bits at most, and a tag in the top
/// byte of an address is not part of it.
const VALUE_BITS: u32 = 56;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;

/// The key of `value` in a name space.
#[inline(always)]
pub(crate) const fn key(space: Space, value: u64) -> u64 {
    ((space as u64) << VALUE_BITS) | (value & VALUE_MASK)
}

/// Whether a key belongs to a name space.
pub(crate) const fn is_in(key: u64, space: Space) -> bool {
    key >> VALUE_BITS == space as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bits_in_two_spaces_are_two_blocks() {
        let spaces = [
            Space::Pointer,
            Space::Physical,
            Space::Array,
            Space::Mipmap,
            Space::External,
            Space::Host,
            Space::Registered,
            Space::Mapping,
        ];
        for value in [1, 0x7f00_0000_0000, u64::MAX >> 8] {
            let mut keys: Vec<u64> = spaces.iter().map(|s| key(*s, value)).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), spaces.len());
        }
        assert!(is_in(key(Space::Host, 7), Space::Host));
        assert!(!is_in(key(Space::Host, 7), Space::Pointer));
    }
}
