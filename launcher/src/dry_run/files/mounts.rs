//! The file systems that this process sees.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// File systems of the kernel: nothing of the user is in them.
const KERNEL: [&str; 23] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
    "fuse.lxcfs",
];
/// Folders whose contents end with a boot, if they are in memory: sockets, locks, shared memory.
const IN_MEMORY: [&str; 2] = ["/dev", "/run"];

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    id: u64,
    /// Mount point.
    pub at: PathBuf,
    kind: String,
    is_writable: bool,
}

impl Mount {
    /// Returns true if the program could change files of the user in it.
    pub(super) fn holds_files(&self) -> bool {
        let in_memory = || self.kind == "tmpfs" && IN_MEMORY.iter().any(|folder| self.at.starts_with(folder));
        self.is_writable && !KERNEL.contains(&self.kind.as_str()) && !in_memory()
    }

    /// Returns true if what is in it ends with a boot.
    pub(super) fn is_in_memory(&self) -> bool {
        ["tmpfs", "devtmpfs"].contains(&self.kind.as_str())
    }

    /// Returns true if programs change the kernel's own settings in it, and nothing else.
    pub(super) fn is_writable_kernel(&self) -> bool {
        self.is_writable && KERNEL.contains(&self.kind.as_str())
    }

    fn is_visible(&self) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(CWD, &self.at, flags, StatxFlags::MNT_ID).is_ok_and(|found| found.stx_mnt_id == self.id)
    }
}

/// Mounts that no other one hides, outer ones first.
pub(super) fn visible() -> io::Result<Vec<Mount>> {
    let all = fs::read("/proc/self/mountinfo")?;
    let mut all: Vec<Mount> =
        all.split(|byte| *byte == b'\n').filter_map(parse).filter(Mount::is_visible).collect();
    all.sort_by_key(|mount| mount.at.components().count());
    Ok(all)
}

/// Mount points of a process's table of mounts.
pub(crate) fn points(table: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    table.split(|byte| *byte == b'\n').filter_map(parse).map(|mount| mount.at)
}

/// Returns true if one is mounted strictly below a path.
pub(super) fn any_below(mounts: &[Mount], path: &Path) -> bool {
    mounts.iter().any(|mount| mount.at != path && mount.at.starts_with(path))
}

/// A line: id, parent, device, root, mount point, options, optional fields, `-`, type, source, options of the system.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let is_writable = |options: &[u8]| !options.split(|byte| *byte == b',').any(|option| option == b"ro");
    Some(Mount {
        id: std::str::from_utf8(fields.first()?).ok()?.parse().ok()?,
        at: PathBuf::from(unescaped(fields.get(4)?)),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        is_writable: is_writable(fields.get(5)?) && is_writable(fields.get(dash + 3)?),
    })
}

/// Spaces, tabs, line breaks and backslashes stand there as octal numbers.
fn unescaped(text: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let number =
            tail.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (first, number) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(line: &str) -> Mount {
        parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn what_may_hold_files_of_the_user_is_told_from_the_kernels_own() {
        for (line, holds) in [
            ("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard", true),
            ("28 27 0:25 / /data ro,nosuid shared:7 - ext4 /dev/vdb rw", false),
            ("28 27 0:25 / /data rw shared:7 master:1 - iso9660 /dev/vdb ro", false),
            ("22 27 0:21 / /proc rw - proc proc rw", false),
            ("25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw", false),
            ("25 24 0:23 / /mnt/r rw - ramfs ramfs rw", true),
            ("25 24 0:23 / /run/media/a/disk rw - ext4 /dev/sdb rw", true),
            ("25 24 0:23 / /tmp rw - tmpfs tmpfs rw", true),
            ("25 24 0:23 / /mnt/nfs rw - nfs4 server:/home rw", true),
        ] {
            assert_eq!(mount(line).holds_files(), holds, "{line}");
        }
    }

    #[test]
    fn a_name_with_a_space_is_read() {
        let found = mount("9 1 0:1 / /mnt/a\\040b\\134c rw - ext4 /dev/vda rw");
        assert_eq!(found.at, Path::new("/mnt/a b\\c"));
        assert!(any_below(std::slice::from_ref(&found), Path::new("/mnt")));
        assert!(!any_below(&[found], Path::new("/mnt/a b\\c")));
        assert_eq!(parse(b"broken"), None);
    }
}
