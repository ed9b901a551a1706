//! Carrying out what was decided.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use radrm_scheduler_core::{Action, Event, Evidence, JobId, Outcome, Reason, Signal, Verdict};
use rusqlite::Transaction;

use super::{Engine, Live, Note, Todo};
use crate::daemon::descriptors;
use crate::daemon::keeper::{self, Order, User, WORD};
use crate::daemon::status::{self, End, Status, Who};
use crate::daemon::store::{self, Entry, NewRun, Stage};
use crate::daemon::suspend::{Step, Suspension};
use crate::daemon::watch::Attempt;
use crate::daemon::{needs, time};
use crate::limits::gpus::Gpu;
use crate::quota::proc::Process;

/// After a kill, what has not gone is killed again, and then the launcher too.
const AGAIN: Duration = Duration::from_secs(2);
/// After so many times the keeper itself is looked at.
const ENOUGH: u32 = 5;

impl Engine {
    /// Takes up one decision: into the entries now, into the world after it was written.
    pub(super) fn decided(&mut self, action: Action, reason: &Reason) {
        let now = time::now().0;
        match action {
            Action::Start { job, attempt, devices, limit, reserved } => {
                let devices: Vec<String> = devices.iter().map(|device| self.uuid(*device)).collect();
                let boot = self.boot.clone();
                let limit = limit.filter(|_| !self.is_guess(job.0));
                let Some(entry) = self.entries.get_mut(&job.0) else { return };
                entry.stage = Stage::Starting;
                (entry.attempt, entry.boot, entry.devices) = (attempt, boot, devices);
                entry.limit = limit.map(|bytes| bytes.0);
                entry.reserved = reserved.map(|bytes| bytes.0);
                entry.started_ms = None;
                entry.suspension = Suspension::default();
                self.say(job.0, format!("attempt {attempt}: {reason}"));
                self.missing.remove(&job.0);
                self.todo.push_back(Todo::Start((job.0, attempt)));
            }
            Action::SetAside { job, .. } => self.say(job.0, reason.to_string()),
            Action::SetBudget { job, budget } => self.budget(job.0, budget, reason),
            Action::Signal { job, signal } => self.told_to_stop(job.0, signal, reason),
            Action::Suspend { job } => {
                self.say(job.0, format!("to be suspended: {reason}"));
                self.suspend(job.0);
            }
            Action::Resume { job, .. } => {
                self.say(job.0, format!("to be brought back: {reason}"));
                self.resume(job.0);
            }
            Action::Requeue { job, attempts, ooms, floor } => {
                self.keep_turn(job.0);
                if let Some(entry) = self.entries.get_mut(&job.0) {
                    entry.stage = Stage::Waiting;
                    (entry.attempt, entry.ooms, entry.floor) = (attempts, ooms, floor.0);
                    (entry.limit, entry.reserved) = (None, None);
                    entry.suspension = Suspension::default();
                }
                if matches!(reason, Reason::RanOutOfMemory { .. }) {
                    self.counters.ooms += 1;
                }
                self.say(job.0, format!("back in the queue: {reason}"));
            }
            Action::End { job, verdict: Verdict::Impossible }
                if self.waits_for_lost(job.0) || self.was_possible(job.0, reason) => {}
            Action::End { job, verdict } => {
                if let Some(entry) = self.entries.get_mut(&job.0) {
                    entry.stage = Stage::Ended;
                    entry.verdict = Some(verdict);
                    entry.ended_ms = Some(now);
                    if entry.first_start_ms.is_some() {
                        self.counters.over += 1;
                        self.counters.ran_ms += entry.ran_ms;
                        let there = now.saturating_sub(entry.submitted_ms);
                        self.counters.waited_ms += there.saturating_sub(entry.ran_ms);
                    }
                    if matches!(verdict, Verdict::Ended(Outcome::OutOfMemory { .. })) {
                        entry.ooms += 1;
                        self.counters.ooms += 1;
                    }
                }
                match verdict {
                    Verdict::Ended(Outcome::Exited { code: 0 }) => self.counters.succeeded += 1,
                    Verdict::Cancelled => self.counters.cancelled += 1,
                    _ => self.counters.failed += 1,
                }
                self.say(job.0, super::rows::end_words(&verdict, reason));
            }
            Action::WakeAt { at } => self.wake = Some(at),
        }
    }

