//! Messages between a terminal's host and its guests: a byte for the kind, four for the length, the content.

use std::io;

/// Longest content, bytes: what is longer comes in several.
const MAX_CONTENT: usize = 64 << 10;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Typed bytes, or output of the program.
    Data(Vec<u8>),
    /// The guest's terminal has so many rows and columns.
    Size(u16, u16),
    /// The guest leaves, and the program goes on.
    Detach,
    /// The program ended with this exit code.
    End(u8),
    /// As many guests are there as there may be.
    Full,
}

impl Frame {
    /// Appends the message as it travels.
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        let (kind, content): (u8, &[u8]) = match self {
            Self::Data(bytes) => {
                for piece in bytes.chunks(MAX_CONTENT) {
                    put(b'd', piece, to);
                }
                return;
            }
            Self::Size(rows, columns) => {
                let [a, b] = rows.to_le_bytes();
                let [c, d] = columns.to_le_bytes();
                (b's', &[a, b, c, d])
            }
            Self::Detach => (b'l', &[]),
            Self::Full => (b'f', &[]),
            Self::End(code) => (b'e', &[*code]),
        };
        put(kind, content, to);
    }
}

fn put(kind: u8, content: &[u8], to: &mut Vec<u8>) {
    to.push(kind);
    to.extend(u32::try_from(content.len()).unwrap_or_default().to_le_bytes());
    to.extend(content);
}

/// Bytes that came, of which messages are made.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next whole message.
    pub(super) fn next(&mut self) -> io::Result<Option<Frame>> {
        let [kind, a, b, c, d, ..] = self.bytes[..] else { return Ok(None) };
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MAX_CONTENT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(content) = self.bytes.get(5..5 + length) else { return Ok(None) };
        let frame = match (kind, content) {
            (b'd', bytes) => Frame::Data(bytes.to_vec()),
            (b's', &[a, b, c, d]) => Frame::Size(u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])),
            (b'l', []) => Frame::Detach,
            (b'f', []) => Frame::Full,
            (b'e', &[code]) => Frame::End(code),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.bytes.drain(..5 + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_were_sent_however_they_are_cut() {
        let sent = [
            Frame::Size(24, 80),
            Frame::Data(b"ls\r".to_vec()),
            Frame::Detach,
            Frame::End(3),
            Frame::Full,
            Frame::Data(vec![7; MAX_CONTENT]),
        ];
        let mut bytes = Vec::new();
        sent.iter().for_each(|frame| frame.put(&mut bytes));
        for size in [1, 2, 7, 5000, usize::MAX] {
            let (mut incoming, mut got) = (Incoming::default(), Vec::new());
            for piece in bytes.chunks(size.min(bytes.len())) {
                incoming.add(piece);
                while let Some(frame) = incoming.next().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, sent, "{size}");
        }
        let mut long = Vec::new();
        Frame::Data(vec![1; 2 * MAX_CONTENT + 1]).put(&mut long);
        assert_eq!(long.len(), 2 * MAX_CONTENT + 1 + 3 * 5);
    }

    #[test]
    fn what_is_no_message_is_an_error_and_takes_no_memory() {
        for bytes in [&b"x\0\0\0\0"[..], b"d\xff\xff\xff\xff", b"s\x01\0\0\0a", b"l\x01\0\0\0a", b"e\0\0\0\0"]
        {
            let mut incoming = Incoming::default();
            incoming.add(bytes);
            assert!(incoming.next().is_err(), "{bytes:?}");
        }
    }
}
