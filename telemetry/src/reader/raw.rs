//! Copying words out of a segment.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::slice;

/// Words copied out of a segment, addressed by byte offset as in the layout.
pub(super) struct Words(Vec<u64>);

impl Words {
    /// Copies `bytes` at `at`; both are multiples of 8.
    pub(super) fn read(file: &File, at: u64, bytes: u64) -> std::io::Result<Self> {
        let mut words = vec![0u64; bytes as usize / 8];
        // SAFETY: the bytes of `words`, which any bytes are valid for, borrowed until they are filled.
        let raw = unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8) };
        file.read_exact_at(raw, at)?;
        Ok(Self(words))
    }

    /// The word at a byte offset; 0 outside.
    pub(super) fn at(&self, offset: usize) -> u64 {
        self.0.get(offset / 8).copied().unwrap_or(0)
    }

    /// `N` words from a byte offset; zeros outside.
    pub(super) fn array<const N: usize>(&self, offset: usize) -> [u64; N] {
        std::array::from_fn(|i| self.at(offset + i * 8))
    }

    /// `len` bytes from a byte offset, as far as there are any.
    pub(super) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let words = self.0.get(offset / 8..).unwrap_or_default();
        words.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect()
    }

    /// Text padded with zeros.
    pub(super) fn text(&self, offset: usize, len: usize) -> String {
        let bytes = self.bytes(offset, len);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}
