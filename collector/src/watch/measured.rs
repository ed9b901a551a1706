//! Memory that the driver itself takes for processes.

use super::Watch;
use crate::remainder::Exact;
use crate::source::Source;
use radrm_os::nvml::DriverOverhead;

impl<S: Source> Watch<S> {
    /// Takes the memory that the driver itself took for processes, measured since the last call.
    pub(crate) fn take_measured(&mut self) -> Vec<DriverOverhead> {
        let profile = &self.output.profile;
        let measured = |exact: Exact| {
            let gpu = profile.gpu(exact.gpu)?;
            Some(DriverOverhead {
                pid: exact.pid,
                gpu: gpu.uuid.clone(),
                model: gpu.name.clone(),
                driver: gpu.driver_version.clone().unwrap_or_default(),
                bytes: exact.beyond.0,
            })
        };
        self.remainders.take_exact().into_iter().filter_map(measured).collect()
    }
}
