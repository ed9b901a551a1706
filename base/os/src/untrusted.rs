//! The door for what others have written or named: files and texts whose size, kind and place another user chooses.
//!
//! Nothing here waits for a pipe, follows a link in a file's last name, touches a device, or takes more memory than its
//! caller states. What may still take long, as a file system of the user's own may, goes through [`in_time`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

/// Opens a regular file for reading. A link in the place of its last name is refused; a pipe, socket or device is not
/// touched.
///
/// # Errors
/// If it is not a regular file or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_found(&rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a regular file that links name, as `/proc/PID/exe` does, for reading. Others may choose which file it is: a pipe,
/// socket or device is not touched.
///
/// # Errors
/// As [`open`].
pub fn open_linked(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    open_found(&rustix::fs::open(path, flags, Mode::empty())?)
}

/// Links on the way to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// They are followed, as its user's own programs do.
    Followed,
    /// None is: who can write in a folder on the way may have put one there that leads to another file of the same user.
    Refused,
}

/// Opens a regular file that a user names, if it belongs to that user, who may have put a link to any other file in its
/// place.
///
/// # Errors
/// As [`open`]; [`io::ErrorKind::PermissionDenied`] if it belongs to another user, or if a link is on the way to it and
/// links are refused.
pub fn open_owned(path: &Path, owner: u32, links: Links) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = match links {
        Links::Followed => rustix::fs::open(path, flags, Mode::empty())?,
        Links::Refused => {
            let found = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
            found.map_err(|error| match error {
                rustix::io::Errno::LOOP => {
                    let why = "a link is on the way to it, which only its user and root follow";
                    io::Error::new(io::ErrorKind::PermissionDenied, why)
                }
                error => error.into(),
            })?
        }
    };
    if rustix::fs::fstat(&found)?.st_uid != owner {
        let why = "it belongs to another user than the job";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    open_found(&found)
}

/// Opens what a descriptor of `O_PATH` has found, as [`open`].
///
/// # Errors
/// As [`open`].
pub fn open_found(found: &impl AsFd) -> io::Result<File> {
    let found = found.as_fd();
    if FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Returns true if a file is another user's, who may have made it to take its reader's time and memory. Root, who could
/// do that otherwise, is no other user.
pub fn is_others(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    file.metadata().is_ok_and(|found| found.uid() != own && found.uid() != 0)
}

/// Reads a regular file that has at most so many bytes.
///
/// # Errors
/// As [`open`]; [`io::ErrorKind::FileTooLarge`] if it has more.
pub fn read(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        let error = format!("it has more than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(bytes)
}

/// Reads the first `max_bytes` of a file of `/proc`, all by one call: what two calls give of a process that becomes
/// another program in between is part of neither.
///
/// # Errors
/// As [`open`].
pub fn read_at_once(path: &Path, max_bytes: usize) -> io::Result<Vec<u8>> {
    /// Enough for most, so that the second call is rare.
    const USUAL: usize = 64 << 10;
    let file = open(path)?;
    let mut room = USUAL.min(max_bytes);
    loop {
        let mut bytes = Vec::with_capacity(room);
        rustix::io::retry_on_intr(|| {
            rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut bytes), 0)
        })?;
        if bytes.len() < room || room == max_bytes {
            return Ok(bytes);
        }
        room = max_bytes;
    }
}

/// Threads that may hang at objects of users at a time, for one use of them: no other use is refused where these are taken,
/// nor another user than one whose objects hang.
#[derive(Debug)]
pub struct Places {
    all: usize,
    of_user: usize,
    taken: Mutex<BTreeMap<u32, usize>>,
}

/// Why work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// It was not begun: work on objects of this user, or of too many others, hangs.
    Busy,
    /// It was not done in time.
    Late,
}

impl From<Missed> for io::Error {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Busy => {
                Self::new(io::ErrorKind::ResourceBusy, "others that were asked for do not answer yet")
            }
            Missed::Late => Self::new(io::ErrorKind::TimedOut, "it does not answer in time"),
        }
    }
}

impl Places {
    /// So many, and so many of them for objects of one user.
    #[must_use]
    pub const fn new(all: usize, of_user: usize) -> Self {
        Self { all, of_user, taken: Mutex::new(BTreeMap::new()) }
    }

    fn take(&'static self, user: u32) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = taken.get(&user).copied().unwrap_or(0);
        if of_user >= self.of_user || taken.values().sum::<usize>() >= self.all {
            return None;
        }
        taken.insert(user, of_user + 1);
        Some(Place { of: self, user })
    }
}

/// A place that is taken until this is dropped.
struct Place {
    of: &'static Places,
    user: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let left = taken.remove(&self.user).unwrap_or(0).saturating_sub(1);
        if left > 0 {
            taken.insert(self.user, left);
        }
    }
}

