//! The jobs that this user can see: their segments, wherever they are.
//!
//! A launcher keeps its segment open, so its open files lead to it, named or not; so does the recorder that it leaves with
//! processes that outlive its program. A segment that neither holds lies in one of the usual directories as long as it has
//! a name, and is a job as long as a process carries it ([`crate::carriers`]).

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use radrm_base::machine_file;
use radrm_telemetry::ledger::LedgerView;
use radrm_telemetry::{Answers, Candidate, Liveness, Segment, SegmentFile, SegmentName, SlotInfo};
use rustix::fs::{Mode, OFlags};

use crate::carriers::{Processes, SegmentOrigin};
use crate::scopes::user_name;
use crate::start::LEDGERS_VARIABLE;
use radrm_os::{Mapped, Process, TimeByUser, paths, untrusted};

/// A job.
#[derive(Debug)]
pub struct Job {
    /// Process id of its launcher, by which it is named. Where its segment names a process that is not its launcher, the
    /// one that holds it, or 0.
    pub launcher: u32,
    /// The process that its segment wrongly names as its launcher.
    pub false_launcher: Option<u32>,
    /// True if the launcher is still there.
    pub launched: bool,
    /// The process that records it: the launcher, or the recorder that this one left.
    pub recorder: Option<Process>,
    /// Processes that can join it, where the launcher is gone.
    pub carriers: Vec<Process>,
    /// Its user.
    pub uid: u32,
    /// The launcher's command line without the launcher's own words, or the first process's.
    pub command: String,
    /// Its segment.
    pub segment: Segment,
    /// Device and inode of its segment.
    pub file: (u64, u64),
}

impl Job {
    /// Its ledger, mapped for good; `None` if it was started without a limit.
    #[must_use]
    pub fn ledger(&self) -> Option<LedgerView> {
        self.segment.ledger().ok()
    }

    /// Living processes that use a GPU.
    #[must_use]
    pub fn running(&self) -> Vec<SlotInfo> {
        let slots = self.segment.slots().unwrap_or_default();
        slots.into_iter().filter(|slot| slot.liveness == Liveness::Running).collect()
    }

    /// Processes whose environment is the job's: living ones, else the program itself.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        // A segment may name one process a thousand times.
        let joined: BTreeSet<u32> = self.running().into_iter().filter_map(|slot| slot.pid).collect();
        let joined = joined.into_iter().map(Process);
        let mut found: Vec<Process> = joined.filter(|process| self.has(*process)).collect();
        if found.is_empty() && self.launched {
            found.extend(Process::all().filter(|process| process.parent() == Some(Process(self.launcher))));
        }
        if found.is_empty() {
            found.clone_from(&self.carriers);
        }
        found
    }

    /// Returns true if it is the job of this launcher or process.
    #[must_use]
    pub fn is(&self, pid: u32) -> bool {
        let has_slot = || self.running().iter().any(|slot| slot.pid == Some(pid));
        self.launcher == pid || has_slot() && self.has(Process(pid))
    }

    /// Returns true if a process that the segment names has joined it: a user can write any number there.
    fn has(&self, process: Process) -> bool {
        process.has_mapped_file(self.file) != Some(false)
    }

    /// The file of the emulated machine that its processes use; `None` is this computer.
    #[must_use]
    pub fn machine(&self) -> Option<PathBuf> {
        self.variable(machine_file::VARIABLE)
            .map(PathBuf::from)
            .or_else(|| self.mapped().into_iter().find(|file| is_machine_file(file)))
    }

    /// Returns true if nothing but its own words makes it a job: it names another's launcher, and no process has joined it.
    #[must_use]
    pub fn is_only_named(&self) -> bool {
        self.false_launcher.is_some() && self.recorder.is_none() && self.processes().is_empty()
    }

    /// Returns true if its processes use the emulated machine in this file; `None` is this computer.
    #[must_use]
    pub fn is_on(&self, machine: Option<&Path>) -> bool {
        let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        match (self.machine(), machine) {
            (None, None) => true,
            (Some(own), Some(other)) => own == other || (id(&own).is_some() && id(&own) == id(other)),
            _ => false,
        }
    }

    /// The ledgers of users and groups in which its processes count.
    #[must_use]
    pub fn shared_ledgers(&self) -> Vec<PathBuf> {
        if let Some(list) = self.variable(LEDGERS_VARIABLE) {
            return paths(&list);
        }
        self.mapped().into_iter().filter(|file| is_member(file)).collect()
    }

    /// A variable with which its processes were started. A program that shows a title of its own has overwritten it.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<OsString> {
        self.processes().into_iter().find_map(|process| process.variable(name))
    }

    /// The files that its processes and its launcher have mapped: what they use, whatever has become of their
    /// environment.
    fn mapped(&self) -> BTreeSet<PathBuf> {
        let launcher = self.launched.then_some(Process(self.launcher));
        let processes = self.processes().into_iter().chain(launcher);
        processes
            .filter_map(|process| process.mappings().ok())
            .flatten()
            .map(|mapping| mapping.path)
            .collect()
    }
}

