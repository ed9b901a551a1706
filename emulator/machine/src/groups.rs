//! Limits on the memory of control groups, as drivers from 615 on have them.
//!
//! | rule | as in the driver |
//! |---|---|
//! | the nearest limited group above a process limits it; limits do not nest | backend `misc` |
//! | a hard limit refuses memory; a soft one is only kept | yes, without MPS |
//! | a removed group has no limits, also if a new one gets its name | yes |
//!
//! Processes are matched with groups by `/proc/PID/cgroup` at each request: a process may be moved.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::layout::{FREE, GROUP_PATH_BYTES, Group, LIVE, MAX_GPUS, Slot, state_of};
use crate::liveness::pid_namespace;
use crate::machine::Machine;
use crate::mapping::{load_bytes, store_bytes};

/// A hard limit that limits nothing.
pub const NO_LIMIT: u64 = u64::MAX;

/// A group is being entered into the table.
const CLAIMING: u64 = 1;

/// Limits of a control group on one GPU, and what its processes hold there; bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMemory {
    /// Memory that is guaranteed.
    pub soft: u64,
    /// More than this is refused; [`NO_LIMIT`] is none.
    pub hard: u64,
    /// Memory that its processes hold.
    pub used: u64,
}

/// Reason that limits cannot be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum GroupError {
    #[error("there is no such control group")]
    NotFound,
    #[error("the soft limit is above the hard one, or the path is too long")]
    Invalid,
    #[error("the emulated machine keeps limits of no more groups")]
    Full,
}

impl Machine {
    /// Sets the limits of a control group, named by its directory. Soft 0 and hard [`NO_LIMIT`] clear them.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn set_group_memory(&self, path: &Path, gpu: usize, soft: u64, hard: u64) -> Result<(), GroupError> {
        let inode = inode(path).ok_or(GroupError::NotFound)?;
        let bytes = path.as_os_str().as_encoded_bytes();
        if gpu >= MAX_GPUS || bytes.len() > GROUP_PATH_BYTES || soft > hard {
            return Err(GroupError::Invalid);
        }
        let group = match self.groups().find(|(_, known)| known == path) {
            Some((group, _)) => group,
            None => self.claim_group(bytes, inode)?,
        };
        group.soft[gpu].store(soft, Relaxed);
        group.not_hard[gpu].store(!hard, SeqCst);
        Ok(())
    }

    /// The limits that hold in a control group: its own, else those of the nearest group above it that has some.
    /// `None`: no group up to the root is limited on this GPU.
    pub fn group_memory(&self, path: &Path, gpu: usize) -> Option<GroupMemory> {
        let (group, place) = self.nearest(path, gpu)?;
        Some(GroupMemory {
            soft: group.soft[gpu].load(Relaxed),
            hard: !group.not_hard[gpu].load(SeqCst),
            used: self.held_in(&place, gpu),
        })
    }

    /// The limits that hold for this process, as [`Self::group_memory`].
    pub fn own_group_memory(&self, gpu: usize) -> Option<GroupMemory> {
        self.has_groups().then(|| self.group_memory(&group_of(std::process::id())?, gpu))?
    }

    /// The limits that hold for the process of a slot.
    pub(crate) fn group_memory_of(&self, slot: usize, gpu: usize) -> Option<GroupMemory> {
        if !self.has_groups() {
            return None;
        }
        self.group_memory(&group_of_slot(self.layout().slots.get(slot)?)?, gpu)
    }

    /// Returns true if a group was ever limited here. Without one no request reads a file of `/proc`.
    fn has_groups(&self) -> bool {
        self.layout().header.groups_used.load(Acquire) > 0
    }

    /// Limited groups that still exist.
    fn groups(&self) -> impl Iterator<Item = (&Group, PathBuf)> {
        let used = self.layout().header.groups_used.load(Acquire) as usize;
        let groups = self.layout().groups.iter().take(used);
        let named = groups.filter(|group| group.state.load(Acquire) == LIVE);
        named.filter_map(|group| {
            let path = path_of(group);
            (inode(&path) == Some(group.inode.load(Relaxed))).then_some((group, path))
        })
    }

    fn nearest(&self, path: &Path, gpu: usize) -> Option<(&Group, PathBuf)> {
        let limited = |group: &Group| group.not_hard.get(gpu).is_some_and(|word| word.load(SeqCst) != 0);
        let above = self.groups().filter(|(group, place)| limited(group) && path.starts_with(place));
        above.max_by_key(|(_, place)| place.as_os_str().len())
    }

    /// Memory of the processes whose nearest limited group is this one, bytes.
    fn held_in(&self, place: &Path, gpu: usize) -> u64 {
        let slots = self.layout().slots.iter().enumerate().take(self.slots_used());
        let living = slots.filter(|(_, slot)| state_of(slot.state.load(Acquire)) == LIVE);
        let held = living.filter_map(|(index, slot)| {
            // Partner: the SeqCst addition in `Machine::reserve`.
            let held = self.layout().held.get(gpu)?[index].load(SeqCst);
            let is_inside = held > 0
                && self.nearest(&group_of_slot(slot)?, gpu).is_some_and(|(_, nearest)| nearest == place);
            is_inside.then_some(held)
        });
        held.sum()
    }

    /// A place in the table: a free one, else that of a group that is gone.
    fn claim_group(&self, path: &[u8], inode: u64) -> Result<&Group, GroupError> {
        let is_gone = |group: &Group| self::inode(&path_of(group)) != Some(group.inode.load(Relaxed));
        let free = |(_, group): &(usize, &Group)| {
            let state = group.state.load(Acquire);
            (state == FREE || state == LIVE && is_gone(group))
                && group.state.compare_exchange(state, CLAIMING, AcqRel, Relaxed).is_ok()
        };
        let (index, group) = self.layout().groups.iter().enumerate().find(free).ok_or(GroupError::Full)?;
        for (soft, not_hard) in group.soft.iter().zip(&group.not_hard) {
            soft.store(0, Relaxed);
            not_hard.store(0, Relaxed);
        }
        group.inode.store(inode, Relaxed);
        group.path_len.store(store_bytes(&group.path, path), Relaxed);
        // Partner: the Acquire loads in `groups`.
        group.state.store(LIVE, Release);
        self.layout().header.groups_used.fetch_max(index as u32 + 1, AcqRel);
        Ok(group)
    }
}

