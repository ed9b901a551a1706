//! Processes that keep a job alive: those that can still join its segment.
//!
//! A process carries a segment if its environment names it, also before its first call of the driver, or if it has
//! joined. Programs may overwrite the memory of their environment (`setproctitle`), and the processes of other users
//! cannot be read: what is unclear of them is decided by their ancestors, and where these are gone too they count. So a
//! segment may stay longer than it is needed, and never goes too early.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use radrm_os::{Process, ProcessIdentity, Stat, TimeByUser};
use radrm_telemetry::{Answers, Liveness, Segment, SegmentName};

use crate::program::libraries;

/// Names the segment of its job to a process.
pub const VARIABLE: &str = "RADRM_SEGMENT";

/// Ancestors that are followed: more are a sign of something gone wrong.
const MAX_ANCESTORS: usize = 256;
/// Searches for processes that were started during the search before: those of other jobs never end on a busy machine.
const MAX_SEARCHES: usize = 100;
/// Processes that one processor starts at most in a second: each takes more than 20 us.
const MAX_STARTS: u64 = 50_000;
/// Looks at a process that becomes other programs meanwhile.
const MAX_LOOKS: usize = 50;
/// Processor time that the processes of one user may take in one search: a thousand usual ones take a tenth of it.
const MAX_TIME: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A segment, and who made it.
#[derive(Clone, Copy, Debug)]
pub struct SegmentOrigin<'a> {
    /// As its processes have it in their environment.
    pub path: &'a Path,
    /// Its maker, before which none of its processes started.
    pub name: SegmentName,
    /// Its user.
    pub uid: u32,
}

/// The processes that can still join a segment, or have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carriers {
    /// Processes that have a process id here, in its order.
    pub processes: Vec<ProcessIdentity>,
    /// Processes of other pid namespaces that have joined and are known by their locks only.
    pub elsewhere: usize,
    /// Number of `processes` that may be of another job: nothing says which of their ancestors gave them a segment.
    pub possible: usize,
}

impl Carriers {
    /// Returns true if there is no carrier.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Number of carriers, with those that may be of another job.
    #[must_use]
    pub fn count(&self) -> usize {
        self.processes.len() + self.elsewhere
    }

    /// Number of those that are certainly of this job.
    #[must_use]
    pub fn certain(&self) -> usize {
        self.count() - self.possible
    }
}

/// Evidence that a process carries a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    Yes,
    /// It is not clear where it comes from.
    Possibly,
    No,
}

impl Carries {
    fn if_so(is_so: bool) -> Self {
        if is_so { Self::Yes } else { Self::No }
    }
}

/// Trace of a job in a process.
#[derive(Debug, PartialEq, Eq)]
enum Carried {
    /// Its environment names this segment.
    Named(Vec<u8>),
    /// The shim is in it, its environment names no segment, and it has mapped these.
    Mapped(Vec<Vec<u8>>),
    /// The shim is in it, and nothing says of which job it is: its environment was overwritten.
    Unclear,
    /// It may not be read.
    Hidden,
    Nothing,
}

/// The processes of one moment. What is asked of one of them is read once, when it is first needed: many segments may be
/// compared with them.
#[derive(Debug)]
pub struct Processes {
    answers: Answers,
    time: RefCell<TimeByUser>,
    all: Vec<Entry>,
    by_pid: HashMap<u32, usize>,
}

#[derive(Debug)]
struct Entry {
    process: Process,
    /// The owner of its directory in `/proc`, and its real user where that is root.
    owner: OnceCell<Option<u32>>,
    real: OnceCell<Option<u32>>,
    stat: OnceCell<Option<Stat>>,
    carried: OnceCell<Carried>,
}

impl Entry {
    fn of(process: Process) -> Self {
        Self {
            process,
            owner: OnceCell::new(),
            real: OnceCell::new(),
            stat: OnceCell::new(),
            carried: OnceCell::new(),
        }
    }

    fn owner(&self) -> Option<u32> {
        *self.owner.get_or_init(|| self.process.uid())
    }

    fn stat(&self) -> Option<Stat> {
        *self.stat.get_or_init(|| self.process.stat())
    }

