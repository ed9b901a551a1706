//! Writing a shared object: names, versions, and a few bytes of code for each export.
//!
//! ```text
//! read-only   headers, dynamic symbols and their names, hash table, versions, relocations, texts
//! code        32 bytes for each export
//! writable    the dynamic section, one address for each toolkit function, variables
//! ```
//! Addresses are file offsets. Section headers are left out: the loader needs none.

use object::elf;
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, Rel, Sym, Verdef, Writer};

use crate::code::{self, PAGE};

/// Destination of an export's calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this function of the toolkit, arguments as they are.
    Function(String),
    /// Back at once, with success.
    Done,
    /// To the toolkit's counter of calls without semantics.
    Missing {
        /// Status that the caller gets.
        status: i32,
    },
}

/// A function of the stand-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name.
    pub name: String,
    /// Destination of its calls.
    pub target: Target,
}

/// Content of a stand-in.
#[derive(Debug)]
pub struct Text<'a> {
    /// Its name.
    pub soname: &'a str,
    /// Version of its symbols.
    pub version: Option<&'a str>,
    /// Path of the toolkit.
    pub needed: &'a str,
    /// Functions.
    pub exports: &'a [Export],
    /// Variables and their sizes in bytes; they are zero.
    pub data: &'a [(String, u64)],
}

/// The toolkit's function that counts calls without semantics: `(name, status) -> status`.
const COUNTER: &str = "radrm_toolkit_missing";
/// Bytes of code of an export.
const CODE: usize = code::SIZE;
/// A symbol needs a section to be defined in; the loader looks only at whether there is one.
const DEFINED: u16 = 1;

/// Address of each function of the toolkit that is used, in a table of its own.
struct Imports<'a> {
    names: Vec<&'a str>,
}

