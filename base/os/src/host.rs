//! The host as a whole.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use procfs::{Current, CurrentSI, Meminfo};

/// Memory of the host in bytes, if the system reports it.
#[must_use]
pub fn memory() -> Option<u64> {
    Meminfo::current().ok().map(|memory| memory.mem_total)
}

/// Memory that programs can still get without swapping, bytes, if the system reports it.
#[must_use]
pub fn available_memory() -> Option<u64> {
    Meminfo::current().ok()?.mem_available
}

/// Time of the host's processors since the boot, all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Time in which they worked for processes or the kernel, ms.
    pub busy_ms: u64,
    /// Time in which they did nothing, ms.
    pub idle_ms: u64,
}

impl ProcessorTime {
    /// The time since the boot, if the system reports it.
    #[must_use]
    pub fn now() -> Option<Self> {
        let total = procfs::KernelStats::current().ok()?.total;
        let interrupts = total.irq_ms().unwrap_or_default() + total.softirq_ms().unwrap_or_default();
        Some(Self {
            busy_ms: total.user_ms() + total.nice_ms() + total.system_ms() + interrupts,
            idle_ms: total.idle_ms() + total.iowait_ms().unwrap_or_default(),
        })
    }

    /// The time that has passed since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
            idle_ms: self.idle_ms.saturating_sub(before.idle_ms),
        }
    }
}

/// The name of this node.
#[must_use]
pub fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The id of this boot; empty if the system does not report it.
#[must_use]
pub fn boot_id() -> String {
    procfs::sys::kernel::random::boot_id().unwrap_or_default().trim().to_owned()
}

/// Pages and clock ticks, in which the system counts: bytes of a page, ticks in a second.
#[must_use]
pub fn page_and_ticks() -> (u64, u64) {
    (procfs::page_size().max(1), procfs::ticks_per_second().max(1))
}

/// This process's control group of version 2, below the root of the hierarchy and without a slash at its start.
#[must_use]
pub fn own_control_group() -> Option<PathBuf> {
    control_group(std::process::id())
}

/// A process's control group of version 2, as [`own_control_group`].
#[must_use]
pub fn control_group(pid: u32) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_start_matches('/').into())
}

/// Mount point of control groups of version 2.
#[must_use]
pub fn control_groups() -> Option<PathBuf> {
    // `procfs` would be a large part of Slurm's plug-in.
    let text = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut mounts = text.lines().filter_map(|line| line.split_once(' ')?.1.split_once(' '));
    let found = mounts.find(|(_, rest)| rest.starts_with("cgroup2 "));
    found.map(|(place, _)| place.into())
}

/// The number of this process's pid namespace.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    Some(std::fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// Returns true if this process is in the pid namespace that the system began with.
/// NVML's process ids are those of that one.
#[must_use]
pub fn is_in_first_pid_namespace() -> bool {
    /// `PROC_PID_INIT_INO` of the kernel.
    const FIRST: u64 = 0xefff_fffc;
    pid_namespace() == Some(FIRST)
}

/// The kernel's list of Unix sockets of this network namespace, a line each, the path last and lossy. `procfs` refuses
/// the whole list for one odd path, which any user can bind.
#[must_use]
pub fn unix_sockets() -> String {
    String::from_utf8_lossy(&std::fs::read("/proc/net/unix").unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_described() {
        let (all, free) = (memory().unwrap(), available_memory().unwrap());
        assert!(free > 0 && free < all, "{free} of {all}");
        assert_eq!(boot_id().len(), 36, "{}", boot_id());
        assert!(pid_namespace() > Some(0));
        assert!(page_and_ticks().0 >= 4096 && page_and_ticks().1 >= 1);
    }
}
