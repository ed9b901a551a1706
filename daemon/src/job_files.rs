//! A job's output, opened for those who may read it and do not run as its user.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::{Gid, Uid, User, getgrouplist};
use radrm_os::untrusted;

/// Time to open a file: a file system of the user's own may not answer.
const MAX_OPEN: Duration = Duration::from_secs(5);
/// Group of an account that is gone.
const NO_GROUP: u32 = 65_534;

/// Opens a job's output as the job's user could: no link leads to what is closed to that user, and what root may not
/// read on a server of files is open. Only a regular file of the user's own is opened.
///
/// # Errors
/// There is none, it cannot be opened, or its file system does not answer in time.
pub(crate) fn open(path: PathBuf, uid: u32) -> io::Result<File> {
    let opened = untrusted::in_time(MAX_OPEN, move || {
        become_user(uid)?;
        untrusted::open_owned(&path, uid)
    });
    opened.unwrap_or_else(|| {
        let why = format!("its file system does not answer within {} s", MAX_OPEN.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// Gives this thread, which opens one file and ends, the file permissions of a user, who may not signal it all the same.
/// A radrmd that is not root runs jobs of its own user only, and has them.
fn become_user(uid: u32) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() || uid == 0 {
        return Ok(());
    }
    let account = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let gid = account.as_ref().map_or(Gid::from_raw(NO_GROUP), |account| account.gid);
    let name = account.and_then(|account| CString::new(account.name).ok());
    let groups = name.and_then(|name| getgrouplist(&name, gid).ok()).unwrap_or_default();
    let groups: Vec<_> =
        groups.into_iter().map(|group| rustix::process::Gid::from_raw(group.as_raw())).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let gid = gid.as_raw();
    // SAFETY: plain system calls, which change this thread alone. They return the number from before, on failure too.
    let is_user = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        libc::setfsgid(gid).cast_unsigned() == gid && libc::setfsuid(uid).cast_unsigned() == uid
    };
    match is_user {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "radrmd may not act as the job's user")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const USER: u32 = 64_004;

    #[test]
    fn output_is_opened_with_the_rights_of_the_jobs_user() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("own"), "text").unwrap();
        fs::set_permissions(at("own"), Permissions::from_mode(0o600)).unwrap();
        chown(at("own"), Some(USER), None).unwrap();
        assert_eq!(io::read_to_string(open(at("own"), USER).unwrap()).unwrap(), "text");
        // A file of the user's own in a folder that is closed to that user.
        fs::create_dir(at("closed")).unwrap();
        fs::set_permissions(at("closed"), Permissions::from_mode(0o700)).unwrap();
        fs::write(at("closed/file"), "secret").unwrap();
        chown(at("closed/file"), Some(USER), None).unwrap();
        symlink(at("closed/file"), at("link")).unwrap();
        assert_eq!(open(at("link"), USER).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        // Another user's file, and one that is none.
        fs::write(at("others"), "secret").unwrap();
        symlink(at("others"), at("to others")).unwrap();
        assert_eq!(open(at("to others"), USER).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(open(at("none"), USER).unwrap_err().kind(), io::ErrorKind::NotFound);
        // This thread, which has asked, is root as before.
        assert!(fs::read_to_string(at("closed/file")).is_ok());
    }
}