impl<'a> Imports<'a> {
    fn of(exports: &'a [Export]) -> Self {
        let mut names: Vec<&str> = exports
            .iter()
            .filter_map(|export| match &export.target {
                Target::Function(name) => Some(name.as_str()),
                Target::Missing { .. } => Some(COUNTER),
                Target::Done => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        Self { names }
    }

    fn place(&self, name: &str) -> Result<usize, BuildError> {
        self.names.binary_search(&name).map_err(|_| BuildError::NoImport(name.to_owned()))
    }
}

/// Position of each part of the file.
struct Layout {
    dynsym: usize,
    dynstr: usize,
    hash: usize,
    versym: usize,
    verdef: usize,
    relocations: usize,
    texts: usize,
    code: usize,
    dynamic: usize,
    table: usize,
    data: usize,
    end: usize,
}

/// Reason that a stand-in cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An export forwards to a function that the stand-in does not import.
    #[error("{0} is not among the imports")]
    NoImport(String),
    /// More symbols than a hash table of the format counts.
    #[error("too many symbols")]
    Symbols,
    /// More data than an address space holds.
    #[error("too much data")]
    Data,
    /// The writer of object files refuses it.
    #[error(transparent)]
    Write(object::write::Error),
}

/// Puts the bytes of a stand-in together.
///
/// # Errors
/// It does not fit the format.
pub fn build(text: &Text<'_>) -> Result<Vec<u8>, BuildError> {
    let imports = Imports::of(text.exports);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(object::Endianness::Little, true, &mut bytes);
    let writer = &mut writer;

    let soname = writer.add_dynamic_string(text.soname.as_bytes());
    let version = text.version.map(|version| writer.add_dynamic_string(version.as_bytes()));
    let needed = writer.add_dynamic_string(text.needed.as_bytes());
    let imported: Vec<StringId> =
        imports.names.iter().map(|name| writer.add_dynamic_string(name.as_bytes())).collect();
    let exported: Vec<StringId> =
        text.exports.iter().map(|export| writer.add_dynamic_string(export.name.as_bytes())).collect();
    let variables: Vec<StringId> =
        text.data.iter().map(|(name, _)| writer.add_dynamic_string(name.as_bytes())).collect();
    let symbols = imported.len() + exported.len() + variables.len();
    for _ in 0..symbols {
        writer.reserve_dynamic_symbol_index();
    }
    let chain = u32::try_from(symbols + 1).map_err(|_| BuildError::Symbols)?;
    let buckets = chain.max(8) / 2;

    let dynamics = 10 + usize::from(version.is_some()) * 3;
    let texts_size: usize = text.exports.iter().map(|export| export.name.len() + 1).sum();
    let data_size: u64 = text.data.iter().map(|(_, size)| size.next_multiple_of(16)).sum();
    writer.reserve_file_header();
    writer.reserve_program_headers(5);
    let dynsym = writer.reserve_dynsym();
    let dynstr = writer.reserve_dynstr();
    let hash = writer.reserve_hash(buckets, chain);
    let (versym, verdef) = if version.is_some() {
        (writer.reserve_gnu_versym(), writer.reserve_gnu_verdef(2, 2))
    } else {
        (0, 0)
    };
    let relocations = writer.reserve_relocations(imported.len(), true);
    let texts = writer.reserve(texts_size, 1);
    let code = writer.reserve(text.exports.len() * CODE, PAGE);
    let dynamic = writer.reserve(0, PAGE);
    writer.reserve_dynamic(dynamics);
    let table = writer.reserve(imported.len() * 8, 8);
    let data = writer.reserve(usize::try_from(data_size).map_err(|_| BuildError::Data)?, 16);
    let end = writer.reserved_len();
    let at =
        Layout { dynsym, dynstr, hash, versym, verdef, relocations, texts, code, dynamic, table, data, end };

    writer
        .write_file_header(&FileHeader {
            os_abi: 0,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: code::MACHINE,
            e_entry: 0,
            e_flags: 0,
        })
        .map_err(BuildError::Write)?;
    write_segments(writer, &at, dynamics * 16);
    let versions = Versions { soname, version };
    write_symbols(writer, &at, text, &imported, &exported, &variables);
    writer.write_dynstr();
    write_hash(writer, text, &imports, buckets, chain);
    versions.write(writer, imported.len(), exported.len() + variables.len());
    write_relocations(writer, &at, imported.len());
    write_code(writer, &at, text, &imports)?;
    write_dynamic(writer, &at, &versions, needed, imported.len()).map_err(BuildError::Write)?;
    writer.reserve_until(at.end);
    write_zeros(writer, at.end, at.table);
    Ok(bytes)
}

fn write_zeros(writer: &mut Writer<'_>, end: usize, from: usize) {
    writer.write_align(8);
    writer.write(&vec![0; end - from]);
}

fn write_segments(writer: &mut Writer<'_>, at: &Layout, dynamic_size: usize) {
    writer.write_align_program_headers();
    let mut segment = |kind: u32, flags: u32, from: usize, to: usize, align: usize| {
        let (offset, size) = (from as u64, (to - from) as u64);
        writer.write_program_header(&ProgramHeader {
            p_type: kind,
            p_flags: flags,
            p_offset: offset,
            p_vaddr: offset,
            p_paddr: offset,
            p_filesz: size,
            p_memsz: size,
            p_align: align as u64,
        });
    };
    segment(elf::PT_LOAD, elf::PF_R, 0, at.code, PAGE);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_X, at.code, at.dynamic, PAGE);
    segment(elf::PT_LOAD, elf::PF_R | elf::PF_W, at.dynamic, at.end, PAGE);
    segment(elf::PT_DYNAMIC, elf::PF_R | elf::PF_W, at.dynamic, at.dynamic + dynamic_size, 8);
    segment(elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, 0, 0, 16);
}