    /// Whether only an estimate tells what a job needs: a limit at that would break it.
    fn is_guess(&self, job: u64) -> bool {
        let estimated = |entry: &&Entry| {
            let spec = &entry.spec;
            spec.mem.or(spec.mem_upper).is_none() && (spec.estimate.is_some() || spec.summary.is_some())
        };
        self.entries.get(&job).filter(estimated).is_some_and(|entry| self.known(entry).guess)
    }

    /// Since when a job waits outlives the daemon: one whose slot is over stays behind those that waited.
    pub(super) fn keep_turn(&mut self, job: u64) {
        let since = self.state.job(JobId(job)).map(|view| view.lined_up.0);
        if let Some(entry) = self.entries.get_mut(&job) {
            entry.lined_up_ms = since.filter(|since| *since != entry.submitted_ms);
        }
        self.touch(job);
    }

    /// What was decided and is written down is done.
    pub(super) fn carry_out(&mut self) {
        for _ in 0..self.todo.len() {
            let Some(todo) = self.todo.pop_front() else { break };
            match todo {
                Todo::Start(attempt) => {
                    let Some(entry) = self.entries.get(&attempt.0) else { continue };
                    if entry.stage != Stage::Starting || entry.attempt != attempt.1 {
                        continue;
                    }
                    match self.launch(attempt) {
                        Ok(()) => {
                            self.troubles.remove("start");
                            self.counters.started += 1;
                        }
                        Err(sentence) => {
                            // The machine's fault, not the job's: it is tried again.
                            self.trouble("start", format!("jobs cannot be started: {sentence}"));
                            self.todo.push_back(todo);
                        }
                    }
                }
                Todo::Suspension(attempt) => self.start_helper(attempt),
                Todo::Signal(attempt, signal, held) => self.send(attempt, signal, held),
                Todo::Clear(attempt) => {
                    let _ = fs::remove_file(self.helper_file(attempt));
                    let _ = fs::remove_file(self.status_file(attempt));
                }
            }
        }
    }

