//! Unwind tables, `.eh_frame` by way of `.eh_frame_hdr`, read where the loader mapped them.
//!
//! Formats: Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4. Whatever is not as there ends the stack.

use super::cursor::Cursor;
use super::memory::Memory;
use super::registers::{COUNT, RSP};
use super::rule::{FrameAddress, Rule, Saved};

/// Rows that `DW_CFA_remember_state` can keep.
const REMEMBERED: usize = 4;
/// Instructions before a table is given up.
const STEPS: usize = 20_000;
/// Bytes of an entry that is believed.
const ENTRY_LIMIT: u64 = 1 << 20;

/// Encodings of the index that is searched: what every linker writes.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// The rule for an address of code, by the index at `header`. `None`: there is none.
pub(super) fn rule(memory: &mut Memory, header: u64, pc: u64) -> Option<Rule> {
    let entry = find(memory, header, pc)?;
    Entry::read(memory, entry)?.rule(memory, pc)
}

/// Address of the entry that may cover an address.
fn find(memory: &mut Memory, header: u64, pc: u64) -> Option<u64> {
    if memory.read::<4>(header)? != HEADER {
        return None;
    }
    let count = u64::from(memory.u32(header + 8)?);
    let table = header + 12;
    let wanted = pc.wrapping_sub(header).cast_signed();
    let (mut low, mut high) = (0u64, count);
    while low < high {
        let middle = (low + high) / 2;
        if i64::from(memory.i32(table + middle * 8)?) <= wanted { low = middle + 1 } else { high = middle }
    }
    let last = low.checked_sub(1)?;
    Some(header.wrapping_add_signed(memory.i32(table + last * 8 + 4)?.into()))
}

/// An entry of the table with what it shares with others.
struct Entry {
    start: u64,
    bytes: u64,
    code_align: u64,
    data_align: i64,
    is_signal: bool,
    shared: (u64, u64),
    own: (u64, u64),
}

impl Entry {
    fn read(memory: &mut Memory, at: u64) -> Option<Self> {
        let mut own = bounded(memory, at)?;
        let back = own.at;
        let shared_at = back.checked_sub(own.u32()?.into())?;
        let (from, end) = (own.at, own.end);
        let mut shared = bounded(memory, shared_at)?;
        if shared.u32()? != 0 {
            return None;
        }
        let version = shared.u8()?;
        let mut letters = [0u8; 8];
        for place in &mut letters {
            *place = shared.u8()?;
            if *place == 0 {
                break;
            }
        }
        let code_align = shared.uleb()?;
        let data_align = shared.sleb()?;
        let return_column = if version == 1 { shared.u8()?.into() } else { shared.uleb()? };
        if return_column != u64::from(super::registers::RA) || !matches!(version, 1 | 3) {
            return None;
        }
        let (mut encoding, mut is_signal) = (0, false);
        let is_augmented = letters.first() == Some(&b'z');
        if is_augmented {
            let bytes = shared.uleb()?;
            let next = shared.at.checked_add(bytes)?;
            for letter in letters.iter().skip(1).take_while(|letter| **letter != 0) {
                match letter {
                    b'L' => shared.skip(1)?,
                    b'R' => encoding = shared.u8()?,
                    b'P' => {
                        let encoding = shared.u8()?;
                        encoded(&mut shared, encoding & 0x0f)?;
                    }
                    b'S' => is_signal = true,
                    b'B' => {}
                    _ => return None,
                }
            }
            shared.at = next;
        } else if letters.first() != Some(&0) {
            return None;
        }
        let instructions = (shared.at, shared.end);
        let mut own = Cursor { memory, at: from, end };
        let start = encoded(&mut own, encoding)?;
        let bytes = encoded(&mut own, encoding & 0x0f)?;
        if is_augmented {
            let bytes = own.uleb()?;
            own.skip(bytes)?;
        }
        let own = (own.at, own.end);
        Some(Self { start, bytes, code_align, data_align, is_signal, shared: instructions, own })
    }

    /// The rule for an address, if the entry covers it.
    fn rule(&self, memory: &mut Memory, pc: u64) -> Option<Rule> {
        if pc.checked_sub(self.start)? >= self.bytes {
            return None;
        }
        let mut saved = [Saved::Same; COUNT];
        *saved.last_mut()? = Saved::Undefined;
        let empty = Rule { address: FrameAddress::Register(RSP, 0), saved, is_signal: self.is_signal };
        let mut machine = Machine {
            entry: self,
            row: empty,
            initial: empty,
            remembered: [empty; REMEMBERED],
            depth: 0,
            location: self.start,
        };
        machine.run(memory, self.shared, u64::MAX)?;
        machine.initial = machine.row;
        machine.location = self.start;
        machine.run(memory, self.own, pc)?;
        Some(machine.row)
    }
}

/// The contents of an entry, behind its length.
fn bounded(memory: &mut Memory, at: u64) -> Option<Cursor<'_>> {
    let bytes = u64::from(memory.u32(at)?);
    if bytes == 0 || bytes > ENTRY_LIMIT {
        return None;
    }
    let start = at.checked_add(4)?;
    Some(Cursor { memory, at: start, end: start.checked_add(bytes)? })
}

/// A pointer in one of its encodings, absolute or relative to where it stands.
fn encoded(cursor: &mut Cursor<'_>, encoding: u8) -> Option<u64> {
    let here = cursor.at;
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => cursor.u64()?,
        0x01 => cursor.uleb()?,
        0x02 => cursor.u16()?.into(),
        0x03 => cursor.u32()?.into(),
        0x09 => cursor.sleb()?.cast_unsigned(),
        0x0a => i64::from(cursor.u16()?.cast_signed()).cast_unsigned(),
        0x0b => i64::from(cursor.u32()?.cast_signed()).cast_unsigned(),
        _ => return None,
    };
    match encoding & 0x70 {
        0x00 => Some(value),
        0x10 => Some(here.wrapping_add(value)),
        _ => None,
    }
}

