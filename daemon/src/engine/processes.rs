//! The effects of the engine on real processes, signals and files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, sync_channel};
use std::thread;
use std::time::Duration;

use radrm_attempt::{HeldProcess, below, kill_below, kill_tree};
use radrm_base::reason;
use radrm_collector::{MemoryCount, MemoryMeter};
use radrm_limits::cgroup;
use radrm_limits::cgroup_v2::{Delegated, Group, Refusal};
use radrm_limits::jobs;
use radrm_os::nvml::NvmlSource;
use radrm_os::{Process, ProcessIdentity};
use radrm_protocol::wire::HostLimits;
use radrm_scheduler_core::HostNeed;
use radrm_telemetry::Segment;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::cleaning;
use super::effects::{Attempts, Helpers, Node, Owner};
use super::paths::Paths;
use super::sweep::Marks;
use crate::attempt::Attempt;
use crate::descriptors;
use crate::disk_use::Measurer;
use crate::dry_run::{self, NodeLoad};
use crate::error::DaemonError;
use crate::hooks::{self, Call};
use crate::host;
use crate::job_output::Disk;
use crate::limited_groups::{Groups, LimitedGroups};
use crate::message::Message;
use crate::mps;
use crate::status::{self, Report, Status};
use crate::supervisor::{self, Order, WORD};
use crate::suspend::{self, answer};
use crate::time;
use crate::watch::Watch;

/// Real processes.
pub(super) struct Processes {
    paths: Paths,
    watch: Watch,
    measurer: Measurer,
    /// Supervisors that are this process's children.
    children: BTreeMap<Attempt, Child>,
    /// Helpers that dry-run jobs.
    dry_runs: BTreeMap<u64, dry_run::Running>,
    /// Helpers that hold control daemons of MPS, by user and MIG instance, and those that are to end.
    mps: BTreeMap<mps::Client, mps::Running>,
    ending: Vec<Child>,
    /// Control groups for jobs.
    groups: Result<Delegated, Refusal>,
    /// The NVML by which the driver limits them, if it can.
    fence: Option<NvmlSource>,
    /// Meter of the host's memory, if what it counts is compared with what the host has.
    memory: Option<MemoryMeter>,
    /// Processes of the node are being read: false and true with acquire and release, so that one thread does it.
    reading: Arc<AtomicBool>,
    /// Groups of users are being looked up: false and true with acquire and release, so that one thread does it.
    looking_up: Arc<AtomicBool>,
}

impl Processes {
    /// # Errors
    /// No thread can be had.
    pub(super) fn new(
        paths: Paths,
        watch: Watch,
        fence: Option<NvmlSource>,
        memory: Option<MemoryMeter>,
    ) -> Result<Self, DaemonError> {
        let measurer = Measurer::start(watch.sender())?;
        Ok(Self {
            paths,
            watch,
            measurer,
            children: BTreeMap::new(),
            dry_runs: BTreeMap::new(),
            mps: BTreeMap::new(),
            ending: Vec::new(),
            groups: Delegated::prepare(),
            fence,
            memory,
            reading: Arc::default(),
            looking_up: Arc::default(),
        })
    }
}

impl Attempts for Processes {
    fn start(
        &mut self,
        attempt: Attempt,
        owner: Owner,
        order: &Order,
    ) -> Result<Option<ProcessIdentity>, DaemonError> {
        let folder = self.paths.folder(attempt.0);
        make_folder(&folder, owner).map_err(|error| DaemonError::not(&folder, " cannot be made", &error))?;
        // Of an attempt with this number that did not start.
        let _ = fs::remove_file(self.paths.asked(attempt));
        if let Some(barrier) = &order.barrier {
            barrier.make().map_err(|error| DaemonError::file(&barrier.path, &error))?;
        }
        let path = self.paths.status(attempt);
        let file = status::make(&path).map_err(|error| DaemonError::file(&path, &error))?;
        let log = order.prolog.as_ref().map_or_else(Stdio::null, |_| Stdio::inherit());
        let child = supervisor::helper(WORD, order)
            .map_err(DaemonError::NoMemory)?
            .arg(time::word())
            .args(descriptors::word())
            .stdout(file)
            .stderr(log)
            .spawn()
            .map_err(DaemonError::NoProcess)?;
        if let Some(memory) = &mut self.memory
            && let Err(error) = memory.begin(&memory_name(attempt), child.id())
        {
            // That of this job is unknown; the next one may fit again.
            let sentence = format!("memory traffic of job {} is n/a: {error}", attempt.0);
            radrm_text::output::say(crate::process::NAME, &sentence);
        }
        let who = ProcessIdentity::of(child.id());
        self.children.insert(attempt, child);
        if let Some(who) = who {
            self.watch.add(attempt, who);
        }
        Ok(who)
    }

