//! The table of live blocks: what each address or handle stands for. It lies in shared memory, so it
//! outlives its process.
//!
//! Levels of growing size; a bucket is one cache line of seven keys followed by what they stand for. An entry
//! is changed by making its key [`KEY_BUSY`], so exactly one thread at a time has it; there are no
//! tombstones: a removed key's place is free at once. A key has two buckets in each level; how many
//! keys of a bucket are in their second one stands in the same cache line. New keys go to the newest level
//! with room, then to older ones, then the table grows.
//!
//! A key is removed before the driver can hand the same address out again (the shim removes it before the
//! real release), so one key is never inserted twice at the same time.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::gpu_index::GpuIndex;
use crate::layout::{
    BUCKET_KEYS, BlockBucket, BlockCell, GPUS, KEY_BUSY, LEVEL0_BUCKETS, LEVELS, LEVELS_AT, level_at,
    level_buckets,
};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::writer::Writer;
use radrm_base::Kind;

/// Namespace of a key: keeps addresses and handles of different kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Namespace {
    /// Device pointers, also of managed memory and of pools.
    Pointer = 1,
    /// `CUmemGenericAllocationHandle`.
    Vmm = 2,
    /// `CUarray`.
    Array = 3,
    /// `CUmipmappedArray`.
    MipmappedArray = 4,
    /// `CUmemoryPool`.
    Pool = 5,
    /// `CUgraphExec`.
    GraphExec = 6,
    /// Host pointers.
    Host = 7,
    /// External memory.
    External = 8,
    /// Free for the shim.
    Other = 9,
}

/// Key of a block: namespace in the top four bits, value below. Never 0 and never [`KEY_BUSY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey(u64);

impl BlockKey {
    /// A key. Bits 60 and up of `value` are folded down; addresses and handles do not use them.
    #[inline]
    pub const fn new(namespace: Namespace, value: u64) -> Self {
        Self((namespace as u64) << 60 | ((value ^ (value >> 60)) & (u64::MAX >> 4)))
    }

    /// A device pointer.
    #[inline]
    pub const fn pointer(address: u64) -> Self {
        Self::new(Namespace::Pointer, address)
    }

    /// The number of the namespace.
    pub const fn namespace(self) -> u8 {
        (self.0 >> 60) as u8
    }

    /// The value without its namespace.
    pub const fn value(self) -> u64 {
        self.0 & (u64::MAX >> 4)
    }

    /// The key as it stands in memory; never 0.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The key that stands in memory, if it is one.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        if raw == KEY_BUSY || raw >> 60 == 0 { None } else { Some(Self(raw)) }
    }
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Size in bytes, below 2^48 (larger ones are kept as 2^48 - 1).
    pub bytes: u64,
    /// Kind of memory.
    pub kind: Kind,
    /// GPU.
    pub gpu: GpuIndex,
    /// Time at which the block was made, ns of segment time.
    pub ns: u64,
    /// Context or pool that it belongs to, as the shim likes.
    pub aux: u64,
}

const SIZE_BITS: u32 = 48;
const SIZE_MAX: u64 = (1 << SIZE_BITS) - 1;

impl Block {
    /// Size, kind and GPU in one word.
    #[inline]
    pub fn pack(&self) -> u64 {
        self.bytes.min(SIZE_MAX) | (self.kind as u64) << SIZE_BITS | (self.gpu.number() as u64) << 56
    }

    /// A block from the word of [`Block::pack`] and the others; `None` if that is none.
    #[inline]
    pub fn unpack(what: u64, ns: u64, aux: u64) -> Option<Self> {
        let kind = Kind::from_raw((what >> SIZE_BITS) as u8)?;
        let gpu = GpuIndex::from_number((what >> 56) as usize)?;
        Some(Self { bytes: what & SIZE_MAX, kind, gpu, ns, aux })
    }
}

/// Outcome of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is in the table.
    New,
    /// The key was there already; the old block is returned and replaced. Only the newest level is
    /// read, so this is a hint, not a promise.
    Replaced(Block),
    /// No room, and the table could not grow.
    Full,
}

/// Bits of a bucket's number in a level.
#[inline]
const fn bucket_bits(level: usize) -> u32 {
    LEVEL0_BUCKETS.ilog2() + 2 * level as u32
}

