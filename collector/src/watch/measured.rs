//! What the driver itself takes for processes.

use super::Watch;
use crate::remainder::Exact;
use crate::source::Source;
use radrm_profile::Bytes;

/// What NVML says that a process holds beyond its account, at a moment when the account did not
/// change: what the driver itself takes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Process id.
    pub pid: u32,
    /// UUID of the GPU, `GPU-…`.
    pub gpu: String,
    /// Its product name.
    pub model: String,
    /// Version of the kernel driver; empty if unknown.
    pub driver: String,
    /// How much.
    pub bytes: Bytes,
}

impl<S: Source> Watch<S> {
    /// What the driver itself took for processes, measured since the last call.
    pub(crate) fn take_measured(&mut self) -> Vec<Measured> {
        let profile = &self.output.profile;
        let measured = |exact: Exact| {
            let gpu = profile.gpu(exact.gpu)?;
            Some(Measured {
                pid: exact.pid,
                gpu: gpu.uuid.clone(),
                model: gpu.name.clone(),
                driver: gpu.driver_version.clone().unwrap_or_default(),
                bytes: exact.beyond,
            })
        };
        self.remainders.take_exact().into_iter().filter_map(measured).collect()
    }
}