    fn launcher(&self) -> Result<String, DaemonError> {
        let own = std::env::current_exe().map_err(DaemonError::NoProcess)?;
        let file = own.with_file_name("radrm-run");
        match file.is_file() {
            true => Ok(file.display().to_string()),
            false => Err(DaemonError::NoLauncher(file)),
        }
    }

    fn watch(&mut self, attempt: Attempt, supervisor: ProcessIdentity) {
        self.watch.add(attempt, supervisor);
    }

    fn reap(&mut self, attempt: Attempt) {
        if let Some(mut child) = self.children.remove(&attempt) {
            let _ = child.wait();
        }
    }

    fn status(&mut self, attempt: Attempt) -> io::Result<Option<Report>> {
        let path = self.paths.status(attempt);
        status::read(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {}", path.display(), reason(&error))))
    }

    fn lives(&self, who: ProcessIdentity) -> bool {
        who.lives()
    }

    fn segment(&self, launcher: ProcessIdentity) -> Option<Segment> {
        // Of a job whose segment cannot be opened nothing is known but that it runs; clients are answered all the same.
        descriptors::is_room().then(|| segment_of(Process(launcher.pid)))?
    }

    fn signal_job(
        &mut self,
        attempt: Attempt,
        supervisor: Option<ProcessIdentity>,
        program: Option<ProcessIdentity>,
        number: i32,
    ) {
        // Before: the first process may end by it at once, and the others are then waited for.
        let _ = status::put_stop(&self.paths.status(attempt), number);
        // Also before: a handler of the signal may ask.
        let _ = ask(&self.paths.asked(attempt));
        if number == 0 {
            return;
        }
        let all = supervisor.map(|supervisor| below(supervisor.pid)).unwrap_or_default();
        // As a terminal would: the launcher in the group passes nothing on.
        let group = program.filter(|program| radrm_attempt::signal_group(*program, number));
        let is_outside = |who: &ProcessIdentity| {
            let stat = Process(who.pid).stat();
            stat.is_some_and(|stat| group.is_none_or(|leader| stat.group != leader.pid))
        };
        let is_for = |who: &ProcessIdentity| number == libc::SIGTERM || Process(who.pid).catches(number);
        let outside = all.into_iter().filter(|who| is_outside(who) && is_for(who));
        for held in outside.filter_map(HeldProcess::of) {
            held.signal(number);
        }
    }

    fn kill_below(&mut self, supervisor: ProcessIdentity, launcher: Option<ProcessIdentity>) {
        kill_below(supervisor, |pid| launcher.is_some_and(|who| who.pid == pid || is_like_witness(who, pid)));
    }

    fn kill_again(&mut self, supervisor: ProcessIdentity, launcher: Option<ProcessIdentity>, last: bool) {
        kill_but(supervisor, launcher);
        let signal = if last && is_stuck(supervisor) { libc::SIGKILL } else { libc::SIGCONT };
        if let Some(held) = HeldProcess::of(supervisor) {
            held.signal(signal);
        }
    }

    fn sweep(&mut self, attempt: Attempt, uid: Option<u32>, status: &Status) -> Option<BTreeSet<u32>> {
        if status.end.is_some() {
            return Some(BTreeSet::new());
        }
        self.remove_group(attempt);
        let killed = status.program.map(kill_tree).unwrap_or_default();
        let (Some(supervisor), Some(uid)) = (status.supervisor, uid) else { return Some(killed) };
        let (to, below) = (self.watch.sender(), killed.clone());
        let late = move |found: BTreeSet<u32>| drop(to.send(Message::Swept(attempt, &below | &found)));
        let found = Marks::new(uid, supervisor, attempt).kill_all(late)?;
        Some(&killed | &found)
    }

    fn clear(&mut self, attempt: Attempt) {
        if attempt.1 == 0 {
            self.dry_runs.remove(&attempt.0);
        }
        self.remove_group(attempt);
        if let Some(memory) = &mut self.memory {
            memory.end(&memory_name(attempt));
        }
        let _ = fs::remove_file(self.paths.barrier(attempt));
        let _ = fs::remove_file(self.paths.epilog(attempt));
        let _ = fs::remove_file(self.paths.helper(attempt));
        let _ = fs::remove_file(self.paths.status(attempt));
    }

    fn clear_others(&mut self, kept: &BTreeMap<u64, u32>) {
        for attempt in self.paths.attempts() {
            // What cannot be read now is left to the next start.
            let is_kept = kept.get(&attempt.0) == Some(&attempt.1)
                || !matches!(self.status(attempt), Ok(Some(Report { kept: false, .. }) | None));
            if !is_kept {
                self.clear(attempt);
            }
        }
    }
}

impl Helpers for Processes {
    fn start_helper(&mut self, attempt: Attempt, order: suspend::Order) -> Result<(), DaemonError> {
        answer::run(&self.paths.helper(attempt), attempt, order, self.watch.sender())
    }

