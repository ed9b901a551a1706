//! Rules that lead from a frame to its caller.

use super::expression;
use super::memory::Memory;
use super::registers::{COUNT, KEPT, RA, RSP, Registers};

/// Rule for the caller's value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Saved {
    /// It was not changed.
    Same,
    /// It cannot be found; of a return address: there is no caller.
    Undefined,
    /// In memory, so many bytes from the frame's address.
    At(i64),
    /// The frame's address plus this.
    Is(i64),
    /// In another register.
    Register(u8),
    /// In memory at the value of the expression at this address, of so many bytes.
    AtExpression(u64, u64),
    /// The value of that expression.
    IsExpression(u64, u64),
}

/// Rule for a frame's address, which is the stack pointer in its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameAddress {
    /// A register plus this.
    Register(u8, i64),
    /// The value of the expression at this address, of so many bytes.
    Expression(u64, u64),
}

/// Rule of an unwind table for one place in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) address: FrameAddress,
    pub(super) saved: [Saved; COUNT],
    /// The frame is that of a signal: its caller was interrupted, and has not called.
    pub(super) is_signal: bool,
}

impl Rule {
    /// The rule of a place without a table, where the frame pointer is kept.
    pub(super) const FRAME_POINTER: Self = {
        let mut saved = [Saved::Undefined; COUNT];
        saved[RSP as usize] = Saved::Same;
        saved[super::registers::RBP as usize] = Saved::At(-16);
        saved[RA as usize] = Saved::At(-8);
        Self { address: FrameAddress::Register(super::registers::RBP, 16), saved, is_signal: false }
    };

    /// The caller's registers. `None`: there is no caller, or it cannot be found.
    pub(super) fn apply(&self, memory: &mut Memory, registers: &Registers) -> Option<Registers> {
        let frame = match self.address {
            FrameAddress::Register(register, offset) => registers.get(register)?.wrapping_add_signed(offset),
            FrameAddress::Expression(at, bytes) => {
                expression::evaluate(memory, registers, (at, bytes), None)?
            }
        };
        let mut caller = Registers::NONE;
        for (register, saved) in (0u8..).zip(self.saved) {
            let value = match saved {
                Saved::Same => registers.get(register),
                Saved::Undefined => None,
                Saved::At(offset) => memory.word(frame.wrapping_add_signed(offset)),
                Saved::Is(offset) => Some(frame.wrapping_add_signed(offset)),
                Saved::Register(other) => registers.get(other),
                Saved::AtExpression(at, bytes) => {
                    expression::evaluate(memory, registers, (at, bytes), Some(frame))
                        .and_then(|at| memory.word(at))
                }
                Saved::IsExpression(at, bytes) => {
                    expression::evaluate(memory, registers, (at, bytes), Some(frame))
                }
            };
            caller.set(register, value);
        }
        if self.saved.get(usize::from(RSP)) == Some(&Saved::Same) {
            caller.set(RSP, Some(frame));
        }
        Some(caller)
    }

    /// The rule in two words, if it is of the usual kind.
    pub(super) fn compact(&self) -> Option<Compact> {
        let FrameAddress::Register(register, offset) = self.address else { return None };
        let offset = i32::try_from(offset).ok()?;
        let mut saved = [SAME; 8];
        for (register, how) in (0u8..).zip(self.saved) {
            let place = KEPT.iter().position(|kept| *kept == register);
            let code = match (how, place) {
                (Saved::Same, _) => continue,
                // What a caller cannot count on says nothing.
                (Saved::Undefined, None) => continue,
                (Saved::Undefined, Some(_)) => LOST,
                (Saved::At(offset), Some(_)) if offset % 8 == 0 => {
                    i8::try_from(offset / 8).ok().filter(|code| *code > LOST)?
                }
                _ => return None,
            };
            *saved.get_mut(place?)? = code;
        }
        let saved = u64::from_le_bytes(saved.map(i8::cast_unsigned));
        (!self.is_signal).then_some(Compact { register, offset, saved })
    }
}

const SAME: i8 = i8::MIN;
const LOST: i8 = i8::MIN + 1;
/// [`SAME`] for all registers.
const ALL_SAME: u64 = u64::from_le_bytes([SAME.cast_unsigned(); 8]);

/// A rule of the usual kind: the frame's address is a register and a number, and of the registers only those in [`KEPT`]
/// are found, in memory below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Compact {
    register: u8,
    offset: i32,
    /// A byte for each register.
    saved: u64,
}

impl Compact {
    /// Makes registers those of the caller, as [`Rule::apply`]. False: there is no caller, or it cannot be found.
    #[inline]
    pub(super) fn step(&self, memory: &mut Memory, registers: &mut Registers) -> bool {
        let Some(frame) = registers.get(self.register) else { return false };
        let frame = frame.wrapping_add_signed(self.offset.into());
        // Most frames have saved two or three of them: only these are looked at.
        let mut changed = self.saved ^ ALL_SAME;
        while changed != 0 {
            let place = changed.trailing_zeros() / 8;
            changed &= !(0xff << (8 * place));
            let Some(register) = KEPT.get(place as usize) else { break };
            let code = ((self.saved >> (8 * place)) as u8).cast_signed();
            let value = match code {
                LOST => None,
                code => memory.word(frame.wrapping_add_signed(i64::from(code) * 8)),
            };
            registers.set(*register, value);
        }
        registers.set(RSP, Some(frame));
        true
    }

    /// As words; the upper 16 bits of the first are free.
    pub(super) fn pack(self) -> [u64; 2] {
        let first = u64::from(self.offset.cast_unsigned()) | u64::from(self.register) << 32;
        [first, self.saved]
    }

    /// From words.
    pub(super) fn unpack([first, saved]: [u64; 2]) -> Self {
        Self { register: (first >> 32) as u8, offset: (first as u32).cast_signed(), saved }
    }
}
