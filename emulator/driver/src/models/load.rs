//! From a pointer or a buffer to a parsed [`Image`]: PTX, cubin, fat binaries and what
//! `cuLinkComplete` hands out.

use std::ffi::{CStr, c_char, c_void};

use crate::models::image::{Image, ImageError};
use crate::models::{cubin, ptx};

/// First word of the structure that nvcc places in a program beside a fat binary.
const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// First word of a fat binary.
const FATBIN_MAGIC: u32 = 0xba55_ed50;
const FATBIN_HEADER: usize = 16;
const ENTRY_HEADER: usize = 64;
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
/// Flags of entries whose payload is compressed, in whatever way.
const COMPRESSED: u64 = 0x2000 | 0x8000;
/// First bytes of an image made by [`join`].
const LINKED_MAGIC: &[u8; 8] = b"RADRMLNK";
const LINKED_HEADER: usize = 16;

/// Finds out how long the image at `image` is: no size comes with `cuModuleLoadData`. Text ends at
/// its NUL, everything else carries its size in its header.
///
/// # Errors
/// [`ImageError::NotAnImage`] if the header is of no known form.
///
/// # Safety
/// `image` must point to a complete image.
pub unsafe fn bytes_at<'a>(image: *const c_void) -> Result<&'a [u8], ImageError> {
    let start = image.cast::<u8>();
    // SAFETY: an image has at least one byte; each further byte is read only after the ones before
    // it showed that the image goes on.
    let begins_with = |magic: &[u8]| (0..magic.len()).all(|i| unsafe { *start.add(i) } == magic[i]);
    // SAFETY: only called with offsets inside a header whose magic was seen.
    let word = |at: usize| unsafe { start.add(at).cast::<u64>().read_unaligned() };
    let whole = |size: u64| {
        let size = usize::try_from(size).map_err(|_| ImageError::Malformed)?;
        // SAFETY: the header says that the image has this size.
        Ok(unsafe { std::slice::from_raw_parts(start, size) })
    };
    if begins_with(&WRAPPER_MAGIC.to_le_bytes()) {
        let inner = word(8) as usize as *const c_void;
        if inner.is_null() {
            return Err(ImageError::Malformed);
        }
        // SAFETY: the wrapper's second field points to a fat binary.
        return unsafe { bytes_at(inner) };
    }
    if begins_with(&FATBIN_MAGIC.to_le_bytes()) {
        return whole(word(8).saturating_add(FATBIN_HEADER as u64));
    }
    if begins_with(LINKED_MAGIC) {
        return whole(word(8));
    }
    if begins_with(b"\x7fELF") {
        // SAFETY: an ELF file begins with a header of 64 bytes.
        let header = unsafe { std::slice::from_raw_parts(start, 64) };
        return whole(cubin::size_of_object(header).ok_or(ImageError::Malformed)? as u64);
    }
    // SAFETY: what is none of these is text, which ends with NUL.
    Ok(unsafe { CStr::from_ptr(start.cast::<c_char>()) }.to_bytes())
}

/// Parses an image for a device of compute capability `device`.
///
/// # Errors
/// What is wrong with it; [`ImageError::NoBinary`] if nothing in it runs on the device.
pub fn parse(bytes: &[u8], device: (u32, u32)) -> Result<Image, ImageError> {
    let starts = |magic: u32| bytes.starts_with(&magic.to_le_bytes());
    if starts(FATBIN_MAGIC) {
        return fatbin(bytes, device);
    }
    if bytes.starts_with(LINKED_MAGIC) {
        return linked(bytes, device);
    }
    if bytes.starts_with(b"\x7fELF") {
        let image = cubin::parse(bytes)?;
        return if image.runs_on(device.0, device.1) { Ok(image) } else { Err(ImageError::NoBinary) };
    }
    if ptx::looks_like_ptx(bytes) {
        let text = String::from_utf8_lossy(bytes);
        let image = ptx::parse(&text)?;
        return if image.runs_on(device.0, device.1) { Ok(image) } else { Err(ImageError::BadPtx) };
    }
    Err(ImageError::NotAnImage)
}

