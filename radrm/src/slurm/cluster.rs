//! Resources of the cluster's nodes for jobs with GPUs.

use std::ffi::OsStr;

use super::SlurmError;
use super::{gres, programs};

/// The GPUs of a cluster, or of a partition of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cluster {
    /// A node has GPUs.
    pub(super) has_gpus: bool,
    /// Shards of the largest GPU; `None`: jobs cannot ask for shards.
    pub(super) largest: Option<u64>,
}

impl Cluster {
    /// Asks the controller.
    ///
    /// # Errors
    /// `sinfo` is not there, or fails.
    pub(super) fn ask(partition: Option<&OsStr>) -> Result<Self, SlurmError> {
        let mut words = vec!["--noheader", "--format=%G"];
        let partition = partition.map(|name| format!("--partition={}", name.to_string_lossy()));
        words.extend(partition.as_deref());
        Ok(Self::parse(&programs::output("sinfo", &words)?))
    }

    fn parse(text: &str) -> Self {
        let nodes = || text.lines().map(|line| (gres::count(line, "gpu"), gres::count(line, "shard")));
        let of_each = |(gpus, shards): (Option<u64>, Option<u64>)| shards?.checked_div(gpus?);
        Self {
            has_gpus: nodes().any(|(gpus, _)| gpus.is_some_and(|gpus| gpus > 0)),
            largest: nodes().filter_map(of_each).max().filter(|shards| *shards > 0),
        }
    }
}

/// Returns true if the plug-in is loaded here, so that `sbatch` knows its options.
pub(super) fn has_plugin() -> Result<bool, SlurmError> {
    Ok(programs::output("sbatch", &["--help"])?.contains("--gpu-attempts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gpu_of_any_node_counts() {
        let cluster =
            Cluster::parse("gpu:2,shard:163840\ngpu:h100:4(S:0-1),shard:h100:163840(S:0-1)\n(null)\n");
        assert_eq!(cluster, Cluster { has_gpus: true, largest: Some(81_920) });
        assert_eq!(Cluster::parse("gpu:2\n"), Cluster { has_gpus: true, largest: None });
        assert_eq!(Cluster::parse("(null)\n"), Cluster::default());
    }
}
