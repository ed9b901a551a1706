//! The few instructions of an export, for the machine that this is built for.

/// Bytes of code of an export.
pub const SIZE: usize = 32;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{GLOB_DAT, MACHINE, PAGE, done, jump, missing, pad};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{GLOB_DAT, MACHINE, PAGE, done, jump, missing, pad};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use object::elf;

    pub const MACHINE: u16 = elf::EM_X86_64;
    pub const GLOB_DAT: u32 = elf::R_X86_64_GLOB_DAT;
    /// Largest page of the system.
    pub const PAGE: usize = 4096;

    /// `jmp [slot]`
    pub fn jump(start: usize, slot: usize) -> Vec<u8> {
        let mut code = vec![0xff, 0x25];
        code.extend_from_slice(&distance(start + 6, slot));
        code
    }

    /// Returns 0.
    pub fn done() -> Vec<u8> {
        // xor eax, eax; ret
        vec![0x31, 0xc0, 0xc3]
    }

    /// Passes the address of a name and a status to the function whose address is in the slot.
    pub fn missing(start: usize, name: usize, status: i32, slot: usize) -> Vec<u8> {
        // lea rdi, [name]; mov esi, status; jmp [slot]
        let mut code = vec![0x48, 0x8d, 0x3d];
        code.extend_from_slice(&distance(start + 7, name));
        code.push(0xbe);
        code.extend_from_slice(&status.to_le_bytes());
        let jump = jump(start + code.len(), slot);
        code.extend_from_slice(&jump);
        code
    }

    /// Fills up with traps: what is there is never reached.
    pub fn pad(code: &mut Vec<u8>) {
        code.resize(super::SIZE, 0xcc);
    }

    /// Distance between two addresses of the same file, as instructions have it.
    fn distance(from: usize, to: usize) -> [u8; 4] {
        (to.wrapping_sub(from) as u32).to_le_bytes()
    }
}

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(
    not(target_arch = "aarch64"),
    allow(dead_code, reason = "elsewhere only its instructions are tested")
)]
mod aarch64 {
    use object::elf;

    pub const MACHINE: u16 = elf::EM_AARCH64;
    pub const GLOB_DAT: u32 = elf::R_AARCH64_GLOB_DAT;
    /// Largest page of the system: some are built with 64 KiB.
    pub const PAGE: usize = 65_536;

    /// Registers of the first two arguments, and the one that a jump may use.
    const FIRST: u32 = 0;
    const SECOND: u32 = 1;
    const FREE: u32 = 16;

    /// Jumps to the address that is in the slot.
    pub fn jump(start: usize, slot: usize) -> Vec<u8> {
        // adrp x16, slot; ldr x16, [x16, slot]; br x16
        let load = 0xf940_0000 | ((slot as u32 & 0xfff) / 8) << 10 | FREE << 5 | FREE;
        bytes(&[page_of(start, slot, FREE), load, 0xd61f_0200])
    }

    /// Returns 0.
    pub fn done() -> Vec<u8> {
        // mov w0, 0; ret
        bytes(&[0x5280_0000, 0xd65f_03c0])
    }

    /// Passes the address of a name and a status to the function whose address is in the slot.
    pub fn missing(start: usize, name: usize, status: i32, slot: usize) -> Vec<u8> {
        let status = status as u32;
        // adrp x0, name; add x0, x0, name; movz w1, status; movk w1, status, lsl 16
        let add = 0x9100_0000 | (name as u32 & 0xfff) << 10 | FIRST << 5 | FIRST;
        let low = 0x5280_0000 | (status & 0xffff) << 5 | SECOND;
        let high = 0x72a0_0000 | (status >> 16) << 5 | SECOND;
        let mut code = bytes(&[page_of(start, name, FIRST), add, low, high]);
        let jump = jump(start + code.len(), slot);
        code.extend_from_slice(&jump);
        code
    }

    /// Fills up with traps: what is there is never reached.
    pub fn pad(code: &mut Vec<u8>) {
        // brk 0
        while code.len() < super::SIZE {
            code.extend_from_slice(&0xd420_0000_u32.to_le_bytes());
        }
    }

    /// `adrp`: the 4 KiB page of an address into a register.
    fn page_of(at: usize, address: usize, register: u32) -> u32 {
        let pages = ((address >> 12) as u32).wrapping_sub((at >> 12) as u32);
        0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5 | register
    }

    fn bytes(instructions: &[u32]) -> Vec<u8> {
        instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    /// As an assembler has them.
    #[test]
    fn instructions_of_aarch64_are_the_assemblers() {
        let words = |code: Vec<u8>| -> Vec<u32> {
            let (words, rest) = code.as_chunks::<4>();
            assert!(rest.is_empty());
            words.iter().map(|word| u32::from_le_bytes(*word)).collect()
        };
        // adrp x16, .+0x3000; ldr x16, [x16, 0x128]; br x16
        assert_eq!(words(super::aarch64::jump(0x1_0020, 0x1_3128)), [0xf000_0010, 0xf940_9610, 0xd61f_0200]);
        // adrp x0, .-0x1000; add x0, x0, 0x456; movz w1, 0x321; movk w1, 0, lsl 16; then the jump
        let code = words(super::aarch64::missing(0x2_0000, 0x1_f456, 801, 0x3_0008));
        assert_eq!(code[..4], [0xf0ff_ffe0, 0x9111_5800, 0x5280_6421, 0x72a0_0001]);
        assert_eq!(code[4..], [0x9000_0090, 0xf940_0610, 0xd61f_0200]);
        // mov w0, 0; ret
        assert_eq!(words(super::aarch64::done()), [0x5280_0000, 0xd65f_03c0]);
    }
}
