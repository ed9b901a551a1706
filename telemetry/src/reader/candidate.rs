//! Files that may be segments, checked before they are opened: the reader may be root, and the file any user's.

use super::segment::{Segment, SegmentError};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// A regular file that may be a segment. It is not open: devices, pipes and leases have noticed nothing.
#[derive(Debug)]
pub struct Candidate {
    file: OwnedFd,
    uid: u32,
    id: (u64, u64),
}

impl Candidate {
    /// The file that a path leads to, as `/proc/PID/fd/N` does.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Foreign`] if it is not a regular file; [`SegmentError::Io`].
    pub fn at(path: &Path) -> Result<Self, SegmentError> {
        Self::new(path, OFlags::empty())
    }

    /// The file that has this name, which no link has.
    ///
    /// # Errors
    ///
    /// As [`Candidate::at`].
    pub fn named(path: &Path) -> Result<Self, SegmentError> {
        Self::new(path, OFlags::NOFOLLOW)
    }

    fn new(path: &Path, flags: OFlags) -> Result<Self, SegmentError> {
        let io = |error: Errno| SegmentError::Io(error.into());
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty()).map_err(io)?;
        let found = fstat(&file).map_err(io)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(SegmentError::Foreign);
        }
        Ok(Self { file, uid: found.st_uid, id: (found.st_dev, found.st_ino) })
    }

    /// User id of the file's owner.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Device and inode.
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Opens it; for writing too if that is allowed. A file that another process has leased is not waited for.
    ///
    /// # Errors
    ///
    /// See [`SegmentError`].
    pub fn open(&self) -> Result<Segment, SegmentError> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match open(path.as_str(), OFlags::RDWR | flags, Mode::empty()) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                open(path.as_str(), OFlags::RDONLY | flags, Mode::empty())
            }
            other => other,
        };
        Segment::from_file(File::from(file.map_err(|error| SegmentError::Io(error.into()))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentFile;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_link_or_a_device_in_a_segments_place_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
        let link = dir.path().join("segment-1");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        assert!(Candidate::named(file.path()).unwrap().open().is_ok());
        assert!(matches!(Candidate::named(&link), Err(SegmentError::Foreign)));
        assert_eq!(Candidate::at(&link).unwrap().id(), Candidate::named(file.path()).unwrap().id());
        for device in ["/dev/null", "/dev/ptmx", "/proc/self/fd"] {
            assert!(matches!(Segment::open(Path::new(device)), Err(SegmentError::Foreign)), "{device}");
        }
    }

    #[test]
    fn a_leased_file_does_not_hold_up_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment-1");
        std::fs::write(&path, b"a file that is not open for writing can be leased").unwrap();
        let holder = File::open(&path).unwrap();
        // SAFETY: plain system calls on a file of this test; the signal that reports an opener is ignored.
        unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            assert_eq!(libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK), 0);
        }
        let (to, answer) = channel();
        let opened = path.clone();
        std::thread::spawn(move || to.send(Segment::open(&opened).map(|_| ())));
        // The kernel lets an opener that waits go on after 45 s.
        let answer = answer.recv_timeout(Duration::from_secs(30)).expect("an answer at once");
        assert!(matches!(answer, Err(SegmentError::Io(_))), "{answer:?}");
        drop(holder);
        assert!(matches!(Segment::open(&path), Err(SegmentError::Foreign)), "it can be read again");
    }
}
