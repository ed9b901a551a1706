//! By which way a process reaches the driver, as far as its loaded files and their bound symbols show it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectKind, ObjectSymbol, ObjectSymbolTable, ReadCache, RelocationTarget};
use radrm_os::{Mapping, Process};
use radrm_telemetry::JoinFailure;

use crate::jobs::names_segment;
use crate::program::libraries;

/// The C library, where `dlsym` is.
const LIBC: &str = "libc.so.6";
/// A function that every driver defines.
const OF_DRIVERS: &str = "cuInit";
/// Where the shim writes why it cannot join.
const OF_SHIM: &str = "radrm_join_failure";

/// What the loaded files of a process show.
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
    /// Why its shim cannot join its job, by the shim's own word.
    pub join_failure: Option<JoinFailure>,
}

impl Bindings {
    /// Those of a process; `None` if this user may not read it.
    #[must_use]
    pub fn of(process: Process) -> Option<Self> {
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
        for copies in files.values() {
            let path = &copies[0].path;
            let Some(file) = Symbols::read(&process.opens(path)) else { continue };
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
        let is_past = |base: u64, slots: &[u64]| {
            slots.iter().filter_map(|slot| process.word_at(base.wrapping_add(*slot))).any(past)
        };
        if bindings.shim {
            bindings.join_failure = join_failure(process, &mappings);
            let found = references.into_iter().find(|(_, base, slots)| is_past(*base, slots));
            bindings.past_shim = found.map(|(path, ..)| path);
        }
        Some(bindings)
    }
}

/// The shim's own word on why it cannot join, in the process's memory.
fn join_failure(process: Process, mappings: &[Mapping]) -> Option<JoinFailure> {
    let shim = mappings.iter().find(|map| map.offset == 0 && is_called(&map.path, libraries::SHIM))?;
    let data = ReadCache::new(File::open(process.opens(&shim.path)).ok()?);
    let elf = ElfFile64::<object::Endianness, _>::parse(&data).ok()?;
    let word = elf.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(OF_SHIM))?;
    let number = process.word_at(shim.start.checked_add(word.address())?)? as u32;
    JoinFailure::from_raw(u8::try_from(number).ok()?)
}

fn is_called(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|file| file == name)
}

/// What a file's dynamic symbols say.
struct Symbols {
    defines_driver: bool,
    /// It is loaded at the addresses that it names.
    is_fixed: bool,
    /// Where addresses of the driver's functions and of `dlsym` are put, relative to where it is loaded.
    slots: Vec<u64>,
}

impl Symbols {
    fn read(path: &Path) -> Option<Self> {
        let data = ReadCache::new(File::open(path).ok()?);
        let elf = ElfFile64::<object::Endianness, _>::parse(&data).ok()?;
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
            slots: slots.collect(),
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
        assert_eq!(Bindings::of(Process(4_194_305)), None);
    }

    #[test]
    fn slots_of_look_up_functions_are_found() {
        // The standard library looks up functions by name.
        let own = Symbols::read(Path::new("/proc/self/exe")).unwrap();
        assert!(!own.defines_driver);
        let process = Process(std::process::id());
        let maps = process.mappings().unwrap();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let base = maps.iter().find(|map| map.path == exe && map.offset == 0).unwrap().start;
        for slot in &own.slots {
            let address = process.word_at(base + slot).unwrap();
            assert!(maps.iter().any(|map| (map.start..map.end).contains(&address)), "{slot:x}");
        }
    }
}