    fn start_epilog(&mut self, attempt: Attempt, call: &Call) -> Result<(), DaemonError> {
        let to = self.watch.sender();
        let report = move |result| drop(to.send(Message::EpilogEnded(attempt, result)));
        hooks::start(&self.paths.epilog(attempt), call, report)
    }

    fn start_dry_run(&mut self, job: u64, order: &dry_run::Order) -> Result<(), DaemonError> {
        let to = self.watch.sender();
        let report = move |answer| drop(to.send(Message::DryRunEnded(job, answer)));
        let running = dry_run::start(&self.paths.status((job, 0)), order, report)?;
        self.dry_runs.insert(job, running);
        Ok(())
    }

    fn end_dry_run(&mut self, job: u64) {
        if let Some(running) = self.dry_runs.get(&job) {
            running.end();
        }
    }

    fn sweep_dry_runs(&mut self, uid: &dyn Fn(u64) -> Option<u32>) {
        for job in self.paths.dry_runs() {
            let attempt = (job, 0);
            if let (Some(helper), Some(uid)) = (dry_run::left(&self.paths.status(attempt)), uid(job)) {
                // One that takes long goes on: a dry run holds no GPU.
                Marks::new(uid, helper, attempt).kill_all(drop);
            }
            self.clear(attempt);
        }
    }

    fn serve_mps(&mut self, client: mps::Client, order: &mps::Order) -> Result<mps::Ready, DaemonError> {
        if let Some(ready) = self.mps.get_mut(&client).and_then(mps::Running::ready) {
            return Ok(ready);
        }
        let mut running = mps::Running::start(&self.paths.mps(&client), order)?;
        let ready = running.ready().ok_or(DaemonError::JobGone);
        self.mps.insert(client, running);
        ready
    }

