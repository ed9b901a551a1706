//! Duration of work on the emulated GPU.
//!
//! Kernels are not executed, so their time is a function of the launch alone:
//!
//! ```text
//! waves    = ceil(blocks / (resident * SMs))        resident: blocks per SM (occupancy)
//! fill     = warps on a full SM / most warps of an SM
//! wave     = WAVE_NS * REFERENCE_MHZ / clock * (1/4 + 3/4 * fill)
//! duration = START_NS + waves * wave
//! ```
//!
//! A table (`RADRM_EMULATOR_KERNEL_TIMES`) overrides this by kernel name. Copies take
//! `COPY_START_NS + bytes / bandwidth`. Under MPS a process's kernels use the multiprocessors of its share
//! (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, [`super::mps`]). What processes do to each other depends on how time passes
//! ([`crate::stream::clock`]): in real time they share the GPU's time, one after another without MPS; else, when those
//! that are busy at a launch together ask for more than all multiprocessors, it takes longer in that proportion
//! ([`stretch`]).

use radrm_emulator_machine::GpuSpec;

/// Time from launch to the first instruction (ns).
pub const START_NS: u64 = 1_000;
/// Time of one wave on fully occupied multiprocessors at [`REFERENCE_MHZ`] (ns).
pub const WAVE_NS: f64 = 2_000.0;
/// Clock that [`WAVE_NS`] is stated for (MHz).
pub const REFERENCE_MHZ: f64 = 1_500.0;
/// Time before the first byte of a copy moves (ns).
pub const COPY_START_NS: u64 = 1_500;
/// Bandwidth of the host's memory, for copies that stay there (10^9 bytes/s).
const HOST_GBS: f64 = 20.0;

/// The parts of a launch that its duration depends on.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that a multiprocessor holds at a time, at least 1.
    pub resident: u32,
    /// Multiprocessors that the kernel may use.
    pub sms: u32,
}

/// Time and share of the GPU that a kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    /// Duration on an otherwise idle GPU (ns).
    pub ns: u64,
    /// Share of the multiprocessors that are busy meanwhile, in permille, 1 to 1000.
    pub demand_permille: u32,
}

/// Duration and demand of a kernel after the model above.
pub fn kernel(gpu: &GpuSpec, launch: Geometry) -> KernelCost {
    let sms = u64::from(launch.sms.clamp(1, gpu.sms.max(1)));
    let resident = u64::from(launch.resident.max(1));
    let waves = launch.blocks.div_ceil(resident * sms).max(1);
    let on_sm = resident.min(launch.blocks.div_ceil(sms)) * u64::from(launch.threads.div_ceil(32));
    let fill = (on_sm as f64 / f64::from((gpu.max_threads_per_sm / 32).max(1))).min(1.0);
    let wave = WAVE_NS * REFERENCE_MHZ / f64::from(gpu.clock_mhz.max(1)) * (0.25 + 0.75 * fill);
    KernelCost {
        ns: START_NS.saturating_add(waves.saturating_mul(wave as u64)),
        demand_permille: demand(sms, u64::from(gpu.sms.max(1)), resident, launch.blocks),
    }
}

/// Mean share of the GPU's multiprocessors that are busy over the waves: all but the last wave keep `sms` of
/// them busy.
fn demand(sms: u64, all: u64, resident: u64, blocks: u64) -> u32 {
    let per_wave = resident * sms;
    let full = blocks / per_wave;
    let tail = (blocks % per_wave).min(sms);
    let waves = blocks.div_ceil(per_wave).max(1);
    let permille = (u128::from(full) * u128::from(sms) + u128::from(tail)) * 1000
        / (u128::from(waves) * u128::from(all));
    u32::try_from(permille).unwrap_or(1000).clamp(1, 1000)
}

/// A kernel's duration when others ask for `others_permille` of the multiprocessors at the same
/// time: unchanged while all fit, then longer in proportion to the total demand.
pub fn stretch(cost: KernelCost, others_permille: u32) -> u64 {
    let total = u64::from(cost.demand_permille) + u64::from(others_permille);
    if others_permille == 0 || total <= 1000 { cost.ns } else { cost.ns.saturating_mul(total) / 1000 }
}

