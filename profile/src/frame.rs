//! The file's outer form: a head, and frames with checksums.
//!
//! ```text
//! head, 16 bytes:  magic[8]  version u32  crc32(magic, version) u32
//! frame:           length u32  type u32  crc32(length, type, payload) u32  payload[length]
//! ```
//! All numbers are little-endian. Frames follow each other without gaps.

use crate::error::ReadError;
use crate::record::FORMAT_VERSION;

/// The first bytes of every profile. The line end and the control character
/// show damage by text tools, and keep `cat` from printing what follows.
pub const MAGIC: [u8; 8] = *b"\x89RADRM\n\x1a";

/// Size of the head.
pub const HEAD_BYTES: usize = 16;

/// Size of what precedes a frame's payload.
pub const FRAME_HEAD_BYTES: usize = 12;

/// Largest payload of a frame. The largest that is written is the final state
/// of one process: 4096 kernels with names of 1 KiB and 16 timelines are below
/// 10 MiB.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// The head of a file.
pub fn head() -> [u8; HEAD_BYTES] {
    head_of_version(FORMAT_VERSION)
}

/// The head of a file of any version (tests pretend to come from the future).
#[doc(hidden)]
pub fn head_of_version(version: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32fast::hash(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Checks a file's head.
pub fn check_head(file: &[u8]) -> Result<(), ReadError> {
    if file.is_empty() {
        return Err(ReadError::Empty);
    }
    let seen = file.len().min(MAGIC.len());
    if file[..seen] != MAGIC[..seen] {
        return Err(ReadError::Foreign);
    }
    if file.len() < HEAD_BYTES {
        return Err(ReadError::CutOff { bytes: file.len() as u64 });
    }
    let (Some(version), Some(crc)) = (word(file, 8), word(file, 12)) else {
        return Err(ReadError::DamagedHeader);
    };
    if crc32fast::hash(&file[..12]) != crc {
        return Err(ReadError::DamagedHeader);
    }
    match version {
        FORMAT_VERSION => Ok(()),
        found => Err(ReadError::Version { found, known: FORMAT_VERSION }),
    }
}

/// The bytes of a frame.
pub fn frame(kind: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_HEAD_BYTES + payload.len());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&checksum(payload.len() as u32, kind, payload).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

fn checksum(length: u32, kind: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(&kind.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Content of a file at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A frame with a right checksum.
    Frame {
        /// Its type.
        kind: u32,
        /// Its content.
        payload: &'a [u8],
        /// Offset of the next frame.
        next: usize,
    },
    /// The file ends here, as it should.
    End,
    /// The file ends inside a frame.
    CutOff,
    /// The frame is damaged.
    Damaged {
        /// Offset at which the next frame should stand, if the length of this one can be believed.
        next: Option<usize>,
    },
}

/// Size of a frame's payload, from its head; `None` if it has none, or cannot be believed.
pub(crate) fn payload_bytes(head: &[u8]) -> Option<usize> {
    word(head, 0).map(|length| length as usize).filter(|length| *length <= MAX_PAYLOAD)
}

/// Reads the frame at an offset.
pub fn at(file: &[u8], offset: usize) -> Found<'_> {
    let rest = file.get(offset..).unwrap_or_default();
    if rest.is_empty() {
        return Found::End;
    }
    let (Some(length), Some(kind), Some(crc)) = (word(rest, 0), word(rest, 4), word(rest, 8)) else {
        return Found::CutOff;
    };
    if length as usize > MAX_PAYLOAD {
        return Found::Damaged { next: None };
    }
    let end = FRAME_HEAD_BYTES + length as usize;
    let Some(payload) = rest.get(FRAME_HEAD_BYTES..end) else {
        return Found::CutOff;
    };
    let next = offset + end;
    if checksum(length, kind, payload) != crc {
        return Found::Damaged { next: Some(next) };
    }
    Found::Frame { kind, payload, next }
}
