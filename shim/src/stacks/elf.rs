//! Content of the headers of a mapped file: where it was moved to, where its unwind tables are, its build id.

use super::memory::Memory;

/// Program headers that are looked at.
const HEADERS: u64 = 64;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const UNWIND: u32 = 0x6474_e550;
/// Notes that are looked at, and bytes of them.
const NOTES: usize = 32;
const NOTE_LIMIT: u64 = 4096;

/// Load bias and unwind tables of a mapped file.
pub(super) struct Found {
    /// Load bias: added to an address of the file.
    pub(super) bias: u64,
    /// The index of its unwind tables; 0: it has none.
    pub(super) unwind: u64,
}

/// A program header: type, address in the file's own terms, offset, bytes.
struct Segment {
    kind: u32,
    address: u64,
    offset: u64,
    bytes: u64,
}

fn segment(memory: &mut Memory, base: u64, number: u64) -> Option<Segment> {
    let table = base.checked_add(memory.u64(base + 32)?)?;
    let count = u16::from_le_bytes(memory.read(base + 56)?);
    if number >= u64::from(count).min(HEADERS) {
        return None;
    }
    let at = table.checked_add(number * 56)?;
    Some(Segment {
        kind: memory.u32(at)?,
        offset: memory.u64(at + 8)?,
        address: memory.u64(at + 16)?,
        bytes: memory.u64(at + 40)?,
    })
}

/// Returns true if a 64-bit ELF file begins here, with program headers of the usual size.
fn is_elf(memory: &mut Memory, base: u64) -> bool {
    memory.read::<6>(base) == Some([0x7f, b'E', b'L', b'F', 2, 1])
        && memory.read::<2>(base.wrapping_add(54)) == Some([56, 0])
}

/// Load bias of a file that is mapped at `base`.
fn bias(memory: &mut Memory, base: u64) -> Option<u64> {
    let first = (0..).map_while(|number| segment(memory, base, number)).find(|it| it.kind == LOAD)?;
    Some(base.wrapping_sub(first.address.wrapping_sub(first.offset)))
}

/// Load bias and unwind tables by the headers at `base`.
pub(super) fn header(memory: &mut Memory, base: u64) -> Option<Found> {
    if !is_elf(memory, base) {
        return None;
    }
    let bias = bias(memory, base)?;
    let unwind = (0..).map_while(|number| segment(memory, base, number)).find(|it| it.kind == UNWIND);
    Some(Found { bias, unwind: unwind.map_or(0, |it| bias.wrapping_add(it.address)) })
}

/// The build id of the file at `base`; empty: it has none.
pub(super) fn build_id<'i>(memory: &mut Memory, base: u64, id: &'i mut [u8]) -> &'i [u8] {
    let length = find_id(memory, base, id).unwrap_or(0);
    id.get(..length).unwrap_or_default()
}

fn find_id(memory: &mut Memory, base: u64, id: &mut [u8]) -> Option<usize> {
    if base == 0 || !is_elf(memory, base) {
        return None;
    }
    let bias = bias(memory, base)?;
    for number in 0.. {
        let segment = segment(memory, base, number)?;
        if segment.kind != NOTE {
            continue;
        }
        let mut at = bias.wrapping_add(segment.address);
        let end = at.checked_add(segment.bytes.min(NOTE_LIMIT))?;
        for _ in 0..NOTES {
            if at.checked_add(12).is_none_or(|next| next > end) {
                break;
            }
            let (name, bytes) = (memory.u32(at)?, memory.u32(at + 4)?);
            let value = at + 12 + u64::from(name).next_multiple_of(4);
            // NT_GNU_BUILD_ID of "GNU".
            if memory.u32(at + 8)? == 3 && memory.read::<4>(at + 12) == Some(*b"GNU\0") {
                let length = (bytes as usize).min(id.len());
                memory.fill(value, id.get_mut(..length)?)?;
                return Some(length);
            }
            at = value.checked_add(u64::from(bytes).next_multiple_of(4))?;
        }
    }
    None
}

const DYNAMIC: u32 = 2;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const HASHES: u64 = 0x6fff_fef5;
/// Entries of the dynamic section, and symbols of one hash, that are looked at.
const ENTRIES: u64 = 256;
const CHAIN: u32 = 1 << 16;

/// The address of a symbol that the file at `base` exports, by its hash table.
pub(super) fn symbol(memory: &mut Memory, base: u64, name: &[u8]) -> Option<u64> {
    if base == 0 || !is_elf(memory, base) {
        return None;
    }
    let bias = bias(memory, base)?;
    let dynamic = (0..).map_while(|number| segment(memory, base, number)).find(|it| it.kind == DYNAMIC)?;
    let (mut strings, mut symbols, mut hashes) = (0, 0, 0);
    for number in 0..ENTRIES {
        let at = bias.wrapping_add(dynamic.address).checked_add(number * 16)?;
        let value = memory.u64(at.checked_add(8)?)?;
        // The loader has moved these addresses already; those of a library that it did not load are the file's own.
        let moved = if value < base { value.wrapping_add(bias) } else { value };
        match memory.u64(at)? {
            0 => break,
            STRINGS => strings = moved,
            SYMBOLS => symbols = moved,
            HASHES => hashes = moved,
            _ => {}
        }
    }
    if strings == 0 || symbols == 0 || hashes == 0 {
        return None;
    }
    let hash = name.iter().fold(5381u32, |h, byte| h.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    let (buckets, first) = (memory.u32(hashes)?, memory.u32(hashes.checked_add(4)?)?);
    let filter = u64::from(memory.u32(hashes.checked_add(8)?)?);
    let table = hashes.checked_add(16 + filter * 8)?;
    let chains = table.checked_add(u64::from(buckets) * 4)?;
    let head = memory.u32(table.checked_add(u64::from(hash.checked_rem(buckets)?) * 4)?)?;
    for number in head..head.saturating_add(CHAIN) {
        let chain = memory.u32(chains.checked_add(u64::from(number.checked_sub(first)?) * 4)?)?;
        if chain | 1 == hash | 1 {
            let at = symbols.checked_add(u64::from(number) * 24)?;
            let text = strings.checked_add(memory.u32(at)?.into())?;
            if is_text(memory, text, name)? {
                return Some(bias.wrapping_add(memory.u64(at.checked_add(8)?)?));
            }
        }
        if chain & 1 != 0 {
            return None;
        }
    }
    None
}

/// Returns true if a text that ends with a zero stands at an address.
fn is_text(memory: &mut Memory, at: u64, text: &[u8]) -> Option<bool> {
    for (offset, byte) in (0..).zip(text.iter().chain([&0])) {
        if memory.u8(at.checked_add(offset)?)? != *byte {
            return Some(false);
        }
    }
    Some(true)
}
