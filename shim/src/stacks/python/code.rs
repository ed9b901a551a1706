//! Names and lines of code objects.

use super::CodeFrame;
use super::layout::{Layout, Lines};
use crate::stacks::cursor::Cursor;
use crate::stacks::memory::Memory;
use crate::telemetry::Writer;

/// Bytes kept of a file's and of a function's name.
const TEXT: usize = 512;
/// Characters of a name that is believed.
const LENGTH_LIMIT: u64 = 1 << 16;
/// Bytes of a table of lines that is believed.
const TABLE_LIMIT: u64 = 1 << 22;
/// Bytes of an instruction.
const UNIT: u64 = 2;

// `PyBytesObject`: `ob_size`, `ob_sval`. `PyASCIIObject`: `length`, `state`. The same in all versions with a layout.
const BYTES_SIZE: u64 = 16;
const BYTES: u64 = 32;
const LENGTH: u64 = 16;
const STATE: u64 = 32;
// Bits of `state`, above two of `interned`: kind (three bits), compact, ascii.
const KIND: u32 = 2;
const COMPACT: u32 = 5;
const ASCII: u32 = 6;

/// A frame of an interpreter with its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::stacks) struct Interned {
    /// The function's number in the segment.
    pub(in crate::stacks) code: u32,
    /// 0: not known.
    pub(in crate::stacks) line: u32,
}

pub(super) fn intern(
    memory: &mut Memory,
    writer: &Writer,
    layout: &Layout,
    frame: CodeFrame,
) -> Option<Interned> {
    let code = frame.code;
    let (mut file, mut name) = ([0u8; TEXT], [0u8; TEXT]);
    let at = memory.u64(code.checked_add(layout.filename)?)?;
    let file = text(memory, layout, at, &mut file)?;
    let at = memory.u64(code.checked_add(layout.name)?)?;
    let name = text(memory, layout, at, &mut name)?;
    let line = line(memory, layout, frame).unwrap_or(0);
    Some(Interned { code: writer.stack_code(file, name)?, line })
}

/// A string in UTF-8, as far as there is room.
fn text<'t>(memory: &mut Memory, layout: &Layout, at: u64, out: &'t mut [u8; TEXT]) -> Option<&'t [u8]> {
    let length = memory.u64(at.checked_add(LENGTH)?).filter(|length| *length <= LENGTH_LIMIT)?;
    let state = memory.u32(at.checked_add(STATE)?)?;
    if state & (1 << COMPACT) == 0 {
        return None;
    }
    let is_ascii = state & (1 << ASCII) != 0;
    let width = if is_ascii { 1 } else { u64::from(state >> KIND & 7) };
    let begin = at.checked_add(if is_ascii { layout.text.0 } else { layout.text.1 })?;
    let mut filled = 0;
    for number in 0..length {
        let at = begin.checked_add(number * width)?;
        let scalar = match width {
            1 => memory.u8(at)?.into(),
            2 => u16::from_le_bytes(memory.read(at)?).into(),
            4 => memory.u32(at)?,
            _ => return None,
        };
        let mut bytes = [0; 4];
        let encoded = char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut bytes);
        let Some(place) = out.get_mut(filled..filled + encoded.len()) else { break };
        crate::bytes::copy(place, encoded.as_bytes());
        filled += encoded.len();
    }
    out.get(..filled)
}

/// The line of a frame's instruction.
fn line(memory: &mut Memory, layout: &Layout, frame: CodeFrame) -> Option<u32> {
    let first = memory.i32(frame.code.checked_add(layout.firstlineno)?)?;
    let (field, form) = layout.lines;
    let table = memory.u64(frame.code.checked_add(field)?)?;
    let bytes = memory.u64(table.checked_add(BYTES_SIZE)?).filter(|bytes| *bytes <= TABLE_LIMIT)?;
    let at = table.checked_add(BYTES)?;
    let mut cursor = Cursor { memory, at, end: at.checked_add(bytes)? };
    let (first, offset) = (i64::from(first), u64::from(frame.instruction));
    match form {
        Lines::Steps => in_steps(&mut cursor, first, offset),
        Lines::Ranges => in_ranges(&mut cursor, first, offset),
        Lines::Locations => in_locations(&mut cursor, first, offset),
    }
}

/// The line at an offset: each pair is how far on instructions and lines are.
fn in_steps(cursor: &mut Cursor<'_>, first: i64, offset: u64) -> Option<u32> {
    let (mut line, mut at) = (first, 0u64);
    while !cursor.is_done() {
        at += u64::from(cursor.u8()?);
        if at > offset {
            break;
        }
        line += i64::from(cursor.u8()?.cast_signed());
    }
    u32::try_from(line).ok()
}