    fn launch(&mut self, attempt: Attempt) -> Result<(), String> {
        let order = self.order(attempt)?;
        let path = self.status_file(attempt);
        let file = status::make(&path)
            .map_err(|error| format!("{}: {}", path.display(), crate::output::reason(&error)))?;
        let spoken = keeper::spoken(&order)
            .map_err(|error| format!("no memory: {}", crate::output::reason(&error)))?;
        let child = Command::new("/proc/self/exe")
            .args([WORD, &time::word()])
            .args(descriptors::word())
            .env_clear()
            .current_dir("/")
            .stdin(spoken)
            .stdout(file)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("no process: {}", crate::output::reason(&error)))?;
        let who = Who::of(child.id());
        if let Some(who) = who {
            self.watch.add(attempt, who);
        }
        self.live.insert(attempt.0, Live { keeper: who, child: Some(child), ..Live::default() });
        if let Some(entry) = self.entries.get_mut(&attempt.0) {
            entry.stage = Stage::Running;
        }
        self.touch(attempt.0);
        Ok(())
    }

    fn order(&self, (job, attempt): Attempt) -> Result<Order, String> {
        let entry = self.entries.get(&job).ok_or("it is gone")?;
        let mut environment =
            self.store.environment(job).map_err(|error| format!("the queue cannot be read: {error}"))?;
        let own = ["CUDA_VISIBLE_DEVICES=", "RADRM_JOB=", "RADRM_ATTEMPT=", "RADRM_SEGMENT=", "RADRM_QUOTA="];
        environment.retain(|line| own.iter().all(|name| !line.starts_with(name)));
        environment.push(format!("CUDA_VISIBLE_DEVICES={}", entry.devices.join(",")));
        environment.extend(keeper::marks(job, attempt));
        let folder = self.folder(job);
        make_folder(&folder, entry.uid, entry.gid).map_err(|error| {
            format!("{} cannot be made: {}", folder.display(), crate::output::reason(&error))
        })?;
        let profile = folder.join(format!("{attempt}.radrm"));
        let launcher = launcher()?;
        let mut argv = vec![launcher, "--quiet".to_owned(), "-o".to_owned(), profile.display().to_string()];
        if let Some(machine) = &self.gpus.machine {
            argv.extend(["--machine".to_owned(), machine.display().to_string()]);
        }
        if let Some(limit) = entry.limit {
            argv.extend(["--mem-limit".to_owned(), format!("{limit}B")]);
        }
        if !self.config.kernels.is_empty() {
            argv.extend(["--kernels".to_owned(), self.config.kernels.clone()]);
        }
        argv.push("--".to_owned());
        argv.extend(entry.spec.command.iter().cloned());
        let root = rustix::process::geteuid().is_root();
        Ok(Order {
            argv,
            environment,
            cwd: entry.spec.cwd.clone(),
            user: root.then(|| User { name: entry.user.clone(), uid: entry.uid, gid: entry.gid }),
            umask: entry.spec.umask,
            output: super::rows::output(entry, &folder),
            error: entry.spec.error.clone(),
            profile,
        })
    }

    /// Sends a signal to a job, wherever it is on its way.
    pub(super) fn signal(&mut self, job: u64, signal: Signal) {
        let Some(live) = self.live.get_mut(&job) else {
            // Decided and not started: it never will be.
            let waiting =
                self.todo.iter().position(|todo| matches!(todo, Todo::Start((id, _)) if *id == job));
            if let Some(Todo::Start(attempt)) = waiting.and_then(|at| self.todo.remove(at)) {
                let (id, attempt) = attempt;
                self.step(Event::Finished { job: JobId(id), attempt, outcome: Outcome::NotStarted });
            }
            return;
        };
        if signal == Signal::Kill {
            live.killed = Some(Instant::now());
        }
        let number = match signal {
            Signal::Checkpoint(number) => number,
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
        };
        let (keeper, program) =
            (live.keeper.filter(|who| who.lives()), live.program.filter(|who| who.lives()));
        match (signal, keeper, program) {
            (Signal::Kill, Some(keeper), launcher) => kill_below(keeper, launcher),
            // The launcher's group, as a terminal would: the launcher itself passes it on or waits.
            (_, _, Some(program)) => {
                // SAFETY: a plain system call; the group's leader lives, so the group is the job's.
                unsafe { libc::kill(-program.pid.cast_signed(), number) };
            }
            // Its program is about to be there: the same signal again when it is.
            (_, Some(_), None) => live.sight.owed = Some(number),
            _ => {}
        }
    }

    /// Kills again what did not go. A keeper that its job has stopped goes on; where that does not help, or where it
    /// hangs with nothing below it, it is killed too, and what it leaves is swept up.
    pub(super) fn press(&mut self) {
        for live in self.live.values_mut() {
            if let (Some(last), Some(keeper)) = (live.killed, live.keeper)
                && last.elapsed() > AGAIN
                && keeper.lives()
            {
                live.killed = Some(Instant::now());
                live.presses += 1;
                kill_below(keeper, None);
                let stuck = live.presses >= ENOUGH && is_stuck(keeper);
                // SAFETY: a plain system call; the keeper was just seen to live.
                unsafe {
                    libc::kill(keeper.pid.cast_signed(), if stuck { libc::SIGKILL } else { libc::SIGCONT });
                }
            }
        }
    }

    /// An attempt is over: its keeper says how.
    pub(super) fn keeper_ended(&mut self, (job, attempt): Attempt) {
        let Some(mut live) = self.live.remove(&job) else { return };
        if let Some(child) = &mut live.child {
            let _ = child.wait();
        }
        if self.entries.get(&job).is_none_or(|entry| entry.attempt != attempt) {
            return;
        }
        let path = self.status_file((job, attempt));
        let status = match status::look(&path) {
            Ok(look) => look.unwrap_or_default().status,
            Err(error) => {
                self.trouble("status", format!("{}: {}", path.display(), crate::output::reason(&error)));
                // Looked for again, as one of which no keeper is known.
                self.live.insert(job, Live { keeper: None, child: None, ..live });
                return;
            }
        };
        self.troubles.remove("status");
        let status = Status { keeper: status.keeper.or(live.keeper), ..status };
        self.sweep((job, attempt), &status);
        if self.doubt((job, attempt), &status, live.told) {
            return;
        }
        self.attempt_ended((job, attempt), &status, live.told);
    }

    /// Tells the scheduler, and keeps what was measured.
    pub(super) fn attempt_ended(&mut self, (job, attempt): Attempt, status: &Status, told: bool) {
        // What was left by one whose keeper was killed while there was no daemon.
        self.sweep((job, attempt), status);
        let id = JobId(job);
        if let Some(program) = status.program.filter(|_| !told) {
            self.started(job, attempt, program.at_ms);
        }
        let end = status.end.clone().unwrap_or_else(|| match status.program {
            Some(_) => End { signal: Some(libc::SIGKILL), at_ms: time::now().0, ..End::default() },
            // Nothing of it ran.
            None => End { lost: true, ..End::default() },
        });
        let mut end = end;
        if end.from_log && end.oom == Some(0) {
            // How much it was is not known: as much as it could have.
            let entry = self.entries.get(&job);
            let first = entry.and_then(|entry| entry.devices.first());
            let total = self.gpus.list.iter().find(|gpu| Some(&gpu.uuid) == first).map(|gpu| gpu.total);
            end.oom = entry.and_then(|entry| entry.limit).or(total);
        }
        let now = time::now().0;
        let mut seen = None;
        if let Some(entry) = self.entries.get_mut(&job) {
            let at = if end.at_ms > 0 { end.at_ms.min(now) } else { now };
            let mut ran_ms = entry.started_ms.take().map_or(0, |since| at.saturating_sub(since));
            entry.ran_ms += ran_ms;
            let suspension = std::mem::take(&mut entry.suspension);
            end.lost |= suspension.step == Step::Lost;
            ran_ms += suspension.ran_ms;
            entry.peak = end.peak.max(entry.peak);
            // One that ran out of memory says what does not suffice, if the shim saw it.
            let lacked = matches!(end.outcome(), Outcome::OutOfMemory { evidence: Evidence::Shim, .. });
            seen = match end.code {
                Some(0) => end.peak.map(|peak| (peak, true)),
                _ => end.oom.filter(|_| lacked).map(|least| (least, false)),
            };
            if let Some((peak, complete)) = seen {
                self.notes.push(Note::Run { job, peak, ran_ms, complete });
            }
        }
        self.never_told((job, attempt));
        if let Some(limit) = &end.limited {
            self.say(job, format!("a request for GPU memory was stopped by {limit}"));
        }
        if let Some(sentence) = &end.not_started {
            self.say(job, format!("not started: {sentence}"));
        }
        self.touch(job);
        self.todo.push_back(Todo::Clear((job, attempt)));
        // What becomes free is given away by what is known then: that is on disk first, with all that this end changes,
        // so that nothing of it counts twice where the daemon is killed here.
        let ended = self.entries.get(&job).filter(|_| seen.is_some()).cloned();
        let pause = ended.is_some() && !self.recovering;
        if pause {
            self.step(Event::Paused { paused: true });
        }
        self.step(Event::Finished { job: id, attempt, outcome: end.outcome() });
        if let Some(ended) = ended {
            self.write();
            self.tell_waiting(&ended);
        }
        if pause {
            self.step(Event::Paused { paused: false });
        }
    }

    /// The program is there.
    pub(super) fn started(&mut self, job: u64, attempt: u32, at_ms: u64) {
        let now = at_ms.min(time::now().0);
        if let Some(entry) = self.entries.get_mut(&job) {
            entry.started_ms = Some(now);
            entry.first_start_ms.get_or_insert(now);
            entry.stage = Stage::Running;
        }
        if let Some(live) = self.live.get_mut(&job) {
            live.told = true;
        }
        self.touch(job);
        self.step(Event::Started { job: JobId(job), attempt });
    }
}

