//! Arrays and mipmapped arrays.

/// Bytes of one element; `None` for a format that is not known.
pub fn element_bytes(format: u32, channels: u32) -> Option<u64> {
    let bytes = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then_some(bytes * u64::from(channels))
}