fn path_of(group: &Group) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(load_bytes(&group.path, group.path_len.load(Relaxed))).into()
}

fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_dir).map(|found| found.ino())
}

fn group_of_slot(slot: &Slot) -> Option<PathBuf> {
    let is_here = slot.namespace.load(Relaxed) == pid_namespace();
    is_here.then(|| group_of(slot.pid.load(Relaxed)))?
}

/// The directory of a process's control group of version 2.
fn group_of(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(root()?.join(path))
}

/// Mount point of control groups of version 2.
fn root() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let text = fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = text.lines().map(|line| line.split(' ')).find_map(|mut words| {
            let path = words.nth(1)?;
            (words.next()? == "cgroup2").then_some(path)
        })?;
        Some(PathBuf::from(mount))
    };
    ROOT.get_or_init(find).as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MachineSpec};

    const MIB: u64 = 1 << 20;

    fn machine() -> Machine {
        Machine::private(&MachineSpec::parse("2xT4").unwrap()).unwrap()
    }

    /// The group of this process, if there is one that can be limited.
    fn own() -> Option<PathBuf> {
        let own = group_of(std::process::id());
        if own.is_none() {
            eprintln!("skipped: no control groups version 2");
        }
        own
    }

    #[test]
    fn a_hard_limit_refuses_what_is_above_it_on_its_gpu_only() {
        let Some(own) = own() else { return };
        let machine = machine();
        let process = machine.join().unwrap();
        assert_eq!(machine.own_group_memory(0), None);
        machine.set_group_memory(&own, 0, 32 * MIB, 64 * MIB).unwrap();
        process.charge(0, Kind::Device, 64 * MIB, 64 * MIB).unwrap();
        let refused = process.charge(0, Kind::Device, 2 * MIB, 2 * MIB).unwrap_err();
        assert_eq!((refused.wanted, refused.free), (2 * MIB, 0));
        process.charge(1, Kind::Device, 96 * MIB, 96 * MIB).unwrap();
        let expected = GroupMemory { soft: 32 * MIB, hard: 64 * MIB, used: 64 * MIB };
        assert_eq!(machine.own_group_memory(0), Some(expected));
        assert_eq!(machine.group_memory(&own.join("below"), 0), Some(expected), "inherited");
        machine.set_group_memory(&own, 0, 0, NO_LIMIT).unwrap();
        assert_eq!(machine.own_group_memory(0), None);
        process.charge(0, Kind::Device, 2 * MIB, 2 * MIB).unwrap();
    }

    #[test]
    fn limits_go_with_their_group() {
        let machine = machine();
        let place = tempfile::tempdir().unwrap();
        let group = place.path().join("g");
        let set = |soft, hard| machine.set_group_memory(&group, 0, soft, hard);
        assert_eq!(set(0, MIB), Err(GroupError::NotFound));
        fs::create_dir(&group).unwrap();
        assert_eq!(set(2 * MIB, MIB), Err(GroupError::Invalid));
        set(0, MIB).unwrap();
        assert!(machine.group_memory(&group, 0).is_some());
        fs::remove_dir(&group).unwrap();
        assert_eq!(machine.group_memory(&group, 0), None);
        // More than the table has places: those of removed groups are taken again.
        for number in 0..2 * crate::layout::MAX_GROUPS {
            let group = place.path().join(number.to_string());
            fs::create_dir(&group).unwrap();
            machine.set_group_memory(&group, 1, 0, MIB).unwrap();
            fs::remove_dir(&group).unwrap();
        }
    }
}
