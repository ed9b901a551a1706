//! The folder of a user's sockets.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use radrm_os::PeerCredentials;
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

use super::TerminalError;

/// A path that no other job has. Not in `$XDG_RUNTIME_DIR`, which goes with the user's last login while the job runs on.
pub(super) fn new_socket() -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = format!("{:x}-{:x}-{:x}", std::process::id(), now.as_micros(), made());
    folder(usual_folder(), &name).join(name)
}

/// The folder of this user's sockets.
fn usual_folder() -> PathBuf {
    PathBuf::from(format!("/tmp/radrm-terminals-{}", geteuid().as_raw()))
}

/// The usual folder, which is there then. Where another user has taken its name, one with a name that no other user foresees.
fn folder(usual: PathBuf, name: &str) -> PathBuf {
    let _ = DirBuilder::new().mode(0o700).create(&usual);
    if is_private(&usual) {
        return usual;
    }
    let mut own = usual.into_os_string();
    own.push(format!("-{name}"));
    own.into()
}

/// Number of paths made by this process.
fn made() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static MADE: AtomicU32 = AtomicU32::new(0);
    MADE.fetch_add(1, Ordering::Relaxed)
}

/// Returns true for a folder that only this user can enter.
fn is_private(folder: &Path) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0)
}

/// Listens at a path, in a folder that only this user can enter.
pub(super) fn listen(path: &Path) -> Result<UnixListener, TerminalError> {
    let problem = |problem| TerminalError::Socket { path: path.to_owned(), problem };
    let folder = path.parent().unwrap_or(Path::new("/"));
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(problem(error)),
        _ if !is_private(folder) => return Err(TerminalError::Folder(folder.to_owned())),
        _ => {}
    }
    // That of an earlier attempt of this job.
    let _ = fs::remove_file(path);
    // Its mode is the same whatever the user's umask; the program gets that one.
    let umask_of_user = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(umask_of_user);
    let listener = listener.map_err(problem)?;
    listener.set_nonblocking(true).map_err(problem)?;
    Ok(listener)
}

/// Connects to the terminal at a path, if it is this user's.
pub(super) fn connect(path: &Path) -> Result<UnixStream, TerminalError> {
    let stream = UnixStream::connect(path)
        .map_err(|problem| TerminalError::Socket { path: path.to_owned(), problem })?;
    match is_own(&stream) {
        true => Ok(stream),
        false => Err(TerminalError::Foreign(path.to_owned())),
    }
}

/// Returns true if this user is at the other end.
pub(super) fn is_own(stream: &UnixStream) -> bool {
    PeerCredentials::of(stream).is_ok_and(|peer| peer.uid == geteuid().as_raw())
}

/// Removes a socket, and its folder where that is this job's alone.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    if let Some(folder) = path.parent().filter(|folder| *folder != usual_folder()) {
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn no_other_user_can_connect() {
        let home = tempfile::tempdir().unwrap();
        let open = home.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(listen(&open.join("a")), Err(TerminalError::Folder(at)) if at == open));
        std::os::unix::fs::symlink(home.path(), home.path().join("link")).unwrap();
        assert!(
            matches!(listen(&home.path().join("link/a")), Err(TerminalError::Folder(_))),
            "a link may change"
        );
        let path = home.path().join("new/a");
        let first = listen(&path).unwrap();
        assert!(connect(&path).is_ok());
        drop(first);
        assert!(matches!(connect(&path), Err(TerminalError::Socket { .. })), "its host is gone");
        assert!(listen(&path).is_ok(), "a later attempt takes its place");
    }

    #[test]
    fn a_user_who_takes_the_name_of_anothers_folder_keeps_out_no_terminal() {
        let home = tempfile::tempdir().unwrap();
        let usual = home.path().join("radrm-terminals-7");
        assert_eq!(folder(usual.clone(), "a"), usual);
        assert!(is_private(&usual), "it is there, so that the name is taken");
        assert_eq!(folder(usual.clone(), "b"), usual);
        fs::set_permissions(&usual, fs::Permissions::from_mode(0o777)).unwrap();
        let own = folder(usual.clone(), "c");
        assert_eq!(own, home.path().join("radrm-terminals-7-c"));
        let path = own.join("c");
        assert!(listen(&path).is_ok() && is_private(&own));
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o600);
        remove(&path);
        assert!(!own.exists() && usual.exists());
    }
}
