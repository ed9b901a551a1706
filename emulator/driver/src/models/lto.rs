//! LTO-IR: intermediate code for optimization at link time, as `nvrtc -dlto` and `nvcc -dlto` write it.
//!
//! Its contents are not public; the header is compared across toolkits: magic, then the version of the form (byte 5: 54
//! from toolkit 11.8, 57 from 12.0, 67 from 13.5), and ten times the architecture at byte 26.

use crate::models::image::ImageError;

const MAGIC: &[u8] = &[0xed, 0x43, 0x4e, 0x7f];
const VERSION: usize = 5;
const ARCHITECTURE: usize = 26;
/// Version that toolkit 12.0 writes. From there on drivers leave LTO-IR to nvJitLink.
const FIRST_REFUSED: u8 = 57;

/// Returns true if the bytes are LTO-IR.
pub fn looks_like_lto(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Checks that a driver's linker accepts LTO-IR as an input for a device of compute capability `major.minor`.
///
/// # Errors
/// [`ImageError::NotAnImage`] for what is none, and for that of toolkits from 12.0 on, which `cuLinkAddData`'s
/// documentation excludes; [`ImageError::NoBinary`] for that of a later architecture.
pub fn check(bytes: &[u8], (major, minor): (u32, u32)) -> Result<(), ImageError> {
    let version = bytes.get(VERSION).filter(|_| looks_like_lto(bytes)).ok_or(ImageError::NotAnImage)?;
    if *version >= FIRST_REFUSED {
        return Err(ImageError::NotAnImage);
    }
    let architecture =
        bytes.get(ARCHITECTURE..).and_then(<[u8]>::first_chunk).ok_or(ImageError::Malformed)?;
    let made_for = u32::from(u16::from_le_bytes(*architecture)) / 10;
    if made_for > major * 10 + minor { Err(ImageError::NoBinary) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of LTO-IR for compute capability `arch / 10`.
    fn lto(version: u8, arch: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[VERSION] = version;
        bytes[ARCHITECTURE..ARCHITECTURE + 2].copy_from_slice(&(arch * 10).to_le_bytes());
        bytes
    }

    #[test]
    fn only_lto_ir_of_toolkits_before_12_is_linked() {
        assert_eq!(check(&lto(54, 80), (8, 0)), Ok(()));
        assert_eq!(check(&lto(54, 75), (9, 0)), Ok(()));
        assert_eq!(check(&lto(54, 90), (8, 0)), Err(ImageError::NoBinary));
        assert_eq!(check(&lto(57, 80), (8, 0)), Err(ImageError::NotAnImage));
        assert_eq!(check(&lto(67, 80), (8, 0)), Err(ImageError::NotAnImage));
        assert_eq!(check(b"BC", (8, 0)), Err(ImageError::NotAnImage));
        assert_eq!(check(&lto(54, 80)[..8], (8, 0)), Err(ImageError::Malformed));
    }
}
