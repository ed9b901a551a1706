//! A file whose tables are read up to a stated number of bytes, whatever it says of their sizes.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

use object::{ReadCache, ReadRef};

use super::blocks::Blocks;

/// Bytes that may still be read; `None` once more was asked for.
#[derive(Debug)]
pub struct Room(Cell<Option<u64>>);

impl Room {
    /// So many.
    pub const fn of(bytes: u64) -> Self {
        Self(Cell::new(Some(bytes)))
    }

    /// Bytes that are left; `None` if a read was refused.
    pub fn left(&self) -> Option<u64> {
        self.0.get()
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        self.0.set(self.0.get().and_then(|left| left.checked_sub(bytes)));
        self.0.get().map(drop).ok_or(())
    }
}

/// A file to be read through [`Bounded`].
pub struct Tables<'f>(ReadCache<Blocks<'f>>);

impl<'f> Tables<'f> {
    /// Tables of a file.
    pub fn of(file: &'f File) -> Self {
        Self(ReadCache::new(Blocks::of(file)))
    }

    /// Its content, of which this much may be read.
    pub fn within<'d>(&'d self, room: &'d Room) -> Bounded<'d, 'f> {
        Bounded { data: &self.0, room }
    }
}

/// See the module.
#[derive(Clone, Copy)]
pub struct Bounded<'d, 'f> {
    data: &'d ReadCache<Blocks<'f>>,
    room: &'d Room,
}

impl<'d> ReadRef<'d> for Bounded<'d, '_> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        // Before room is made for it.
        self.room.take(size)?;
        self.data.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        let bytes = self.data.read_bytes_at_until(range, delimiter)?;
        self.room.take(bytes.len() as u64)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_of_its_size_is_not_believed() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let (tables, room) = (Tables::of(&file), Room::of(100));
        let data = tables.within(&room);
        assert_eq!(data.read_bytes_at(1 << 30, 60).unwrap().len(), 60);
        assert_eq!(room.left(), Some(40));
        assert!(data.read_bytes_at(0, 1 << 39).is_err());
        assert_eq!(room.left(), None);
        assert!(data.read_bytes_at(0, 1).is_err(), "nothing more after a refusal");
    }
}