pub(super) fn words(signal: Signal) -> String {
    match signal {
        Signal::Checkpoint(number) => {
            format!("asked for a checkpoint ({})", crate::run::ending::signal_name(number))
        }
        Signal::Terminate => "told to end (SIGTERM)".to_owned(),
        Signal::Kill => "killed (SIGKILL)".to_owned(),
    }
}

/// `radrm-run`, from where this program is.
fn launcher() -> Result<String, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = own.with_file_name("radrm-run");
    if file.is_file() {
        Ok(file.display().to_string())
    } else {
        Err(format!("{} is missing", file.display()))
    }
}

/// The job's folder is its user's, who reads output and profiles there. One that was there may have been left by a
/// daemon that was killed before it gave it away.
fn make_folder(folder: &Path, uid: u32, gid: u32) -> std::io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    if rustix::process::geteuid().is_root() {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        fchown(options.open(folder)?, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Kills everything below a keeper but, at first, the launcher: that completes the profile.
fn kill_below(keeper: Who, launcher: Option<Who>) {
    let witness = |pid: u32| Process(pid).name() == "radrm-run";
    for pid in keeper::below(keeper.pid) {
        if launcher.is_some() && (launcher.is_some_and(|who| who.pid == pid) || witness(pid)) {
            continue;
        }
        // SAFETY: a plain system call. The keeper lives and waits for all below it, but may have just
        // waited for this one: the window is that of every kill by number.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
}

/// Whether a keeper does not end by itself: it is stopped, or waits for something else than what is below it.
fn is_stuck(keeper: Who) -> bool {
    let state = |pid: u32| Process(pid).state();
    match state(keeper.pid) {
        Some(b'T' | b't') => true,
        Some(b'S') => keeper::below(keeper.pid).iter().all(|pid| matches!(state(*pid), None | Some(b'Z'))),
        _ => false,
    }
}

/// Writes what stands beside the jobs' rows.
pub(super) fn write_note(
    tx: &Transaction<'_>,
    note: &Note,
    entries: &std::collections::BTreeMap<u64, Entry>,
    gpus: &[Gpu],
) -> rusqlite::Result<()> {
    match note {
        Note::Line(job, line) => store::note(tx, *job, line),
        Note::Usage(uid, gpu_ms, at_ms) => store::put_usage(tx, *uid, *gpu_ms, *at_ms),
        Note::Watched(gpu, figures) => store::put_watched(tx, gpu, figures),
        Note::Forget(job) => store::forget(tx, *job),
        Note::ForgetRuns => store::forget_runs(tx, store::RUNS),
        Note::Drained(gpu, drained) => store::put_drained(tx, gpu, *drained),
        Note::Run { job, peak, ran_ms, complete } => {
            let Some(entry) = entries.get(job) else { return Ok(()) };
            let run = NewRun {
                uid: entry.uid,
                program: &needs::program(&entry.spec),
                model: &model(entry, gpus),
                batch: needs::batch(&entry.spec),
                peak: *peak,
                ran_ms: *ran_ms,
                activity: entry.activity,
                complete: *complete,
            };
            store::put_run(tx, &run)
        }
    }
}

/// The model of the GPUs that it ran on.
pub(super) fn model(entry: &Entry, gpus: &[Gpu]) -> String {
    let first = entry.devices.first();
    gpus.iter().find(|gpu| Some(&gpu.uuid) == first).map(|gpu| gpu.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_folder_that_was_made_and_not_given_away_is_given_to_its_user() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("7");
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let root = rustix::process::geteuid().is_root();
        let user = if root { 65_534 } else { rustix::process::geteuid().as_raw() };
        make_folder(&folder, user, user).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().uid(), user);
        if root {
            let link = dir.path().join("8");
            std::os::unix::fs::symlink("/", &link).unwrap();
            assert!(make_folder(&link, 0, 0).is_err(), "nothing else is given away");
        }
    }
}