fn write_symbols(
    writer: &mut Writer<'_>,
    at: &Layout,
    text: &Text<'_>,
    imported: &[StringId],
    exported: &[StringId],
    variables: &[StringId],
) {
    let global = |kind: u8| (elf::STB_GLOBAL << 4) | kind;
    let symbol = |name: StringId, info: u8, section: u16, value: u64, size: u64| Sym {
        name: Some(name),
        section: None,
        st_info: info,
        st_other: elf::STV_DEFAULT,
        st_shndx: section,
        st_value: value,
        st_size: size,
    };
    writer.write_null_dynamic_symbol();
    for name in imported {
        writer.write_dynamic_symbol(&symbol(*name, global(elf::STT_FUNC), elf::SHN_UNDEF, 0, 0));
    }
    for (index, name) in exported.iter().enumerate() {
        let address = (at.code + index * CODE) as u64;
        writer.write_dynamic_symbol(&symbol(*name, global(elf::STT_FUNC), DEFINED, address, CODE as u64));
    }
    let mut address = at.data as u64;
    for (name, (_, size)) in variables.iter().zip(text.data) {
        writer.write_dynamic_symbol(&symbol(*name, global(elf::STT_OBJECT), DEFINED, address, *size));
        address += size.next_multiple_of(16);
    }
}

fn write_hash(writer: &mut Writer<'_>, text: &Text<'_>, imports: &Imports<'_>, buckets: u32, chain: u32) {
    let first = imports.names.len() + 1;
    let names: Vec<&str> = text
        .exports
        .iter()
        .map(|export| export.name.as_str())
        .chain(text.data.iter().map(|(name, _)| name.as_str()))
        .collect();
    writer.write_hash(buckets, chain, |index| {
        let place = (index as usize).checked_sub(first)?;
        names.get(place).map(|name| elf::hash(name.as_bytes()))
    });
}

fn write_relocations(writer: &mut Writer<'_>, at: &Layout, imported: usize) {
    writer.write_align_relocation();
    for index in 0..imported {
        writer.write_relocation(
            true,
            &Rel {
                r_offset: (at.table + index * 8) as u64,
                r_sym: index as u32 + 1,
                r_type: code::GLOB_DAT,
                r_addend: 0,
            },
        );
    }
}

fn write_code(
    writer: &mut Writer<'_>,
    at: &Layout,
    text: &Text<'_>,
    imports: &Imports<'_>,
) -> Result<(), BuildError> {
    let mut names = Vec::new();
    let mut all = Vec::new();
    for export in text.exports {
        let start = at.code + all.len();
        let name = at.texts + names.len();
        names.extend_from_slice(export.name.as_bytes());
        names.push(0);
        let slot = |function: &str| Ok::<usize, BuildError>(at.table + imports.place(function)? * 8);
        let mut own = match &export.target {
            Target::Function(function) => code::jump(start, slot(function)?),
            Target::Done => code::done(),
            Target::Missing { status } => code::missing(start, name, *status, slot(COUNTER)?),
        };
        code::pad(&mut own);
        all.extend_from_slice(&own);
    }
    writer.write(&names);
    writer.write_align(PAGE);
    writer.write(&all);
    writer.write_align(PAGE);
    Ok(())
}

fn write_dynamic(
    writer: &mut Writer<'_>,
    at: &Layout,
    versions: &Versions,
    needed: StringId,
    imported: usize,
) -> object::write::Result<()> {
    let strings = writer.dynstr_len() as u64;
    writer.write_align_dynamic();
    writer.write_dynamic_string(elf::DT_SONAME, versions.soname)?;
    writer.write_dynamic_string(elf::DT_NEEDED, needed)?;
    writer.write_dynamic(elf::DT_HASH, at.hash as u64)?;
    writer.write_dynamic(elf::DT_STRTAB, at.dynstr as u64)?;
    writer.write_dynamic(elf::DT_SYMTAB, at.dynsym as u64)?;
    writer.write_dynamic(elf::DT_STRSZ, strings)?;
    writer.write_dynamic(elf::DT_RELA, at.relocations as u64)?;
    writer.write_dynamic(elf::DT_RELASZ, (imported * 24) as u64)?;
    writer.write_dynamic(elf::DT_RELAENT, 24)?;
    if versions.version.is_some() {
        writer.write_dynamic(elf::DT_VERSYM, at.versym as u64)?;
        writer.write_dynamic(elf::DT_VERDEF, at.verdef as u64)?;
        writer.write_dynamic(elf::DT_VERDEFNUM, 2)?;
    }
    writer.write_dynamic(elf::DT_NULL, 0)
}

