//! The file of a step for radrmd in engine mode: whose step it is, how it ended, and what its recorder found.
//!
//! Root writes it, in a folder that radrmd has made: without that there is none. The lock on it is held as long as
//! `slurmstepd` lives, so that radrmd knows of steps whose end nothing could write down.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder in the state directory.
const FOLDER: &str = "steps";
/// Longer figures are not a recorder's.
const MAX_LEN: usize = 4096;
/// Tries to write the end of a step, and the time between two of them: what a disk does not take once it may take soon.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// A step that begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About<'a> {
    /// Job.
    pub job: u32,
    /// `batch`, or a number.
    pub step: &'a str,
    /// Name of the node.
    pub node: &'a str,
    /// The job's user.
    pub uid: u32,
    /// Memory limit of the job on each GPU, bytes.
    pub granted: Option<u64>,
}

/// The file of a step that runs.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    /// Its first lines.
    head: String,
    /// `None`: it could not be made yet.
    file: Option<File>,
}

impl Report {
    /// Begins the file. One that cannot be written keeps no step from running, and is made at the step's end. `None`: radrmd
    /// does not watch this node.
    pub fn begin(state: &Path, about: &About<'_>) -> Option<Self> {
        let folder = state.join(FOLDER);
        let found = fs::symlink_metadata(&folder).ok()?;
        // SAFETY: always works.
        let own = unsafe { libc::geteuid() };
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            return None;
        }
        let begin = radrm_os::time::epoch_ms();
        let path = folder.join(format!("{}.{}.{begin}", about.job, about.step));
        let About { job, step, node, uid, granted } = about;
        let granted = granted.map(|bytes| format!("granted {bytes}\n")).unwrap_or_default();
        let head = format!("job {job}\nstep {step}\nnode {node}\nuid {uid}\nbegin_ms {begin}\n{granted}");
        let file = make(&path, head.as_bytes()).ok();
        Some(Self { path, head, file })
    }

    /// Completes it: `status` as of `wait`, of the first task that failed; `figures`: lines of the recorder.
    pub fn end(self, status: i32, figures: &[u8]) {
        let (code, signal) = if libc::WIFSIGNALED(status) {
            (0, libc::WTERMSIG(status))
        } else {
            (libc::WEXITSTATUS(status), 0)
        };
        let mut text =
            format!("end_ms {}\nexit {code}\nsignal {signal}\n", radrm_os::time::epoch_ms()).into_bytes();
        text.extend_from_slice(&figures[..figures.len().min(MAX_LEN)]);
        for attempt in 1..=TRIES {
            // In one piece, before the lock goes; over what an earlier try has left of it.
            let written = match &self.file {
                Some(file) => file.write_all_at(&text, self.head.len() as u64),
                None => make(&self.path, &[self.head.as_bytes(), &text].concat()).map(drop),
            };
            // What is missing after the last one is only not known.
            if written.is_ok() || attempt == TRIES {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Makes a file, locked and whole.
fn make(path: &Path, text: &[u8]) -> io::Result<File> {
    // Without a name until it is locked and whole: radrmd removes an empty file without a lock.
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
    let mut file = options.open(path.parent().unwrap_or(path))?;
    file.try_lock()?;
    file.write_all(text)?;
    link(&file, path)?;
    Ok(file)
}

/// Gives a file its name, which no other file has.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: two strings that end with zero.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ABOUT: About<'_> = About { job: 42, step: "batch", node: "n1", uid: 7, granted: Some(100) };

    fn texts(state: &Path) -> Vec<String> {
        let entries = fs::read_dir(state.join(FOLDER)).unwrap();
        entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn a_file_is_locked_and_whole_from_its_first_moment() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // As radrmd reads them.
            let reader = scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    for path in fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()) {
                        let Ok(file) = File::open(&path) else { continue };
                        let is_held = file.try_lock_shared().is_err();
                        let is_empty = fs::read(&path).is_ok_and(|text| text.is_empty());
                        if !is_held || is_empty {
                            return false;
                        }
                    }
                }
                true
            });
            let reports: Vec<_> = (0..300)
                .map(|job| {
                    let report = Report::begin(state.path(), &About { job, ..ABOUT });
                    // The folder stays small, and is read often.
                    for entry in fs::read_dir(&folder).unwrap().flatten() {
                        let _ = fs::remove_file(entry.path());
                    }
                    report
                })
                .collect();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(reports.iter().all(Option::is_some));
            assert!(reader.join().unwrap(), "a reader found a file without a lock, or an empty one");
        });
    }

    #[test]
    fn without_radrmd_there_is_no_file() {
        let state = tempfile::tempdir().unwrap();
        assert!(Report::begin(state.path(), &ABOUT).is_none());
        fs::create_dir(state.path().join(FOLDER)).unwrap();
        fs::set_permissions(state.path().join(FOLDER), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Report::begin(state.path(), &ABOUT).is_none(), "others could replace files");
    }

    #[test]
    fn a_file_that_could_not_be_made_at_the_beginning_is_made_at_the_end() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let mut report = Report::begin(state.path(), &ABOUT).unwrap();
        // As if the disk had taken nothing.
        fs::remove_file(&report.path).unwrap();
        report.file = None;
        fs::remove_dir(&folder).unwrap();
        let comes_back = folder.clone();
        let disk = std::thread::spawn(move || {
            std::thread::sleep(PAUSE / 2);
            fs::create_dir(comes_back).unwrap();
        });
        report.end(0, b"peak 5\n");
        disk.join().unwrap();
        let text = texts(state.path()).remove(0);
        assert!(
            text.starts_with("job 42\nstep batch\n") && text.ends_with("exit 0\nsignal 0\npeak 5\n"),
            "{text}"
        );
    }

    #[test]
    fn a_step_states_whose_it_is_before_its_recorder_can_say_anything() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join(FOLDER)).unwrap();
        fs::set_permissions(state.path().join(FOLDER), fs::Permissions::from_mode(0o755)).unwrap();
        let report = Report::begin(state.path(), &ABOUT).unwrap();
        // 9: SIGKILL.
        report.end(9, b"peak 5\nuid 0\n");
        let text = texts(state.path()).remove(0);
        assert!(text.starts_with("job 42\nstep batch\nnode n1\nuid 7\nbegin_ms "), "{text}");
        assert!(
            text.contains("granted 100\nend_ms ") && text.ends_with("exit 0\nsignal 9\npeak 5\nuid 0\n"),
            "{text}"
        );
    }
}
