//! SM activity and occupancy of kernels from the shape of their launches.
//!
//! With grid `g` blocks of `w` warps, `n` SMs, and `b` blocks that fit on an SM at once:
//! `waves = g / (b n)`; the SMs that are active are, as a share,
//! `a = min(1, g / n)` for `waves <= 1`, else `(floor(waves) + min(1, tail / n)) / ceil(waves)`, where
//! `tail` is what the whole waves leave over. Then over a window
//! `SMACT = sum(duration a) / window` and `SMOCC = sum(duration a b' w / W) / window`, with `b'` the blocks
//! that an active SM has and `W` the warps that it can hold. Persistent kernels and clusters break it.

use radrm_profile::model::{Kernel, Process, Profile};

/// What of a GPU decides how many blocks fit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sm {
    /// A part of the product's name, and one of the GPUs' number of SMs.
    name: &'static str,
    count: u32,
    warps: u32,
    blocks: u32,
    shared_kib: u32,
}

const fn sm(name: &'static str, count: u32, warps: u32, blocks: u32, shared_kib: u32) -> Sm {
    Sm { name, count, warps, blocks, shared_kib }
}

/// NVIDIA's published figures; the first name whose words stand in the product's name counts.
const KNOWN: [Sm; 21] = [
    sm("B200", 148, 64, 32, 228),
    sm("H200", 132, 64, 32, 228),
    sm("H100 PCIe", 114, 64, 32, 228),
    sm("H100", 132, 64, 32, 228),
    sm("A100", 108, 64, 32, 164),
    sm("A30", 56, 64, 32, 164),
    sm("A40", 84, 48, 16, 100),
    sm("A10G", 80, 48, 16, 100),
    sm("A10", 72, 48, 16, 100),
    sm("RTX A6000", 84, 48, 16, 100),
    sm("RTX 3090 Ti", 84, 48, 16, 100),
    sm("RTX 3090", 82, 48, 16, 100),
    sm("L40S", 142, 48, 24, 100),
    sm("L40", 142, 48, 24, 100),
    sm("RTX 6000 Ada", 142, 48, 24, 100),
    sm("L4", 58, 48, 24, 100),
    sm("RTX 4090 D", 114, 48, 24, 100),
    sm("RTX 4090", 128, 48, 24, 100),
    sm("V100", 80, 64, 32, 96),
    sm("T4", 40, 32, 16, 64),
    sm("RTX 2080 Ti", 68, 32, 16, 64),
];

/// Registers of an SM, of all that are known; handed out to warps 256 at a time.
const REGISTERS: u32 = 65_536;
const REGISTER_UNIT: u32 = 256;
const WARP: f64 = 32.0;

/// Whether words stand in a name, whole: `A10` does not stand in `A100`.
fn has_words(name: &str, words: &str) -> bool {
    let is_end = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.match_indices(words).any(|(at, _)| {
        let (before, after) = (name.get(..at).unwrap_or(""), name.get(at + words.len()..).unwrap_or(""));
        is_end(before.chars().next_back()) && is_end(after.chars().next())
    })
}

impl Sm {
    fn of(product: &str) -> Option<Sm> {
        // Laptops have fewer SMs under the same name.
        let known = KNOWN.into_iter().find(|sm| has_words(product, sm.name));
        known.filter(|_| !product.contains("Laptop"))
    }

    /// Blocks of a kernel that fit on an SM at once; at least one, since the kernel ran.
    fn fitting(&self, warps: f64, registers: u32, shared: f64) -> f64 {
        let by_warps = (f64::from(self.warps) / warps).floor();
        let per_warp = (registers * 32).next_multiple_of(REGISTER_UNIT).max(REGISTER_UNIT);
        let by_registers = (f64::from(REGISTERS / per_warp) / warps).floor();
        let by_shared =
            if shared > 0.0 { (f64::from(self.shared_kib) * 1024.0 / shared).floor() } else { f64::INFINITY };
        by_warps.min(by_registers).min(by_shared).min(f64::from(self.blocks)).max(1.0)
    }

    /// Share of the SMs that a launch keeps active, and how full those are.
    fn shape(&self, kernel: &Kernel) -> Option<(f64, f64)> {
        let launches = kernel.all_launches() as f64;
        let grid = kernel.blocks as f64 / launches;
        let warps = (kernel.threads as f64 / kernel.blocks as f64 / WARP).ceil();
        if !(grid.is_finite() && grid > 0.0 && warps.is_finite() && warps > 0.0) {
            return None;
        }
        let shared = kernel.static_shared.0 as f64 + kernel.dynamic_shared.0 as f64 / launches;
        let fitting = self.fitting(warps, kernel.registers.min(255), shared);
        let count = f64::from(self.count);
        let waves = grid / (fitting * count);
        let active = if waves <= 1.0 {
            (grid / count).min(1.0)
        } else {
            let tail = grid - waves.floor() * fitting * count;
            (waves.floor() + (tail / count).min(1.0)) / waves.ceil()
        };
        let resident = if waves <= 1.0 { (grid / count).max(1.0) } else { fitting };
        Some((active, (resident * warps / f64::from(self.warps)).min(1.0)))
    }
}

