//! Reading cubin files: ELF objects for the device.
//!
//! A kernel is a section `.text.NAME` whose symbol carries the entry mark. Its resources stand in
//! `.nv.info` (registers, stack frame, by symbol), `.nv.info.NAME` (parameters, launch bounds) and
//! `.nv.shared.NAME`; older compilers keep the registers in the section header (`sh_info >> 24`).

use crate::models::image::{GlobalInfo, Image, ImageError, KernelInfo};

const HEADER: usize = 64;
const MACHINE_CUDA: u16 = 190;
const SECTION_SYMBOLS: u32 = 2;
const SYMBOL_FUNCTION: u8 = 2;
const SYMBOL_OBJECT: u8 = 1;
/// Bit of a symbol's `st_other` that marks a kernel.
const OTHER_ENTRY: u8 = 0x10;
/// Shared memory that a system of compute capability 9 and later keeps for itself in each block.
const RESERVED_SHARED: u64 = 1024;

mod attribute {
    pub const MAX_THREADS: u8 = 0x05;
    pub const REQUIRED_BLOCK: u8 = 0x10;
    pub const FRAME_SIZE: u8 = 0x11;
    pub const PARAMETER: u8 = 0x17;
    pub const REGISTERS: u8 = 0x2f;
}

/// Returns true if the bytes begin as a device ELF does.
pub fn looks_like_cubin(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF\x02\x01") && read_u16(bytes, 18) == Some(MACHINE_CUDA)
}

/// Size in bytes of the ELF object that starts at `bytes`, from its own tables: the caller of
/// `cuModuleLoadData` gives none.
pub fn size_of_object(header: &[u8]) -> Option<usize> {
    let sections = usize::try_from(read_u64(header, 40)?).ok()?;
    let programs = usize::try_from(read_u64(header, 32)?).ok()?;
    let section_table =
        sections.checked_add(usize::from(read_u16(header, 58)?) * usize::from(read_u16(header, 60)?))?;
    let program_table =
        programs.checked_add(usize::from(read_u16(header, 54)?) * usize::from(read_u16(header, 56)?))?;
    Some(section_table.max(program_table))
}

struct Section<'a> {
    name: &'a str,
    kind: u32,
    info: u32,
    size: u64,
    data: &'a [u8],
}

/// Parses a cubin.
///
/// # Errors
/// [`ImageError::NotAnImage`] for other ELF files, [`ImageError::Malformed`] if a table lies outside.
pub fn parse(bytes: &[u8]) -> Result<Image, ImageError> {
    if !looks_like_cubin(bytes) || bytes.len() < HEADER {
        return Err(ImageError::NotAnImage);
    }
    let sections = sections(bytes).ok_or(ImageError::Malformed)?;
    let flags = read_u32(bytes, 48).ok_or(ImageError::Malformed)?;
    // The ABI of CUDA 13 moved the architecture up by one byte.
    let arch = if bytes[8] >= 8 { flags >> 8 & 0xff } else { flags & 0xff };
    let mut image = Image { arch, size: bytes.len(), ..Image::default() };

    let symbols = symbols(&sections);
    let keeps_shared = sections.iter().any(|s| s.name.starts_with(".nv.shared.reserved"));
    for (index, section) in sections.iter().enumerate() {
        if section.name.starts_with(".nv.constant3") {
            image.constants += section.size;
        }
        let Some(name) = section.name.strip_prefix(".text.") else { continue };
        let is_entry = symbols.iter().any(|s| {
            s.kind == SYMBOL_FUNCTION && s.section == index && s.other & OTHER_ENTRY != 0 && s.name == name
        });
        if !is_entry {
            continue;
        }
        let shared = sections
            .iter()
            .find(|s| s.name.strip_prefix(".nv.shared.") == Some(name))
            .map_or(0, |s| s.size.saturating_sub(if keeps_shared { RESERVED_SHARED } else { 0 }));
        let mut kernel = KernelInfo {
            name: name.to_owned(),
            registers: section.info >> 24,
            shared: u32::try_from(shared).unwrap_or(u32::MAX),
            ..KernelInfo::default()
        };
        own_attributes(&sections, &mut kernel);
        image.kernels.push(kernel);
    }
    table_attributes(&sections, &symbols, &mut image);
    for symbol in symbols.iter().filter(|s| s.kind == SYMBOL_OBJECT && s.size > 0) {
        let place = sections.get(symbol.section).map_or("", |s| s.name);
        if place.starts_with(".nv.global") || place == ".nv.constant3" {
            image.globals.push(GlobalInfo { name: symbol.name.to_owned(), bytes: symbol.size });
        }
    }
    Ok(image)
}

