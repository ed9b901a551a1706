//! Looks up symbols in loaded objects by reading their tables: no call into the dynamic linker, so it
//! works at any time (inside an allocator, before libc is set up) and leaves `dlerror` alone.

use core::ffi::{CStr, c_char, c_int};

/// A loaded object, as the dynamic linker shows it to debuggers. A `dlopen` handle of glibc is one.
#[repr(C)]
pub(crate) struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
    previous: *const LinkMap,
}

#[repr(C)]
struct RDebug {
    version: c_int,
    map: *const LinkMap,
}

#[repr(C)]
struct Dyn {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

unsafe extern "C" {
    static _r_debug: RDebug;
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// Version index flag of a symbol that is not the default of its name.
const HIDDEN: u16 = 0x8000;
const STT_FUNC: u8 = 2;
/// Objects looked at before the walk gives up.
const MANY: usize = 65_536;

/// First address of an object and the number of bytes from there to the end of its last segment; 0 bytes
/// where its header is not in memory.
///
/// # Safety
/// `map` must be a loaded object that stays loaded during the call.
pub(crate) unsafe fn extent(map: *const LinkMap) -> (usize, usize) {
    // SAFETY: the caller's promise.
    let base = unsafe { (*map).base };
    let header = base as *const Header;
    // The header is the start of the first segment, unless somebody has built the object in an unusual
    // way; a shared object is never based at 0.
    // SAFETY: the first page of a based object is mapped.
    if base == 0 || unsafe { (*header).magic } != *b"\x7fELF" {
        return (base, 0);
    }
    // SAFETY: a valid header tells where its program headers stand, in the same segment.
    let segments = unsafe {
        let first = base.wrapping_add((*header).segments_at) as *const Segment;
        core::slice::from_raw_parts(first, usize::from((*header).segments))
    };
    let end = segments.iter().filter(|s| s.kind == PT_LOAD).map(|s| s.address.wrapping_add(s.memory)).max();
    (base, end.unwrap_or(0))
}

/// ELF header.
#[repr(C)]
struct Header {
    magic: [u8; 4],
    identity: [u8; 12],
    kind: u16,
    machine: u16,
    version: u32,
    entry: usize,
    segments_at: usize,
    sections_at: usize,
    flags: u32,
    header_bytes: u16,
    segment_bytes: u16,
    segments: u16,
}

/// Program header.
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file: usize,
    memory: usize,
    align: usize,
}

const PT_LOAD: u32 = 1;

/// The tables of one object.
struct Tables {
    base: usize,
    strings: *const c_char,
    symbols: *const Sym,
    versions: *const u16,
    hash: *const u32,
}

/// The first loaded object whose file name is `name`.
pub(crate) fn object(name: &[u8]) -> Option<*const LinkMap> {
    // SAFETY: the dynamic linker has filled the structure before any code of ours runs.
    let mut at = unsafe { (&raw const _r_debug.map).read() };
    for _ in 0..MANY {
        // SAFETY: the list holds the program's initial objects first, which stay for good.
        let map = unsafe { at.as_ref() }?;
        if !map.name.is_null() {
            // SAFETY: a loaded object's name is a C string.
            let path = unsafe { CStr::from_ptr(map.name) }.to_bytes();
            if path.rsplit(|b| *b == b'/').next() == Some(name) {
                return Some(at);
            }
        }
        at = map.next;
    }
    None
}

/// Address of the function that an object defines under a name, default version preferred.
///
/// # Safety
/// `map` must be a loaded object that stays loaded during the call.
pub(crate) unsafe fn function(map: *const LinkMap, name: &CStr) -> Option<*mut ()> {
    // SAFETY: the caller's promise.
    let tables = unsafe { Tables::of(map) }?;
    // SAFETY: the tables are those of a loaded object.
    unsafe { tables.find(name) }
}

impl Tables {
    unsafe fn of(map: *const LinkMap) -> Option<Self> {
        // SAFETY: the caller's promise.
        let map = unsafe { map.as_ref() }?;
        let base = map.base;
        // Some entries are addresses already, others still offsets, as the linker found them.
        let address = |value: usize| if value < base { value.wrapping_add(base) } else { value };
        let (mut strings, mut symbols, mut versions, mut hash) = (0, 0, 0, 0);
        let mut entry = map.dynamic;
        for _ in 0..MANY {
            // SAFETY: the dynamic section ends with a null entry, at which the loop stops.
            let Dyn { tag, value } = unsafe { entry.as_ref() }?;
            match *tag {
                0 => break,
                DT_STRTAB => strings = address(*value),
                DT_SYMTAB => symbols = address(*value),
                DT_VERSYM => versions = address(*value),
                DT_GNU_HASH => hash = address(*value),
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        if strings == 0 || symbols == 0 || hash == 0 {
            return None;
        }
        Some(Self {
            base,
            strings: strings as *const c_char,
            symbols: symbols as *const Sym,
            versions: versions as *const u16,
            hash: hash as *const u32,
        })
    }

    /// Walks the GNU hash table: header {buckets, first symbol, bloom words, shift}, bloom filter,
    /// buckets, chains whose last entry has bit 0 set.
    unsafe fn find(&self, name: &CStr) -> Option<*mut ()> {
        let wanted = gnu_hash(name.to_bytes());
        // SAFETY: the header has four words.
        let (buckets, first, bloom_words) =
            unsafe { (*self.hash, *self.hash.add(1), *self.hash.add(2) as usize) };
        let bucket = wanted.checked_rem(buckets)? as usize;
        let table = self.hash.wrapping_add(4 + 2 * bloom_words);
        let chains = table.wrapping_add(buckets as usize);
        // SAFETY: `bucket` is below the number of buckets.
        let mut index = unsafe { *table.wrapping_add(bucket) };
        if index < first {
            return None;
        }
        let mut fallback = None;
        loop {
            // SAFETY: chains run from the first hashed symbol on and end with a marked entry.
            let link = unsafe { *chains.wrapping_add((index - first) as usize) };
            if link | 1 == wanted | 1 {
                // SAFETY: the hash table only names symbols that exist.
                let symbol = unsafe { &*self.symbols.wrapping_add(index as usize) };
                if symbol.section != 0
                    && symbol.info & 0xf == STT_FUNC
                    // SAFETY: symbol names lie in the string table.
                    && unsafe { CStr::from_ptr(self.strings.wrapping_add(symbol.name as usize)) } == name
                {
                    let address = self.base.wrapping_add(symbol.value) as *mut ();
                    // SAFETY: the version table, where there is one, is parallel to the symbols.
                    let hidden = !self.versions.is_null()
                        && unsafe { *self.versions.wrapping_add(index as usize) } & HIDDEN != 0;
                    if !hidden {
                        return Some(address);
                    }
                    fallback = Some(address);
                }
            }
            if link & 1 != 0 {
                return fallback;
            }
            index = index.wrapping_add(1);
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_functions_are_found_where_the_linker_finds_them() {
        let libc = object(b"libc.so.6").expect("every test process has libc");
        for name in [c"getpid", c"dlopen", c"qsort", c"environ", c"no_such_function"] {
            // SAFETY: libc stays loaded.
            let ours = unsafe { function(libc, name) }.map_or(0, |p| p.addr());
            // SAFETY: plain look-up.
            let theirs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr();
            let expected = if name == c"environ" { 0 } else { theirs };
            assert_eq!(ours, expected, "{name:?}");
        }
    }

    #[test]
    fn the_default_version_of_a_name_wins() {
        let libc = object(b"libc.so.6").expect("every test process has libc");
        // SAFETY: libc stays loaded.
        let ours = unsafe { function(libc, c"pthread_cond_wait") }.map_or(0, |p| p.addr());
        // SAFETY: plain look-up.
        let theirs = unsafe {
            libc::dlvsym(libc::RTLD_DEFAULT, c"pthread_cond_wait".as_ptr(), c"GLIBC_2.3.2".as_ptr())
        };
        assert_eq!(ours, theirs.addr());
    }

    #[test]
    fn an_objects_functions_lie_in_its_extent() {
        let libc = object(b"libc.so.6").expect("every test process has libc");
        // SAFETY: libc stays loaded.
        let (start, bytes) = unsafe { extent(libc) };
        let inside = libc::getpid as *const () as usize;
        let outside = an_objects_functions_lie_in_its_extent as *const () as usize;
        assert!(inside.wrapping_sub(start) < bytes);
        assert!(outside.wrapping_sub(start) >= bytes);
    }

    #[test]
    fn an_absent_object_is_absent() {
        assert!(object(b"libcuda-that-nobody-has.so.1").is_none());
    }
}
