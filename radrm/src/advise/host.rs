//! Slowdown of programs by each other on the host.

use radrm_base::HostUse;
use radrm_scheduler_core::interference::{HostLoad, HostSpec, both, host_speeds};

use super::Figure;

/// Cores of this host.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Speeds that two programs leave each other on a host of so many cores; `None`: of one it is not known what it takes.
pub(super) fn speeds(one: Option<HostUse>, other: Option<HostUse>, cores: usize) -> Option<[f64; 2]> {
    let loads = [HostLoad::from(one?), HostLoad::from(other?)];
    host_speeds(&loads, &HostSpec::of_cores(cores as f64)).try_into().ok()
}

impl Figure {
    /// The same for a job that is slowed on the host, too.
    pub(super) fn slowed(self, by: f64) -> Self {
        Self { value: both(self.value, by), low: both(self.low, by), high: both(self.high, by) }
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::Bytes;

    use super::*;

    #[test]
    fn two_loaders_that_need_the_same_cores_slow_each_other_and_one_beside_a_job_of_the_gpu_does_not() {
        let used = |cpu_milli, threads| {
            Some(HostUse { cpu_milli, threads, resident: Bytes(1), ..HostUse::default() })
        };
        let loaders = speeds(used(3900, 4), used(3900, 4), 4).unwrap();
        assert!(loaders.iter().all(|speed| (0.4..0.6).contains(speed)), "{loaders:?}");
        assert!(speeds(used(3900, 4), used(100, 1), 4).unwrap()[0] > 0.85);
        assert_eq!(speeds(used(3900, 4), used(3900, 4), 16), Some([1.0; 2]), "cores for all of them");
        assert_eq!(speeds(used(3900, 4), None, 4), None);
        let slowed = Figure { value: 0.8, low: 0.7, high: 0.9 }.slowed(loaders[0]);
        assert!(slowed.low < slowed.value && slowed.value < slowed.high && slowed.high < loaders[0]);
    }
}
