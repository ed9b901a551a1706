//! Free ranges inside chunks of address space: best fit, neighbours of one chunk grow together.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of a set of chunks. Sizes and addresses in bytes.
#[derive(Default)]
pub struct Ranges {
    chunks: BTreeMap<u64, u64>,
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Ranges {
    /// Adds a chunk, all free.
    pub fn add_chunk(&mut self, base: u64, size: u64) {
        self.chunks.insert(base, size);
        self.put(base, size);
    }

    /// Takes a range whose address is a multiple of `align`, from the smallest free one that fits.
    pub fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        let (free_size, free) = self.by_size.range((size, 0)..).copied().find(|(free_size, free)| {
            let base = free.next_multiple_of(align);
            base + size <= free + free_size
        })?;
        let base = free.next_multiple_of(align);
        self.cut(free, free_size, base, size);
        Some(base)
    }

    /// Takes a certain range, if it is all free.
    pub fn take_at(&mut self, base: u64, size: u64) -> Option<u64> {
        let (free, free_size) = self.by_address.range(..=base).next_back().map(|(a, s)| (*a, *s))?;
        if base.checked_add(size).is_none_or(|end| end > free + free_size) {
            return None;
        }
        self.cut(free, free_size, base, size);
        Some(base)
    }

    /// Gives a range back. The chunk's base and size are returned if it is all free now.
    pub fn give(&mut self, base: u64, size: u64) -> Option<(u64, u64)> {
        let (chunk, chunk_size) = self.chunk_of(base)?;
        let (mut low, mut high) = (base, base + size);
        if let Some((before, before_size)) = self.by_address.range(..base).next_back().map(|(a, s)| (*a, *s))
            && before + before_size == base
            && before >= chunk
        {
            self.remove(before, before_size);
            low = before;
        }
        if high < chunk + chunk_size
            && let Some(after_size) = self.by_address.get(&high).copied()
        {
            self.remove(high, after_size);
            high += after_size;
        }
        self.put(low, high - low);
        (low == chunk && high == chunk + chunk_size).then_some((chunk, chunk_size))
    }

    /// Takes out a chunk that is all free.
    pub fn drop_chunk(&mut self, base: u64) {
        if let Some(size) = self.chunks.remove(&base) {
            self.remove(base, size);
        }
    }

    /// Chunks that are all free: base and size.
    pub fn free_chunks(&self) -> Vec<(u64, u64)> {
        let is_free =
            |(base, size): (&u64, &u64)| (self.by_address.get(base) == Some(size)).then_some((*base, *size));
        self.chunks.iter().filter_map(is_free).collect()
    }

    /// The chunk that an address lies in.
    pub fn chunk_of(&self, address: u64) -> Option<(u64, u64)> {
        let (base, size) = self.chunks.range(..=address).next_back().map(|(a, s)| (*a, *s))?;
        (address < base + size).then_some((base, size))
    }

    fn cut(&mut self, free: u64, free_size: u64, base: u64, size: u64) {
        self.remove(free, free_size);
        if base > free {
            self.put(free, base - free);
        }
        let (end, free_end) = (base + size, free + free_size);
        if free_end > end {
            self.put(end, free_end - end);
        }
    }

    fn put(&mut self, base: u64, size: u64) {
        self.by_address.insert(base, size);
        self.by_size.insert((size, base));
    }

    fn remove(&mut self, base: u64, size: u64) {
        self.by_address.remove(&base);
        self.by_size.remove(&(size, base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_only_within_their_chunk() {
        let mut ranges = Ranges::default();
        ranges.add_chunk(0x1000, 0x1000);
        ranges.add_chunk(0x2000, 0x1000);
        let a = ranges.take(0x800, 0x200).unwrap();
        let b = ranges.take(0x800, 0x200).unwrap();
        let c = ranges.take(0x1000, 0x200).unwrap();
        assert_eq!((a, b, c), (0x1000, 0x1800, 0x2000));
        assert_eq!(ranges.take(0x200, 0x200), None);
        assert_eq!(ranges.give(c, 0x1000), Some((0x2000, 0x1000)));
        assert_eq!(ranges.give(b, 0x800), None);
        assert_eq!(ranges.take(0x1800, 0x200), None, "a range must not cross chunks");
        assert_eq!(ranges.give(a, 0x800), Some((0x1000, 0x1000)));
        ranges.drop_chunk(0x1000);
        assert_eq!(ranges.free_chunks(), [(0x2000, 0x1000)]);
        assert_eq!(ranges.take(0x1000, 1), Some(0x2000));
    }

    #[test]
    fn random_takes_and_gives_never_overlap() {
        let mut ranges = Ranges::default();
        ranges.add_chunk(1 << 21, 1 << 21);
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut seed = 7u64;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let size = (1 + (seed >> 33) % 40) * 512;
            if seed >> 60 < 9
                && let Some(base) = ranges.take(size, 512)
            {
                assert!(live.iter().all(|(b, s)| base + size <= *b || b + s <= base));
                live.push((base, size));
            } else if !live.is_empty() {
                let (base, size) = live.swap_remove((seed >> 20) as usize % live.len());
                ranges.give(base, size);
            }
        }
        let mut whole = None;
        for (base, size) in live {
            whole = ranges.give(base, size);
        }
        assert_eq!(whole, Some((1 << 21, 1 << 21)));
    }
}