/// Returns true if a file is that of an emulated machine.
fn is_machine_file(path: &Path) -> bool {
    let Ok(file) = untrusted::open(path) else { return false };
    let mut word = [0; 8];
    file.metadata().is_ok_and(|found| found.len() == machine_file::BYTES)
        && file.read_exact_at(&mut word, 0).is_ok()
        && u64::from_ne_bytes(word) == machine_file::MAGIC
}

/// Segments of one user that are looked at together, those that a launcher holds first.
const MAX_SEGMENTS: usize = 512;
/// Processes that the segments of one user may name together.
const MAX_SLOTS: usize = 8192;
/// Processor time that looking at the segments of one user may take.
const MAX_TIME: Duration = Duration::from_millis(500);
/// Names in one directory that are looked at.
const MAX_NAMES: usize = 8192;

/// All jobs that were found, and what was not looked at.
#[derive(Debug, Default)]
pub struct Found {
    /// By their launchers.
    pub jobs: Vec<Job>,
    /// Users with more segments, or more processes in these, than are looked at for one user, or whose take too long.
    pub beyond: BTreeSet<u32>,
}

impl Found {
    /// Processes that were not read, a sentence for each user.
    pub fn unread(&self) -> impl Iterator<Item = String> {
        self.beyond.iter().map(|uid| {
            let user = user_name(*uid).unwrap_or_else(|| uid.to_string());
            format!(
                "jobs of {user} cannot be read: more than {MAX_SEGMENTS} segments, or {MAX_SLOTS} processes in them, \
                 or what they hold takes too long"
            )
        })
    }
}

/// All jobs, by their launchers.
#[must_use]
pub fn all() -> Vec<Job> {
    find().jobs
}

/// All jobs, as far as one user's files may take the time of others.
#[must_use]
pub fn find() -> Found {
    let mut seen = HashSet::new();
    let mut taken: HashMap<u32, (usize, usize)> = HashMap::new();
    let mut found = Found::default();
    let look = Look::default();
    let mut time = TimeByUser::default();
    for segment in segments() {
        if !seen.insert(segment.file.id()) {
            continue;
        }
        let uid = segment.file.uid();
        let (segments, slots) = taken.entry(uid).or_default();
        if *segments >= MAX_SEGMENTS || *slots >= MAX_SLOTS {
            found.beyond.insert(uid);
            continue;
        }
        *segments += 1;
        match time.spend(Some(uid), MAX_TIME, || open(&segment, &look)) {
            Some(Some((job, running))) => {
                *slots += running;
                found.jobs.push(job);
            }
            Some(None) => {}
            None => {
                found.beyond.insert(uid);
            }
        }
    }
    found.jobs.sort_by_key(|job| job.launcher);
    found
}

/// Facts that are found once for all segments.
#[derive(Debug, Default)]
struct Look {
    answers: Answers,
    processes: OnceCell<Processes>,
    mapped: RefCell<Mapped>,
}

/// File that may be a segment.
#[derive(Debug)]
struct Named {
    file: Candidate,
    /// Its name, as processes have it in their environment.
    path: PathBuf,
    /// A launcher or recorder that has it open.
    holder: Option<Process>,
}