fn sections(bytes: &[u8]) -> Option<Vec<Section<'_>>> {
    let table = usize::try_from(read_u64(bytes, 40)?).ok()?;
    let stride = usize::from(read_u16(bytes, 58)?);
    let count = usize::from(read_u16(bytes, 60)?);
    let names_at = usize::from(read_u16(bytes, 62)?);
    let header = |index: usize| {
        let at = table.checked_add(index.checked_mul(stride)?)?;
        bytes.get(at..at.checked_add(stride.max(HEADER))?)
    };
    let body = |head: &[u8]| {
        let offset = usize::try_from(read_u64(head, 24)?).ok()?;
        let size = usize::try_from(read_u64(head, 32)?).ok()?;
        bytes.get(offset..offset.checked_add(size)?)
    };
    let names = body(header(names_at)?)?;
    let mut found = Vec::with_capacity(count);
    for index in 0..count {
        let head = header(index)?;
        let kind = read_u32(head, 4)?;
        const NO_BITS: u32 = 8;
        found.push(Section {
            name: text_at(names, usize::try_from(read_u32(head, 0)?).ok()?)?,
            kind,
            info: read_u32(head, 44)?,
            size: read_u64(head, 32)?,
            data: if kind == NO_BITS || kind == 0 { &[] } else { body(head)? },
        });
    }
    Some(found)
}

struct Symbol<'a> {
    name: &'a str,
    kind: u8,
    other: u8,
    section: usize,
    size: u64,
}

fn symbols<'a>(sections: &[Section<'a>]) -> Vec<Symbol<'a>> {
    const ENTRY: usize = 24;
    let Some(table) = sections.iter().find(|s| s.kind == SECTION_SYMBOLS) else { return Vec::new() };
    let Some(names) = sections.iter().find(|s| s.name == ".strtab") else { return Vec::new() };
    let parse = |raw: &'a [u8]| {
        Some(Symbol {
            name: text_at(names.data, usize::try_from(read_u32(raw, 0)?).ok()?)?,
            kind: raw.get(4)? & 0xf,
            other: *raw.get(5)?,
            section: usize::from(read_u16(raw, 6)?),
            size: read_u64(raw, 16)?,
        })
    };
    // A symbol that cannot be read keeps its place: others are named by index.
    let blank = || Symbol { name: "", kind: 0, other: 0, section: 0, size: 0 };
    table.data.chunks_exact(ENTRY).map(|raw| parse(raw).unwrap_or_else(blank)).collect()
}

/// Walks `.nv.info` records: {format u8, attribute u8, size or value u16, data}.
fn for_each_attribute(mut data: &[u8], mut visit: impl FnMut(u8, &[u8])) {
    const SIZED: u8 = 4;
    while let (Some(&[format, attribute]), Some(value)) = (data.first_chunk::<2>(), read_u16(data, 2)) {
        let length = if format == SIZED { usize::from(value) } else { 0 };
        let Some(body) = data.get(4..4 + length) else { return };
        visit(attribute, body);
        data = &data[4 + length..];
    }
}

