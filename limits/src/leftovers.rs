//! Segments that their launchers could not remove: these were killed, or left them to processes that have ended since.

use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use radrm_os::host;
use radrm_os::untrusted;
use radrm_telemetry::SegmentName;
use radrm_telemetry::layout::Header;

use crate::carriers::{Processes, SegmentOrigin};

/// Removes segments of this user that no launcher holds and no process can join any more. What cannot be removed stays.
pub fn remove_segments(directories: &[PathBuf]) {
    // All processes are seen here.
    let namespace = if host::is_in_first_pid_namespace() { None } else { host::pid_namespace() };
    remove_seen_from(namespace, directories);
}

/// As [`remove_segments`], from a pid namespace that does not see all processes, if it is one.
fn remove_seen_from(namespace: Option<u64>, directories: &[PathBuf]) {
    let may_be_seen = |path: &Path| namespace.is_none_or(|own| namespace_of(path).is_none_or(|it| it == own));
    let mut left: Vec<(PathBuf, SegmentName)> = directories.iter().flat_map(|place| unheld(place)).collect();
    // Containers may share the directory with others and with the system.
    left.retain(|(path, _)| may_be_seen(path));
    if left.is_empty() {
        return;
    }
    let uid = rustix::process::geteuid().as_raw();
    let mut processes = Processes::now();
    for (path, name) in left {
        if processes.settled(SegmentOrigin { path: &path, name, uid }).is_empty() {
            let _ = fs::remove_file(&path);
        }
    }
}

/// The pid namespace that a segment was made in, if it says so.
fn namespace_of(path: &Path) -> Option<u64> {
    let mut word = [0; 8];
    untrusted::open(path).ok()?.read_exact_at(&mut word, offset_of!(Header, namespace) as u64).ok()?;
    Some(u64::from_ne_bytes(word)).filter(|namespace| *namespace != 0)
}

/// The segments in a directory of this user that no process holds.
fn unheld(directory: &Path) -> Vec<(PathBuf, SegmentName)> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| fs::symlink_metadata(path).ok().filter(|found| found.uid() == own);
    if is_own(directory).is_none_or(|found| !found.is_dir()) {
        return Vec::new();
    }
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = paths.filter_map(|path| SegmentName::parse(&path).map(|name| (path, name)));
    let files = named.filter(|(path, _)| is_own(path).is_some_and(|found| found.is_file()));
    files.filter(|(path, name)| !name.is_held(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::SegmentFile;
    use std::process::{Child, Command};

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("radrm");
        (place, folder)
    }

    /// A segment as its launcher leaves it that is killed: named as by a process that is gone, and unlocked.
    fn left(folder: &Path) -> PathBuf {
        let mut file = SegmentFile::create_in(folder, 1).unwrap();
        let name = SegmentName { pid: i32::MAX.unsigned_abs(), ..file.name() };
        let path = folder.join(format!("segment-{}-{}-0-{}", name.pid, name.start, name.session));
        fs::rename(file.path(), &path).unwrap();
        file.leave();
        path
    }

    #[test]
    fn a_segment_of_another_pid_namespace_stays_where_its_processes_are_not_seen() {
        let (_place, folder) = folder();
        let path = left(&folder);
        let own = host::pid_namespace().unwrap();
        remove_seen_from(Some(own + 1), std::slice::from_ref(&folder));
        assert!(path.exists());
        remove_seen_from(Some(own), std::slice::from_ref(&folder));
        assert!(!path.exists());
        let path = left(&folder);
        remove_seen_from(None, std::slice::from_ref(&folder));
        assert!(!path.exists());
    }

    /// A process with a variable in its environment, once it has become its program.
    fn sleeper(name: &str, value: &Path) -> Child {
        let child = Command::new("sleep").arg("600").env(name, value).spawn().unwrap();
        while radrm_os::Process(child.id()).variable(name).is_none_or(|found| found != value.as_os_str()) {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn a_segment_stays_while_a_process_carries_it() {
        let (_place, folder) = folder();
        let path = left(&folder);
        let mut carrier = sleeper("RADRM_SEGMENT", &path);
        let mut other = sleeper("RADRM_SEGMENT", &folder.join("segment-1-1-0-0"));
        let clean = || remove_segments(&[folder.clone(), folder.join("none")]);
        clean();
        assert!(path.exists());
        carrier.kill().unwrap();
        // Not waited for: a dead process carries nothing.
        clean();
        while radrm_os::Process(carrier.id()).stat().is_some_and(|stat| !stat.is_dead()) {
            std::thread::yield_now();
        }
        clean();
        assert!(!path.exists());
        carrier.wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn what_is_held_or_is_no_segment_is_never_removed() {
        let (_place, folder) = folder();
        let held = SegmentFile::create_in(&folder, 1).unwrap();
        // Named as by a launcher of another pid namespace: here that pid is another process's.
        let elsewhere = folder.join("segment-1-1-0000000000000001-1");
        fs::rename(held.path(), &elsewhere).unwrap();
        let others = ["other-1-1-1", "segment", "segment-x-1-1"].map(|name| folder.join(name));
        others.iter().for_each(|path| fs::write(path, "").unwrap());
        let linked = folder.join("segment-1-1-2");
        std::os::unix::fs::symlink(&others[0], &linked).unwrap();
        let clean = || remove_segments(std::slice::from_ref(&folder));
        clean();
        assert!(elsewhere.exists() && linked.is_symlink() && others.iter().all(|path| path.exists()));
        drop(held);
        clean();
        assert!(!elsewhere.exists());
    }
}