/// Opens a segment; `None` if it is none, or if its job is over. Gives how many of its processes run, too.
fn open(found: &Named, look: &Look) -> Option<(Job, usize)> {
    let segment = found.file.open().ok()?.sharing(&look.answers);
    let info = segment.job().ok()?;
    let launcher = Process(info.launcher_pid);
    let name = SegmentName::parse(&found.path);
    let is_it = || name.is_none_or(|name| launcher.start() == Some(name.start));
    let (uid, file) = (found.file.uid(), found.file.id());
    // What a segment says is checked against the kernel: any user can write one.
    let launched =
        is_launcher(launcher) && is_it() && is_users(launcher, uid) && launcher.has_open_file(file);
    // Only a launcher can be taken for the segment's. That of a claim in Kubernetes has none, and the number of one in a
    // container is another process's here.
    let false_launcher = (!launched && is_launcher(launcher)).then_some(launcher.0);
    let recorder = launched.then_some(launcher).or(found.holder);
    let carriers = match name.filter(|_| !launched) {
        Some(name) => {
            let origin = SegmentOrigin { path: &found.path, name, uid };
            let processes = || Processes::sharing(look.answers.clone());
            look.processes.get_or_init(processes).carrying(origin).processes
        }
        None => Vec::new(),
    };
    let carriers: Vec<Process> = carriers.iter().map(|carrier| Process(carrier.pid)).collect();
    let named = match false_launcher {
        Some(_) => recorder.map_or(0, |recorder| recorder.0),
        None => launcher.0,
    };
    let command = String::new();
    let mut job =
        Job { launcher: named, false_launcher, launched, recorder, carriers, uid, command, segment, file };
    let running = job.running();
    // A process that has joined has the segment mapped, whatever numbers its writer has put there.
    let mut mapped = look.mapped.borrow_mut();
    let mut has_joined =
        |slot: &&SlotInfo| slot.pid.is_none_or(|pid| mapped.has(Process(pid), file) != Some(false));
    let (joined, named): (Vec<&SlotInfo>, Vec<&SlotInfo>) = running.iter().partition(&mut has_joined);
    // Those that only its slots name do not carry it either.
    job.carriers.retain(|carrier| named.iter().all(|slot| slot.pid != Some(carrier.0)));
    // One that names another's launcher is kept: commands name its owner.
    let is_named = job.false_launcher.is_some() && !running.is_empty();
    if job.recorder.is_none() && job.carriers.is_empty() && joined.is_empty() && !is_named {
        return None;
    }
    job.command = match (job.recorder, joined.iter().find_map(|slot| slot.pid)) {
        (Some(recorder), _) => program_of(&recorder.command()),
        (None, Some(pid)) => Process(pid).command(),
        (None, None) => job.carriers.first().map_or_else(String::new, |process| process.command()),
    };
    Some((job, running.len()))
}

/// The job of a launcher, or of one of its processes.
#[must_use]
pub fn of(jobs: Vec<Job>, pid: u32) -> Option<Job> {
    let mut jobs = jobs;
    let at = jobs
        .iter()
        .position(|job| job.launcher == pid)
        .or_else(|| jobs.iter().position(|job| job.is(pid)))?;
    Some(jobs.swap_remove(at))
}

fn is_launcher(process: Process) -> bool {
    process.name() == "radrm-run"
}

/// Command behind the launcher's own options.
fn program_of(command: &str) -> String {
    command.split_once(" -- ").map_or(command, |(_, program)| program).to_owned()
}

/// The segment that a launcher made and holds open. It has those of others open for moments, when it looks at all jobs or
/// at what killed ones left.
#[must_use]
pub fn segment_of(launcher: Process) -> Option<Segment> {
    let ids = launcher.ids();
    let made = |segment: &Segment| {
        let maker = segment.job().map(|job| job.launcher_pid);
        maker.is_ok_and(|maker| maker == launcher.0 || ids.contains(&maker))
    };
    held_by(launcher).filter_map(|found| found.open().ok()).find(made)
}

/// A job with a limit, by what its launcher holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitedJob {
    /// Its segment, as processes have it in their environment.
    pub segment: PathBuf,
    /// The ledgers of users and groups in which its processes count.
    pub ledgers: Vec<PathBuf>,
}

/// The job with a limit of a launcher; `None` where this is none, its job has no limit, or its segment no name.
#[must_use]
pub fn limited_by(launcher: Process) -> Option<LimitedJob> {
    if !is_launcher(launcher) {
        return None;
    }
    let ids = launcher.ids();
    let segment = found_in(launcher).find_map(|found| {
        let segment = found.file.open().ok()?;
        let maker = segment.job().ok()?.launcher_pid;
        let is_its = maker == launcher.0 || ids.contains(&maker);
        // No process can join one whose name is gone.
        let is_named = Candidate::named(&found.path).is_ok_and(|named| named.id() == found.file.id());
        (is_its && is_named && segment.has_limits()).then_some(found.path)
    })?;
    let mapped = launcher.mappings().unwrap_or_default().into_iter().map(|mapping| mapping.path);
    let ledgers: BTreeSet<PathBuf> = mapped.filter(|file| is_member(file)).collect();
    Some(LimitedJob { segment, ledgers: ledgers.into_iter().collect() })
}

/// Returns true if a file is the ledger of a user in a limit that users share.
fn is_member(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"member-"))
}

