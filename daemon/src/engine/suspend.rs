//! Jobs between running and suspended: what is reported to the scheduler, and what is done with them.
//!
//! The next step is on disk before a helper does it. A daemon that comes back takes a job that is suspended for
//! suspended, and brings back whatever was on its way in either direction: its memory is reserved in both cases.

use radrm_limits::mps::control::has_bound_daemon;
use radrm_limits::program::libraries;
use radrm_os::ProcessIdentity;
use radrm_scheduler_core::{Bytes, Event, Job, JobId, Millis, Phase, Reason, Signal, SuspendRefusal};

use super::Engine;
use super::outbox::Effect;
use super::suspend_manager::Outcome;
use crate::attempt::Attempt;
use crate::error::DaemonError;
use crate::store::Entry;
use crate::supervisor::User;
use crate::suspend::eligible::{self, Room};
use crate::suspend::{Answer, ByGpu, Order, Saved, Step, Task};

/// Bytes that a driver copies in a second, at the least; about a tenth of what is published.
const SLOWEST: u64 = 500_000_000;
/// Time for a helper beyond waiting and copying, s.
const EXTRA_S: u64 = 60;
impl Engine {
    /// Returns true if a job's processes hold nothing on their GPUs, or are about to.
    pub(super) fn is_off(&self, job: u64) -> bool {
        self.jobs.entry(job).is_some_and(|entry| entry.suspension.is_off())
    }

    /// Reports to the scheduler whether a job can be suspended, if that changed.
    pub(super) fn report_suspend(&mut self, job: u64) {
        let known = self.can_suspend(job);
        if self.jobs.is_live(job) && self.suspensions.is_news(job, known) {
            self.step(Event::SuspendKnown { job: JobId(job), suspend: known });
        }
    }

    /// Checks once more the jobs of which nothing is known yet and that may have to leave at once.
    pub(super) fn report_unknown(&mut self) {
        let jobs: Vec<u64> = self
            .jobs
            .lives()
            .iter()
            .filter(|(job, live)| live.program.is_some() && self.suspensions.is_unknown(**job))
            .map(|(job, _)| *job)
            .filter(|job| self.jobs.entry(*job).is_some_and(|entry| entry.spec.preemptible))
            .filter(|job| !self.is_off(*job))
            .collect();
        jobs.into_iter().for_each(|job| self.check_suspend(job));
    }

    /// Checks whether a job can be suspended, before anything is decided for it.
    pub(super) fn check_suspend(&mut self, job: u64) {
        if let Some(live) = self.jobs.live_mut(job) {
            live.observed.find_segment(live.program, &*self.effects);
        }
        self.report_suspend(job);
    }

    fn can_suspend(&self, job: u64) -> Result<(), SuspendRefusal> {
        let (Some(entry), Some(live)) = (self.jobs.entry(job), self.jobs.live(job)) else {
            return Err(SuspendRefusal::NoShim);
        };
        if !self.config.suspend.on {
            return Err(SuspendRefusal::Unsupported);
        }
        if entry.devices.iter().any(|uuid| uuid.starts_with("MIG-")) {
            return Err(SuspendRefusal::Mig);
        }
        let segment = live.observed.segment().ok_or(SuspendRefusal::NoShim)?;
        eligible::processes(segment, has_bound_daemon)?;
        self.host_room().has(live.observed.used_bytes())
    }

    fn host_room(&self) -> Room {
        let of = |step: Step| -> u64 {
            let entries = self.jobs.entries().begun().filter(|entry| entry.suspension.step == step);
            entries.flat_map(|entry| entry.suspension.bytes.values()).sum()
        };
        let pending = of(Step::Suspending);
        Room {
            // What is emulated holds no bytes that could be copied.
            available: self.node.gpus().machine.is_none().then(eligible::available),
            most: self.config.suspend.host_memory,
            taken: of(Step::Suspended) + of(Step::Resuming) + pending,
            pending,
        }
    }

    /// The scheduler wants a job suspended.
    pub(super) fn suspend(&mut self, job: u64) {
        let undoing = self.jobs.entry(job).is_some_and(|entry| entry.suspension.step == Step::Undoing);
        if undoing && self.jobs.is_live(job) {
            return self.suspensions.want(job);
        }
        if let Err(refusal) = self.can_suspend(job) {
            let attempt = self.jobs.attempt(job);
            return self.step(Event::SuspendFailed { job: JobId(job), attempt, refusal });
        }
        let seen = self.jobs.live(job).map(|live| live.observed.used.clone()).unwrap_or_default();
        let devices = self.jobs.entry(job).map(|entry| entry.devices.clone()).unwrap_or_default();
        // The helper asks NVML for each.
        let used =
            devices.into_iter().map(|uuid| (uuid.clone(), seen.get(&uuid).copied().unwrap_or(0))).collect();
        let whole = self.core.state.job(JobId(job)).is_some_and(|view| view.reserved.is_none());
        self.begin(job, Step::Suspending, |entry| {
            entry.suspension.bytes = used;
            entry.suspension.whole = whole;
            entry.suspension.processes.clear();
        });
    }

