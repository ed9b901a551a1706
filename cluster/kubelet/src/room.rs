//! Room for the shared memory of a claim.
//!
//! The segment is sparse and far larger than a node's memory, and the claim's containers can write all of it. So it lies in a
//! file system in memory of its own, with a limit. That is mounted where the container runtime sees it too: below a mount
//! that is shared with the node (`mountPropagation: Bidirectional` in a pod). Elsewhere a segment that has grown beyond the
//! limit is emptied when that is seen.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use radrm_os::untrusted;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Files in the file system: the segment, the record, their drafts and the root.
const MAX_FILES: u32 = 16;
/// Longest list of mounts that is read, bytes.
const MAX_LIST: usize = 16 << 20;

/// Makes the folder of a claim, whose files take so many bytes at most. Returns true if the kernel holds it to that.
///
/// # Errors
/// The folder cannot be made.
pub(crate) fn make(folder: &Path, bytes: u64) -> io::Result<bool> {
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    Ok(is_shared(folder).unwrap_or(false) && mount(folder, bytes).is_ok())
}

/// Gives the room of a claim back, if it is a file system of its own.
pub(crate) fn unmount(folder: &Path) {
    let Ok(at) = CString::new(folder.as_os_str().as_bytes()) else { return };
    // SAFETY: a null-terminated path. What containers still have mounted of it stays theirs until they end.
    while unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) } == 0 {}
}

/// Empties a segment that takes more than so many bytes, where nothing else holds it to them. Returns the bytes that it took.
pub(crate) fn empty_if_larger(segment: &Path, bytes: u64) -> Option<u64> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let taken = fs::symlink_metadata(segment).ok()?.blocks().saturating_mul(512);
    if taken <= bytes {
        return None;
    }
    let file: File = File::options().write(true).custom_flags(flags).open(segment).ok()?;
    file.set_len(0).ok()?;
    Some(taken)
}

fn mount(folder: &Path, bytes: u64) -> io::Result<()> {
    let at = CString::new(folder.as_os_str().as_bytes())?;
    let data = CString::new(format!("mode=0700,size={bytes},nr_inodes={MAX_FILES}"))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: null-terminated strings that live here.
    match unsafe {
        libc::mount(c"radrm-claim".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), flags, data.as_ptr().cast())
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if what is mounted below a folder is mounted for others too.
fn is_shared(folder: &Path) -> io::Result<bool> {
    let found = statx(CWD, folder, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID)?;
    let list = untrusted::read(Path::new("/proc/self/mountinfo"), MAX_LIST)?;
    Ok(is_listed_as_shared(&String::from_utf8_lossy(&list), found.stx_mnt_id))
}

/// A line: id, parent, device, root, mount point, options, optional fields, `-`, and more.
fn is_listed_as_shared(list: &str, id: u64) -> bool {
    let id = id.to_string();
    list.lines().filter(|line| line.split(' ').next() == Some(&id)).any(|line| {
        let optional = line.split(' ').skip(6).take_while(|field| *field != "-");
        optional.into_iter().any(|field| field.starts_with("shared:"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_mount_is_shared_if_its_line_says_so() {
        let list = "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw\n\
                    37 35 0:21 / /run rw shared:12 master:3 - tmpfs tmpfs rw\n\
                    371 35 0:22 / /x rw - tmpfs shared:5 rw\n";
        assert_eq!([36, 37, 371, 3].map(|id| is_listed_as_shared(list, id)), [false, true, false, false]);
    }

    #[test]
    fn a_segment_beyond_its_room_is_emptied() {
        let place = tempfile::tempdir().unwrap();
        let (folder, segment) = (place.path().join("uid"), place.path().join("uid/segment"));
        make(&folder, 1 << 20).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        let file = File::create(&segment).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(&[1; 64 << 10], 1 << 30).unwrap();
        assert_eq!(empty_if_larger(&segment, 128 << 10), None);
        file.write_all_at(&[1; 256 << 10], 1 << 35).unwrap();
        assert!(empty_if_larger(&segment, 128 << 10).unwrap() >= 320 << 10);
        assert_eq!(file.metadata().unwrap().blocks(), 0);
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&segment, &link).unwrap();
        file.write_all_at(&[1; 64 << 10], 0).unwrap();
        assert_eq!(empty_if_larger(&link, 0), None, "no other file is emptied");
        assert!(file.metadata().unwrap().blocks() > 0);
        unmount(&folder);
    }
}