    /// Returns true if it is one of a user's, also if it may not be read: the system gives such a process to root. So those
    /// that it gives to root are root's only if their real user is: a user starts programs with root's rights, too.
    fn is_of(&self, uid: u32) -> bool {
        let real = || {
            // Only those that this user may send signals to can be its own.
            //
            // SAFETY: signal 0 is none.
            let is_own = unsafe { libc::kill(self.process.0.cast_signed(), 0) } == 0;
            is_own.then(|| self.process.users()).flatten().map(|(real, _)| real)
        };
        match self.owner() {
            Some(0) => *self.real.get_or_init(real) == Some(uid),
            owner => owner == Some(uid),
        }
    }

    fn is_in_session(&self, session: u32) -> bool {
        // SAFETY: a plain system call that only reads.
        session != 0 && unsafe { libc::getsid(self.process.0.cast_signed()) } == session.cast_signed()
    }

    /// Trace of a job in it. Where the processes of its user have taken too long to read, that is not clear.
    fn carried(&self, stat: &Stat, time: &RefCell<TimeByUser>) -> &Carried {
        self.carried.get_or_init(|| {
            let mut time = time.borrow_mut();
            let found = time.spend(self.owner(), MAX_TIME, || carried(self.process, stat));
            found.unwrap_or(Carried::Unclear)
        })
    }
}

impl Processes {
    /// Reads the processes that are there now.
    #[must_use]
    pub fn now() -> Self {
        Self::sharing(Answers::default())
    }

    /// The same, where it is known already whether some live.
    #[must_use]
    pub fn sharing(answers: Answers) -> Self {
        let all: Vec<Entry> = Process::all().map(Entry::of).collect();
        let by_pid = all.iter().enumerate().map(|(at, entry)| (entry.process.0, at)).collect();
        Self { answers, time: RefCell::default(), all, by_pid }
    }

    /// The processes that carry a segment, but for the caller. Where this gives none, there is none: a process that was met
    /// in its last moment may have started another one, so the search goes on until no process is new.
    #[must_use]
    pub fn settled(&mut self, origin: SegmentOrigin<'_>) -> Carriers {
        for _ in 0..MAX_SEARCHES {
            let carriers = self.carrying(origin);
            if !carriers.is_empty() || !self.has_grown() {
                return carriers;
            }
        }
        Carriers::default()
    }

    /// Adds the processes that have been started since; whether there are any.
    fn has_grown(&mut self) -> bool {
        let before = self.all.len();
        for process in Process::all() {
            if !self.by_pid.contains_key(&process.0) {
                self.by_pid.insert(process.0, self.all.len());
                self.all.push(Entry::of(process));
            }
        }
        self.all.len() > before
    }

    /// The processes that carried a segment when they were looked at, but for the caller.
    #[must_use]
    pub fn carrying(&self, origin: SegmentOrigin<'_>) -> Carriers {
        let mut carriers = joined(origin.path, &self.answers);
        let known: HashSet<u32> = carriers.processes.iter().map(|carrier| carrier.pid).collect();
        let lowest = lowest_pid(origin.name).unwrap_or(0);
        let found =
            self.all.iter().filter(|entry| entry.process.0 > lowest && !known.contains(&entry.process.0));
        let others = found.filter(|entry| entry.process.0 != std::process::id());
        for (process, carries) in others.filter_map(|entry| self.carries(entry, origin)) {
            if carries != Carries::No {
                carriers.processes.push(process);
                carriers.possible += usize::from(carries == Carries::Possibly);
            }
        }
        carriers.processes.retain(|carrier| carrier.pid != std::process::id());
        carriers.processes.sort();
        carriers
    }

