//! The driver's own limits for control groups, where there are such: driver 615 and newer.
//!
//! They hold for everything that runs in a control group, whatever it has loaded, so they stand as a fence
//! behind the quota like MPS's. Setting them takes root.
//!
//! | who sets them | on which group |
//! |---|---|
//! | root's `radrm-run` | one of the job's own below its own, so that nothing that holds there is escaped |
//! | `radrmd` | the group of the attempt |
//! | Slurm's plug-in, by `radrm fence` | Slurm's group of the job |
//! | the kubelet's plug-in | the pod's |
//!
//! Where any of this cannot be had, there is no fence, and the quota holds without.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::resolve::Gpus;
use radrm_os::Process;
use radrm_os::host::{control_groups, own_control_group};
use radrm_os::nvml::{Gpu, GroupMemory, Inventory, NO_LIMIT, Nvml, NvmlError, NvmlSource};

/// The first driver branch that knows of them.
const DRIVER: u32 = 615;
/// The quota knows what the driver takes for a process only when it has been measured; this much more
/// is let through, or the fence would refuse what the quota grants.
pub const SLACK: u64 = 512 << 20;

/// Reason that there is no fence, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum FenceError {
    #[error("NVML does not answer: {0}")]
    Nvml(#[from] NvmlError),
    #[error("driver {0} has no memory limits for control groups: they begin with driver 615")]
    Driver(String),
    #[error("no limit is below what its GPU has")]
    Nothing,
    #[error("GPU {gpu}, control group {}: {why}", group.display())]
    Refused { gpu: String, group: PathBuf, why: NvmlError },
}

/// Limits of a control group on one GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupLimit {
    /// The GPU.
    pub uuid: String,
    /// Memory that is guaranteed to the group, bytes: the soft limit.
    pub request: u64,
    /// More than this is refused, bytes: the hard limit. [`NO_LIMIT`] is none.
    pub limit: u64,
}

impl GroupLimit {
    /// The fence behind a quota of `limit` bytes, of which `request` are guaranteed; `None` where it would be no limit.
    #[must_use]
    pub fn behind(gpu: &Gpu, request: u64, limit: u64) -> Option<Self> {
        let hard = limit.saturating_add(SLACK);
        (hard < gpu.total).then(|| Self { uuid: gpu.uuid.clone(), request: request.min(limit), limit: hard })
    }
}

/// Interface that sets limits: NVML, or a stand-in in tests.
trait Driver {
    fn set(&self, group: &Path, uuid: &str, soft: u64, hard: u64) -> Result<(), NvmlError>;
}

impl Driver for Nvml {
    fn set(&self, group: &Path, uuid: &str, soft: u64, hard: u64) -> Result<(), NvmlError> {
        self.device(uuid)?.set_group_memory(group, soft, hard)
    }
}

/// Returns true if the driver of this version limits control groups.
#[must_use]
pub fn has_limits(driver: &str) -> bool {
    let branch = driver.split('.').next().and_then(|branch| branch.parse::<u32>().ok());
    branch.is_some_and(|branch| branch >= DRIVER)
}

/// The GPUs that the driver limits control groups on: instances have no number, and it takes none.
pub fn limited(inventory: &Inventory) -> impl Iterator<Item = &Gpu> {
    inventory.usable().filter(|gpu| gpu.index.is_some())
}

/// NVML, with a driver that has limits.
fn open(source: &NvmlSource) -> Result<Nvml, FenceError> {
    let nvml = Nvml::open(source)?;
    let driver = nvml.driver().unwrap_or_default();
    match has_limits(&driver) {
        true => Ok(nvml),
        false => Err(FenceError::Driver(driver)),
    }
}

/// Sets the limits of a control group, named by its directory. Takes root.
///
/// # Errors
/// [`FenceError`]; no limit is left then.
pub fn set(source: &NvmlSource, group: &Path, limits: &[GroupLimit]) -> Result<(), FenceError> {
    set_by(&open(source)?, group, limits)
}

