//! Reader of how a program file is loaded: just enough to decide whether a preloaded library can get into it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use object::elf::{DT_NEEDED, ET_DYN, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadRef};

use bounded::{Bounded, Room, Tables};

mod blocks;
pub mod bounded;

/// The parts of an ELF file that decide about preloading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// 64-bit class.
    pub wide: bool,
    /// Little-endian.
    pub little: bool,
    /// The machine number (62 is x86-64, 183 is AArch64).
    pub machine: u16,
    /// A shared object or a position-independent program.
    pub shared: bool,
    /// The program interpreter: the dynamic loader that the kernel starts.
    pub interpreter: Option<String>,
    /// Libraries that it needs by name. Empty for other classes and machines.
    pub needed: Vec<String>,
    /// The newest `GLIBC_x.y` version that it asks for.
    pub glibc: Option<(u32, u32)>,
}

/// The machine number of this build.
pub const OUR_MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Longest text that is taken from a file, bytes.
const MAX_TEXT: usize = 255;
/// Bytes of tables that are read of a file: what decides about preloading is short.
const MAX_READ: u64 = 16 << 20;
/// Symbol versions that are read.
const MAX_VERSIONS: usize = 4096;

impl Elf {
    /// Reads a file; `None` if it is not ELF at all or is cut off.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        // A file that is not there to be read is another matter than one that says nothing.
        file.read_at(&mut [0], 0)?;
        let (tables, room) = (Tables::of(file), Room::of(MAX_READ));
        let data = tables.within(&room);
        Ok(match FileKind::parse(data) {
            Ok(FileKind::Elf64) => Self::parse::<FileHeader64<Endianness>>(data),
            Ok(FileKind::Elf32) => Self::parse::<FileHeader32<Endianness>>(data),
            _ => None,
        })
    }

    fn parse<'d, H: FileHeader<Endian = Endianness>>(data: Bounded<'d, '_>) -> Option<Self> {
        // `H::parse` also refuses headers that the kernel takes.
        let header = data.read_at::<H>(0).ok()?;
        let endian = header.endian().ok()?;
        let mut elf = Self {
            wide: header.is_type_64(),
            little: header.is_little_endian(),
            machine: header.e_machine(endian),
            shared: header.e_type(endian) == ET_DYN,
            interpreter: None,
            needed: Vec::new(),
            glibc: None,
        };
        if elf.wide && elf.little {
            // What is damaged behind the header is left out.
            let _ = elf.read_interpreter(header, endian, data);
            let _ = elf.read_needs(header, endian, data);
        }
        Some(elf)
    }

    fn read_interpreter<'d, H: FileHeader>(
        &mut self,
        header: &H,
        endian: H::Endian,
        data: Bounded<'d, '_>,
    ) -> object::Result<()> {
        for segment in header.program_headers(endian, data)? {
            if let Some(interpreter) = segment.interpreter(endian, data)? {
                self.interpreter = Some(text(interpreter));
            }
        }
        Ok(())
    }

    /// Reads needed libraries and versions, by the section table, which every linker writes.
    fn read_needs<'d, H: FileHeader>(
        &mut self,
        header: &H,
        endian: H::Endian,
        data: Bounded<'d, '_>,
    ) -> object::Result<()> {
        let sections = header.sections(endian, data)?;
        let dynamic = sections.dynamic_table(endian, data)?;
        for entry in dynamic.iter().filter(|entry| entry.tag == DT_NEEDED) {
            self.needed.push(text(dynamic.string(entry)?));
        }
        let Some((mut files, strings)) = sections.gnu_verneed(endian, data)? else { return Ok(()) };
        let strings = sections.strings(endian, data, strings)?;
        let mut left = MAX_VERSIONS;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                left = left.saturating_sub(1);
                if left == 0 {
                    return Ok(());
                }
                self.glibc = self.glibc.max(glibc_version(&text(version.name(endian, strings)?)));
            }
        }
        Ok(())
    }
}

/// The beginning of a text of a file.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned()
}

/// `GLIBC_2.34` as (2, 34).
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn this_test_program_is_dynamic_and_needs_libc() {
        let elf = Elf::read(&File::open("/proc/self/exe").unwrap()).unwrap().unwrap();
        assert!(elf.wide && elf.little && elf.machine == OUR_MACHINE);
        assert!(elf.interpreter.unwrap().contains("ld-linux"));
        assert!(elf.needed.iter().any(|name| name == "libc.so.6"), "{:?}", elf.needed);
        assert!(elf.glibc >= Some((2, 17)), "{:?}", elf.glibc);
    }

    #[test]
    fn text_and_cut_off_files_are_not_elf() {
        for content in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", &[0x7f; 60]] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(content).unwrap();
            assert_eq!(Elf::read(&file).unwrap(), None);
        }
    }

    /// A whole library, small enough to be written thousands of times: a program of this size has all tables.
    fn whole() -> &'static [u8] {
        static WHOLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            let dir = tempfile::tempdir().unwrap();
            let (source, library) = (dir.path().join("a.c"), dir.path().join("a.so"));
            std::fs::write(&source, "#include <stdio.h>\nint main(void) { return puts(\"\"); }").unwrap();
            let mut compiler = std::process::Command::new("cc");
            compiler.args(["-o".as_ref(), library.as_os_str(), source.as_os_str()]);
            assert!(compiler.status().unwrap().success());
            std::fs::read(library).unwrap()
        });
        &WHOLE
    }

    fn read(content: &[u8]) -> Option<Elf> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Elf::read(&file).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn a_damaged_file_is_read_without_harm(
            cut in 0_usize..32_768,
            damages in proptest::collection::vec((0_usize..32_768, any::<u64>()), 0..6),
            in_header in proptest::collection::vec((0_usize..512, any::<u8>()), 0..4),
        ) {
            let mut bytes = whole().to_vec();
            for (at, value) in damages {
                let at = at % (bytes.len() - 8);
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            for (at, value) in in_header {
                bytes[at] = value;
            }
            read(&bytes);
            read(&bytes[..cut.min(bytes.len())]);
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(glibc_version("GLIBC_2.34") > glibc_version("GLIBC_2.4"));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }
}
