//! A job's output, opened for those who may read it and do not run as its user.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::{Gid, Uid, User, getgrouplist};
use radrm_os::untrusted::{self, Links, Missed, Places};

/// Time to open a file: a file system of the user's own may not answer.
const MAX_OPEN: Duration = Duration::from_secs(5);
/// Files that may be opened at a time, of all users and of one.
static OPENING: Places = Places::new(64, 8);
/// Group of an account that is gone.
const NO_GROUP: u32 = 65_534;

/// Opens a job's output as the job's user could: no link leads to what is closed to that user, and what root may not
/// read on a server of files is open. Only a regular file of the user's own is opened. For readers who are neither that
/// user nor root no link leads anywhere: they may have put it there.
///
/// # Errors
/// There is none, it cannot be opened, or its file system does not answer in time.
pub(crate) fn open(path: PathBuf, uid: u32, reader: u32) -> io::Result<File> {
    let links = if [uid, 0].contains(&reader) { Links::Followed } else { Links::Refused };
    // Before, as what names accounts may be slow, and is no file system of the user's.
    let account = Account::of(uid);
    let opened = untrusted::in_time(&OPENING, uid, MAX_OPEN, move || {
        account.map_or(Ok(()), |account| account.become_it())?;
        untrusted::open_owned(&path, uid, links)
    });
    opened.unwrap_or_else(|missed| Err(io::Error::new(io::Error::from(missed).kind(), words(missed))))
}

fn words(missed: Missed) -> String {
    match missed {
        Missed::Late => format!("its file system does not answer within {} s", MAX_OPEN.as_secs()),
        Missed::Busy => "file systems of other outputs do not answer; try again".to_owned(),
    }
}

/// An account with its groups.
struct Account {
    uid: u32,
    gid: u32,
    groups: Vec<rustix::process::Gid>,
}

impl Account {
    /// The account whose file permissions a thread of radrmd takes to be this user; none where it has them. A radrmd that is
    /// not root runs jobs of its own user only.
    fn of(uid: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || uid == 0 {
            return None;
        }
        let account = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let gid = account.as_ref().map_or(Gid::from_raw(NO_GROUP), |account| account.gid);
        let name = account.and_then(|account| CString::new(account.name).ok());
        let groups = name.and_then(|name| getgrouplist(&name, gid).ok()).unwrap_or_default();
        let groups = groups.into_iter().map(|group| rustix::process::Gid::from_raw(group.as_raw())).collect();
        Some(Self { uid, gid: gid.as_raw(), groups })
    }

    /// Gives this thread, which opens one file and ends, the account's file permissions; its user may not signal it all
    /// the same.
    fn become_it(self) -> io::Result<()> {
        let Self { uid, gid, groups } = self;
        rustix::thread::set_thread_groups(&groups)?;
        // SAFETY: plain system calls, which change this thread alone. They return the number from before, on failure too.
        let is_user = unsafe {
            libc::setfsgid(gid);
            libc::setfsuid(uid);
            libc::setfsgid(gid).cast_unsigned() == gid && libc::setfsuid(uid).cast_unsigned() == uid
        };
        match is_user {
            true => Ok(()),
            false => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "radrmd may not act as the job's user"))
            }
        }
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
        assert_eq!(io::read_to_string(open(at("own"), USER, USER).unwrap()).unwrap(), "text");
        // A file of the user's own in a folder that is closed to that user.
        fs::create_dir(at("closed")).unwrap();
        fs::set_permissions(at("closed"), Permissions::from_mode(0o700)).unwrap();
        fs::write(at("closed/file"), "secret").unwrap();
        chown(at("closed/file"), Some(USER), None).unwrap();
        symlink(at("closed/file"), at("link")).unwrap();
        assert_eq!(open(at("link"), USER, USER).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        // Another user's file, and one that is none.
        fs::write(at("others"), "secret").unwrap();
        symlink(at("others"), at("to others")).unwrap();
        assert_eq!(open(at("to others"), USER, USER).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(open(at("none"), USER, USER).unwrap_err().kind(), io::ErrorKind::NotFound);
        // This thread, which has asked, is root as before.
        assert!(fs::read_to_string(at("closed/file")).is_ok());
    }

    /// An administrator who can write in the folder of an output may put a link in the place of it.
    #[test]
    fn an_administrators_link_leads_to_no_other_file_of_the_jobs_user() {
        const ADMINISTRATOR: u32 = 64_005;
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let owner = if own == 0 { USER } else { own };
        let (key, output) = (place.join("key"), place.join("job.out"));
        fs::write(&key, "secret").unwrap();
        chown(&key, Some(owner), None).unwrap();
        symlink(&key, &output).unwrap();
        let refused = open(output.clone(), owner, ADMINISTRATOR).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
        assert!(open(output, owner, owner).is_ok(), "the user's own link, for the user");
        assert!(open(key, owner, ADMINISTRATOR).is_ok(), "the output itself");
        if own == 0 {
            symlink("/etc/shadow", place.join("roots.out")).unwrap();
            let refused = open(place.join("roots.out"), 0, ADMINISTRATOR).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
        }
    }
}