fn set_by(driver: &dyn Driver, group: &Path, limits: &[GroupLimit]) -> Result<(), FenceError> {
    if limits.is_empty() {
        return Err(FenceError::Nothing);
    }
    for (at, limit) in limits.iter().enumerate() {
        if let Err(why) = driver.set(group, &limit.uuid, limit.request, limit.limit) {
            clear_by(driver, group, limits[..at].iter().map(|limit| limit.uuid.as_str()));
            return Err(FenceError::Refused { gpu: limit.uuid.clone(), group: group.to_owned(), why });
        }
    }
    Ok(())
}

/// Takes the limits of a control group back. To be called before the group is removed: with the kernel's `dmem`
/// controller the groups above it keep the guarantee otherwise.
///
/// # Errors
/// NVML does not answer, or the driver is older.
pub fn clear(source: &NvmlSource, group: &Path) -> Result<(), FenceError> {
    let nvml = open(source)?;
    clear_by(&nvml, group, limited(&nvml.inventory()?).map(|gpu| gpu.uuid.as_str()));
    Ok(())
}

fn clear_by<'g>(driver: &dyn Driver, group: &Path, gpus: impl Iterator<Item = &'g str>) {
    for uuid in gpus {
        // A group without limits, or one that is gone: as it should be.
        let _ = driver.set(group, uuid, 0, NO_LIMIT);
    }
}

/// The limits that hold in a control group, with what it holds, by the GPU's UUID. Any user may ask.
///
/// # Errors
/// NVML does not answer, or the driver is older.
pub fn memory(source: &NvmlSource, group: &Path) -> Result<Vec<(String, GroupMemory)>, FenceError> {
    let nvml = open(source)?;
    let of = |gpu: &Gpu| Some((gpu.uuid.clone(), nvml.device(&gpu.uuid).ok()?.group_memory(group).ok()?));
    Ok(limited(&nvml.inventory()?).filter_map(of).collect())
}

/// The directory of this process's control group of version 2.
#[must_use]
pub fn own_group() -> Option<PathBuf> {
    Some(control_groups()?.join(own_control_group()?))
}

/// A control group with limits on GPU memory. This process is in it, and so is what it starts.
#[derive(Debug)]
pub struct Fence {
    source: NvmlSource,
    directory: PathBuf,
    home: PathBuf,
}

impl Fence {
    /// Raises the fence behind these limits in bytes; `None` where it cannot be had.
    #[must_use]
    pub fn raise(source: &NvmlSource, gpus: &Gpus<'_>, limit_of: &dyn Fn(&Gpu) -> u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let limits = limits(&gpus().ok()?, limit_of)?;
        let home = own_group()?;
        Self::raise_in(home, source.clone(), &limits, &Nvml::open(source).ok()?)
    }

    fn raise_in(
        home: PathBuf,
        source: NvmlSource,
        limits: &[GroupLimit],
        driver: &dyn Driver,
    ) -> Option<Self> {
        remove_stale(&home);
        // Where the kernel keeps the limits, a group has them only if the one above it lends it the controller.
        let _ = fs::write(home.join("cgroup.subtree_control"), "+dmem");
        let directory = home.join(format!("radrm-{}", std::process::id()));
        fs::create_dir(&directory).ok()?;
        // From here on an error takes everything back.
        let fence = Self { source, directory, home };
        set_by(driver, &fence.directory, limits).ok()?;
        enter(&fence.directory).then_some(fence)
    }

