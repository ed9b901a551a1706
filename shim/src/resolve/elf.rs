//! Looks up symbols in loaded objects by reading their tables: no call into the dynamic linker, so it
//! works at any time (inside an allocator, before libc is set up) and leaves `dlerror` alone.

use core::ffi::{CStr, c_char};

use super::objects::{self, Dyn, LinkMap, MANY};

/// A relocation.
#[repr(C)]
struct Rela {
    offset: usize,
    kind: u32,
    symbol: u32,
    addend: isize,
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

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// Version index flag of a symbol that is not the default of its name.
const HIDDEN: u16 = 0x8000;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// The tables of one object.
struct Tables {
    base: usize,
    strings: *const c_char,
    symbols: *const Sym,
    versions: *const u16,
    hash: *const u32,
    /// Address and size in bytes of each table of relocations.
    relocations: [(usize, usize); 2],
}

/// Address of the function that an object defines under a name, default version preferred.
///
/// # Safety
/// `map` must be a loaded object that stays loaded during the call.
pub(crate) unsafe fn function(map: *const LinkMap, name: &CStr) -> Option<*mut ()> {
    // SAFETY: the caller's promise.
    let tables = unsafe { Tables::of(map) }?;
    // SAFETY: the tables are those of a loaded object.
    unsafe { tables.find(name, STT_FUNC) }
}

/// Address of the variable that one of the loaded objects defines under a name: the first in the linker's order, as a
/// program's own code would find it.
///
/// The name must be one that an initial object of the program defines, since later ones may be unloaded meanwhile.
pub(crate) fn variable(name: &CStr) -> Option<*mut ()> {
    objects::all().find_map(|map| {
        // SAFETY: the program's initial objects come first in the list and stay loaded.
        unsafe { Tables::of(map).and_then(|tables| tables.find(name, STT_OBJECT)) }
    })
}

/// Returns true if an object's own code refers by name to a function that `is_meant`: such a reference leads to the
/// object that defines the name first, which with a preloaded library is not the object itself.
///
/// # Safety
/// `map` must be a loaded object that stays loaded during the call.
pub(crate) unsafe fn refers(map: *const LinkMap, is_meant: impl Fn(&CStr) -> bool) -> bool {
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { Tables::of(map) }) else { return false };
    tables.relocations.iter().any(|(at, bytes)| {
        let all = match *at {
            0 => &[],
            // SAFETY: the dynamic section says that so many bytes of relocations stand there.
            at => unsafe { core::slice::from_raw_parts(at as *const Rela, bytes / size_of::<Rela>()) },
        };
        // Most of a large object's relocations name no symbol.
        all.iter().filter(|r| r.symbol != 0).any(|r| {
            // SAFETY: relocations only name symbols that exist, whose names lie in the string table.
            is_meant(unsafe {
                let symbol = &*tables.symbols.wrapping_add(r.symbol as usize);
                CStr::from_ptr(tables.strings.wrapping_add(symbol.name as usize))
            })
        })
    })
}

impl Tables {
    unsafe fn of(map: *const LinkMap) -> Option<Self> {
        // SAFETY: the caller's promise.
        let map = unsafe { map.as_ref() }?;
        let base = map.base;
        // Some entries are addresses already, others still offsets, as the linker found them.
        let address = |value: usize| if value < base { value.wrapping_add(base) } else { value };
        let (mut strings, mut symbols, mut versions, mut hash) = (0, 0, 0, 0);
        let [mut data, mut calls] = [(0, 0); 2];
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
                DT_RELA => data.0 = address(*value),
                DT_RELASZ => data.1 = *value,
                DT_JMPREL => calls.0 = address(*value),
                DT_PLTRELSZ => calls.1 = *value,
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
            relocations: [data, calls],
        })
    }

    /// Walks the GNU hash table: header {buckets, first symbol, bloom words, shift}, bloom filter,
    /// buckets, chains whose last entry has bit 0 set.
    unsafe fn find(&self, name: &CStr, kind: u8) -> Option<*mut ()> {
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
                    && symbol.info & 0xf == kind
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
    use super::super::objects::named as object;
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
            let version = if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.3.2" };
            libc::dlvsym(libc::RTLD_DEFAULT, c"pthread_cond_wait".as_ptr(), version.as_ptr())
        };
        assert_eq!(ours, theirs.addr());
    }

    #[test]
    fn references_by_name_are_found() {
        let own = object(b"libgcc_s.so.1").or_else(|| object(b"libm.so.6"));
        let libc = object(b"libc.so.6").expect("every test process has libc");
        // SAFETY: libraries of the program stay loaded.
        unsafe {
            // libc lets programs replace its allocator; it calls its other functions directly.
            assert!(refers(libc, |name| name == c"malloc"));
            assert!(!refers(libc, |name| name == c"qsort"));
            assert!(own.is_none_or(|map| !refers(map, |name| name == c"no_such_function")));
        }
    }
}
