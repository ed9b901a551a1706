//! One executable or library.

use addr2line::Loader;
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SectionKind};
use radrm_profile::model::Symbol;
use std::{
    ops::Range,
    path::{Path, PathBuf},
};

/// Functions inlined into each other at one address that are kept.
const INLINED: usize = 32;

/// The names in an executable or library.
pub struct SymbolFile {
    /// Its debug information, or that of a file beside it.
    debug: Option<Loader>,
    /// Its functions by address: beginning, bytes (0: up to the next), name.
    functions: Vec<(u64, u64, String)>,
    /// Address ranges of its code.
    /// Debug information also describes functions that the linker left out, at addresses near 0.
    code: Vec<Range<u64>>,
}

impl SymbolFile {
    /// Opens a file. `None`: it is not here, or its build id is not `build_id`.
    pub fn open(path: &str, build_id: &[u8]) -> Option<Self> {
        let path = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
        // Libraries can have gigabytes: only what is needed is read.
        let bytes = ReadCache::new(std::fs::File::open(path).ok()?);
        let file = object::File::parse(&bytes).ok()?;
        if file.build_id().ok().flatten().unwrap_or_default() != build_id {
            return None;
        }
        // A file beside it has more: distributions strip their libraries and keep the rest there.
        let debug = separate(build_id).and_then(|path| Loader::new(path).ok());
        let debug = debug.or_else(|| Loader::new(path).ok());
        let mut functions: Vec<(u64, u64, String)> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.address() != 0)
            .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?.to_owned())))
            .collect();
        functions.sort();
        functions.dedup_by_key(|function| function.0);
        let sections = file.sections().filter(|section| section.kind() == SectionKind::Text);
        let code =
            sections.map(|section| section.address()..section.address().saturating_add(section.size()));
        Some(Self { debug, functions, code: code.collect() })
    }

    /// The functions at an address of the file, what was inlined into others first; empty: none is known.
    pub fn names(&self, address: u64) -> Vec<Symbol> {
        // A file without sections says nothing of where its code is.
        if !self.code.is_empty() && !self.code.iter().any(|range| range.contains(&address)) {
            return Vec::new();
        }
        let mut names = self.by_debug(address);
        if names.is_empty() {
            names.extend(self.by_symbol(address));
        }
        names
    }

    fn by_debug(&self, address: u64) -> Vec<Symbol> {
        let mut names = Vec::new();
        let Some(mut frames) = self.debug.as_ref().and_then(|debug| debug.find_frames(address).ok()) else {
            return names;
        };
        while let (true, Ok(Some(frame))) = (names.len() < INLINED, frames.next()) {
            let location = frame.location.as_ref();
            let named =
                frame.function.as_ref().and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let function = named.or_else(|| self.by_symbol(address).map(|symbol| symbol.function));
            // Lines without a function say too little to be a frame.
            let Some(function) = function else { continue };
            names.push(Symbol {
                function,
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line),
            });
        }
        names
    }

    fn by_symbol(&self, address: u64) -> Option<Symbol> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, bytes, name) = self.functions.get(after.checked_sub(1)?)?;
        let is_inside = *bytes == 0 || address - start < *bytes;
        is_inside.then(|| Symbol { function: name.clone(), file: None, line: None })
    }
}

/// Path at which distributions store debug information that they take out of a file; `None` if there is none.
fn separate(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn known_function() -> u64 {
        std::hint::black_box(known_function as *const ()).addr() as u64
    }

    /// Load address of this program.
    fn bias() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let exe = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(exe.to_str().unwrap())).unwrap();
        u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    }

    fn own_id() -> Vec<u8> {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        object::File::parse(&*bytes).unwrap().build_id().unwrap().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_function_of_this_program_has_its_name_and_line() {
        let exe = std::env::current_exe().unwrap();
        let file = SymbolFile::open(exe.to_str().unwrap(), &own_id()).unwrap();
        let names = file.names(known_function() - bias());
        let name = names.last().unwrap();
        assert!(name.function.contains("known_function"), "{name:?}");
        assert!(name.file.as_ref().unwrap().ends_with("symbols/src/file.rs"), "{name:?}");
        assert!(name.line.is_some());
        for nowhere in [0, 1, 64, u64::MAX] {
            assert_eq!(file.names(nowhere), [], "{nowhere}");
        }
    }

    #[test]
    fn a_file_with_another_build_id_gives_no_names() {
        let exe = std::env::current_exe().unwrap();
        let mut id = own_id();
        id.push(1);
        assert!(SymbolFile::open(exe.to_str().unwrap(), &id).is_none());
        assert!(SymbolFile::open("/nowhere/lib.so", &[]).is_none());
    }
}