/// The bucket of a key in a level that is its first choice.
///
/// It keeps neighbours together, so that a program that takes block after block finds its buckets
/// in the cache: the two halves of 2 KiB of addresses lie side by side, 4 MiB after 4 MiB lie side by side, and what
/// is in between is spread evenly (multiples of the golden ratio). That suits the driver's two habits, blocks of
/// 512 bytes in a row and blocks 2 MiB apart. Whatever other pattern overfills buckets goes to the second
/// choice, where every bit counts.
#[inline]
pub(crate) fn first_choice(key: BlockKey, level: usize) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let bits = bucket_bits(level);
    // The high part distinguishes namespaces and regions of addresses.
    let spread = ((key.0 >> 40) + (key.0 >> 11 & 0x7ff)).wrapping_mul(GOLDEN) >> (64 - bits);
    let near = key.0 >> 22 << 1 | (key.0 >> 10 & 1);
    near.wrapping_add(spread) as usize & ((1 << bits) - 1)
}

/// The bucket of a key in a level for when the first choice is full.
pub(crate) fn second_choice(key: BlockKey, level: usize) -> usize {
    // The finalizer of MurmurHash3.
    let mut h = key.0;
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (h >> 32) as usize & ((1 << bucket_bits(level)) - 1)
}

/// The place of a key within its bucket of a level that is looked at first.
///
/// Blocks of 512 bytes that share a bucket differ in bit 9, blocks 2 MiB apart have a bucket each. Blocks so far from each
/// other that the buckets begin anew between them differ in the bits above those that choose the bucket.
#[inline]
fn home(key: BlockKey, level: usize) -> usize {
    let again = key.0 >> (21 + bucket_bits(level));
    ((key.0 >> 9 ^ key.0 >> 21 ^ again) as usize & 7).min(BUCKET_KEYS - 1)
}

impl BlockBucket {
    /// Key and block at a place, in one order everywhere.
    #[inline]
    fn entries(&self) -> impl Iterator<Item = (&AtomicU64, &BlockCell)> {
        self.keys.iter().zip(&self.blocks)
    }

    #[inline]
    fn entry(&self, index: usize) -> Option<(&AtomicU64, &BlockCell)> {
        Some((self.keys.get(index)?, self.blocks.get(index)?))
    }

    #[inline(always)]
    fn find(&self, key: BlockKey, level: usize) -> Option<(&AtomicU64, &BlockCell)> {
        // Acquire: pairs with the Release in `fill`.
        match self.entry(home(key, level)) {
            Some(entry) if entry.0.load(Acquire) == key.0 => Some(entry),
            _ => self.find_away(key),
        }
    }

    #[inline(never)]
    fn find_away(&self, key: BlockKey) -> Option<(&AtomicU64, &BlockCell)> {
        // Acquire: as above.
        self.entries().find(|(place, _)| place.load(Acquire) == key.0)
    }

    /// Puts a block into its key's home place, as almost every block is. False: something else is there, or the key
    /// is in the bucket, and nothing was changed.
    #[inline(always)]
    pub fn insert_home(&self, key: BlockKey, level: usize, block: &Block) -> bool {
        // None of these branches is ever taken where each block's end was seen.
        if self.keys.iter().any(|place| place.load(Relaxed) == key.0) {
            return false;
        }
        let Some((place, cell)) = self.entry(home(key, level)) else { return false };
        let is_ours = place.load(Relaxed) == 0 && claim(place);
        if is_ours {
            fill(place, cell, key, block);
        }
        is_ours
    }

    /// Puts a block into a free place of the key's bucket of a level.
    #[inline]
    pub fn insert(&self, key: BlockKey, level: usize, block: &Block) -> Inserted {
        if self.insert_home(key, level, block) { Inserted::New } else { self.insert_away(key, block) }
    }

    #[inline(never)]
    fn insert_away(&self, key: BlockKey, block: &Block) -> Inserted {
        if let Some((place, cell)) = self.entries().find(|(place, _)| place.load(Relaxed) == key.0)
            && let Some(old) = take(place, cell, key)
        {
            fill(place, cell, key, block);
            return Inserted::Replaced(old);
        }
        match self.entries().find(|(place, _)| place.load(Relaxed) == 0 && claim(place)) {
            Some((place, cell)) => {
                fill(place, cell, key, block);
                Inserted::New
            }
            None => Inserted::Full,
        }
    }

    /// Removes a key. Of several threads that try, one gets the block.
    #[inline(always)]
    pub fn remove(&self, key: BlockKey, level: usize) -> Option<Block> {
        let (place, cell) = self.find(key, level)?;
        let block = take(place, cell, key);
        if block.is_some() {
            // Release: pairs with the Acquire in `claim`.
            place.store(0, Release);
        }
        block
    }