struct Entry<'a> {
    kind: u16,
    arch: u32,
    compressed: bool,
    payload: &'a [u8],
    size: usize,
}

fn entries(bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    let u16_at = |b: &[u8], at: usize| Some(u16::from_le_bytes(*b.get(at..)?.first_chunk()?));
    let u32_at = |b: &[u8], at: usize| Some(u32::from_le_bytes(*b.get(at..)?.first_chunk()?));
    let u64_at = |b: &[u8], at: usize| Some(u64::from_le_bytes(*b.get(at..)?.first_chunk()?));
    let header = usize::from(u16_at(bytes, 6)?).max(FATBIN_HEADER);
    let end = header.checked_add(usize::try_from(u64_at(bytes, 8)?).ok()?)?.min(bytes.len());
    let mut rest = bytes.get(header..end)?;
    let mut found = Vec::new();
    while rest.len() >= ENTRY_HEADER {
        let own = usize::try_from(u32_at(rest, 4)?).ok()?;
        let padded = usize::try_from(u64_at(rest, 8)?).ok()?;
        let packed = usize::try_from(u32_at(rest, 16)?).ok()?;
        let flags = u64_at(rest, 40)?;
        let plain = usize::try_from(u64_at(rest, 56)?).ok()?;
        if own < ENTRY_HEADER {
            return None;
        }
        let whole = rest.get(own..own.checked_add(padded)?)?;
        let compressed = packed != 0 && flags & COMPRESSED != 0;
        found.push(Entry {
            kind: u16_at(rest, 0)?,
            arch: u32_at(rest, 28)?,
            compressed,
            payload: whole,
            size: if compressed && plain > 0 { plain } else { padded },
        });
        rest = &rest[own + padded..];
    }
    Some(found)
}

/// Takes what a driver would take: the newest binary that runs on the device, else the newest PTX
/// that it can compile. A payload that is compressed makes an opaque image.
fn fatbin(bytes: &[u8], (major, minor): (u32, u32)) -> Result<Image, ImageError> {
    let entries = entries(bytes).ok_or(ImageError::Malformed)?;
    let as_image = |entry: &Entry<'_>| Image {
        arch: entry.arch,
        is_ptx: entry.kind == KIND_PTX,
        opaque: true,
        size: entry.size,
        ..Image::default()
    };
    let fits = |entry: &&Entry<'_>| {
        matches!(entry.kind, KIND_PTX | KIND_ELF) && as_image(entry).runs_on(major, minor)
    };
    let best = entries
        .iter()
        .filter(fits)
        .max_by_key(|entry| (entry.kind == KIND_ELF, entry.arch))
        .ok_or(ImageError::NoBinary)?;
    if best.compressed {
        return Ok(as_image(best));
    }
    if best.kind == KIND_ELF {
        return cubin::parse(best.payload);
    }
    let text = best.payload.split(|b| *b == 0).next().unwrap_or_default();
    ptx::parse(&String::from_utf8_lossy(text))
}

/// Joins the inputs of a link into one image, which [`parse`] reads as their union.
pub fn join(inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut out = LINKED_MAGIC.to_vec();
    out.extend([0; LINKED_HEADER - LINKED_MAGIC.len()]);
    for input in inputs {
        out.extend((input.len() as u64).to_le_bytes());
        out.extend(input);
    }
    let size = out.len() as u64;
    out[8..16].copy_from_slice(&size.to_le_bytes());
    out
}

