//! The driver's own limits for control groups, where there are such: driver 615 and newer.
//!
//! They hold for everything that runs in a control group, whatever it has loaded, so they stand as a fence
//! behind the quota like MPS's. Setting them takes root. A group of the job's own is made below the
//! one that radrm-run runs in, so that nothing that holds there (Slurm's limits on host memory, say)
//! is escaped. Where any of this cannot be had, there is no fence, and the quota holds without.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::resolve::Gpus;
use crate::program::target;
use radrm_os::Process;
use radrm_os::host::own_control_group;
use radrm_os::nvml::{Gpu, Inventory};

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// The first driver branch that knows of them.
const DRIVER: u32 = 615;
/// The quota knows what the driver takes for a process only when it has been measured; this much more
/// is let through, or the fence would refuse what the quota grants.
const SLACK: u64 = 512 << 20;
const MIB: u64 = 1 << 20;

/// A control group with limits on GPU memory. This process is in it, and so is what it starts.
#[derive(Debug)]
pub struct Fence {
    directory: PathBuf,
    home: PathBuf,
}

impl Fence {
    /// Raises the fence behind these limits in bytes; `None` where it cannot be had.
    #[must_use]
    pub fn raise(gpus: &Gpus<'_>, limit_of: &dyn Fn(&Gpu) -> u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let program = target::find(OsStr::new("nvidia-smi"), std::env::var_os("PATH").as_deref())?;
        Self::raise_with(Path::new(ROOT), &own_control_group()?, &program, &gpus().ok()?, limit_of)
    }

    fn raise_with(
        root: &Path,
        own: &Path,
        program: &Path,
        inventory: &Inventory,
        limit_of: &dyn Fn(&Gpu) -> u64,
    ) -> Option<Self> {
        let limits: Vec<(u32, u64)> = inventory
            .usable()
            .filter(|gpu| limit_of(gpu).saturating_add(SLACK) < gpu.total)
            // Instances have no number, and the driver takes none.
            .filter_map(|gpu| Some((gpu.index?, (limit_of(gpu) + SLACK).div_ceil(MIB))))
            .collect();
        if limits.is_empty()
            || branch(&inventory.driver)? < DRIVER
            || !root.join("cgroup.controllers").exists()
        {
            return None;
        }
        let home = root.join(own);
        remove_stale(&home);
        let directory = home.join(format!("radrm-{}", std::process::id()));
        fs::create_dir(&directory).ok()?;
        // From here on an error takes everything back.
        let fence = Self { directory, home };
        for (index, mib) in limits {
            fence.set(program, index, mib).then_some(())?;
        }
        enter(&fence.directory).then_some(fence)
    }

    /// Sets the hard limit. A soft one would let MPS end the client that is beyond it.
    fn set(&self, program: &Path, index: u32, mib: u64) -> bool {
        let mut command = Command::new(program);
        command.args(["memory-limits", "--set", "--namespace"]).arg(&self.directory);
        command.args(["--soft-limit", "0", "--hard-limit", &mib.to_string(), "-i", &index.to_string()]);
        command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        enter(&self.home);
        // With the group its limits go. While processes of the job run it stays.
        let _ = fs::remove_dir(&self.directory);
    }
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

fn branch(driver: &str) -> Option<u32> {
    driver.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory that resembles control groups, and a program that notes its arguments.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new(code: i32) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("a/b")).unwrap();
            fs::write(dir.path().join("cgroup.controllers"), "").unwrap();
            let program = dir.path().join("nvidia-smi");
            let text = format!("#!/bin/sh\necho \"$@\" >> {}/asked\nexit {code}\n", dir.path().display());
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            Self(dir)
        }

        fn raise(&self, driver: &str, limit: u64) -> Option<Fence> {
            let gpu = |index| Gpu { index: Some(index), total: 80 << 30, ..Gpu::default() };
            let inventory = Inventory { gpus: vec![gpu(0), gpu(3)], driver: driver.into() };
            let program = self.0.path().join("nvidia-smi");
            Fence::raise_with(self.0.path(), Path::new("a/b"), &program, &inventory, &|_| limit)
        }

        fn asked(&self) -> Vec<String> {
            let text = fs::read_to_string(self.0.path().join("asked")).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn the_job_gets_a_group_below_its_own_with_the_drivers_limits() {
        let place = Place::new(0);
        let fence = place.raise("615.12", (10 << 30) + 1).unwrap();
        let group = place.0.path().join(format!("a/b/radrm-{}", std::process::id()));
        assert_eq!(fence.directory, group);
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).unwrap(), std::process::id().to_string());
        let line = |index| {
            format!(
                "memory-limits --set --namespace {} --soft-limit 0 --hard-limit 10753 -i {index}",
                group.display()
            )
        };
        assert_eq!(place.asked(), [line(0), line(3)]);
        drop(fence);
        assert!(place.0.path().join("a/b/cgroup.procs").exists(), "this process went back");
    }

    #[test]
    fn where_it_cannot_be_had_there_is_no_fence_and_nothing_is_left() {
        for (driver, limit, code, asked) in [
            ("580.65.06", 1 << 30, 0, 0),
            ("", 1 << 30, 0, 0),
            ("615.12", u64::MAX, 0, 0),
            ("615.12", 1 << 30, 1, 1),
        ] {
            let place = Place::new(code);
            assert!(place.raise(driver, limit).is_none());
            assert_eq!(place.asked().len(), asked);
            let groups = fs::read_dir(place.0.path().join("a/b")).unwrap().flatten();
            assert_eq!(groups.filter(|entry| entry.path().is_dir()).count(), 0);
        }
        let place = Place::new(0);
        fs::remove_file(place.0.path().join("cgroup.controllers")).unwrap();
        assert!(place.raise("615.12", 1 << 30).is_none(), "version 1 of control groups has no such limits");
    }

    #[test]
    fn groups_of_launchers_that_were_killed_are_removed() {
        let place = Place::new(1);
        let stale = place.0.path().join("a/b/radrm-4194305");
        fs::create_dir(&stale).unwrap();
        let living = place.0.path().join("a/b/radrm-1");
        fs::create_dir(&living).unwrap();
        assert!(place.raise("615.12", 1 << 30).is_none());
        assert!(!stale.exists() && living.exists());
    }
}
