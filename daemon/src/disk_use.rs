//! Disk use of job folders, measured on a thread of its own: a folder is its user's, who may fill it with as many files
//! as that user likes, and no client waits for them to be counted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::error::DaemonError;
use crate::job_output::BYTES_OF_INODE;
use crate::message::Message;

/// Files of a job's folder that are counted, with those of the folders in it.
const MAX_FILES: usize = 1_000_000;
/// Depth to which folders are searched, each with a descriptor.
const MAX_DEPTH: usize = 64;

/// The thread, and the jobs whose folders it is to measure.
#[derive(Debug)]
pub(crate) struct Measurer {
    asked: Arc<Mutex<BTreeSet<u64>>>,
    to: Sender<(u64, u32, PathBuf)>,
}

impl Measurer {
    /// Starts the thread, which reports to the engine.
    pub(crate) fn start(engine: Sender<Message>) -> Result<Self, DaemonError> {
        let (to, from) = mpsc::channel::<(u64, u32, PathBuf)>();
        let asked: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
        let waiting = asked.clone();
        let measure = move || {
            for (job, uid, folder) in from {
                // What is written from here on counts with the next question.
                waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
                if engine.send(Message::Measured(job, uid, folder_bytes(&folder))).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("disk".into()).stack_size(256 << 10);
        thread.spawn(measure).map_err(DaemonError::NoThread)?;
        Ok(Self { asked, to })
    }

    /// Has the folder of a user's job measured, once however often that is asked before it is done.
    pub(crate) fn ask(&self, job: u64, uid: u32, folder: PathBuf) {
        if self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(job) {
            let _ = self.to.send((job, uid, folder));
        }
    }
}

/// Bytes that the files of a folder and of the folders in it take on the disk, each those of its inode at least: empty ones use
/// a disk up too. 0 if it is not there. Other file systems
/// that are mounted in it are left out, and not touched: their owner may let them hang.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(top) = File::open(folder) else { return 0 };
    let mut left = MAX_FILES;
    let mut bytes = 0_u64;
    let Ok(list) = Dir::read_from(&top) else { return 0 };
    let mut open: Vec<(OwnedFd, Dir)> = vec![(top.into(), list)];
    while let Some((folder, list)) = open.last_mut() {
        let Some(Ok(entry)) = list.read() else {
            open.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Some(rest) = left.checked_sub(1) else { return bytes };
        left = rest;
        let Ok((file, found)) = entry_of(folder, name) else { continue };
        bytes = bytes.saturating_add((found.blocks() * 512).max(BYTES_OF_INODE));
        if found.is_dir()
            && open.len() < MAX_DEPTH
            && let Ok(folder) = openat(&file, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            && let Ok(list) = Dir::read_from(&folder)
        {
            open.push((folder, list));
        }
    }
    bytes
}

/// An entry of a folder with its kind and size; a link itself, and not its target.
fn entry_of(folder: &impl AsFd, name: &std::ffi::CStr) -> io::Result<(OwnedFd, fs::Metadata)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::NO_XDEV | ResolveFlags::BENEATH;
    let file = match openat2(folder, name, flags, Mode::empty(), within) {
        Ok(file) => file,
        // Linux before 5.6.
        Err(Errno::NOSYS) => openat(folder, name, flags, Mode::empty())?,
        Err(error) => return Err(error.into()),
    };
    let file = File::from(file);
    let found = file.metadata()?;
    Ok((file.into(), found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn file(path: &Path, bytes: usize) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![1; bytes]).unwrap();
    }

    /// Bytes in blocks by `find`, each of 16 KiB at least.
    fn found(folder: &Path) -> u64 {
        let find = std::process::Command::new("find")
            .arg(folder)
            .args(["-mindepth", "1", "-printf", "%b\n"])
            .output();
        let text = String::from_utf8(find.unwrap().stdout).unwrap();
        text.lines().map(|blocks| (blocks.parse::<u64>().unwrap() * 512).max(16_384)).sum()
    }

    #[test]
    fn files_are_not_hidden_by_folders_or_their_number() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("7");
        file(&folder.join("output"), 10_000);
        file(&folder.join("a/b/c/d/large"), 3 << 20);
        (0..1500).for_each(|index| file(&folder.join(format!("many/{index}")), 5000));
        std::os::unix::fs::symlink("/usr", folder.join("link")).unwrap();
        assert_eq!(folder_bytes(&folder), found(&folder));
        assert!(folder_bytes(&folder) > (3 << 20) + 1500 * 5000);
        assert_eq!(folder_bytes(&place.path().join("none")), 0);
    }

    #[test]
    fn empty_files_use_a_disk_up_too() {
        let place = tempfile::tempdir().unwrap();
        (0..100).for_each(|index| file(&place.path().join(index.to_string()), 0));
        assert_eq!(folder_bytes(place.path()), 100 * 16_384);
    }

    #[test]
    fn a_folder_waits_to_be_measured_once_however_often_it_is_asked_for() {
        let (to, from) = mpsc::channel();
        let measurer = Measurer { asked: Arc::default(), to };
        [7, 8, 7, 7, 8].into_iter().for_each(|job| measurer.ask(job, 1, PathBuf::new()));
        assert_eq!(from.try_iter().map(|(job, ..)| job).collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn what_is_asked_is_reported_and_the_thread_ends_with_who_asks() {
        let place = tempfile::tempdir().unwrap();
        file(&place.path().join("7/output"), 4096);
        let (to, from) = mpsc::channel();
        let measurer = Measurer::start(to).unwrap();
        // The second is asked for once the first has been answered, so it is measured again.
        for before in [4096, 3 << 20] {
            file(&place.path().join("7/output"), before);
            measurer.ask(7, 1, place.path().join("7"));
            let answer = from.recv_timeout(Duration::from_secs(60)).unwrap();
            let Message::Measured(7, 1, bytes) = answer else { panic!("{answer:?}") };
            assert!(bytes >= before as u64, "{bytes}");
        }
        drop(measurer);
        assert!(from.recv_timeout(Duration::from_secs(60)).is_err());
    }
}