    /// Its directory.
    #[must_use]
    pub fn group(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        enter(&self.home);
        let _ = clear(&self.source, &self.directory);
        // While processes of the job run it stays.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The fence behind a job's limits: all of each limit is guaranteed. `None`: there is nothing to limit, or nothing that
/// limits.
fn limits(inventory: &Inventory, limit_of: &dyn Fn(&Gpu) -> u64) -> Option<Vec<GroupLimit>> {
    let of = |gpu: &Gpu| GroupLimit::behind(gpu, limit_of(gpu), limit_of(gpu));
    let limits = || limited(inventory).filter_map(of).collect::<Vec<_>>();
    has_limits(&inventory.driver).then(limits).filter(|limits| !limits.is_empty())
}

fn enter(group: &Path) -> bool {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string()).is_ok()
}

/// Removes groups of launchers that were killed, as far as nothing runs in them.
fn remove_stale(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("radrm-")?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Process(pid).exists()) {
            // Fails where processes of the job still run.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Notes what is set; refuses the GPU `B` if it shall.
    #[derive(Default)]
    struct Noted {
        calls: RefCell<Vec<String>>,
        refuses: bool,
    }

    impl Driver for Noted {
        fn set(&self, group: &Path, uuid: &str, soft: u64, hard: u64) -> Result<(), NvmlError> {
            let name = group.file_name().unwrap_or_default().to_string_lossy();
            let mib = |bytes: u64| if bytes == NO_LIMIT { "max".into() } else { (bytes >> 20).to_string() };
            self.calls.borrow_mut().push(format!("{name} {uuid} {} {}", mib(soft), mib(hard)));
            if self.refuses && uuid == "B" { Err(NvmlError::NotSupported) } else { Ok(()) }
        }
    }

    fn inventory(driver: &str) -> Inventory {
        let gpu = |uuid: &str, index| Gpu { uuid: uuid.into(), index, total: 80 << 30, ..Gpu::default() };
        Inventory { gpus: vec![gpu("A", Some(0)), gpu("B", Some(3)), gpu("M", None)], driver: driver.into() }
    }

    #[test]
    fn the_job_gets_a_group_below_its_own_with_the_drivers_limits() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().to_owned();
        let killed = home.join("radrm-4194305");
        fs::create_dir(&killed).unwrap();
        let driver = Noted::default();
        let limits = limits(&inventory("615.12"), &|_| 10 << 30).unwrap();
        let fence = Fence::raise_in(home.clone(), NvmlSource::Off, &limits, &driver).unwrap();
        let group = home.join(format!("radrm-{}", std::process::id()));
        assert_eq!(fence.group(), group);
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).unwrap(), std::process::id().to_string());
        let line = |gpu: &str| format!("radrm-{} {gpu} 10240 10752", std::process::id());
        assert_eq!(*driver.calls.borrow(), [line("A"), line("B")]);
        assert!(!killed.exists(), "what a killed launcher left");
        drop(fence);
        assert!(home.join("cgroup.procs").exists(), "this process went back");
    }

    #[test]
    fn a_request_below_the_limit_is_what_is_guaranteed() {
        let gpu = inventory("615.1").gpus.remove(0);
        let limit = |request, limit| GroupLimit::behind(&gpu, request, limit);
        let made = |request, limit| Some(GroupLimit { uuid: "A".into(), request, limit });
        assert_eq!(limit(4 << 30, 10 << 30), made(4 << 30, (10 << 30) + SLACK));
        assert_eq!(limit(20 << 30, 10 << 30), made(10 << 30, (10 << 30) + SLACK));
        assert_eq!(limit(80 << 30, 80 << 30), None);
        assert_eq!(limit(1 << 30, NO_LIMIT), None);
    }

    #[test]
    fn where_it_cannot_be_had_there_is_no_fence_and_nothing_is_left() {
        for (driver, limit) in [("580.65.06", 1 << 30), ("", 1 << 30), ("615.12", u64::MAX)] {
            assert_eq!(limits(&inventory(driver), &|_| limit), None, "{driver} {limit}");
        }
        let place = tempfile::tempdir().unwrap();
        let driver = Noted { refuses: true, ..Noted::default() };
        let limits = limits(&inventory("615.12"), &|_| 1 << 30).unwrap();
        let home = place.path().to_owned();
        assert!(Fence::raise_in(home.clone(), NvmlSource::Off, &limits, &driver).is_none());
        assert_eq!(driver.calls.borrow().last().unwrap().split_once(' ').unwrap().1, "A 0 max", "taken back");
        let groups = fs::read_dir(home).unwrap().flatten();
        assert_eq!(groups.filter(|entry| entry.path().is_dir()).count(), 0);
    }

    #[test]
    fn groups_of_launchers_that_were_killed_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let stale = place.path().join("radrm-4194305");
        fs::create_dir(&stale).unwrap();
        let living = place.path().join("radrm-1");
        fs::create_dir(&living).unwrap();
        remove_stale(place.path());
        assert!(!stale.exists() && living.exists());
    }
}