    /// The scheduler wants a suspended job back; its memory is set aside.
    pub(super) fn resume(&mut self, job: u64) {
        self.begin(job, Step::Resuming, |_| {});
    }

    /// Begins to undo what was begun.
    fn undo(&mut self, job: u64) {
        self.begin(job, Step::Undoing, |_| {});
    }

    /// A step that a helper takes once it is on disk.
    fn begin(&mut self, job: u64, step: Step, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.jobs.entry_mut(job) else { return };
        change(entry);
        entry.suspension.step = step;
        let attempt = (job, entry.attempt);
        if self.jobs.is_live(job) {
            self.suspensions.begin(job);
        }
        self.touch(job);
        self.outbox.effect(Effect::Suspension(attempt));
    }

    /// Starts the helper for a step that is on disk.
    pub(super) fn start_helper(&mut self, attempt: Attempt) {
        let (job, number) = attempt;
        let Some(entry) = self.jobs.entry(job).filter(|entry| entry.attempt == number) else { return };
        let task = if entry.suspension.step == Step::Suspending { Task::Suspend } else { Task::Resume };
        let bytes: u64 = entry.suspension.bytes.values().sum();
        let lock_ms = self.config.suspend.lock_ms;
        let limit_s = u64::from(lock_ms) / 1000 + bytes / SLOWEST + EXTRA_S;
        let root = rustix::process::geteuid().is_root();
        let live = self.jobs.live(job);
        let emulated = match &self.node.gpus().machine {
            Some(machine) => match libraries::find(libraries::EMULATED_CUDA) {
                Ok(library) => Ok(Some((machine.clone(), library))),
                Err(why) => Err(DaemonError::from(why)),
            },
            None => Ok(None),
        };
        let pid = |who: Option<ProcessIdentity>| who.map_or(0, |who| who.pid);
        let started = emulated.and_then(|emulated| {
            let order = Order {
                task,
                launcher: pid(live.and_then(|live| live.program)),
                supervisor: pid(live.and_then(|live| live.supervisor)),
                processes: entry.suspension.processes.clone(),
                bytes: entry.suspension.bytes.clone(),
                emulated,
                lock_ms,
                limit_s: u32::try_from(limit_s).unwrap_or(u32::MAX),
                user: root.then(|| User { name: entry.user.clone(), uid: entry.uid, gid: entry.gid }),
            };
            self.effects.start_helper(attempt, order)
        });
        if let Err(why) = started {
            self.health.report("suspend", format!("jobs cannot be suspended or brought back: {why}"));
            self.helped(attempt, Some(Answer::not_begun(task, &why)));
        }
    }

    /// A helper ended: what came of it.
    pub(super) fn helped(&mut self, (job, attempt): Attempt, answer: Option<Answer>) {
        if !self.jobs.is_live(job) || !self.jobs.is_current((job, attempt)) {
            return;
        }
        let step = self.jobs.entry(job).map(|entry| entry.suspension.step).unwrap_or_default();
        match self.suspensions.answer(job, step, answer, self.now.mono) {
            Outcome::Suspended { processes, bytes } => self.is_suspended((job, attempt), processes, bytes),
            Outcome::RunsOn { refusal, sentence } => {
                self.runs(job, &format!("not suspended: {sentence}"));
                self.step(Event::SuspendFailed { job: JobId(job), attempt, refusal });
            }
            Outcome::Undo { sentence } => {
                self.say(job, format!("not suspended: {sentence}"));
                self.undo(job);
            }
            Outcome::StillSuspended { sentence } => {
                if let Some(entry) = self.jobs.entry_mut(job) {
                    entry.suspension.step = Step::Suspended;
                }
                self.say(job, format!("still suspended: {sentence}"));
                self.step(Event::ResumeFailed { job: JobId(job), attempt });
            }
            Outcome::Back { suspend } => self.is_back((job, attempt), suspend),
            Outcome::Retry { sentence } => {
                if self.jobs.entry(job).is_some_and(|entry| entry.why != sentence) {
                    self.say(job, sentence);
                }
            }
            Outcome::Lost { sentence } => self.lose(job, &sentence),
            Outcome::Nothing => {}
        }
    }

