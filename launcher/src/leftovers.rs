//! Directories of emulated machines whose `radrm-run` could not tidy up.
//!
//! A `radrm-run` that is killed, or that ends before the last of its programs, leaves its directory
//! behind. The next one that needs such a directory takes those away that are not in use any more.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use radrm_limits::carriers::Processes;
use radrm_os::Process;

use super::dry_run::files::make_removable;
use super::signals::own_pid;

/// What the directories' names begin with.
const PREFIX: &str = "radrm-emulated-";

/// The beginning of this process's own name: with the namespace in which its process id counts,
/// since containers may share the directory.
#[must_use]
pub fn prefix() -> String {
    format!("{PREFIX}{}-{}-", namespace(), own_pid())
}

fn namespace() -> String {
    radrm_os::host::pid_namespace().map_or_else(String::new, |number| number.to_string())
}

/// Takes away what is left in `directory` by processes of this user and this namespace that are
/// gone, and whose programs are gone too.
pub fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let namespace = namespace();
    // SAFETY: always works.
    let user = unsafe { libc::geteuid() };
    let dead = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let owner = owner(&name, &namespace).filter(|pid| !Process(*pid).exists())?;
        let is_own = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
        is_own.then_some((path, owner))
    };
    let left: Vec<(PathBuf, u32)> = entries.flatten().filter_map(|entry| dead(entry.path())).collect();
    if left.is_empty() {
        return;
    }
    let processes = Processes::now();
    for (path, owner) in left {
        if !processes.use_folder(&path, owner) {
            // Another one may be at it too, or it may be protected: it stays for the next time.
            make_removable(&path);
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The process id in the name of a directory that was made in this namespace.
fn owner(name: &str, namespace: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix(namespace)?.strip_prefix('-')?;
    rest.split_once('-').filter(|_| !namespace.is_empty())?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_unused_directories_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let ours = prefix();
        let theirs = format!("{PREFIX}{}-{}-", namespace(), gone.id());
        let make = |name: String| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("machine"), "").unwrap();
            path
        };
        let (alive, left, in_use) =
            (make(format!("{ours}a")), make(format!("{theirs}a")), make(format!("{theirs}b")));
        let elsewhere = make(format!("{PREFIX}1-{}-a", gone.id()));
        let strange = make(format!("{PREFIX}x"));
        let mut user = Command::new("sleep").arg("60").env("LD_LIBRARY_PATH", &in_use).spawn().unwrap();
        // It has an environment of its own only when it has become another program.
        let place_of = || Process(user.id()).variable("LD_LIBRARY_PATH");
        while place_of().is_none_or(|place| place != in_use.as_os_str()) {
            std::thread::yield_now();
        }
        sweep(place.path());
        let there = [&alive, &left, &in_use, &elsewhere, &strange].map(|path| path.exists());
        assert_eq!(there, [true, false, true, true, true]);
        user.kill().unwrap();
        user.wait().unwrap();
        sweep(place.path());
        assert!(!in_use.exists(), "its last user is gone");
    }
}