    /// The block of a key. If the same key is removed and inserted anew meanwhile (the program uses what it frees),
    /// the answer can mix the two blocks.
    #[inline]
    pub fn get(&self, key: BlockKey, level: usize) -> Option<Block> {
        let (place, cell) = self.find(key, level)?;
        let block = read(cell);
        crate::sync::fence(Acquire); // pairs with the Release in `fill`: a change is seen below
        (place.load(Relaxed) == key.0).then_some(block).flatten()
    }
}

/// Makes a free place ours.
#[inline]
fn claim(place: &AtomicU64) -> bool {
    // Acquire: pairs with the Release in `remove`, so that the remover's reads come before our stores.
    place.compare_exchange(0, KEY_BUSY, Acquire, Relaxed).is_ok()
}

/// Makes an entry ours and reads it.
#[inline]
fn take(place: &AtomicU64, cell: &BlockCell, key: BlockKey) -> Option<Block> {
    // Acquire: pairs with the Release in `fill`.
    place.compare_exchange(key.0, KEY_BUSY, AcqRel, Relaxed).ok()?;
    match read(cell) {
        Some(block) => Some(block),
        None => {
            // Only damaged memory holds what is no block. Its place is free again.
            place.store(0, Release);
            None
        }
    }
}

/// Fills an entry that is ours and publishes it.
#[inline]
fn fill(place: &AtomicU64, cell: &BlockCell, key: BlockKey, block: &Block) {
    crate::sync::fence(Release); // pairs with the Acquire fence in `get`: a reader that sees a word sees the busy key
    cell.what.store(block.pack(), Relaxed);
    cell.ns.store(block.ns, Relaxed);
    cell.aux.store(block.aux, Relaxed);
    place.store(key.0, Release); // pairs with the Acquire in `find` and `take`
}

#[inline]
fn read(cell: &BlockCell) -> Option<Block> {
    Block::unpack(cell.what.load(Relaxed), cell.ns.load(Relaxed), cell.aux.load(Relaxed))
}

/// The table of one process, as `Writer::blocks` gives it.
#[derive(Clone, Copy)]
pub struct BlockTable<'a> {
    pub(crate) writer: &'a Writer,
}

impl<'a> BlockTable<'a> {
    #[inline]
    fn levels(&self) -> usize {
        // Acquire: pairs with the Release in `insert_slow`. More than there can be is damage.
        (self.writer.base().head.levels.load(Acquire) as usize).min(LEVELS)
    }

