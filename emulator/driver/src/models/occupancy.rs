//! Occupancy: number of blocks that fit on a multiprocessor.
//!
//! The model is that of NVIDIA's public occupancy calculator: a block takes warps, registers and
//! shared memory, each in units of the hardware, and the scarcest of them decides.
//!
//! * warps: `ceil(threads / 32)`, at most `max_threads_per_sm / 32` on a multiprocessor;
//! * registers: per warp `round_up(registers * 32, 256)`, and the number of warps that fit is rounded
//!   down to the 4 schedulers;
//! * shared memory: `round_up(static + dynamic + reserved, unit)`, with 1 KiB reserved per block and a
//!   unit of 128 bytes from compute capability 8.0 on, before that none and 256 bytes;
//! * blocks: at most `max_blocks_per_sm`.

use radrm_emulator_machine::GpuSpec;

/// The figures of a multiprocessor that occupancy depends on.
#[derive(Clone, Copy, Debug)]
pub struct SmLimits {
    /// Most threads.
    pub threads: u32,
    /// Most blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Shared memory in bytes.
    pub shared: u32,
    /// Most shared memory of a block that asked for it, in bytes.
    pub shared_per_block_optin: u32,
    /// Compute capability, major.
    pub major: u32,
}

/// Largest shared memory of a block that did not ask for more, in bytes.
pub const SHARED_PER_BLOCK: u32 = 48 << 10;
/// Most threads of a block.
pub const THREADS_PER_BLOCK: u32 = 1024;
const WARP: u32 = 32;
const REGISTER_UNIT: u32 = 256;
const SCHEDULERS: u32 = 4;

impl SmLimits {
    fn shared_of_block(&self, bytes: u64) -> u64 {
        let (reserved, unit) = if self.major >= 8 { (1024, 128) } else { (0, 256) };
        (bytes + reserved).next_multiple_of(unit)
    }

    /// Blocks of `threads` threads with `registers` registers each and `shared` bytes of shared
    /// memory that a multiprocessor holds at a time. 0 if not even one fits.
    pub fn blocks_per_sm(&self, threads: u32, registers: u32, shared: u64) -> u32 {
        if threads == 0 || threads > THREADS_PER_BLOCK {
            return 0;
        }
        let warps = threads.div_ceil(WARP);
        let by_warps = self.threads / WARP / warps;
        let by_registers = if registers == 0 {
            u32::MAX
        } else {
            let of_warp = (registers * WARP).next_multiple_of(REGISTER_UNIT);
            self.registers / of_warp / SCHEDULERS * SCHEDULERS / warps
        };
        // Before 8.0 a block without shared memory takes none at all.
        let by_shared = u64::from(self.shared).checked_div(self.shared_of_block(shared)).unwrap_or(u64::MAX);
        by_warps.min(by_registers).min(self.blocks).min(u32::try_from(by_shared).unwrap_or(u32::MAX))
    }

    /// Most threads of a block of a kernel, by its registers; a multiple of a warp.
    pub fn threads_by_registers(&self, registers: u32) -> u32 {
        (1..=THREADS_PER_BLOCK / WARP)
            .rev()
            .map(|warps| warps * WARP)
            .find(|threads| self.blocks_per_sm(*threads, registers, 0) > 0)
            .unwrap_or(0)
    }

    /// Dynamic shared memory that each of `blocks` blocks can have when a multiprocessor holds them
    /// all; 0 if there is no room.
    pub fn shared_left(&self, blocks: u32, fixed: u64) -> u64 {
        let (reserved, unit) = if self.major >= 8 { (1024, 128) } else { (0, 256) };
        let each = u64::from(self.shared / blocks.max(1)) / unit * unit;
        each.min(u64::from(self.shared_per_block_optin) + reserved).saturating_sub(reserved + fixed)
    }
}

/// The figures of a device's multiprocessors.
pub fn limits(gpu: &GpuSpec) -> SmLimits {
    SmLimits {
        threads: gpu.max_threads_per_sm,
        blocks: gpu.max_blocks_per_sm,
        registers: gpu.registers_per_sm,
        shared: gpu.shared_per_sm_kib << 10,
        shared_per_block_optin: gpu.shared_per_block_optin_kib << 10,
        major: gpu.capability().0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A100: SmLimits = SmLimits {
        threads: 2048,
        blocks: 32,
        registers: 65536,
        shared: 164 << 10,
        shared_per_block_optin: 163 << 10,
        major: 8,
    };

    #[test]
    fn the_scarcest_resource_decides() {
        // Figures of NVIDIA's occupancy calculator for compute capability 8.0.
        assert_eq!(A100.blocks_per_sm(256, 32, 0), 8, "threads");
        assert_eq!(A100.blocks_per_sm(256, 64, 0), 4, "registers");
        assert_eq!(A100.blocks_per_sm(256, 40, 0), 6, "registers, in units of four warps");
        assert_eq!(A100.blocks_per_sm(32, 16, 0), 32, "blocks");
        assert_eq!(A100.blocks_per_sm(128, 32, 48 << 10), 3, "shared memory with its reserve");
        assert_eq!(A100.blocks_per_sm(1024, 255, 0), 0, "does not fit at all");
        let t4 = SmLimits { threads: 1024, blocks: 16, shared: 64 << 10, major: 7, ..A100 };
        assert_eq!(t4.blocks_per_sm(256, 32, 0), 4, "no shared memory on a device that reserves none");
    }

    #[test]
    fn limits_of_a_block_follow() {
        assert_eq!(A100.threads_by_registers(32), 1024);
        assert_eq!(A100.threads_by_registers(128), 512);
        assert_eq!(A100.threads_by_registers(255), 256);
        let left = A100.shared_left(3, 1024);
        assert!(
            A100.blocks_per_sm(128, 32, left + 1024) == 3 && A100.blocks_per_sm(128, 32, left + 1152) < 3
        );
        assert_eq!(A100.shared_left(1, 0), 163 << 10);
    }
}