fn linked(bytes: &[u8], device: (u32, u32)) -> Result<Image, ImageError> {
    let mut rest = bytes.get(LINKED_HEADER..).ok_or(ImageError::Malformed)?;
    let mut all = Image { size: bytes.len(), ..Image::default() };
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| ImageError::Malformed)?;
        let input = after.get(..length).ok_or(ImageError::Malformed)?;
        match parse(input, device) {
            Ok(image) => {
                all.kernels.extend(image.kernels);
                all.globals.extend(image.globals);
                all.constants += image.constants;
                all.arch = all.arch.max(image.arch);
                all.ptx_version = all.ptx_version.max(image.ptx_version);
                all.is_ptx |= image.is_ptx;
                all.opaque |= image.opaque;
            }
            // Objects, archives and intermediate code of the linker: not read here.
            Err(ImageError::NotAnImage) => all.opaque = true,
            Err(error) => return Err(error),
        }
        rest = &after[length..];
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.entry k(.param .u32 n) { ret; }\n\0";

    fn entry(kind: u16, arch: u32, flags: u64, payload: &[u8]) -> Vec<u8> {
        let mut raw = vec![0; ENTRY_HEADER];
        raw[0..2].copy_from_slice(&kind.to_le_bytes());
        raw[4..8].copy_from_slice(&(ENTRY_HEADER as u32).to_le_bytes());
        raw[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        raw[16..20].copy_from_slice(&u32::from(flags != 0).to_le_bytes());
        raw[28..32].copy_from_slice(&arch.to_le_bytes());
        raw[40..48].copy_from_slice(&flags.to_le_bytes());
        raw.extend(payload);
        raw
    }

    fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut raw = FATBIN_MAGIC.to_le_bytes().to_vec();
        raw.extend([1, 0, 16, 0]);
        raw.extend((body.len() as u64).to_le_bytes());
        raw.extend(body);
        raw
    }

    #[test]
    fn a_fat_binary_gives_the_entry_that_the_device_can_run() {
        let raw =
            container(&[entry(KIND_ELF, 90, 0x2000, b"packed"), entry(KIND_PTX, 80, 0, PTX.as_bytes())]);
        let on_80 = parse(&raw, (8, 0)).expect("PTX fits");
        assert_eq!(on_80.kernels[0].name, "k");
        assert!(!on_80.opaque && on_80.kernel("other").is_none());
        let on_90 = parse(&raw, (9, 0)).expect("the binary fits");
        assert!(on_90.opaque && on_90.kernel("anything").is_some());
        assert_eq!(parse(&raw, (7, 0)).err(), Some(ImageError::NoBinary));
    }

    #[test]
    fn a_wrapper_leads_to_its_fat_binary() {
        let raw = container(&[entry(KIND_PTX, 80, 0, PTX.as_bytes())]);
        let wrapper = [u64::from(WRAPPER_MAGIC) | 1 << 32, raw.as_ptr() as u64, 0];
        // SAFETY: both structures are complete.
        let bytes = unsafe { bytes_at(wrapper.as_ptr().cast()) }.expect("well formed");
        assert_eq!(bytes, raw);
    }

    #[test]
    fn a_linked_image_holds_all_inputs() {
        let second = PTX.replace(" k(", " second(");
        let raw = join(&[PTX.trim_end_matches('\0').as_bytes().to_vec(), second.into_bytes()]);
        // SAFETY: the image is complete.
        let bytes = unsafe { bytes_at(raw.as_ptr().cast()) }.expect("well formed");
        let image = parse(bytes, (9, 0)).expect("both fit");
        assert_eq!(image.kernels.len(), 2);
        assert!(image.kernel("second").is_some() && image.kernel("third").is_none());
    }

    #[test]
    fn broken_containers_are_refused() {
        let raw = container(&[entry(KIND_PTX, 80, 0, PTX.as_bytes())]);
        assert!(parse(&raw[..raw.len() - 8], (8, 0)).is_err());
        assert_eq!(parse(b"garbage", (8, 0)).err(), Some(ImageError::NotAnImage));
        assert_eq!(parse(b"", (8, 0)).err(), Some(ImageError::NotAnImage));
        assert!(parse(b"\x7fELF\x02\x01", (8, 0)).is_err());
    }
}
