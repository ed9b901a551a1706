//! What a program file says about how it is loaded: just enough to tell whether a preloaded
//! library can get into it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

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

// Bounds on what a file can make us read.
const MOST_HEADERS: u16 = 512;
const MOST_DYNAMIC: u64 = 1 << 16;
const MOST_VERSIONS: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;

struct Load {
    offset: u64,
    address: u64,
    in_file: u64,
}

impl Elf {
    /// Reads a file; `None` if it is not ELF at all or is cut off.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: &File) -> io::Result<Option<Self>> {
        let mut head = [0_u8; 64];
        let got = read_up_to(file, &mut head, 0)?;
        if got < 52 || head[..4] != *b"\x7fELF" {
            return Ok(None);
        }
        let wide = head[4] == 2;
        let little = head[5] == 1;
        let mut elf = Self {
            wide,
            little,
            machine: if little {
                u16::from_le_bytes([head[18], head[19]])
            } else {
                u16::from_be_bytes([head[18], head[19]])
            },
            shared: head[16] == 3 || head[17] == 3,
            interpreter: None,
            needed: Vec::new(),
            glibc: None,
        };
        if !wide || !little {
            return Ok(Some(elf));
        }
        if got < 64 {
            return Ok(None);
        }
        elf.read_segments(file, &head)?;
        Ok(Some(elf))
    }

    fn read_segments(&mut self, file: &File, head: &[u8; 64]) -> io::Result<()> {
        let table = long(head, 32);
        let size = u64::from(short(head, 54));
        let count = short(head, 56).min(MOST_HEADERS);
        let mut loads = Vec::new();
        let mut dynamic = None;
        for index in 0..u64::from(count) {
            let mut entry = [0_u8; 56];
            let Some(at) = table.checked_add(index * size) else { return Ok(()) };
            if read_up_to(file, &mut entry, at)? < entry.len() {
                return Ok(());
            }
            let (offset, address, in_file) = (long(&entry, 8), long(&entry, 16), long(&entry, 32));
            match word(&entry, 0) {
                PT_LOAD => loads.push(Load { offset, address, in_file }),
                PT_DYNAMIC => dynamic = Some((offset, in_file)),
                PT_INTERP => self.interpreter = Some(string(file, offset)?),
                _ => {}
            }
        }
        match dynamic {
            Some((offset, size)) => self.read_dynamic(file, &loads, offset, size.min(MOST_DYNAMIC)),
            None => Ok(()),
        }
    }

    fn read_dynamic(&mut self, file: &File, loads: &[Load], offset: u64, size: u64) -> io::Result<()> {
        let mut bytes = vec![0_u8; usize::try_from(size).unwrap_or(0)];
        let got = read_up_to(file, &mut bytes, offset)?;
        let entries: Vec<(u64, u64)> =
            bytes[..got].chunks_exact(16).map(|pair| (long(pair, 0), long(pair, 8))).collect();
        let value = |tag: u64| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        let place = |address: u64| {
            loads.iter().find_map(|load| {
                let into = address.checked_sub(load.address)?;
                (into < load.in_file).then(|| load.offset.checked_add(into)).flatten()
            })
        };
        let Some(strings) = value(DT_STRTAB).and_then(place) else { return Ok(()) };
        for (_, name) in entries.iter().filter(|entry| entry.0 == DT_NEEDED) {
            self.needed.push(string(file, strings.saturating_add(*name))?);
        }
        if let Some(versions) = value(DT_VERNEED).and_then(place) {
            self.read_versions(file, versions, value(DT_VERNEEDNUM).unwrap_or(0), strings)?;
        }
        Ok(())
    }

    fn read_versions(&mut self, file: &File, mut at: u64, files: u64, strings: u64) -> io::Result<()> {
        let mut left = MOST_VERSIONS;
        for _ in 0..files {
            let mut need = [0_u8; 16];
            if read_up_to(file, &mut need, at)? < need.len() {
                return Ok(());
            }
            let mut version = at.saturating_add(word(&need, 8).into());
            for _ in 0..short(&need, 2) {
                let mut entry = [0_u8; 16];
                if left == 0 || read_up_to(file, &mut entry, version)? < entry.len() {
                    return Ok(());
                }
                left -= 1;
                let name = string(file, strings.saturating_add(word(&entry, 8).into()))?;
                self.glibc = self.glibc.max(glibc_version(&name));
                version = version.saturating_add(word(&entry, 12).into());
            }
            at = at.saturating_add(word(&need, 12).into());
        }
        Ok(())
    }
}

/// `GLIBC_2.34` as (2, 34).
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|slice| slice.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|slice| slice.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|slice| slice.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// A zero-terminated string of at most 255 bytes.
fn string(file: &File, at: u64) -> io::Result<String> {
    let mut bytes = [0_u8; 255];
    let got = read_up_to(file, &mut bytes, at)?;
    let text = bytes[..got].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn read_up_to(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        // An offset beyond what a file can have is simply past its end.
        let Some(offset) = at.checked_add(done as u64).filter(|offset| *offset <= i64::MAX as u64) else {
            break;
        };
        match file.read_at(&mut into[done..], offset) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_file_cut_off_anywhere_or_with_any_byte_wrong_is_read_without_harm() {
        let mut whole = vec![0_u8; 4096];
        let program = File::open("/proc/self/exe").unwrap();
        read_up_to(&program, &mut whole, 0).unwrap();
        for step in (0..whole.len()).step_by(37) {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&whole[..step]).unwrap();
            Elf::read(&file).unwrap();
            let mut damaged = whole.clone();
            for byte in &mut damaged[step..(step + 8).min(4096)] {
                *byte = 0xff;
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&damaged).unwrap();
            Elf::read(&file).unwrap();
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(glibc_version("GLIBC_2.34") > glibc_version("GLIBC_2.4"));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }
}