    #[inline]
    fn bucket(&self, level: usize, index: usize) -> &'a BlockBucket {
        /// A look-up is shorter than the sum of the sizes before.
        const AT: [u64; LEVELS] = {
            let mut at = [0; LEVELS];
            let mut level = 0;
            while level < LEVELS {
                at[level] = level_at(level);
                level += 1;
            }
            at
        };
        let at = AT.get(level).copied().unwrap_or(LEVELS_AT);
        // SAFETY: `level` is below the number of levels in use, which are mapped and allocated, `index` is
        // below the level's buckets; levels start at multiples of 256 and all words are atomics.
        unsafe { &*self.writer.at::<BlockBucket>(at).as_ptr().add(index) }
    }

    #[inline]
    fn first(&self, level: usize, key: BlockKey) -> &'a BlockBucket {
        self.bucket(level, first_choice(key, level))
    }

    fn second(&self, level: usize, key: BlockKey) -> &'a BlockBucket {
        self.bucket(level, second_choice(key, level))
    }

    /// Inserts a block where most find their place. False: it is not in the table, and [`BlockTable::insert_away`] has
    /// more to try.
    #[inline(always)]
    pub fn insert_home(&self, key: BlockKey, block: &Block) -> bool {
        self.levels()
            .checked_sub(1)
            .is_some_and(|newest| self.first(newest, key).insert_home(key, newest, block))
    }

    /// Inserts a block.
    pub fn insert(&self, key: BlockKey, block: &Block) -> Inserted {
        if self.insert_home(key, block) { Inserted::New } else { self.insert_away(key, block) }
    }

    /// Inserts a block that did not find its place at once ([`BlockTable::insert_home`]).
    pub fn insert_away(&self, key: BlockKey, block: &Block) -> Inserted {
        let levels = self.levels();
        if let Some(newest) = levels.checked_sub(1) {
            let inserted = self.first(newest, key).insert_away(key, block);
            if inserted != Inserted::Full {
                return inserted;
            }
        }
        self.insert_slow(levels, key, block)
    }

    #[cold]
    #[inline(never)]
    fn insert_slow(&self, mut levels: usize, key: BlockKey, block: &Block) -> Inserted {
        for _ in 0..=LEVELS {
            for level in (0..levels).rev() {
                let inserted = self.insert_in(level, key, block);
                if inserted != Inserted::Full {
                    return inserted;
                }
            }
            if levels >= LEVELS || !self.writer.grow_blocks(levels) {
                break;
            }
            // Release: pairs with the Acquire in `levels`; the new level's pages are there before its number
            // is. If another thread was faster the level is the same one.
            let count = &self.writer.base().head.levels;
            let _ = count.compare_exchange(levels as u64, levels as u64 + 1, AcqRel, Acquire);
            levels = self.levels();
        }
        Inserted::Full
    }

    fn insert_in(&self, level: usize, key: BlockKey, block: &Block) -> Inserted {
        let first = self.first(level, key);
        let inserted = first.insert(key, level, block);
        if inserted != Inserted::Full {
            return inserted;
        }
        // Counted before the key is there: a thread that learns the key from us finds the count (the program hands
        // the address on, which orders this).
        first.spilled.fetch_add(1, Relaxed);
        let inserted = self.second(level, key).insert(key, level, block);
        if inserted != Inserted::New {
            first.spilled.fetch_sub(1, Relaxed);
        }
        inserted
    }

    /// Removes a block. Of several threads that try, one gets it.
    #[inline(always)]
    pub fn remove(&self, key: BlockKey) -> Option<Block> {
        let levels = self.levels();
        let newest = levels.checked_sub(1)?;
        match self.first(newest, key).remove(key, newest) {
            Some(block) => Some(block),
            None => self.remove_slow(levels, key),
        }
    }

    #[inline(never)]
    fn remove_slow(&self, levels: usize, key: BlockKey) -> Option<Block> {
        (0..levels).rev().find_map(|level| self.remove_in(level, key))
    }

    fn remove_in(&self, level: usize, key: BlockKey) -> Option<Block> {
        let first = self.first(level, key);
        let found = first.remove(key, level);
        if found.is_some() || first.spilled.load(Relaxed) == 0 {
            found
        } else {
            self.remove_spilled(level, key)
        }
    }

    #[inline(never)]
    fn remove_spilled(&self, level: usize, key: BlockKey) -> Option<Block> {
        let found = self.second(level, key).remove(key, level);
        if found.is_some() {
            self.first(level, key).spilled.fetch_sub(1, Relaxed);
        }
        found
    }

    /// The block of a key.
    #[inline]
    pub fn get(&self, key: BlockKey) -> Option<Block> {
        (0..self.levels()).rev().find_map(|level| {
            let first = self.first(level, key);
            let found = first.get(key, level);
            if found.is_some() || first.spilled.load(Relaxed) == 0 {
                return found;
            }
            self.second(level, key).get(key, level)
        })
    }

    /// Calls `visit` for every block. Blocks that come or go meanwhile may be seen or not.
    pub fn for_each(&self, mut visit: impl FnMut(BlockKey, &Block)) {
        self.walk(|_, place, cell| {
            if let (Some(key), Some(block)) = (BlockKey::from_raw(place.load(Acquire)), read(cell)) {
                visit(key, &block);
            }
        });
    }

    /// Removes every block for which `wanted` holds and hands it to `removed`.
    pub fn remove_where(
        &self,
        wanted: impl Fn(BlockKey, &Block) -> bool,
        mut removed: impl FnMut(BlockKey, Block),
    ) {
        self.walk(|level, place, cell| {
            let Some(key) = BlockKey::from_raw(place.load(Acquire)) else { return };
            if read(cell).is_some_and(|block| wanted(key, &block))
                && let Some(block) = self.remove_in(level, key)
            {
                removed(key, block);
            }
        });
    }

    fn walk(&self, mut visit: impl FnMut(usize, &AtomicU64, &BlockCell)) {
        for level in 0..self.levels() {
            for index in 0..level_buckets(level) {
                for (place, cell) in self.bucket(level, index).entries() {
                    visit(level, place, cell);
                }
            }
        }
    }
}

const _: () = assert!(LEVEL0_BUCKETS.is_power_of_two() && GPUS <= 256 && BUCKET_KEYS == 7);

#[cfg(all(test, not(loom)))]
mod tests;
