//! The registers of a frame, as far as they are known.

/// Register by its number in DWARF: frame pointer.
pub(super) const RBP: u8 = 6;
/// Stack pointer.
pub(super) const RSP: u8 = 7;
/// The column of the return address.
pub(super) const RA: u8 = 16;
/// Columns of a table.
pub(super) const COUNT: usize = 17;
/// Registers that a function leaves as it found them, besides the stack pointer, and the return address: these are what
/// cached rules have.
pub(super) const KEPT: [u8; 7] = [3, RBP, 12, 13, 14, 15, RA];

/// Values of registers; those that are not known are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    values: [u64; COUNT],
    known: u32,
}

impl Registers {
    /// None known.
    pub(super) const NONE: Self = Self { values: [0; COUNT], known: 0 };

    /// A register's value.
    #[inline(always)]
    pub(super) fn get(&self, register: u8) -> Option<u64> {
        let is_known = u32::from(register) < COUNT as u32 && self.known & (1 << register) != 0;
        if is_known { self.values.get(usize::from(register)).copied() } else { None }
    }

    /// Sets a register.
    #[inline(always)]
    pub(super) fn set(&mut self, register: u8, value: Option<u64>) {
        let Some(place) = self.values.get_mut(usize::from(register)) else { return };
        match value {
            Some(value) => {
                *place = value;
                self.known |= 1 << register;
            }
            None => {
                *place = 0;
                self.known &= !(1 << register);
            }
        }
    }

    /// Registers of the calling function, at the place where it calls.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn here() -> Self {
        let mut seen = [0u64; 8];
        // SAFETY: stores registers into the array; nothing else changes.
        unsafe {
            core::arch::asm!(
                "mov [{to}], rbx",
                "mov [{to} + 8], rbp",
                "mov [{to} + 16], rsp",
                "mov [{to} + 24], r12",
                "mov [{to} + 32], r13",
                "mov [{to} + 40], r14",
                "mov [{to} + 48], r15",
                "lea {pc}, [rip]",
                "mov [{to} + 56], {pc}",
                to = in(reg) seen.as_mut_ptr(),
                pc = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
        let mut registers = Self::NONE;
        for (register, value) in [3, RBP, RSP, 12, 13, 14, 15, RA].into_iter().zip(seen) {
            registers.set(register, Some(value));
        }
        registers
    }

    /// Nothing is known of other machines' registers.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn here() -> Self {
        Self::NONE
    }
}