/// Does `work` on objects of a user on a thread of its own and waits for so long at most.
///
/// # Errors
/// It is not done by then, and goes on in the background until the system lets it end; or such work has taken the places.
pub fn in_time<T: Send + 'static>(
    places: &'static Places,
    user: u32,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Missed> {
    let place = places.take(user).ok_or(Missed::Busy)?;
    let (to, done) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("untrusted".to_owned());
    let started = thread.spawn(move || {
        let result = work();
        // Before the result: who has it finds the place free.
        drop(place);
        let _ = to.send(result);
    });
    started.map_err(|_| Missed::Busy)?;
    done.recv_timeout(limit).map_err(|_| Missed::Late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_regular_files_are_opened() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read(&at("file"), 4).unwrap(), b"text");
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        std::os::unix::fs::symlink(at("pipe"), at("link to pipe")).unwrap();
        assert!(open_linked(&at("link")).is_ok() && open_linked("/proc/self/exe".as_ref()).is_ok());
        for other in ["device", "pipe", "link to pipe"] {
            assert_eq!(open_linked(&at(other)).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{other}");
        }
        for other in [at("link"), at("pipe"), place.path().to_owned(), "/dev/zero".into()] {
            assert_eq!(
                read(&other, 4).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{}",
                other.display()
            );
        }
        assert_eq!(read(&at("none"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_users_file_in_the_place_of_an_output_is_not_opened() {
        use std::os::unix::fs::{chown, symlink};
        let place = tempfile::tempdir().unwrap();
        let (secret, output) = (place.path().join("secret"), place.path().join("job.out"));
        std::fs::write(&secret, "secret").unwrap();
        symlink(&secret, &output).unwrap();
        let of_user = |path: &Path, owner| open_owned(path, owner, Links::Followed);
        assert_eq!(of_user(&output, 64_004).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let own = rustix::process::geteuid().as_raw();
        assert!(of_user(&output, own).is_ok(), "the user's own link to the user's own file");
        assert_eq!(of_user("/dev/zero".as_ref(), 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        if own == 0 {
            chown(&secret, Some(64_004), None).unwrap();
            assert!(of_user(&output, 64_004).is_ok());
        }
    }

    #[test]
    fn no_link_leads_a_reader_to_another_file_of_the_same_user() {
        use std::os::unix::fs::symlink;
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let own = rustix::process::geteuid().as_raw();
        std::fs::create_dir(place.join("private")).unwrap();
        std::fs::write(place.join("private/key"), "secret").unwrap();
        symlink(place.join("private/key"), place.join("job.out")).unwrap();
        symlink(place.join("private"), place.join("outputs")).unwrap();
        for path in ["job.out", "outputs/key"] {
            let path = place.join(path);
            assert!(open_owned(&path, own, Links::Followed).is_ok(), "{}", path.display());
            let refused = open_owned(&path, own, Links::Refused).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{}", path.display());
        }
        assert!(open_owned(&place.join("private/key"), own, Links::Refused).is_ok());
        let none = open_owned(&place.join("none"), own, Links::Refused).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn files_of_other_users_are_told_from_the_own_and_from_roots() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_others(&file) && !is_others(&File::open("/proc/self/maps").unwrap()));
        assert!(!is_others(&File::open("/etc/passwd").unwrap()), "root's");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(64_004), None).unwrap();
            assert!(is_others(&file));
        }
    }

    #[test]
    fn no_more_than_stated_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"beginning").unwrap();
        // Takes no room on disk.
        file.set_len(1 << 40).unwrap();
        assert_eq!(read(&path, 1 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_at_once(&path, 4).unwrap(), b"begi");
        assert_eq!(read_at_once(&path, 1 << 20).unwrap().len(), 1 << 20);
    }

    #[test]
    fn what_hangs_is_left_behind_and_keeps_out_no_other_user_and_no_other_use() {
        static PLACES: Places = Places::new(3, 2);
        static OTHER: Places = Places::new(1, 1);
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(Mutex::new(hangs));
        let hang = |user| {
            let hangs = hangs.clone();
            in_time(&PLACES, user, Duration::from_millis(1), move || {
                hangs.lock().unwrap().recv().unwrap_err();
            })
        };
        let work = |places, user| in_time(places, user, Duration::from_secs(600), || 7);
        assert_eq!(work(&PLACES, 1), Ok(7));
        assert_eq!([hang(1), hang(1), hang(1)], [Err(Missed::Late), Err(Missed::Late), Err(Missed::Busy)]);
        assert_eq!(work(&PLACES, 2), Ok(7), "another user");
        assert_eq!([hang(2), hang(3)], [Err(Missed::Late), Err(Missed::Busy)], "all places are taken");
        assert_eq!(work(&OTHER, 1), Ok(7), "another use");
        drop(release);
        while work(&PLACES, 1).is_err() {
            std::thread::yield_now();
        }
    }
}
