//! The driver's own limits (driver 615 and newer) on the control groups of pods. They hold for programs that the shim
//! does not see. Without such a driver or group there are none, and the shim's limits hold without.
//!
//! The kubelet makes the group of a pod before it asks for the pod's claims.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use radrm_limits::cgroup::{self, GroupLimit};
use radrm_os::host::control_groups;
use radrm_os::nvml::{Gpu, Inventory, NvmlSource};

use crate::claim::{self, Grant};

/// Classes of pods that the kubelet divides groups by; those of guaranteed ones lie directly below its own.
const CLASSES: [&str; 3] = ["", "burstable", "besteffort"];

/// Limits the groups of a claim's pods. Gives those that are limited.
pub fn raise(
    source: &NvmlSource,
    inventory: &Inventory,
    grant: &Grant,
    pods: &BTreeSet<String>,
) -> Vec<PathBuf> {
    let limits = limits(inventory, grant);
    let Some(root) = control_groups().filter(|_| !limits.is_empty()) else { return Vec::new() };
    let groups = pods.iter().filter_map(|pod| of_pod(&root, pod));
    groups.filter(|group| cgroup::set(source, group, &limits).is_ok()).collect()
}

/// Limits that the driver should enforce for a claim.
/// Empty with an older driver, so that its NVML is not opened for each pod.
fn limits(inventory: &Inventory, grant: &Grant) -> Vec<GroupLimit> {
    if !cgroup::has_limits(&inventory.driver) {
        return Vec::new();
    }
    let of = |gpu: &Gpu| {
        let limit = *grant.limits.get(&gpu.uuid)?;
        GroupLimit::behind(gpu, grant.request(&gpu.uuid).unwrap_or(limit), limit)
    };
    cgroup::limited(inventory).filter_map(of).collect()
}

/// Takes the limits back of groups that are still there.
pub fn lower(source: &NvmlSource, groups: &[PathBuf]) {
    for group in groups.iter().filter(|group| group.is_dir()) {
        // Of a driver that does not answer nothing can be taken back.
        let _ = cgroup::clear(source, group);
    }
}

/// The group of a pod, as the kubelet's drivers `systemd` and `cgroupfs` name it.
fn of_pod(root: &Path, uid: &str) -> Option<PathBuf> {
    if !claim::is_uid(uid) {
        return None;
    }
    let candidates = CLASSES.into_iter().flat_map(|class| {
        let dash = if class.is_empty() { String::new() } else { format!("-{class}") };
        let slice = format!("kubepods{dash}-pod{}.slice", uid.replace('-', "_"));
        let systemd = root.join("kubepods.slice");
        let systemd = if class.is_empty() { systemd } else { systemd.join(format!("kubepods{dash}.slice")) };
        [systemd.join(slice), root.join("kubepods").join(class).join(format!("pod{uid}"))]
    });
    candidates.into_iter().find(|group| group.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    #[test]
    fn only_a_driver_with_limits_is_asked_for_those_of_the_claim() {
        const GIB: u64 = 1 << 30;
        let gpu = |uuid: &str, index| Gpu { uuid: uuid.into(), index, total: 80 * GIB, ..Gpu::default() };
        let gpus = vec![gpu("A", Some(0)), gpu("B", Some(1)), gpu("M", None)];
        let amounts = |all: &[(&str, u64)]| -> BTreeMap<String, u64> {
            all.iter().map(|(uuid, gib)| ((*uuid).to_owned(), gib * GIB)).collect()
        };
        let grant = Grant {
            claim: "default/a".into(),
            limits: amounts(&[("A", 10), ("M", 10)]),
            requests: amounts(&[("A", 4)]),
            devices: Vec::new(),
        };
        let asked = |driver: &str| limits(&Inventory { gpus: gpus.clone(), driver: driver.into() }, &grant);
        assert_eq!(asked("615.12"), [GroupLimit::behind(&gpus[0], 4 * GIB, 10 * GIB).unwrap()]);
        assert_eq!(asked("580.65.06"), []);
        assert_eq!(asked(""), []);
    }

    #[test]
    fn the_group_of_a_pod_is_found_by_both_drivers_names() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (uid, path) in [
            ("a-1", "kubepods.slice/kubepods-poda_1.slice"),
            ("b-2", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb_2.slice"),
            ("c-3", "kubepods/podc-3"),
            ("d-4", "kubepods/besteffort/podd-4"),
        ] {
            assert_eq!(of_pod(root, uid), None);
            fs::create_dir_all(root.join(path)).unwrap();
            assert_eq!(of_pod(root, uid), Some(root.join(path)));
        }
        assert_eq!(of_pod(root, "../etc"), None);
    }
}