/// Interpreter of a table's instructions.
struct Machine<'e> {
    entry: &'e Entry,
    row: Rule,
    initial: Rule,
    remembered: [Rule; REMEMBERED],
    depth: usize,
    location: u64,
}

impl Machine<'_> {
    /// Carries out instructions up to the row of `pc`.
    fn run(&mut self, memory: &mut Memory, (at, end): (u64, u64), pc: u64) -> Option<()> {
        let mut cursor = Cursor { memory, at, end };
        for _ in 0..STEPS {
            if cursor.is_done() {
                return Some(());
            }
            let byte = cursor.u8()?;
            let low = byte & 0x3f;
            let moved: Option<u64> = match byte >> 6 {
                1 => Some(low.into()),
                2 => {
                    let offset = self.scaled(cursor.uleb()?);
                    self.save(low.into(), Saved::At(offset));
                    None
                }
                3 => {
                    self.restore(low.into());
                    None
                }
                _ => match low {
                    0x02 => Some(cursor.u8()?.into()),
                    0x03 => Some(cursor.u16()?.into()),
                    0x04 => Some(cursor.u32()?.into()),
                    0x01 => return None,
                    low => {
                        self.step(low, &mut cursor)?;
                        None
                    }
                },
            };
            if let Some(units) = moved {
                self.location = self.location.checked_add(u64::checked_mul(units, self.entry.code_align)?)?;
                if self.location > pc {
                    return Some(());
                }
            }
        }
        None
    }

    fn step(&mut self, operation: u8, cursor: &mut Cursor<'_>) -> Option<()> {
        match operation {
            0x00 => {}
            // offset_extended, offset_extended_sf
            0x05 => {
                let register = cursor.uleb()?;
                let offset = self.scaled(cursor.uleb()?);
                self.save(register, Saved::At(offset));
            }
            0x11 => {
                let register = cursor.uleb()?;
                let offset = cursor.sleb()?.wrapping_mul(self.entry.data_align);
                self.save(register, Saved::At(offset));
            }
            0x06 => {
                let register = cursor.uleb()?;
                self.restore(register);
            }
            0x07 => self.save(cursor.uleb()?, Saved::Undefined),
            0x08 => self.save(cursor.uleb()?, Saved::Same),
            0x09 => {
                let register = cursor.uleb()?;
                let other = u8::try_from(cursor.uleb()?).ok()?;
                self.save(register, Saved::Register(other));
            }
            // remember_state, restore_state
            0x0a => {
                *self.remembered.get_mut(self.depth)? = self.row;
                self.depth += 1;
            }
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = *self.remembered.get(self.depth)?;
            }
            // def_cfa, def_cfa_sf, def_cfa_register, def_cfa_offset, def_cfa_offset_sf
            0x0c => self.frame(cursor.uleb()?, cursor.uleb()?.cast_signed())?,
            0x12 => {
                let register = cursor.uleb()?;
                self.frame(register, cursor.sleb()?.wrapping_mul(self.entry.data_align))?;
            }
            0x0d => {
                let FrameAddress::Register(_, offset) = self.row.address else { return None };
                self.frame(cursor.uleb()?, offset)?;
            }
            0x0e | 0x13 => {
                let FrameAddress::Register(register, _) = self.row.address else { return None };
                let offset = if operation == 0x0e {
                    cursor.uleb()?.cast_signed()
                } else {
                    cursor.sleb()?.wrapping_mul(self.entry.data_align)
                };
                self.frame(register.into(), offset)?;
            }
            // def_cfa_expression, expression, val_expression
            0x0f => {
                let (at, bytes) = block(cursor)?;
                self.row.address = FrameAddress::Expression(at, bytes);
            }
            0x10 => {
                let register = cursor.uleb()?;
                let (at, bytes) = block(cursor)?;
                self.save(register, Saved::AtExpression(at, bytes));
            }
            0x16 => {
                let register = cursor.uleb()?;
                let (at, bytes) = block(cursor)?;
                self.save(register, Saved::IsExpression(at, bytes));
            }
            // val_offset, val_offset_sf
            0x14 => {
                let register = cursor.uleb()?;
                let offset = self.scaled(cursor.uleb()?);
                self.save(register, Saved::Is(offset));
            }
            0x15 => {
                let register = cursor.uleb()?;
                let offset = cursor.sleb()?.wrapping_mul(self.entry.data_align);
                self.save(register, Saved::Is(offset));
            }
            // GNU_args_size
            0x2e => {
                cursor.uleb()?;
            }
            _ => return None,
        }
        Some(())
    }

    fn scaled(&self, factor: u64) -> i64 {
        factor.cast_signed().wrapping_mul(self.entry.data_align)
    }

    fn frame(&mut self, register: u64, offset: i64) -> Option<()> {
        self.row.address = FrameAddress::Register(u8::try_from(register).ok()?, offset);
        Some(())
    }

    /// Registers that are not followed (vectors) are left out.
    fn save(&mut self, register: u64, how: Saved) {
        if let Some(place) = usize::try_from(register).ok().and_then(|at| self.row.saved.get_mut(at)) {
            *place = how;
        }
    }

    fn restore(&mut self, register: u64) {
        let initial = usize::try_from(register).ok().and_then(|at| self.initial.saved.get(at)).copied();
        if let Some(how) = initial {
            self.save(register, how);
        }
    }
}

fn block(cursor: &mut Cursor<'_>) -> Option<(u64, u64)> {
    let bytes = cursor.uleb()?;
    let at = cursor.at;
    cursor.skip(bytes)?;
    Some((at, bytes))
}
