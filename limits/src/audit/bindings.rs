//! By which way a process reaches the driver, as far as its loaded files and their bound symbols show it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectKind, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use radrm_os::{Mapping, Process, word_in};
use radrm_telemetry::JoinFailure;

use crate::jobs::names_segment;
use crate::program::elf::bounded::{Bounded, Room, Tables};
use crate::program::libraries;

/// Bytes of tables that are read of one file, and of all of a process's: those of the largest library that is known take
/// a third.
const MAX_FILE_READ: u64 = 48 << 20;
const MAX_READ: u64 = 512 << 20;
/// Errors by which a mapped file shows nothing.
const HAS_NOTHING: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidInput, io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
/// Places of addresses in one file that are looked at.
const MAX_SLOTS: usize = 10_000;
/// The C library, where `dlsym` is.
const LIBC: &str = "libc.so.6";
/// A function that every driver defines.
const OF_DRIVERS: &str = "cuInit";
/// Variable in which the shim writes the reason that it cannot join.
const OF_SHIM: &str = "radrm_join_failure";

/// Findings from the loaded files of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bindings {
    /// The shim is loaded.
    pub shim: bool,
    /// A segment is mapped: the shim counts in it.
    pub segment: bool,
    /// Files that define the driver's functions, the shim apart.
    pub drivers: Vec<PathBuf>,
    /// The C library is loaded more than once: some libraries live in a linker namespace of their own.
    pub has_linker_namespaces: bool,
    /// A library whose calls are bound to the driver, or to the C library's `dlsym`, although the shim comes first in
    /// the global order.
    pub past_shim: Option<PathBuf>,
    /// Reason that its shim cannot join its job, as the shim itself states it.
    pub join_failure: Option<JoinFailure>,
    /// A mapped file that cannot be read, with the reason: it may be any of these.
    pub unreadable: Option<String>,
}

impl Bindings {
    /// Reads the bindings of a process.
    ///
    /// # Errors
    /// If this user may not read it, or its list of mapped files is too long.
    pub fn of(process: Process) -> io::Result<Self> {
        let mappings = process.mappings()?;
        let mut bindings = Self {
            shim: mappings.iter().any(|map| is_called(&map.path, libraries::SHIM)),
            segment: mappings.iter().any(|map| names_segment(map.path.as_os_str())),
            ..Self::default()
        };
        // Each is loaded where its first byte is; a file that is loaded twice has two.
        let loaded = || mappings.iter().filter(|map| map.offset == 0);
        bindings.has_linker_namespaces = loaded().filter(|map| is_called(&map.path, LIBC)).count() > 1;
        let mut files: BTreeMap<_, Vec<&Mapping>> = BTreeMap::new();
        for map in loaded().filter(|map| !is_called(&map.path, libraries::SHIM)) {
            files.entry(map.file).or_default().push(map);
        }
        let mut references = Vec::new();
        let mut budget = MAX_READ;
        for copies in files.values() {
            let path = &copies[0].path;
            let file = match Symbols::of_mapping(process, copies[0], &mut budget) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(error) => {
                    let what = || format!("{}: {error}", path.display());
                    bindings.unreadable.get_or_insert_with(what);
                    continue;
                }
            };
            if file.defines_driver {
                bindings.drivers.push(path.clone());
            } else if !is_called(path, LIBC) {
                let of_copy = |map: &&Mapping| (path.clone(), if file.is_fixed { 0 } else { map.start });
                references
                    .extend(copies.iter().map(of_copy).map(|(path, base)| (path, base, file.slots.clone())));
            }
        }
        // Without a shim every call goes past it.
        let past = |address: u64| {
            let target = mappings.iter().find(|map| (map.start..map.end).contains(&address));
            target.is_some_and(|map| is_called(&map.path, LIBC) || bindings.drivers.contains(&map.path))
        };
        let memory = process.memory();
        let is_past = |base: u64, slots: &[u64]| {
            let Some(memory) = &memory else { return false };
            slots.iter().filter_map(|slot| word_in(memory, base.wrapping_add(*slot))).any(past)
        };
        if bindings.shim {
            bindings.join_failure =
                memory.as_ref().and_then(|memory| join_failure(process, memory, &mappings));
            let found = references.into_iter().find(|(_, base, slots)| is_past(*base, slots));
            bindings.past_shim = found.map(|(path, ..)| path);
        }
        Ok(bindings)
    }
}