    /// Returns true if a process of this user uses this folder of an emulated machine, which the process `owner` made (0: not
    /// known): its environment names the folder, or it has a file there mapped. One whose environment was overwritten may
    /// use it if it may descend from the owner. Processes of other users cannot enter the folder: what they name, also to
    /// root, keeps nothing.
    #[must_use]
    pub fn use_folder(&self, folder: &Path, owner: u32) -> bool {
        let name = folder.as_os_str().as_bytes();
        let own = rustix::process::geteuid().as_raw();
        let made = started_since(folder);
        let names = |entry: &Entry| {
            if !entry.is_of(own) {
                return false;
            }
            entry.process.environment().is_some_and(|text| has(text.bytes(), name))
                || entry.process.maps().is_some_and(|text| has(&text, name))
        };
        let may_use = |entry: &Entry| {
            let stat = entry.stat().filter(|stat| *entry.carried(stat, &self.time) == Carried::Unclear);
            stat.is_some_and(|stat| stat.start >= made && self.is_below(stat, owner, made, &names))
        };
        let mut readable = self.all.iter().filter(|entry| entry.is_of(own));
        readable.any(|entry| entry.process.0 != std::process::id() && (names(entry) || may_use(entry)))
    }

    /// Returns true if a process may descend from the owner of a folder, by the first ancestor that is clear.
    fn is_below(&self, stat: Stat, owner: u32, made: u64, names: &impl Fn(&Entry) -> bool) -> bool {
        // A launcher adopts what its descendants leave, so that nothing of it is adopted by the system while it lives.
        let lives = self.by_pid.get(&owner).and_then(|at| self.all[*at].stat());
        let lives = lives.is_some_and(|owner| owner.start <= made.saturating_add(ticks_per_second()));
        let mut parent = stat.parent;
        for _ in 0..MAX_ANCESTORS {
            if parent == owner {
                return true;
            }
            let Some(entry) = self.by_pid.get(&parent).filter(|_| parent > 1).map(|at| &self.all[*at]) else {
                return !lives;
            };
            let Some(ancestor) = entry.stat() else { return !lives };
            if names(entry) {
                return true;
            }
            if matches!(entry.carried(&ancestor, &self.time), Carried::Named(_) | Carried::Mapped(_)) {
                return false;
            }
            parent = ancestor.parent;
        }
        true
    }

    fn carries(&self, entry: &Entry, origin: SegmentOrigin<'_>) -> Option<(ProcessIdentity, Carries)> {
        // Cheap questions first: most processes are other users' or older.
        if !entry.is_of(origin.uid) && !entry.is_in_session(origin.name.session) {
            return None;
        }
        let stat = entry.stat().filter(|stat| stat.start >= origin.name.start && !stat.is_dead())?;
        let carries = match entry.carried(&stat, &self.time) {
            Carried::Named(path) => Carries::if_so(is_same(path, origin.path)),
            Carried::Mapped(paths) => Carries::if_so(is_among(paths, origin.path)),
            Carried::Unclear => self.descends(stat, origin),
            Carried::Hidden if stat.session == origin.name.session => self.descends(stat, origin),
            Carried::Hidden | Carried::Nothing => Carries::No,
        };
        Some((ProcessIdentity { pid: entry.process.0, start: stat.start }, carries))
    }

    /// Decides by the first ancestor that is clear: a process that is unclear by itself may descend from a segment's maker.
    fn descends(&self, stat: Stat, origin: SegmentOrigin<'_>) -> Carries {
        let (mut parent, mut session) = (stat.parent, stat.session);
        for _ in 0..MAX_ANCESTORS {
            // Adopted by the system: where it comes from is not known.
            let Some(entry) = self.by_pid.get(&parent).filter(|_| parent > 1).map(|at| &self.all[*at]) else {
                return Carries::Possibly;
            };
            let Some(ancestor) = entry.stat() else { return Carries::Possibly };
            if parent == origin.name.pid && ancestor.start == origin.name.start {
                return Carries::Yes;
            }
            match entry.carried(&ancestor, &self.time) {
                Carried::Named(path) => return Carries::if_so(is_same(path, origin.path)),
                Carried::Mapped(paths) => return Carries::if_so(is_among(paths, origin.path)),
                _ => {}
            }
            if ancestor.start < origin.name.start {
                // A parent in the same session is the process's own. One in another session may have adopted it.
                return if ancestor.session == session { Carries::No } else { Carries::Possibly };
            }
            (parent, session) = (ancestor.parent, ancestor.session);
        }
        Carries::Possibly
    }
}

