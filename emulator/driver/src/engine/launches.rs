//! State that all launches share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use radrm_emulator_machine::MAX_GPUS;

use crate::models::mps;
use crate::models::timing::KernelTimes;

/// Environment variable that names the table of kernel times.
pub const ENV_KERNEL_TIMES: &str = "RADRM_EMULATOR_KERNEL_TIMES";

/// State that all launches share.
#[derive(Debug)]
pub struct Launches {
    /// True if time is real.
    pub real_time: bool,
    /// Kernels launched by this process, those in graphs included.
    pub(crate) launched: AtomicU64,
    /// Share of its GPU that the latest kernel asks for, permille.
    pub(crate) demand: AtomicU32,
    /// Time at which this process's work on each GPU is done, ns, where time is not real.
    pub(crate) until: [AtomicU64; MAX_GPUS],
    /// The table of kernel times, read at the first launch.
    pub(crate) times: OnceLock<KernelTimes>,
    /// The share of the multiprocessors, read at the first launch.
    pub(crate) share: OnceLock<f64>,
    /// True if MPS is in use; looked up at the first launch in real time.
    pub(crate) mps: OnceLock<bool>,
    /// Memory that MPS leaves this process, bytes; read at the first request.
    memory: OnceLock<Option<u64>>,
    /// GPU and multiprocessors of this process's SM partition; read at the first question.
    partition: OnceLock<Option<(String, u32)>>,
}

impl Launches {
    /// No launch yet.
    pub fn new(real_time: bool) -> Self {
        Self {
            real_time,
            launched: AtomicU64::new(0),
            demand: AtomicU32::new(1000),
            until: [const { AtomicU64::new(0) }; MAX_GPUS],
            times: OnceLock::new(),
            share: OnceLock::new(),
            mps: OnceLock::new(),
            memory: OnceLock::new(),
            partition: OnceLock::new(),
        }
    }

    /// Duration of a kernel (ns) by the table of kernel times. One that cannot be read counts as none: a launch has no
    /// way to report it.
    pub fn time_of(&self, kernel: &str) -> Option<u64> {
        let read = || {
            std::env::var_os(ENV_KERNEL_TIMES)
                .and_then(|path| std::fs::read_to_string(path).ok())
                .and_then(|text| KernelTimes::parse(&text))
                .unwrap_or_default()
        };
        self.times.get_or_init(read).get(kernel)
    }

    /// Number of multiprocessors, of `all`, that this process's kernels may use.
    pub fn multiprocessors(&self, all: u32) -> u32 {
        mps::portion(all, *self.share.get_or_init(mps::percent))
    }

    /// Number of multiprocessors, of `all`, of a GPU that this process sees: those of its SM partition there.
    pub fn seen(&self, uuid: impl FnOnce() -> String, all: u32) -> u32 {
        let partition = self.partition.get_or_init(mps::partition).as_ref();
        partition.filter(|(gpu, _)| *gpu == uuid()).map_or(all, |(_, sms)| (*sms).min(all))
    }

    /// Memory that MPS leaves this process on a GPU, bytes.
    pub fn memory_limit(&self) -> Option<u64> {
        *self.memory.get_or_init(mps::memory_limit)
    }

    /// Returns true if MPS is in use.
    pub fn is_mps_client(&self) -> bool {
        *self.mps.get_or_init(mps::is_client)
    }

    /// Adds `ns` to what this process has still to do on a GPU; gives the moment at which it is done.
    pub fn busy_until(&self, gpu: usize, now: u64, ns: u64) -> u64 {
        let Some(word) = self.until.get(gpu) else { return now + ns };
        let add = |old: u64| Some(old.max(now).saturating_add(ns));
        word.fetch_update(Relaxed, Relaxed, add).map_or(now + ns, |old| old.max(now).saturating_add(ns))
    }
}