/// The shim's own word on why it cannot join, in the process's memory.
fn join_failure(process: Process, memory: &File, mappings: &[Mapping]) -> Option<JoinFailure> {
    let shim = mappings.iter().find(|map| map.offset == 0 && is_called(&map.path, libraries::SHIM))?;
    let file = process.mapped_file(shim).ok()?;
    let (tables, room) = (Tables::of(&file), Room::of(MAX_FILE_READ));
    let elf = ElfFile64::<object::Endianness, _>::parse(tables.within(&room)).ok()?;
    let word = elf.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(OF_SHIM))?;
    let number = word_in(memory, shim.start.checked_add(word.address())?)? as u32;
    JoinFailure::from_raw(u8::try_from(number).ok()?)
}

fn is_called(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|file| file == name)
}

/// Findings from a file's dynamic symbols.
struct Symbols {
    defines_driver: bool,
    /// It is loaded at the addresses that it names.
    is_fixed: bool,
    /// Places of the addresses of the driver's functions and of `dlsym`, relative to where the file is loaded.
    slots: Vec<u64>,
}

impl Symbols {
    /// Reads the symbols of a mapped file; `None` if it is not a library or program. Takes what it reads from the
    /// budget.
    fn of_mapping(process: Process, mapping: &Mapping, budget: &mut u64) -> io::Result<Option<Self>> {
        let file = match process.mapped_file(mapping) {
            // A device is not a library. A file that has gone, or that this user may not open, shows nothing.
            Err(error) if HAS_NOTHING.contains(&error.kind()) => return Ok(None),
            other => other?,
        };
        let bytes = MAX_FILE_READ.min(*budget);
        let (tables, room) = (Tables::of(&file), Room::of(bytes));
        let symbols = Self::read(tables.within(&room));
        let Some(left) = room.left() else { return Err(io::Error::other("its tables are too large")) };
        *budget -= bytes - left;
        Ok(symbols)
    }

    fn read(data: Bounded<'_, '_>) -> Option<Self> {
        let elf = ElfFile64::<object::Endianness, _>::parse(data).ok()?;
        let table = elf.dynamic_symbol_table()?;
        let leads_to_driver = |name: &[u8]| {
            matches!(name, b"dlsym" | b"dlvsym")
                || name
                    .strip_prefix(b"cu")
                    .is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_uppercase))
        };
        let slots = elf.dynamic_relocations()?.filter_map(|(offset, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let symbol = table.symbol_by_index(index).ok()?;
            (symbol.is_undefined() && leads_to_driver(symbol.name_bytes().ok()?)).then_some(offset)
        });
        let is_init = |symbol: &_| {
            let symbol: &object::read::elf::ElfSymbol<'_, '_, _, _> = symbol;
            symbol.is_definition() && symbol.name() == Ok(OF_DRIVERS)
        };
        Some(Self {
            defines_driver: elf.dynamic_symbols().any(|symbol| is_init(&symbol)),
            is_fixed: elf.kind() == ObjectKind::Executable,
            slots: slots.take(MAX_SLOTS).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_one_c_library_and_no_driver() {
        let own = Bindings::of(Process(std::process::id())).unwrap();
        assert_eq!((own.has_linker_namespaces, own.past_shim), (false, None));
        assert_eq!(own.drivers, Vec::<PathBuf>::new());
        assert!(Bindings::of(Process(4_194_305)).is_err());
    }

    #[test]
    fn slots_of_look_up_functions_are_found() {
        // The standard library looks up functions by name.
        let exe = File::open("/proc/self/exe").unwrap();
        let (tables, room) = (Tables::of(&exe), Room::of(MAX_FILE_READ));
        let own = Symbols::read(tables.within(&room)).unwrap();
        assert!(!own.defines_driver);
        let process = Process(std::process::id());
        let maps = process.mappings().unwrap();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let base = maps.iter().find(|map| map.path == exe && map.offset == 0).unwrap().start;
        for slot in &own.slots {
            let address = word_in(&process.memory().unwrap(), base + slot).unwrap();
            assert!(maps.iter().any(|map| (map.start..map.end).contains(&address)), "{slot:x}");
        }
    }
}