/// The highest process id that no process has which started after this one, the maker of a segment; `None`: not known.
/// It spares a short run the look at all older processes. Ids are given in their order until they begin again.
fn lowest_pid(maker: SegmentName) -> Option<u32> {
    if maker.pid != std::process::id() {
        return None;
    }
    // SAFETY: reads a constant of the system.
    let system = |name| u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|value| *value > 0);
    let (ticks, processors) = (system(libc::_SC_CLK_TCK)?, system(libc::_SC_NPROCESSORS_ONLN)?);
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(up.tv_sec).ok()?.saturating_sub(maker.start / ticks) + 1;
    let number =
        |path: &str| fs::read_to_string(path).ok()?.split_whitespace().next_back()?.parse::<u64>().ok();
    let (limit, last) = (number("/proc/sys/kernel/pid_max")?, number("/proc/loadavg")?);
    let started = seconds.saturating_mul(processors).saturating_mul(MAX_STARTS);
    (last >= u64::from(maker.pid) && started < limit / 2).then_some(maker.pid)
}

/// The earliest start time, in clock ticks since boot, of a process that was started after a directory was made; 0 where
/// that is not known.
fn started_since(directory: &Path) -> u64 {
    let made = fs::symlink_metadata(directory).and_then(|found| found.created());
    let Some(age) = made.ok().and_then(|made| made.elapsed().ok()) else { return 0 };
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let made = u64::try_from(up.tv_sec).unwrap_or(0).saturating_sub(age.as_secs());
    // Both are rounded, and the clock of files is a tick behind.
    made.saturating_sub(2).saturating_mul(ticks_per_second())
}

fn ticks_per_second() -> u64 {
    // SAFETY: reads a constant of the system.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(1).max(1)
}

/// The processes that have joined a segment.
fn joined(path: &Path, answers: &Answers) -> Carriers {
    let slots = Segment::open(path).and_then(|segment| segment.sharing(answers).slots()).unwrap_or_default();
    let mut carriers = Carriers::default();
    for slot in slots.iter().filter(|slot| slot.liveness == Liveness::Running) {
        match slot.pid {
            Some(pid) => carriers.processes.push(ProcessIdentity { pid, start: slot.start }),
            None => carriers.elsewhere += 1,
        }
    }
    // A process that became another program may have two slots for a moment.
    carriers.processes.sort();
    carriers.processes.dedup();
    carriers
}

fn is_same(name: &[u8], path: &Path) -> bool {
    name == path.as_os_str().as_bytes()
}

fn is_among(names: &[Vec<u8>], path: &Path) -> bool {
    names.iter().any(|name| is_same(name, path))
}