    fn is_suspended(&mut self, (job, attempt): Attempt, processes: Vec<Saved>, bytes: ByGpu) {
        let now = self.now.at.0;
        let Some(entry) = self.jobs.entry_mut(job) else { return };
        (entry.suspension.processes, entry.suspension.bytes) = (processes, bytes);
        let ran = entry.started_ms.take().map_or(0, |since| now.saturating_sub(since));
        entry.ran_ms += ran;
        entry.suspension.ran_ms += ran;
        entry.suspension.step = Step::Suspended;
        let held: u64 = entry.suspension.bytes.values().sum();
        let most = entry.suspension.bytes.values().copied().max().unwrap_or(0);
        let count = entry.suspension.processes.len();
        let processes = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
        self.keep_peak(job);
        if let Some(live) = self.jobs.live_mut(job) {
            live.observed.used.clear();
        }
        self.say(job, format!("suspended: {processes}, {} in host memory", Bytes(held)));
        self.step(Event::Suspended { job: JobId(job), attempt, bytes: Bytes(most) });
        self.keep_place(job);
        // Its user may have asked for its end meanwhile: it has to react to that.
        let stopping = self.core.state.job(JobId(job)).is_some_and(|view| view.phase == Phase::Stopping);
        if stopping && self.jobs.entry(job).is_some_and(|entry| entry.suspension.step == Step::Suspended) {
            self.undo(job);
        }
    }

    fn runs(&mut self, job: u64, words: &str) {
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.suspension.step = Step::Running;
            entry.suspension.processes.clear();
            entry.started_ms.get_or_insert(self.now.at.0);
        }
        if let Some(live) = self.jobs.live_mut(job) {
            // What it holds is reported to the scheduler anew.
            live.observed.forget();
        }
        self.say(job, words.to_owned());
    }

    fn is_back(&mut self, (job, attempt): Attempt, wanted: bool) {
        self.runs(job, "goes on where it was suspended");
        let id = JobId(job);
        self.check_suspend(job);
        match self.core.state.job(id).map(|view| view.phase) {
            Some(Phase::Resuming) => self.step(Event::Resumed { job: id, attempt }),
            Some(Phase::Suspending) if wanted => return self.suspend(job),
            Some(Phase::Suspending) => {
                self.step(Event::SuspendFailed { job: id, attempt, refusal: SuspendRefusal::Failed });
            }
            _ => {}
        }
        self.suspensions.settle(job);
    }

    /// Some of it can never run again: it runs again from its beginning, or from a checkpoint of its own.
    fn lose(&mut self, job: u64, sentence: &str) {
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.suspension.step = Step::Lost;
        }
        self.say(job, format!("lost: {sentence}"));
        self.signal_when_written(job, Signal::Kill);
    }

    /// Tries again to bring back what has to come back and did not.
    pub(super) fn bring_back(&mut self) {
        for job in self.suspensions.due(self.now.mono) {
            let Some(step) = self.jobs.entry(job).map(|entry| entry.suspension.step) else { continue };
            self.begin(job, step, |_| {});
        }
    }

    /// A job that an earlier daemon suspended.
    pub(super) fn adopt_suspended(&mut self, job: Box<Job>) {
        let id = job.id;
        let Some(entry) = self.jobs.entry(id.0) else { return };
        let suspension = &entry.suspension;
        let most = suspension.bytes.values().copied().max().unwrap_or(0);
        let bytes = Bytes(most.max(entry.reserved.unwrap_or(0)));
        let (whole, ran) = (suspension.whole, Millis(suspension.ran_ms));
        let devices = self.node.devices(&entry.devices);
        let model = self.node.model(entry);
        let gpus = u16::try_from(devices.len()).unwrap_or(u16::MAX);
        self.step(Event::AdoptedSuspended { job, model, bytes, gpus, devices, whole, ran });
    }

    /// A job that was on its way in either direction when the daemon died, and is adopted as running.
    pub(super) fn adopted_on_its_way(&mut self, job: u64) {
        match self.jobs.entry(job).map(|entry| entry.suspension.step) {
            Some(Step::Suspending | Step::Resuming | Step::Undoing) => self.undo(job),
            Some(Step::Lost) => self.signal(job, Signal::Kill),
            _ => {}
        }
    }

    /// Reason that a job is made to leave by signals, if that is because it cannot be suspended; else empty.
    pub(super) fn why_not_suspended(&self, job: JobId) -> String {
        match self.core.state.history(job).as_slice() {
            [.., (before, Reason::CannotSuspend { refusal }), (at, _)] if before == at => {
                format!("; it cannot be suspended: {refusal}")
            }
            _ => String::new(),
        }
    }
}
