//! Fences that keep a job to its own GPUs beside the shim, and whether they could be set for an attempt.

use std::path::Path;

use radrm_limits::cgroup::{self, FenceError, GroupLimit};
use radrm_limits::cgroup_v2::Group;
use radrm_limits::machine::Node;
use serde::{Deserialize, Serialize};

use super::device_filter;

/// Longest reason that is kept, bytes.
const MAX_REASON: usize = 300;

/// Limits on GPU memory that the driver keeps for a control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fence {
    /// UUIDs of the job's GPUs; of others it gets nothing.
    pub(crate) devices: Vec<String>,
    /// The quota on each of them, bytes. All of it is reserved for the job, and so guaranteed. `None`: they are the job's as
    /// a whole.
    pub(crate) limit: Option<u64>,
}

impl Fence {
    /// Raises it around a group.
    fn raise(&self, node: &Node, group: &Path) -> Result<(), String> {
        let inventory = node.machine.inventory().map_err(|error| error.to_string())?;
        let limits = cgroup::limited(&inventory).filter_map(|gpu| match self.devices.contains(&gpu.uuid) {
            true => self.limit.and_then(|limit| GroupLimit::behind(gpu, limit, limit)),
            false => GroupLimit::behind(gpu, 0, 0),
        });
        match cgroup::set(&node.source, group, &limits.collect::<Vec<_>>()) {
            // The job has all GPUs as a whole.
            Err(FenceError::Nothing) | Ok(()) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Reasons that fences of this node do not hold for one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    /// The driver's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// The kernel's filter of device files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<String>,
}

impl Missing {
    /// Returns true if all fences hold.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Fences that are missing here or there.
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            driver: self.driver.or_else(|| other.driver.clone()),
            files: self.files.or_else(|| other.files.clone()),
        }
    }

    /// In words; empty if all hold.
    pub(crate) fn sentence(&self) -> String {
        let driver = self.driver.as_ref().map(|why| format!("the driver's memory limits: {why}"));
        let files = self.files.as_ref().map(|why| format!("the kernel's filter of device files: {why}"));
        driver.into_iter().chain(files).collect::<Vec<_>>().join("; ")
    }
}

/// Sets the fences of an attempt on its control group, as root. Where one cannot be set the job starts without: the quota
/// holds, and users see what is missing. `None`: there was none to set.
pub(crate) fn set(driver: Option<(&Fence, &Node)>, group: &Group, hidden: &[u32]) -> Option<Missing> {
    if driver.is_none() && hidden.is_empty() {
        return None;
    }
    let shorten = |why: String| why[..why.floor_char_boundary(MAX_REASON)].to_owned();
    let raised = driver.map_or(Ok(()), |(fence, node)| fence.raise(node, group.directory()));
    let filtered = match hidden {
        [] => Ok(()),
        minors => device_filter::hide(group.directory(), minors).map_err(|error| error.to_string()),
    };
    Some(Missing { driver: raised.err().map(shorten), files: filtered.err().map(shorten) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_attached_is_named() {
        // A folder that is no control group: the kernel takes no filter there, not even of root.
        let place = tempfile::tempdir().unwrap();
        let group: Group = serde_json::from_value(serde_json::json!({ "directory": place.path() })).unwrap();
        let missing = set(None, &group, &[1]).unwrap();
        assert!(missing.sentence().starts_with("the kernel's filter of device files: "), "{missing:?}");
        assert!(!missing.is_none() && missing.driver.is_none());
        assert_eq!(set(None, &group, &[]), None, "nothing is to be hidden");
    }
}
