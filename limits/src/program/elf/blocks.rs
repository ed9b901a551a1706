//! A file that is read block by block.
//!
//! The tables of a program are read in pieces of a few bytes that lie close together, with two system calls each, which
//! every start would wait for.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::read::ReadCacheOps;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// A file with the block that was read last.
pub struct Blocks<'f> {
    file: &'f File,
    position: u64,
    /// Offset of the block in the file.
    start: u64,
    block: Box<[u8; BLOCK]>,
    /// Number of bytes of the block that the file has.
    filled: usize,
}

impl<'f> Blocks<'f> {
    pub fn of(file: &'f File) -> Self {
        Self { file, position: 0, start: 0, block: Box::new([0; BLOCK]), filled: 0 }
    }

    /// Rest of the block from the position on, after it was read if need be. Empty at the end of the file.
    fn rest(&mut self) -> Result<&[u8], ()> {
        let inside = |start: u64, position: u64| usize::try_from(position.checked_sub(start)?).ok();
        if inside(self.start, self.position).is_none_or(|at| at >= self.filled) {
            self.start = self.position - self.position % BLOCK as u64;
            self.filled = 0;
            while let Some(room) = self.block.get_mut(self.filled..).filter(|room| !room.is_empty()) {
                match self.file.read_at(room, self.start.saturating_add(self.filled as u64)) {
                    Ok(0) => break,
                    Ok(read) => self.filled += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => return Err(()),
                }
            }
        }
        let at = inside(self.start, self.position).unwrap_or(self.filled);
        Ok(self.block.get(at..self.filled).unwrap_or_default())
    }
}

impl ReadCacheOps for Blocks<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.metadata().map(|file| file.len()).map_err(|_| ())
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, ()> {
        let from = self.rest()?;
        let bytes = from.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..bytes), from.get(..bytes)) {
            to.copy_from_slice(from);
        }
        self.position = self.position.saturating_add(bytes as u64);
        Ok(bytes)
    }

    fn read_exact(&mut self, mut to: &mut [u8]) -> Result<(), ()> {
        while !to.is_empty() {
            let bytes = self.read(to)?;
            if bytes == 0 {
                return Err(());
            }
            to = to.get_mut(bytes..).unwrap_or_default();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_piece_is_what_the_file_has_there() {
        let content: Vec<u8> = (0..3 * BLOCK + 100).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let mut blocks = Blocks::of(&file);
        assert_eq!(blocks.len(), Ok(content.len() as u64));
        // Backwards too, over the edges of blocks, and a piece of several blocks.
        for (at, size) in
            [(0, 16), (BLOCK - 3, 7), (10, 20), (BLOCK, BLOCK), (5, 3 * BLOCK), (3 * BLOCK, 100)]
        {
            let mut piece = vec![0; size];
            blocks.seek(at as u64).unwrap();
            blocks.read_exact(&mut piece).unwrap();
            assert_eq!(piece, content[at..at + size], "{at}, {size}");
        }
    }

    #[test]
    fn a_piece_beyond_the_end_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let mut blocks = Blocks::of(&file);
        for at in [90, 100, 5000, u64::MAX - 3] {
            blocks.seek(at).unwrap();
            assert_eq!(blocks.read_exact(&mut [0; 20]), Err(()), "{at}");
        }
        blocks.seek(90).unwrap();
        assert_eq!(blocks.read(&mut [0; 20]), Ok(10));
    }
}