fn own_attributes(sections: &[Section<'_>], kernel: &mut KernelInfo) {
    let Some(info) = sections.iter().find(|s| s.name.strip_prefix(".nv.info.") == Some(&kernel.name)) else {
        return;
    };
    let mut params: Vec<(u16, usize, usize)> = Vec::new();
    for_each_attribute(info.data, |attribute, body| {
        let word = |at| read_u32(body, at).unwrap_or(1);
        match attribute {
            attribute::PARAMETER => {
                if let (Some(ordinal), Some(offset), Some(bits)) =
                    (read_u16(body, 4), read_u16(body, 6), read_u32(body, 8))
                {
                    params.push((ordinal, usize::from(offset), (bits >> 18) as usize));
                }
            }
            attribute::MAX_THREADS => kernel.max_threads = Some(word(0) * word(4) * word(8)),
            attribute::REQUIRED_BLOCK => {
                kernel.required_block = Some([word(0), word(4), word(8)]);
                kernel.max_threads = Some(word(0) * word(4) * word(8));
            }
            _ => {}
        }
    });
    params.sort_unstable();
    kernel.params = Some(params.into_iter().map(|(_, offset, size)| (offset, size)).collect());
}

fn table_attributes(sections: &[Section<'_>], symbols: &[Symbol<'_>], image: &mut Image) {
    let Some(info) = sections.iter().find(|s| s.name == ".nv.info") else { return };
    for_each_attribute(info.data, |attribute, body| {
        let (Some(index), Some(value)) = (read_u32(body, 0), read_u32(body, 4)) else { return };
        let Some(symbol) = symbols.get(index as usize) else { return };
        let Some(kernel) = image.kernels.iter_mut().find(|k| k.name == symbol.name) else { return };
        match attribute {
            attribute::REGISTERS => kernel.registers = value,
            attribute::FRAME_SIZE => kernel.local = value,
            _ => {}
        }
    });
}

fn text_at(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Builder {
        names: Vec<u8>,
        bodies: Vec<u8>,
        headers: Vec<[u64; 8]>,
    }

    impl Builder {
        /// Adds a section; `size` is for sections without contents.
        fn section(&mut self, name: &str, kind: u32, info: u32, data: &[u8], size: u64) -> u16 {
            let at = HEADER + self.bodies.len();
            let name_at = self.names.len() as u64;
            self.names.extend(name.bytes().chain([0]));
            self.bodies.extend(data);
            let length = if data.is_empty() { size } else { data.len() as u64 };
            let head =
                [name_at | u64::from(kind) << 32, 0, 0, at as u64, length, u64::from(info) << 32, 1, 0];
            self.headers.push(head);
            (self.headers.len() - 1) as u16
        }

        fn build(mut self, abi: u8, flags: u32) -> Vec<u8> {
            let names = self.names.len() as u64 + ".shstrtab".len() as u64 + 1;
            let at = (HEADER + self.bodies.len()) as u64;
            let name_at = self.names.len() as u64;
            self.names.extend(b".shstrtab\0");
            self.headers.push([name_at | 3 << 32, 0, 0, at, names, 0, 1, 0]);
            self.bodies.extend(&self.names);
            let mut out = vec![0; HEADER];
            out[..6].copy_from_slice(b"\x7fELF\x02\x01");
            out[8] = abi;
            out[18..20].copy_from_slice(&MACHINE_CUDA.to_le_bytes());
            out[40..48].copy_from_slice(&((HEADER + self.bodies.len()) as u64).to_le_bytes());
            out[48..52].copy_from_slice(&flags.to_le_bytes());
            out[58..60].copy_from_slice(&64_u16.to_le_bytes());
            out[60..62].copy_from_slice(&(self.headers.len() as u16).to_le_bytes());
            out[62..64].copy_from_slice(&(self.headers.len() as u16 - 1).to_le_bytes());
            out.extend(&self.bodies);
            out.extend(self.headers.iter().flatten().flat_map(|w| w.to_le_bytes()));
            out
        }
    }

    fn symbol(name: u32, kind: u8, other: u8, section: u16, size: u64) -> Vec<u8> {
        let mut raw = name.to_le_bytes().to_vec();
        raw.extend([kind, other]);
        raw.extend(section.to_le_bytes());
        raw.extend(0_u64.to_le_bytes());
        raw.extend(size.to_le_bytes());
        raw
    }

    fn sized(attribute: u8, words: &[u32]) -> Vec<u8> {
        let mut raw = vec![4, attribute, (words.len() * 4) as u8, 0];
        raw.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        raw
    }

    /// A kernel `k` with two parameters, a device function `d`, a variable `v`.
    fn object(abi: u8, flags: u32, header_registers: u32) -> Vec<u8> {
        let mut b = Builder::default();
        b.section("", 0, 0, &[], 0);
        b.section(".strtab", 3, 0, b"\0k\0d\0v\0", 0);
        let text = b.section(".text.k", 1, header_registers << 24 | 1, &[1; 16], 0);
        let device = b.section(".text.d", 1, 0, &[1; 16], 0);
        let global = b.section(".nv.global", 8, 0, &[], 24);
        b.section(".nv.shared.k", 8, 0, &[], 1536);
        if abi >= 8 {
            b.section(".nv.shared.reserved.0", 8, 0, &[], 0);
        }
        let mut symbols = symbol(0, 0, 0, 0, 0);
        symbols.extend(symbol(1, 0x10 | SYMBOL_FUNCTION, OTHER_ENTRY, text, 16));
        symbols.extend(symbol(3, 0x10 | SYMBOL_FUNCTION, 0, device, 16));
        symbols.extend(symbol(5, 0x10 | SYMBOL_OBJECT, 0, global, 24));
        b.section(".symtab", SECTION_SYMBOLS, 0, &symbols, 0);
        let mut own = vec![3, 0x50, 0, 0];
        own.extend(sized(attribute::PARAMETER, &[0, 1 | 8 << 16, 4 << 18]));
        own.extend(sized(attribute::PARAMETER, &[0, 0, 8 << 18]));
        own.extend(sized(attribute::MAX_THREADS, &[128, 2, 1]));
        b.section(".nv.info.k", 0x7000_0000, 0, &own, 0);
        let mut all = Vec::new();
        if abi >= 8 {
            all.extend(sized(attribute::REGISTERS, &[1, 40]));
        }
        all.extend(sized(attribute::FRAME_SIZE, &[1, 96]));
        b.section(".nv.info", 0x7000_0000, 0, &all, 0);
        b.build(abi, flags)
    }

    #[test]
    fn kernels_are_found_in_objects_of_both_abis() {
        for (abi, flags, in_header, shared) in [(7, 0x0050_0550, 40, 1536), (8, 0x0600_5004, 0, 512)] {
            let image = parse(&object(abi, flags, in_header)).expect("well formed");
            assert_eq!(image.arch, 80);
            let [kernel] = &image.kernels[..] else { panic!("a device function is not a kernel") };
            assert_eq!((kernel.name.as_str(), kernel.registers, kernel.shared), ("k", 40, shared));
            assert_eq!((kernel.local, kernel.max_threads), (96, Some(256)));
            assert_eq!(kernel.params.as_deref(), Some(&[(0, 8), (8, 4)][..]));
            assert_eq!(image.globals, [GlobalInfo { name: "v".into(), bytes: 24 }]);
        }
    }

    #[test]
    fn the_size_of_an_object_is_in_its_header() {
        let object = object(8, 0x0600_5004, 0);
        assert_eq!(size_of_object(&object[..HEADER]), Some(object.len()));
    }

    #[test]
    fn an_object_that_is_cut_anywhere_is_refused_and_never_a_crash() {
        let object = object(8, 0x0600_5004, 0);
        for length in 0..object.len() {
            assert!(parse(&object[..length]).is_err(), "{length}");
        }
    }
}
