//! The lines of `/proc/self/maps`, read with a buffer of fixed size.

use rustix::fd::{AsFd, OwnedFd};

/// Longest line that is read; of longer ones the path is cut.
const BYTES: usize = 4096 + 256;

/// A mapping.
pub(super) struct Line<'l> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Offset in the file at which it begins.
    pub(super) offset: u64,
    /// Device and inode.
    pub(super) file: (u64, u64),
    /// It can be run.
    pub(super) is_code: bool,
    pub(super) path: &'l [u8],
}

impl Line<'_> {
    /// Returns true if it belongs to a file, or is the kernel's own library.
    pub(super) fn is_file(&self) -> bool {
        self.file.1 != 0 || self.path == b"[vdso]"
    }
}

/// Reads line after line.
pub(super) struct Lines<'f> {
    file: &'f OwnedFd,
    buffer: [u8; BYTES],
    filled: usize,
    /// Start of the line after the one handed out.
    next: usize,
    has_ended: bool,
    has_failed: bool,
}

impl<'f> Lines<'f> {
    pub(super) fn new(file: &'f OwnedFd) -> Self {
        Self { file, buffer: [0; BYTES], filled: 0, next: 0, has_ended: false, has_failed: false }
    }

    /// Returns true if all lines were read.
    pub(super) fn is_whole(&self) -> bool {
        self.has_ended && !self.has_failed
    }

    /// The next line that can be read.
    pub(super) fn next(&mut self) -> Option<Line<'_>> {
        let (start, end) = loop {
            let end = self.line_end()?;
            let start = self.next;
            self.next = end + 1;
            if parse(self.buffer.get(start..end)?).is_some() {
                break (start, end);
            }
        };
        parse(self.buffer.get(start..end)?)
    }

    /// End of the line that begins at `next`; reads on where it is not whole.
    fn line_end(&mut self) -> Option<usize> {
        loop {
            let rest = self.buffer.get(self.next..self.filled)?;
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                return Some(self.next + length);
            }
            if self.has_ended {
                return None;
            }
            self.buffer.copy_within(self.next..self.filled, 0);
            self.filled -= self.next;
            self.next = 0;
            if self.filled == self.buffer.len() {
                // A line too long: it ends here for us.
                self.filled = 0;
                self.has_failed = true;
            }
            let room = self.buffer.get_mut(self.filled..)?;
            match rustix::io::read(self.file.as_fd(), room) {
                Ok(0) => self.has_ended = true,
                Ok(got) => self.filled += got,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.has_ended = true;
                    self.has_failed = true;
                }
            }
        }
    }
}

/// `start-end perms offset major:minor inode   path`
fn parse(text: &[u8]) -> Option<Line<'_>> {
    let mut at = 0usize;
    let mut field = |ends: &[u8]| {
        let rest = text.get(at..)?;
        let length = rest.iter().position(|byte| ends.contains(byte)).unwrap_or(rest.len());
        at += length + 1;
        rest.get(..length)
    };
    let start = number(field(b"-")?, 16)?;
    let end = number(field(b" ")?, 16)?;
    let permissions = field(b" ")?;
    let offset = number(field(b" ")?, 16)?;
    let device = number(field(b":")?, 16)? << 32 | number(field(b" ")?, 16)?;
    let inode = number(field(b" ")?, 10)?;
    let path = text.get(at..).unwrap_or(&[]);
    let blanks = path.iter().take_while(|byte| **byte == b' ').count();
    let path = path.get(blanks..)?;
    Some(Line { start, end, offset, file: (device, inode), is_code: permissions.get(2) == Some(&b'x'), path })
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = char::from(*digit).to_digit(base)?;
        sum.checked_mul(base.into())?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_fields() {
        let line =
            parse(b"7f00a000-7f00b000 r-xp 00001000 fe:01 1234      /opt/my lib.so (deleted)").unwrap();
        assert_eq!((line.start, line.end, line.offset), (0x7f00_a000, 0x7f00_b000, 0x1000));
        assert_eq!((line.file, line.is_code), ((0xfe << 32 | 1, 1234), true));
        assert_eq!(line.path, b"/opt/my lib.so (deleted)");
        let stack = parse(b"7ffc0000-7ffd0000 rw-p 00000000 00:00 0          [stack]").unwrap();
        assert!(!stack.is_file() && !stack.is_code);
        assert!(parse(b"7f00a000-7f00b000 rw-p 00000000 00:00 0 ").unwrap().path.is_empty());
        for wrong in [&b""[..], b"7f00", b"7f00a000-7f00b000 r-xp x fe:01 1 /", b"zz-1 r-xp 0 0:0 1 /"] {
            assert!(parse(wrong).is_none());
        }
    }

    #[test]
    fn every_mapping_of_this_process_is_listed() {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let file = std::fs::File::open("/proc/self/maps").unwrap().into();
        let mut lines = Lines::new(&file);
        let mut seen = 0;
        while lines.next().is_some() {
            seen += 1;
        }
        assert!(lines.is_whole());
        // The list may grow by the reading itself.
        assert!(seen >= text.lines().count() - 2, "{seen} of {}", text.lines().count());
    }
}