/// Trace of a job in a process. While the process becomes another program it shows neither environment nor
/// mappings, and what was opened before shows nothing after: that is no answer.
fn carried(process: Process, stat: &Stat) -> Carried {
    // The kernel's own threads have nothing.
    if is_of_kernel(process, stat) {
        return Carried::Nothing;
    }
    for _ in 0..MAX_LOOKS {
        let before = program(process);
        let seen = look(process);
        if seen == Carried::Hidden && has_ended(process) {
            return Carried::Nothing;
        }
        if matches!(seen, Carried::Named(_) | Carried::Mapped(_) | Carried::Hidden) {
            return seen;
        }
        if before != Program::Starting && before == program(process) {
            return seen;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Carried::Unclear
}

/// Program that a process runs.
#[derive(PartialEq, Eq)]
enum Program {
    /// The kernel notes where the code is after it has laid out arguments and environment.
    Starting,
    At(u64),
    /// It has ended, or its first thread has.
    Ended,
}

/// Returns true if a process ended while it was looked at: what is gone cannot be read either.
fn has_ended(process: Process) -> bool {
    process.stat().is_none_or(|stat| stat.is_dead())
}

fn program(process: Process) -> Program {
    match process.stat() {
        Some(stat) if stat.state == b'Z' || stat.is_dead() => Program::Ended,
        Some(stat) if stat.code == 0 => Program::Starting,
        Some(stat) => Program::At(stat.code),
        None => Program::Ended,
    }
}

fn is_of_kernel(process: Process, stat: &Stat) -> bool {
    const KTHREADD: u32 = 2;
    process.0 == KTHREADD || stat.parent == KTHREADD
}

fn look(process: Process) -> Carried {
    let Some(environment) = process.environment() else { return Carried::Hidden };
    if let Some(path) = environment.value(VARIABLE).filter(|path| !path.is_empty()) {
        return Carried::Named(path.to_vec());
    }
    let Some(maps) = process.maps() else { return Carried::Hidden };
    if !has(&maps, libraries::SHIM.as_bytes()) {
        return Carried::Nothing;
    }
    let lines = maps.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| line.get(line.iter().position(|byte| *byte == b'/')?..));
    let segments = paths.filter(|path| SegmentName::parse(&to_path(path)).is_some());
    let mut segments: Vec<Vec<u8>> = segments.map(<[u8]>::to_vec).collect();
    segments.dedup();
    match segments.is_empty() {
        false => Carried::Mapped(segments),
        // It was started without the variable: it cannot join.
        true if is_intact(environment.bytes()) => Carried::Nothing,
        true => Carried::Unclear,
    }
}

/// Returns true if the memory of an environment was not written over: a title is followed by zeros up to its end.
fn is_intact(environment: &[u8]) -> bool {
    let text = environment.strip_suffix(b"\0").unwrap_or(environment);
    let last = text.rsplit(|byte| *byte == 0).next().unwrap_or_default();
    environment.is_empty() || last.contains(&b'=')
}

fn to_path(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// Returns true if `part` is in `text`; that may be long.
fn has(text: &[u8], part: &[u8]) -> bool {
    // SAFETY: two readable places of these lengths.
    let found = unsafe { libc::memmem(text.as_ptr().cast(), text.len(), part.as_ptr().cast(), part.len()) };
    !found.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::SegmentFile;
    use std::fs::File;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A shell that runs a script, once it says that it does.
    fn shell(script: &str, segment: &Path) -> Ended {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{script}\necho; read -r end")])
            .env(VARIABLE, segment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        Ended(child)
    }

    fn carriers(file: &SegmentFile) -> Vec<u32> {
        let uid = rustix::process::geteuid().as_raw();
        let origin = SegmentOrigin { path: file.path(), name: file.name(), uid };
        Processes::now().settled(origin).processes.iter().map(|carrier| carrier.pid).collect()
    }

    fn segment() -> (tempfile::TempDir, SegmentFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&folder.path().join("r"), 7).unwrap();
        (folder, file)
    }

    #[test]
    fn a_process_that_has_made_no_call_carries_by_its_environment() {
        let (_folder, file) = segment();
        assert!(carriers(&file).is_empty());
        let child = shell("", file.path());
        let other = shell("", &file.path().with_extension("x"));
        assert_eq!(carriers(&file), [child.0.id()]);
        drop((child, other));
        assert!(carriers(&file).is_empty());
    }

    #[test]
    fn a_process_that_becomes_another_program_is_never_missed() {
        let (_folder, file) = segment();
        // It shows no environment for a moment, again and again.
        let script = "[ \"$1\" -gt 300 ] && exec sleep 600; exec sh \"$2\" $(($1 + 1)) \"$2\"";
        let place = file.path().with_file_name("again");
        File::create(&place).unwrap().write_all(script.as_bytes()).unwrap();
        let mut child = Ended(
            Command::new("sh")
                .arg(&place)
                .args(["0"])
                .arg(&place)
                .env(VARIABLE, file.path())
                .spawn()
                .unwrap(),
        );
        while carriers(&file).is_empty() {
            std::thread::yield_now();
        }
        for _ in 0..200 {
            assert!(child.0.try_wait().unwrap().is_none(), "it has ended");
            assert_eq!(carriers(&file), [child.0.id()]);
        }
    }

    /// Its environment overwritten, and the shim's name among its mappings.
    const UNCLEAR: &str = "import ctypes, mmap, os, sys\n\
        file = open(sys.argv[1], 'r+b'); seen = mmap.mmap(file.fileno(), 0)\n\
        if len(sys.argv) > 2:\n    os.fork() and os._exit(0); os.setsid()\n\
        start, end = map(int, open('/proc/self/stat').read().rsplit(')', 1)[1].split()[47:49])\n\
        ctypes.memmove(start, b'title'.ljust(end - start, b'\\0'), end - start)\n\
        print(os.getpid(), flush=True); sys.stdin.read()\n";

    #[test]
    fn a_process_of_which_nothing_says_where_it_comes_from_is_only_possible() {
        let (folder, file) = segment();
        let shim = folder.path().join(libraries::SHIM);
        fs::write(&shim, [0; 64]).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let origin = SegmentOrigin { path: file.path(), name: file.name(), uid };
        for is_orphan in [false, true] {
            let mut command = Command::new("python3");
            command.args(["-c", UNCLEAR]).arg(&shim).args(is_orphan.then_some("fork"));
            let mut child = Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
            let mut pid = String::new();
            BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut pid).unwrap();
            let pid = pid.trim().parse().unwrap();
            if is_orphan {
                child.0.wait().unwrap();
            }
            let processes = Processes::now();
            let (_, carries) = processes.carries(&processes.all[processes.by_pid[&pid]], origin).unwrap();
            assert_eq!(carries, if is_orphan { Carries::Possibly } else { Carries::Yes });
            let found = processes.carrying(origin);
            assert!(found.processes.iter().any(|carrier| carrier.pid == pid), "{found:?}");
            // What other tests start may be unclear too.
            assert!(found.possible >= usize::from(is_orphan), "{found:?}");
            assert!(found.certain() >= usize::from(!is_orphan), "{found:?}");
        }
    }

    #[test]
    fn a_process_that_ended_while_it_was_looked_at_carries_nothing() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process(child.id());
        let stat = process.stat().unwrap();
        child.kill().unwrap();
        // Ended and not waited for, then gone.
        while !process.stat().unwrap().is_dead() {
            std::thread::yield_now();
        }
        assert_eq!(carried(process, &stat), Carried::Nothing);
        child.wait().unwrap();
        assert_eq!(carried(process, &stat), Carried::Nothing);
    }

    #[test]
    fn a_users_program_with_roots_rights_carries_no_segment_of_root() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        const USER: u32 = 65_534;
        let (folder, file) = segment();
        let roots = folder.path().join("roots");
        fs::copy("/bin/sleep", &roots).unwrap();
        for (path, mode) in [(folder.path(), 0o755), (&roots, 0o4755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let user = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()];
        // In a session of its own: all of one that root began are root's business.
        let mut command = Command::new("setsid");
        let child =
            command.arg("setpriv").args(user).arg(&roots).arg("600").env(VARIABLE, file.path()).spawn();
        let Ok(mut child) = child.map(Ended) else { return eprintln!("skipped: no setsid") };
        let process = Process(child.0.id());
        let mut looks = 0..500;
        while process.users() != Some((USER, 0)) {
            if child.0.try_wait().unwrap().is_some() || looks.next().is_none() {
                return eprintln!("skipped: no program gains rights in the folder of this test");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(process.variable(VARIABLE).as_deref(), Some(file.path().as_os_str()));
        assert_eq!(process.uid(), Some(0), "it is shown as root's");
        // Others may be unclear.
        assert!(!carriers(&file).contains(&child.0.id()));
    }

    #[test]
    fn an_overwritten_environment_differs_from_an_intact_one() {
        for intact in [&b""[..], b"A=1\0", b"A=1\0B=\0", b"A=1\0\0\0B=2\0"] {
            assert!(is_intact(intact), "{intact:?}");
        }
        for other in [&b"\0\0"[..], b"title\0\0\0", b"model=x\0\0\0", b"title\0"] {
            assert!(!is_intact(other), "{other:?}");
        }
    }

    #[test]
    fn a_folder_is_used_by_those_whose_environment_names_it() {
        let (folder, file) = segment();
        let owner = std::process::id();
        let uses = |name: &str| Processes::now().use_folder(&folder.path().join(name), owner);
        let child = shell("", &folder.path().join("machine/libcuda.so"));
        assert!(uses("machine") && !uses("other"));
        drop(child);
        assert!(!uses("machine"));
        drop(file);
    }
}
