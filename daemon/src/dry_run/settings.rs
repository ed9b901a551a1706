//! Settings of dry runs in the background.

use radrm_scheduler_core::Bytes;
use serde::Deserialize;

/// Dry runs of jobs of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DryRuns {
    /// True if radrmd runs such jobs once without a GPU before it places them. A dry run has the effects of the
    /// program on files and the network.
    pub(crate) on: bool,
    /// The most dry runs at the same time.
    pub(crate) at_once: u32,
    /// Optimizer steps after which a dry run ends.
    pub(crate) steps: u64,
    /// A dry run is ended after this time, s.
    pub(crate) limit_s: u64,
    /// A job waits no longer than this for its dry run before it is placed without, s.
    pub(crate) wait_s: u64,
    /// Host memory that the processes of a dry run may take, MiB.
    pub(crate) memory_mib: u64,
    /// Cores that they may use.
    pub(crate) cpus: u32,
    /// The most processes and threads of a dry run.
    pub(crate) processes: u64,
    /// No dry run begins while the node's load average exceeds this percentage of its cores.
    pub(crate) max_load: u32,
}

impl Default for DryRuns {
    fn default() -> Self {
        Self {
            on: false,
            at_once: 1,
            steps: 3,
            limit_s: 120,
            wait_s: 120,
            memory_mib: 8192,
            cpus: 1,
            processes: 512,
            max_load: 80,
        }
    }
}

impl DryRuns {
    /// Host memory that its processes may take.
    pub(crate) fn memory(&self) -> Bytes {
        Bytes(self.memory_mib.saturating_mul(1 << 20))
    }

    /// The first key whose value would let no dry run come to anything.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let values = [
            ("at_once", u64::from(self.at_once)),
            ("steps", self.steps),
            ("limit_s", self.limit_s),
            ("memory_mib", self.memory_mib),
            ("cpus", u64::from(self.cpus)),
            ("processes", self.processes),
        ];
        values.into_iter().find(|(_, value)| *value == 0).map(|(key, _)| key)
    }
}
