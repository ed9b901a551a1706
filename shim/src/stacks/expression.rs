//! DWARF expressions, as far as unwind tables use them: of linkage tables, of frames that align their stack, and of
//! signal frames.

use super::cursor::Cursor;
use super::memory::Memory;
use super::registers::Registers;

/// Deepest stack of values.
const DEPTH: usize = 16;
/// Operations before an expression is given up.
const STEPS: usize = 64;

struct Stack {
    values: [u64; DEPTH],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    fn peek(&self, below: usize) -> Option<u64> {
        self.values.get(self.len.checked_sub(below + 1)?).copied()
    }
}

/// The value of an expression of `bytes` bytes at an address; `first` is on its stack at the beginning. `None`: it uses what is not
/// known here.
pub(super) fn evaluate(
    memory: &mut Memory,
    registers: &Registers,
    (at, bytes): (u64, u64),
    first: Option<u64>,
) -> Option<u64> {
    let mut stack = Stack { values: [0; DEPTH], len: 0 };
    if let Some(first) = first {
        stack.push(first)?;
    }
    let mut cursor = Cursor { memory, at, end: at.checked_add(bytes)? };
    for _ in 0..STEPS {
        if cursor.is_done() {
            return stack.pop();
        }
        let operation = cursor.u8()?;
        let value = match operation {
            // deref
            0x06 => {
                let at = stack.pop()?;
                cursor.memory.word(at)?
            }
            // const1u .. consts
            0x08 => cursor.u8()?.into(),
            0x09 => (cursor.u8()?.cast_signed() as i64).cast_unsigned(),
            0x0a => cursor.u16()?.into(),
            0x0b => (cursor.u16()?.cast_signed() as i64).cast_unsigned(),
            0x0c => cursor.u32()?.into(),
            0x0d => (cursor.u32()?.cast_signed() as i64).cast_unsigned(),
            0x0e | 0x0f => cursor.u64()?,
            0x10 => cursor.uleb()?,
            0x11 => cursor.sleb()?.cast_unsigned(),
            // dup, over
            0x12 => stack.peek(0)?,
            0x14 => stack.peek(1)?,
            // drop
            0x13 => {
                stack.pop()?;
                continue;
            }
            // plus_uconst
            0x23 => stack.pop()?.wrapping_add(cursor.uleb()?),
            // and, minus, mul, or, plus, shl, shr, xor, eq .. ne
            0x1a | 0x1c | 0x1e | 0x21 | 0x22 | 0x24 | 0x25 | 0x27 | 0x29..=0x2e => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                binary(operation, a, b)?
            }
            literal @ 0x30..=0x4f => (literal - 0x30).into(),
            register @ 0x70..=0x8f => {
                let offset = cursor.sleb()?;
                registers.get(register - 0x70)?.wrapping_add_signed(offset)
            }
            _ => return None,
        };
        stack.push(value)?;
    }
    None
}

fn binary(operation: u8, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (a.cast_signed(), b.cast_signed());
    Some(match operation {
        0x1a => a & b,
        0x1c => a.wrapping_sub(b),
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x22 => a.wrapping_add(b),
        0x24 => a.checked_shl(u32::try_from(b).ok()?).unwrap_or(0),
        0x25 => a.checked_shr(u32::try_from(b).ok()?).unwrap_or(0),
        0x27 => a ^ b,
        0x29 => (x == y).into(),
        0x2a => (x >= y).into(),
        0x2b => (x > y).into(),
        0x2c => (x <= y).into(),
        0x2d => (x < y).into(),
        0x2e => (x != y).into(),
        _ => return None,
    })
}