/// The line at an offset: each pair is the length of a range, and how far on its line is; -128: it has none.
fn in_ranges(cursor: &mut Cursor<'_>, first: i64, offset: u64) -> Option<u32> {
    let (mut line, mut end) = (first, 0u64);
    while !cursor.is_done() {
        end += u64::from(cursor.u8()?);
        let step = cursor.u8()?.cast_signed();
        if step != i8::MIN {
            line += i64::from(step);
        }
        if offset < end {
            return u32::try_from(line).ok().filter(|_| step != i8::MIN);
        }
    }
    None
}

/// The line at an offset, in a table of positions that begins at line `first`.
fn in_locations(cursor: &mut Cursor<'_>, first: i64, offset: u64) -> Option<u32> {
    let (mut line, mut end) = (first, 0u64);
    while !cursor.is_done() {
        let head = cursor.u8()?;
        if head & 0x80 == 0 {
            return None;
        }
        end += (u64::from(head & 7) + 1) * UNIT;
        let form = head >> 3 & 15;
        let mut has_line = true;
        match form {
            0..=9 => cursor.skip(1)?,
            10..=12 => {
                line += i64::from(form - 10);
                cursor.skip(2)?;
            }
            13 => line += signed(cursor)?,
            14 => {
                line += signed(cursor)?;
                for _ in 0..3 {
                    number(cursor)?;
                }
            }
            _ => has_line = false,
        }
        if offset < end {
            return u32::try_from(line).ok().filter(|_| has_line);
        }
    }
    None
}

/// Six bits a byte, the lowest first; bit 6: another follows.
fn number(cursor: &mut Cursor<'_>) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0u32);
    loop {
        let byte = cursor.u8()?;
        value |= u64::from(byte & 63).checked_shl(shift)?;
        shift += 6;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
}

/// A number whose lowest bit is its sign.
fn signed(cursor: &mut Cursor<'_>) -> Option<i64> {
    let value = number(cursor)?;
    let size = (value >> 1).cast_signed();
    Some(if value & 1 == 0 { size } else { -size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(form: Lines, table: &[u8], first: i64, offset: u64) -> Option<u32> {
        // SAFETY: all zeros is a memory without pages.
        let mut memory: Box<Memory> = unsafe { Box::new_zeroed().assume_init() };
        memory.clear();
        let at = table.as_ptr().addr() as u64;
        let mut cursor = Cursor { memory: &mut memory, at, end: at + table.len() as u64 };
        match form {
            Lines::Steps => in_steps(&mut cursor, first, offset),
            Lines::Ranges => in_ranges(&mut cursor, first, offset),
            Lines::Locations => in_locations(&mut cursor, first, offset),
        }
    }

    #[test]
    fn every_form_of_an_entry_is_read() {
        let table = [
            0x80 | 15 << 3, // no line: one unit
            0x80 | 10 << 3 | 1,
            0,
            0, // same line: two units
            0x80 | 12 << 3,
            1,
            2, // two lines on
            0x80 | 2 << 3 | 7,
            0x11, // short form, same line: eight units
            0x80 | 13 << 3,
            0b0000111, // three lines back
            0x80 | 14 << 3,
            0x41,
            1,
            0,
            1,
            1, // far: -32 lines
        ];
        for (offset, line) in [
            (0, None),
            (2, Some(100)),
            (5, Some(100)),
            (6, Some(102)),
            (23, Some(102)),
            (24, Some(99)),
            (26, Some(67)),
        ] {
            assert_eq!(lines(Lines::Locations, &table, 100, offset), line, "{offset}");
        }
        assert_eq!(lines(Lines::Locations, &table, 100, 28), None, "behind the end");
        assert_eq!(lines(Lines::Locations, &[0x00], 1, 0), None, "no entry begins so");
    }

    #[test]
    fn tables_of_older_versions_are_read() {
        let steps = [6, 1, 50, 2, 0, 0xff];
        for (offset, line) in [(0, 10), (5, 10), (6, 11), (55, 11), (56, 12)] {
            assert_eq!(lines(Lines::Steps, &steps, 10, offset), Some(line), "{offset}");
        }
        let ranges = [4, 0, 2, 0x80, 6, 5, 0, 1, 2, 0xfd];
        for (offset, line) in
            [(0, Some(10)), (4, None), (6, Some(15)), (11, Some(15)), (12, Some(13)), (14, None)]
        {
            assert_eq!(lines(Lines::Ranges, &ranges, 10, offset), line, "{offset}");
        }
    }
}