/// The versions that the stand-in defines: its own name and that of its symbols.
struct Versions {
    soname: StringId,
    version: Option<StringId>,
}

impl Versions {
    fn write(&self, writer: &mut Writer<'_>, imported: usize, exported: usize) {
        let Some(version) = self.version else { return };
        writer.write_null_gnu_versym();
        for _ in 0..imported {
            writer.write_gnu_versym(elf::VER_NDX_GLOBAL);
        }
        for _ in 0..exported {
            writer.write_gnu_versym(2);
        }
        writer.write_align_gnu_verdef();
        let entry = |flags: u16, index: u16, name: StringId| Verdef {
            version: elf::VER_DEF_CURRENT,
            flags,
            index,
            aux_count: 1,
            name,
        };
        writer.write_gnu_verdef(&entry(elf::VER_FLG_BASE, 1, self.soname));
        writer.write_gnu_verdef(&entry(0, 2, version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CString, c_int, c_void};

    /// Loads a stand-in whose "toolkit" is the C library, and finds one of its symbols by name and version.
    fn load(text: &Text<'_>, symbol: &str, version: &str) -> *mut c_void {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(text.soname);
        std::fs::write(&file, build(text).unwrap()).unwrap();
        let path = CString::new(file.to_string_lossy().into_owned()).unwrap();
        // SAFETY: a C string; the object runs no code when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{:?}", {
            // SAFETY: an error has just happened, so there is a text.
            unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) }
        });
        let [symbol, version] = [symbol, version].map(|text| CString::new(text).unwrap());
        // SAFETY: a handle and C strings.
        unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) }
    }

    fn text<'a>(exports: &'a [Export], data: &'a [(String, u64)]) -> Text<'a> {
        Text { soname: "libtest.so.7", version: Some("libtest.so.7"), needed: "libc.so.6", exports, data }
    }

    fn exports() -> Vec<Export> {
        let export = |name: &str, target| Export { name: name.to_owned(), target };
        let mut all: Vec<Export> =
            (0..300).map(|number| export(&format!("filler_{number}"), Target::Done)).collect();
        all.push(export("own_process", Target::Function("getpid".to_owned())));
        all.push(export("nothing", Target::Done));
        all
    }

    #[test]
    fn the_loader_takes_it_and_calls_arrive() {
        let exports = exports();
        let data = [("counter".to_owned(), 4)];
        let call = |symbol: &str| {
            let address = load(&text(&exports, &data), symbol, "libtest.so.7");
            assert!(!address.is_null(), "{symbol}");
            // SAFETY: both exports have no arguments and give an int.
            let function = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(address) };
            function()
        };
        assert_eq!(call("own_process").unsigned_abs(), std::process::id());
        assert_eq!(call("nothing"), 0);
        assert_eq!(call("filler_299"), 0);
        let variable = load(&text(&exports, &data), "counter", "libtest.so.7").cast::<i32>();
        // SAFETY: four bytes that belong to the object, which stays loaded.
        unsafe {
            assert_eq!(variable.read(), 0);
            variable.write(7);
        }
    }

    #[test]
    fn another_version_is_not_found() {
        let exports = exports();
        assert!(load(&text(&exports, &[]), "nothing", "libtest.so.8").is_null());
    }
}
