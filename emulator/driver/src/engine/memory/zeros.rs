//! Zeros on the host: what is read from a device whose memory has no pages.
//!
//! A program that copies its whole model back would need as much of the host's memory as of the GPU's. The kernel gives
//! such pages only when something is written there, so they are given back where they are the process's own.

use std::fs;
use std::ops::Range;

/// From so many bytes on the map of the process is read.
const MIN_MAP_READ: usize = 4 << 20;
const PAGE: usize = 4096;

/// Writes zeros.
///
/// # Safety
/// The range is memory of this process that may be written.
pub(super) unsafe fn write(at: *mut u8, bytes: usize) {
    let inner = (at as usize).next_multiple_of(PAGE)..(at as usize + bytes) / PAGE * PAGE;
    let is_dropped = bytes >= MIN_MAP_READ && is_private(&inner) && {
        // SAFETY: whole pages of the range, which the process may write; anonymous private pages read as zeros then.
        unsafe { libc::madvise(inner.start as *mut _, inner.len(), libc::MADV_DONTNEED) == 0 }
    };
    let outer = at as usize..at as usize + bytes;
    let parts = if is_dropped { [outer.start..inner.start, inner.end..outer.end] } else { [outer, 0..0] };
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        // SAFETY: parts of the range.
        unsafe { std::ptr::write_bytes(part.start as *mut u8, 0, part.len()) };
    }
}

/// Returns true if the whole range is anonymous memory that no other process sees.
fn is_private(range: &Range<usize>) -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/maps") else { return false };
    covers(&map, range)
}

/// A line: addresses, rights (`p` is private), offset, device, inode (0: no file), name. They are in order.
fn covers(map: &str, range: &Range<usize>) -> bool {
    let mut at = range.start;
    for line in map.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some((from, to)) = fields.next().and_then(|field| field.split_once('-')) else { return false };
        let number = |text| usize::from_str_radix(text, 16);
        let (Ok(from), Ok(to)) = (number(from), number(to)) else { return false };
        if to <= at {
            continue;
        }
        let (rights, inode) = (fields.next().unwrap_or_default(), fields.nth(2).unwrap_or_default());
        if from > at || !rights.starts_with("rw") || !rights.ends_with('p') || inode != "0" {
            return false;
        }
        at = to;
        if at >= range.end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
10000-20000 rw-p 00000000 00:00 0
20000-30000 rw-p 00000000 00:00 0 [heap]
30000-40000 rw-s 00000000 00:01 7 /dev/zero (deleted)
40000-50000 rw-p 00000000 fe:00 9 /a/file
60000-70000 r--p 00000000 00:00 0
";

    #[test]
    fn only_memory_of_the_process_alone_is_given_back() {
        assert!(covers(MAP, &(0x1_1000..0x2_9000)), "two mappings beside each other");
        for other in [
            0x2_1000..0x3_1000,
            0x3_1000..0x3_2000,
            0x4_1000..0x4_2000,
            0x5_0000..0x5_1000,
            0x6_0000..0x6_1000,
        ] {
            assert!(!covers(MAP, &other), "{other:x?}");
        }
    }

    #[test]
    fn what_was_there_is_zero_and_what_is_beside_stays() {
        let mut memory = vec![7_u8; 3 * MIN_MAP_READ];
        let range = 100..2 * MIN_MAP_READ + 77;
        // SAFETY: a part of the vector.
        unsafe { write(memory[range.clone()].as_mut_ptr(), range.len()) };
        assert!(memory[range.clone()].iter().all(|byte| *byte == 0));
        assert!(memory[..range.start].iter().chain(&memory[range.end..]).all(|byte| *byte == 7));
    }
}