/// Way of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferKind {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Inside one device: every byte is read and written.
    DeviceToDevice,
    /// Between devices.
    PeerToPeer,
    /// Between two places of the host.
    HostToHost,
    /// Setting memory of a device.
    Memset,
}

/// Duration of a copy or memset (ns).
pub fn transfer(gpu: &GpuSpec, kind: TransferKind, bytes: u64) -> u64 {
    let gbs = match kind {
        TransferKind::HostToDevice | TransferKind::DeviceToHost => gpu.pcie_gbs(),
        TransferKind::DeviceToDevice => gpu.bandwidth_gbs / 2.0,
        TransferKind::PeerToPeer if gpu.nvlink_gbs > 0.0 => gpu.nvlink_gbs / 2.0,
        TransferKind::PeerToPeer => gpu.pcie_gbs(),
        TransferKind::HostToHost => HOST_GBS,
        TransferKind::Memset => gpu.bandwidth_gbs,
    };
    COPY_START_NS.saturating_add((bytes as f64 / gbs.max(0.001)) as u64)
}

/// Durations by kernel name: the first pattern that fits counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelTimes(Vec<(String, u64)>);

impl KernelTimes {
    /// Reads lines `PATTERN NS`, where `*` in a pattern stands for any text; `#` begins a comment.
    /// `None` where a line is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut table = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let entry = line
                .rsplit_once(char::is_whitespace)
                .and_then(|(pattern, ns)| Some((pattern.trim().to_owned(), ns.parse().ok()?)));
            table.push(entry?);
        }
        Some(Self(table))
    }

    /// Duration of a kernel (ns), if the table has it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(pattern, _)| fits(pattern, name)).map(|(_, ns)| *ns)
    }
}

/// Returns true if `name` is of the form `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or("");
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.len() >= tail.len() && name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a100() -> GpuSpec {
        radrm_emulator_machine::Models::known().unwrap().find("A100-40GB").unwrap().clone()
    }

    #[test]
    fn a_kernel_takes_as_long_as_its_waves() {
        let gpu = a100();
        let time = |blocks| kernel(&gpu, Geometry { blocks, threads: 256, resident: 8, sms: gpu.sms });
        let wave = u64::from(gpu.sms) * 8;
        let one = time(wave);
        assert_eq!(one.demand_permille, 1000);
        assert_eq!(time(wave * 10).ns - START_NS, (one.ns - START_NS) * 10);
        assert_eq!(time(wave + 1).ns - START_NS, (one.ns - START_NS) * 2);
        assert!(time(1).ns < one.ns, "a multiprocessor with one block is done sooner");
        assert_eq!(time(u64::from(gpu.sms) / 2).demand_permille, 500);
        assert_eq!(time(1).demand_permille, 1000 / gpu.sms);
    }

    #[test]
    fn neighbours_slow_a_kernel_only_when_the_gpu_is_full() {
        let half = KernelCost { ns: 1000, demand_permille: 500 };
        assert_eq!(stretch(half, 0), 1000);
        assert_eq!(stretch(half, 500), 1000);
        assert_eq!(stretch(half, 1500), 2000);
        let whole = KernelCost { ns: 1000, demand_permille: 1000 };
        assert_eq!(stretch(whole, 1000), 2000);
    }

    #[test]
    fn copies_follow_the_bandwidth_of_their_way() {
        let gpu = a100();
        let time = |kind, bytes| transfer(&gpu, kind, bytes) - COPY_START_NS;
        let gib = 1 << 30;
        assert_eq!(time(TransferKind::DeviceToDevice, gib) / 2, time(TransferKind::Memset, gib));
        assert!(time(TransferKind::HostToDevice, gib) > 10 * time(TransferKind::DeviceToDevice, gib));
        assert_eq!(time(TransferKind::HostToDevice, 0), 0);
    }

    #[test]
    fn a_table_of_kernel_times_is_read_in_order() {
        let table =
            KernelTimes::parse("# ns\n  gemm_*_tn 5000\nvoid at::*add*<float>  70 # tab\n* 9\n").unwrap();
        assert_eq!(table.get("gemm_64_tn"), Some(5000));
        assert_eq!(table.get("void at::vadd_k<float>"), Some(70));
        assert_eq!(table.get("gemm_64_nn"), Some(9));
        assert_eq!(KernelTimes::parse("square fast"), None);
        assert!(!fits("ab*ba", "aba"));
    }
}
