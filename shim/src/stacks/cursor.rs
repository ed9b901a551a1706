//! Values that stand one after the other, as unwind tables and tables of lines have them.

use super::memory::Memory;

/// Reads one value after the other.
pub(super) struct Cursor<'m> {
    pub(super) memory: &'m mut Memory,
    pub(super) at: u64,
    /// First address that does not belong to it.
    pub(super) end: u64,
}

impl Cursor<'_> {
    /// Returns true if all is read.
    pub(super) fn is_done(&self) -> bool {
        self.at >= self.end
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let next = self.at.checked_add(N as u64).filter(|next| *next <= self.end)?;
        let bytes = self.memory.read(self.at)?;
        self.at = next;
        Some(bytes)
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|next| *next <= self.end)?;
        Some(())
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number in LEB128 without sign.
    pub(super) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// A number in LEB128 with sign.
    pub(super) fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= u64::MAX << shift;
                }
                return Some(value.cast_signed());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_are_read() {
        // SAFETY: all zeros is a memory without pages.
        let mut memory: Box<Memory> = unsafe { Box::new_zeroed().assume_init() };
        memory.clear();
        let bytes = [0xe5u8, 0x8e, 0x26, 0x7f, 0x80, 0x7f, 0xff, 0xff];
        let at = bytes.as_ptr().addr() as u64;
        let mut cursor = Cursor { memory: &mut memory, at, end: at + bytes.len() as u64 };
        assert_eq!((cursor.uleb(), cursor.sleb(), cursor.sleb()), (Some(624_485), Some(-1), Some(-128)));
        assert_eq!(cursor.uleb(), None, "cut off");
    }
}