    fn keep_mps(&mut self, clients: &BTreeSet<mps::Client>) {
        let unused: Vec<mps::Client> =
            self.mps.keys().filter(|client| !clients.contains(client)).cloned().collect();
        let ended = unused.iter().filter_map(|client| self.mps.remove(client));
        self.ending.extend(ended.map(mps::Running::end));
        // One that is over is waited for, so that its jobs see that.
        self.mps.retain(|_, running| running.ready().is_some());
        self.ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Node for Processes {
    fn jump_ms(&self) -> Option<u64> {
        cleaning::jump_ms(&self.paths.clock())
    }

    fn load(&self) -> NodeLoad {
        NodeLoad::now()
    }

    fn read_processes(&mut self) {
        // A node of thousands of processes takes as many file accesses: no answer to a client waits for that.
        if self.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let memory = self.memory.as_ref().and_then(MemoryMeter::node);
        let (to, reading) = (self.watch.sender(), Arc::clone(&self.reading));
        let read = move || {
            let snapshot = host::Snapshot::now(memory);
            reading.store(false, Ordering::Release);
            let _ = to.send(Message::Processes(snapshot));
        };
        if thread::Builder::new().name("processes".into()).spawn(read).is_err() {
            self.reading.store(false, Ordering::Release);
        }
    }

    fn limit_host(
        &mut self,
        attempt: Attempt,
        need: HostNeed,
        is_fenced: bool,
    ) -> Result<Option<Group>, DaemonError> {
        let Ok(groups) = &self.groups else { return Ok(None) };
        let is_limited = need != HostNeed::default() && groups.why_none().is_none();
        if !is_limited && !is_fenced {
            return Ok(None);
        }
        let group = groups.group(attempt.0, attempt.1);
        let made = groups.make(&group, need.cpu_milli, need.memory.0);
        made.map_err(|why| DaemonError::NoGroup { job: attempt.0, why })?;
        Ok(Some(group))
    }

    fn host_limits(&self) -> HostLimits {
        match &self.groups {
            Ok(groups) => HostLimits {
                cpu: groups.cpu,
                memory: groups.memory,
                why: groups.why_none().map(str::to_owned),
            },
            Err(why) => HostLimits { why: Some(why.to_string()), ..HostLimits::default() },
        }
    }

    fn memory_count(&self, attempt: Attempt, processes: &[u32]) -> Option<MemoryCount> {
        self.memory.as_ref()?.job(&memory_name(attempt), processes)
    }

    fn memory_meter(&self) -> Option<&MemoryMeter> {
        self.memory.as_ref()
    }

    fn has_groups(&self) -> bool {
        self.groups.is_ok()
    }

    fn disk(&self) -> Option<Disk> {
        rustix::fs::statvfs(self.paths.root()).ok().map(|found| Disk::of(&found))
    }

    fn measure_disk(&self, job: u64, uid: u32) {
        self.measurer.ask(job, uid, self.paths.folder(job));
    }

    fn look_up_groups(
        &self,
        limited: &Arc<LimitedGroups>,
        accounts: Vec<(u32, String)>,
        patience: Duration,
    ) -> Vec<(u32, Groups)> {
        // One look-up at a time: what names accounts may not answer for long.
        if self.looking_up.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        let (to, looking_up) = (self.watch.sender(), Arc::clone(&self.looking_up));
        let limited = Arc::clone(limited);
        // A channel without room: what is sent was received.
        let (soon, found_soon) = sync_channel(0);
        let look_up = move || {
            let found = limited.of_all(accounts);
            looking_up.store(false, Ordering::Release);
            if let Err(SendError(found)) = soon.send(found) {
                let _ = to.send(Message::Groups(found));
            }
        };
        if thread::Builder::new().name("groups".into()).spawn(look_up).is_err() {
            self.looking_up.store(false, Ordering::Release);
        }
        found_soon.recv_timeout(patience).unwrap_or_default()
    }

    fn clean(&mut self, jobs: Vec<u64>, age_ms: u64, jump_ms: u64) -> bool {
        let folders: Vec<_> = jobs.into_iter().map(|job| (job, self.paths.folder(job))).collect();
        !folders.is_empty() && cleaning::start(folders, age_ms, jump_ms, self.watch.sender())
    }
}

impl Processes {
    /// Kills what is left in the control group of an attempt, and removes it.
    fn remove_group(&self, attempt: Attempt) {
        let Ok(groups) = &self.groups else { return };
        let group = groups.group(attempt.0, attempt.1);
        let Some(source) = self.fence.clone().filter(|_| group.directory().is_dir()) else {
            group.remove();
            return;
        };
        group.kill();
        // A call of the driver may take long. A group that stays, because this thread cannot be had, is empty.
        let clear = move || {
            let _ = cgroup::clear(&source, group.directory());
            group.remove();
        };
        let _ = thread::Builder::new().name("fence".into()).spawn(clear);
    }
}

/// Name by which the meter of the host's memory counts an attempt: resctrl has a group of that name.
fn memory_name((job, attempt): Attempt) -> String {
    format!("radrm.{job}.{attempt}")
}

/// The segment that a launcher holds open, and that is its user's.
pub(crate) fn segment_of(launcher: Process) -> Option<Segment> {
    jobs::segment_of(launcher)
}

/// The job's folder is its user's, who reads output and profiles there. One that was there may have been left by a
/// daemon that was killed before it gave it away; one of another user is of another job.
fn make_folder(folder: &Path, owner: Owner) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    if rustix::process::geteuid().is_root() {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        let folder = options.open(folder)?;
        if ![0, owner.uid].contains(&folder.metadata()?.uid()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is another user's"));
        }
        fchown(folder, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(())
}

/// Makes the file by which programs of an attempt see that it is asked to stop. It lies in a folder of the job's user:
/// nothing that is there is followed or opened.
fn ask(file: &Path) -> io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    match mknodat(CWD, file, FileType::RegularFile, mode, 0) {
        Err(error) if error != Errno::EXIST => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns true for a process that may be the witness of this launcher: the job's program can have its name, too, and is spared by
/// the first kill then.
fn is_like_witness(launcher: ProcessIdentity, pid: u32) -> bool {
    Process(pid).parent() == Some(Process(launcher.pid)) && Process(pid).name() == "radrm-run"
}

/// Kills everything below a supervisor but its launcher, whatever it is called.
fn kill_but(supervisor: ProcessIdentity, launcher: Option<ProcessIdentity>) {
    kill_below(supervisor, |pid| launcher.is_some_and(|who| who.pid == pid));
}

/// Returns true for a supervisor that knows its job's end and waits until the disk takes it.
fn waits_for_disk(pid: u32) -> bool {
    Process(pid).name().as_bytes() == supervisor::WAITS_FOR_DISK.to_bytes()
}

/// Returns true if a supervisor does not end by itself: it is stopped, or waits for something else than what is
/// below it.
fn is_stuck(supervisor: ProcessIdentity) -> bool {
    let state = |pid: u32| Process(pid).state();
    match state(supervisor.pid) {
        Some(b'T' | b't') => true,
        Some(b'S') if waits_for_disk(supervisor.pid) => false,
        Some(b'S') => below(supervisor.pid).iter().all(|who| matches!(state(who.pid), None | Some(b'Z'))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_left_by_a_killed_daemon_is_given_to_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("7");
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let root = rustix::process::geteuid().is_root();
        let user = if root { 65_534 } else { rustix::process::geteuid().as_raw() };
        make_folder(&folder, Owner { uid: user, gid: user }).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().uid(), user);
        if root {
            let link = dir.path().join("8");
            let other = make_folder(&folder, Owner { uid: user - 1, gid: user - 1 });
            assert!(other.is_err(), "another job's of another user");
            assert_eq!(fs::metadata(&folder).unwrap().uid(), user);
            std::os::unix::fs::symlink("/", &link).unwrap();
            assert!(make_folder(&link, Owner { uid: 0, gid: 0 }).is_err(), "nothing else is given away");
        }
    }

    #[test]
    fn a_supervisor_that_waits_for_the_disk_is_not_stuck() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(supervisor::WAITS_FOR_DISK.to_str().unwrap());
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let start = |program: &Path| {
            let child = std::process::Command::new(program).arg("600").spawn().unwrap();
            while Process(child.id()).state() != Some(b'S') {
                thread::sleep(Duration::from_millis(1));
            }
            child
        };
        let (mut waits, mut other) = (start(&program), start(Path::new("sleep")));
        let is_stuck = |child: &Child| is_stuck(ProcessIdentity::of(child.id()).unwrap());
        let found = (is_stuck(&waits), is_stuck(&other));
        for child in [&mut waits, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, (false, true));
    }

    /// The name is that of the launcher and its witness, which the first kill spares.
    #[test]
    fn a_program_that_is_called_radrm_run_is_killed_and_so_is_a_stopped_launcher() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("radrm-run");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut supervisor = std::process::Command::new("/bin/sh")
            .args(["-c", "\"$0\" 600 & \"$0\" 601 & wait"])
            .arg(&program)
            .spawn()
            .unwrap();
        let who = ProcessIdentity::of(supervisor.id()).unwrap();
        let alive = || {
            let all = below(who.pid).into_iter();
            all.filter(|who| !matches!(Process(who.pid).state(), None | Some(b'Z')))
        };
        let named = || alive().filter(|who| Process(who.pid).name() == "radrm-run").collect::<Vec<_>>();
        while named().len() < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        let (launcher, other) = (named()[0], named()[1]);
        assert!(HeldProcess::of(launcher).unwrap().signal(libc::SIGSTOP));
        assert!(!is_like_witness(launcher, other.pid), "it is not below the launcher");
        let is_alive = |one: ProcessIdentity| alive().any(|who| who == one);
        kill_but(who, Some(launcher));
        while is_alive(other) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(is_alive(launcher));
        kill_but(who, None);
        while is_alive(launcher) {
            thread::sleep(Duration::from_millis(1));
        }
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
    }

    #[test]
    fn a_request_to_stop_follows_no_link_of_the_jobs_user() {
        let dir = tempfile::tempdir().unwrap();
        let (asked, other) = (dir.path().join("1.checkpoint"), dir.path().join("other"));
        std::os::unix::fs::symlink(&other, &asked).unwrap();
        ask(&asked).unwrap();
        assert!(!other.exists(), "made through a link");
        fs::remove_file(&asked).unwrap();
        ask(&asked).unwrap();
        ask(&asked).unwrap();
        assert!(asked.is_file());
    }
}
