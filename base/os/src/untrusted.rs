//! The door for what others have written or named: files and texts whose size, kind and place another user chooses.
//!
//! Nothing here waits for a pipe, follows a link in a file's last name, touches a device, or takes more memory than its
//! caller states. What may still take long, as a file system of the user's own may, goes through [`in_time`].

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags};

/// Threads that may hang at a user's object at a time. More are refused at once.
const MAX_STUCK: usize = 8;

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

/// Opens a regular file that a user names, if it belongs to that user, who may have put a link to any other file in its
/// place.
///
/// # Errors
/// As [`open`]; [`io::ErrorKind::PermissionDenied`] if it belongs to another user.
pub fn open_owned(path: &Path, owner: u32) -> io::Result<File> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
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

/// Does `work` on a thread of its own and waits for so long at most. `None` if it is not done by then, or if too many
/// others were not: those go on in the background until the system lets them end.
pub fn in_time<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    static WORKING: AtomicUsize = AtomicUsize::new(0);
    struct Working;
    impl Drop for Working {
        fn drop(&mut self) {
            WORKING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let others = WORKING.fetch_add(1, Ordering::Relaxed);
    let working = Working;
    if others >= MAX_STUCK {
        return None;
    }
    let (to, done) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("untrusted".to_owned());
    let started = thread.spawn(move || {
        let _working = working;
        let _ = to.send(work());
    });
    started.ok()?;
    done.recv_timeout(limit).ok()
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
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
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
        assert_eq!(open_owned(&output, 64_004).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let own = rustix::process::geteuid().as_raw();
        assert!(open_owned(&output, own).is_ok(), "the user's own link to the user's own file");
        assert_eq!(open_owned("/dev/zero".as_ref(), 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        if own == 0 {
            chown(&secret, Some(64_004), None).unwrap();
            assert!(open_owned(&output, 64_004).is_ok());
        }
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
    fn what_hangs_is_left_behind_and_what_hangs_often_is_refused() {
        let (release, hangs) = mpsc::channel::<()>();
        let hangs = std::sync::Arc::new(std::sync::Mutex::new(hangs));
        let hang = || {
            let hangs = hangs.clone();
            in_time(Duration::from_millis(1), move || {
                hangs.lock().unwrap().recv().unwrap_err();
            })
        };
        assert_eq!(in_time(Duration::from_secs(60), || 7), Some(7));
        for _ in 0..MAX_STUCK {
            assert_eq!(hang(), None);
        }
        assert_eq!(in_time(Duration::from_secs(60), || 7), None, "all places are taken");
        drop(release);
        while in_time(Duration::from_secs(60), || 7).is_none() {
            std::thread::yield_now();
        }
    }
}