/// Shares of the window from a process's first timed launch to the end of its last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) sm_active: f64,
    pub(crate) sm_occupancy: f64,
    /// SMs that were reckoned with.
    pub(crate) sms: u32,
}

/// `Err`: why there is none.
pub(crate) fn estimate(profile: &Profile, process: &Process) -> Result<Estimate, &'static str> {
    let [span] = process.timings.spans.as_slice() else {
        return Err("launches were timed on no GPU, or on several");
    };
    let gpu = profile.gpu(span.gpu).ok_or("the GPU is not known")?;
    let sm = Sm::of(&gpu.name).ok_or("the number of SMs of this GPU is not known")?;
    let window = span.span.0 as f64;
    let (mut active, mut occupied, mut busy) = (0.0, 0.0, 0.0);
    for kernel in &process.kernels {
        let Some(time) = process.timings.kernel(kernel.id) else { continue };
        let Some((share, fill)) = sm.shape(kernel) else { continue };
        let time = time.total.0 as f64;
        busy += time;
        active += time * share;
        occupied += time * share * fill;
    }
    if window <= 0.0 || busy <= 0.0 {
        return Err("no launch was timed");
    }
    // Kernels beside each other: their times overlap, the window does not grow.
    let fit = (window / busy).min(1.0);
    Ok(Estimate { sm_active: active * fit / window, sm_occupancy: occupied * fit / window, sms: sm.count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{Gpu, GpuIndex, Job, KernelTime, TimedSpan};
    use radrm_profile::{Bytes, Nanos};

    fn kernel(grid: u64, threads: u64, registers: u32, shared: u64) -> Kernel {
        Kernel {
            launches: 10,
            blocks: 10 * grid,
            threads: 10 * grid * threads,
            registers,
            static_shared: Bytes(shared),
            ..Kernel::default()
        }
    }

    #[test]
    fn blocks_fit_as_the_occupancy_calculator_says() {
        let a100 = Sm::of("NVIDIA A100-SXM4-40GB").unwrap();
        for (warps, registers, shared, fitting) in [
            (8.0, 32, 0.0, 8.0),         // 64 warps
            (8.0, 64, 0.0, 4.0),         // 65,536 registers
            (32.0, 40, 0.0, 1.0),        // 1024 threads of 40 registers: 51 warps
            (1.0, 16, 0.0, 32.0),        // blocks
            (8.0, 32, 48_000.0, 3.0),    // shared memory
            (32.0, 255, 200_000.0, 1.0), // it ran, so one fits
        ] {
            assert_eq!(a100.fitting(warps, registers, shared), fitting, "{warps} {registers} {shared}");
        }
        assert_eq!(Sm::of("NVIDIA H100 PCIe").unwrap().count, 114);
        assert_eq!(Sm::of("NVIDIA H100 80GB HBM3").unwrap().count, 132);
        assert_eq!(Sm::of("NVIDIA L40S").unwrap().count, 142);
        assert_eq!(Sm::of("NVIDIA A10").unwrap().count, 72);
        for unknown in ["Some GPU", "NVIDIA RTX A4000", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA T400"] {
            assert_eq!(Sm::of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn shapes_are_those_of_the_formula() {
        let a100 = Sm::of("A100").unwrap();
        let close = |found: Option<(f64, f64)>, active: f64, fill: f64| {
            let (a, f) = found.unwrap();
            assert!((a - active).abs() < 1e-9 && (f - fill).abs() < 1e-9, "{a} {f}");
        };
        // Half of the SMs have one block of 8 warps.
        close(a100.shape(&kernel(54, 256, 32, 0)), 0.5, 8.0 / 64.0);
        // All SMs have two.
        close(a100.shape(&kernel(216, 256, 32, 0)), 1.0, 16.0 / 64.0);
        // One wave of 864 blocks, and a tail of 27 blocks on a quarter of the SMs.
        close(a100.shape(&kernel(891, 256, 32, 0)), 0.625, 1.0);
        assert_eq!(a100.shape(&Kernel { launches: 1, ..Kernel::default() }), None);
    }

    #[test]
    fn an_estimate_is_a_share_of_the_window() {
        let mut profile = Profile::new(Job::default());
        profile.gpus = vec![Gpu { name: "NVIDIA A100-SXM4-40GB".into(), ..Gpu::default() }];
        let mut process = Process { kernels: vec![kernel(54, 256, 32, 0)], ..Process::default() };
        assert!(estimate(&profile, &process).is_err());
        let time = |total| KernelTime { total: Nanos(total), samples: 3, ..KernelTime::default() };
        process.timings.spans = vec![TimedSpan { gpu: GpuIndex(0), span: Nanos(1000) }];
        process.timings.kernels = vec![time(400)];
        let found = estimate(&profile, &process).unwrap();
        assert!(
            (found.sm_active - 0.2).abs() < 1e-9 && (found.sm_occupancy - 0.025).abs() < 1e-9,
            "{found:?}"
        );
        // Times of kernels that ran beside each other cannot fill more than the window.
        process.timings.kernels = vec![time(4000)];
        assert!((estimate(&profile, &process).unwrap().sm_active - 0.5).abs() < 1e-9);
        profile.gpus[0].name = "Some GPU".into();
        assert!(estimate(&profile, &process).is_err());
    }
}