/// Files that may be the segment of this launcher: those that it holds open, and that are its user's.
pub fn held_by(launcher: Process) -> impl Iterator<Item = Candidate> {
    found_in(launcher).map(|found| found.file)
}

fn found_in(holder: Process) -> impl Iterator<Item = Named> {
    let named = holder.open_files().into_iter().filter(|(_, name)| names_segment(name));
    let found = named.filter_map(move |(path, name)| {
        Some(Named { file: Candidate::at(&path).ok()?, path: name.into(), holder: Some(holder) })
    });
    found.filter(move |found| is_users(holder, found.file.uid()))
}

fn is_users(process: Process, uid: u32) -> bool {
    process.users().is_some_and(|(real, _)| real == uid)
}

/// Returns true if an open or mapped file may be a segment by its name.
pub(crate) fn names_segment(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("/memfd:radrm-segment") || name.contains("/segment-")
}

/// Files that may be segments.
fn segments() -> Vec<Named> {
    let held = Process::all().filter(|process| is_launcher(*process)).flat_map(found_in);
    held.chain(directories().iter().flat_map(|directory| named_in(directory))).collect()
}

/// Files in a directory that may be segments by their names. A link is neither a segment nor a directory: the owner
/// of this directory does not choose what root opens.
fn named_in(directory: &Path) -> Vec<Named> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::open(directory, flags, Mode::empty()) else { return Vec::new() };
    let here = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let entries = fs::read_dir(here).into_iter().flatten().flatten();
    let entries = entries.take(MAX_NAMES);
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment-"));
    let found = segments.filter_map(|entry| {
        let file = Candidate::named(&entry.path()).ok()?;
        Some(Named { file, path: directory.join(entry.file_name()), holder: None })
    });
    found.collect()
}

/// The usual directories: one's own, and for root everybody's.
fn directories() -> Vec<PathBuf> {
    let mut directories = SegmentFile::directories();
    if rustix::process::getuid().is_root() {
        let below =
            |parent: &str| fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
        directories.extend(below("/run/user").map(|path| path.join("radrm")));
        directories.extend(below("/run/radrm"));
        directories.extend(below("/dev/shm").filter(|path| is_ours(path)));
    }
    directories
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("radrm-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_the_launchers_own_words() {
        assert_eq!(program_of("radrm-run --quiet -- python3 a.py -- x"), "python3 a.py -- x");
        assert_eq!(program_of("radrm-run python3 a.py"), "radrm-run python3 a.py");
    }

    #[test]
    fn a_segment_without_launcher_and_processes_is_no_job() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
        // This process made it, and is not a launcher.
        let [found] = named_in(file.path().parent().unwrap()).try_into().unwrap();
        assert!(open(&found, &Look::default()).is_none());
    }

    #[test]
    fn only_what_lies_in_a_directory_itself_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (real, linked) = (dir.path().join("r"), dir.path().join("l"));
        let file = SegmentFile::create_in(&real, 7).unwrap();
        assert_eq!(named_in(&real).len(), 1);
        std::os::unix::fs::symlink(&real, &linked).unwrap();
        assert!(named_in(&linked).is_empty(), "a link in the place of the directory");
        std::os::unix::fs::symlink(file.path(), real.join("segment-1")).unwrap();
        std::os::unix::fs::symlink("/dev/null", real.join("segment-2")).unwrap();
        assert_eq!(named_in(&real).len(), 1, "links in the place of segments");
    }

    #[test]
    fn a_segment_that_a_launcher_only_looks_at_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = SegmentFile::create_in(&dir.path().join("a"), 7).unwrap();
        let file = fs::OpenOptions::new().write(true).open(theirs.path()).unwrap();
        // The launcher's process id stands at this place of the header.
        file.write_all_at(&1_u64.to_ne_bytes(), 24).unwrap();
        let own = Process(std::process::id());
        assert!(held_by(own).count() > 0 && segment_of(own).is_none());
        let mine = SegmentFile::create_in(&dir.path().join("b"), 8).unwrap();
        assert_eq!(segment_of(own).unwrap().job().unwrap().job_id, 8);
        drop((theirs, mine));
    }

    #[test]
    fn a_file_that_a_launcher_holds_is_its_segment_only_if_it_is_its_users() {
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
        let own = Process(std::process::id());
        let id = Candidate::at(file.path()).unwrap().id();
        let holds = || held_by(own).any(|found| found.id() == id);
        assert!(holds());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(file.path(), Some(1), None).unwrap();
            assert!(!holds());
        }
    }
}
