//! The one thread that decides: it feeds `scheduler-core` with what happens and carries out what
//! that decides.
//!
//! Every start is written to disk before it is carried out, and every end after it happened, so a
//! daemon that dies at any point finds out what was going on: see [`recover`].

mod actions;
mod arrays;
mod bookings;
mod budgets;
mod cleaning;
mod core;
mod curves;
mod dry_runs;
mod early;
mod effects;
mod ended;
mod entries;
mod epilog;
mod health;
mod inbox;
mod job_poller;
mod job_state;
mod jobs;
mod leaving;
mod loaders;
mod loads;
mod lost;
mod monitor;
mod mps;
mod mps_share;
mod needs;
mod outbox;
mod outside;
mod paths;
mod recover;
mod requests;
mod room;
mod rows;
mod sharing;
mod suspend;
mod suspend_manager;
mod sweep;
mod targets;
#[cfg(test)]
mod tests;
mod timers;
mod together;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use radrm_need::{Calibration, NeedResolver};
use radrm_protocol::wire::{Request, Response};
use radrm_scheduler_core::{Decision, Event, Needs};
use radrm_text::output::say;

use self::core::Core;
use super::Stopped;
use super::config::Config;
use super::error::DaemonError;
use super::events::Log;
use super::gates::Gates;
use super::gpus::Gpus;
use super::history::History;
use super::launch_slots::LaunchSlots;
use super::message::Message;
use super::numbers::Numbers;
use super::store::Store;
use super::time::Now;
use super::watch::{Attempt, Watch};

use dry_runs::DryRuns;
pub(super) use effects::segment_of;
use effects::{Effects, Processes};
use health::Health;
use inbox::Inbox;
use jobs::{JobTable, Live, Over};
use loaders::Loaders;
use monitor::{MAX_DOUBT, NodeMonitor};
use outbox::{Committed, Effect, Note, Outbox};
use paths::Paths;
use sharing::Companies;
use suspend_manager::SuspendManager;
use targets::Targets;
use timers::{Timer, Timers};

/// A job that was started is polled this often until its program is there.
const STARTING: Duration = Duration::from_millis(20);
/// Time after which a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two writes of figures that may be lost.
const SAVE: Duration = Duration::from_secs(60);
/// Time between two searches for ended jobs to forget.
const CLEAN: Duration = Duration::from_secs(3600);

/// Stores of the daemon on disk.
pub(crate) struct Disk {
    pub(crate) store: Store,
    pub(crate) history: History,
    pub(crate) numbers: Numbers,
}

/// Routes what happened to its owner, and what the owners answer to the next.
///
/// | owner | has |
/// |---|---|
/// | [`Core`] | the scheduler's state |
/// | [`JobTable`] | the jobs that have not ended |
/// | [`Outbox`] | what is written before it is done |
/// | [`NodeMonitor`] | the GPUs |
/// | [`SuspendManager`] | jobs between running and suspended |
/// | [`LaunchSlots`] | launch slots |
/// | [`Gates`] | launches that wait for requests |
/// | [`Companies`] | which jobs share GPUs, and their launch rates alone |
/// | [`Loaders`] | which loaders of data are in use, and when a dead producer is started again |
/// | [`DryRuns`] | which jobs are dry-run in the background |
/// | [`Targets`] | what jobs with targets were observed to make of them |
/// | [`Health`] | issues and counters |
/// | [`Effects`] | processes and files |
pub(crate) struct Engine {
    config: Config,
    core: Core,
    jobs: JobTable,
    outbox: Outbox,
    node: NodeMonitor,
    slots: LaunchSlots,
    gates: Gates,
    suspensions: SuspendManager,
    companies: Companies,
    loaders: Loaders,
    targets: Targets,
    dry_runs: DryRuns,
    health: Health,
    effects: Box<dyn Effects>,
    timers: Timers,
    paths: Paths,
    numbers: Numbers,
    resolver: NeedResolver,
    /// Calibration by its jobs: how their bounds held.
    calibration: Calibration,
    /// The time of this batch.
    now: Now,
    boot: String,
    /// Attempts that are over but for their epilogs.
    epilogs: BTreeMap<Attempt, Over>,
    /// True while what an earlier daemon left is being recovered.
    recovering: bool,
    /// Folders of old jobs are being removed.
    cleaning: bool,
    /// Bytes of the running jobs of a user on the disk, and when they were measured.
    disk_seen: HashMap<u32, (Instant, u64)>,
    /// Waiting jobs with needs that they have not learned yet.
    unlearned: VecDeque<(u64, Needs)>,
}

impl Engine {
    /// Brings back what an earlier daemon left, and makes everything ready.
    pub(crate) fn new(
        config: Config,
        disk: Disk,
        gpus: Gpus,
        watch: Watch,
        boot: String,
        ask: Sender<()>,
    ) -> Result<Self, DaemonError> {
        let paths = Paths::new(config.state.clone());
        let fence = gpus.has_fence().then(|| gpus.source.clone());
        let effects = Box::new(Processes::new(paths.clone(), watch, fence));
        Self::with(config, disk, gpus, effects, boot, ask)
    }

    fn with(
        config: Config,
        disk: Disk,
        gpus: Gpus,
        effects: Box<dyn Effects>,
        boot: String,
        ask: Sender<()>,
    ) -> Result<Self, DaemonError> {
        let Disk { store, history, numbers } = disk;
        let mut settings = config.scheduler.clone();
        // What the shim counts is by GPU: a job comes back to those that it was on.
        settings.eviction.migrate = false;
        settings.time_sliced.extend(config.mps.time_sliced(&gpus.list));
        // Emulated GPUs run the kernels of all processes at once, as MPS does.
        if gpus.emulated.is_none() {
            settings.sharing.get_or_insert(config.mps.sharing());
        }
        let log = match config.events.as_os_str().is_empty() {
            true => None,
            false => Some(Log::open(&config.events)?),
        };
        let now = effects.now();
        let mut timers = Timers::default();
        timers.set(Timer::Poll, now.mono, Duration::from_millis(config.poll_ms));
        timers.set(Timer::Save, now.mono, SAVE);
        let model = config.estimator.trained()?;
        let calibration = history.calibration(&model);
        let mut engine = Self {
            resolver: config.estimator.resolver(&model)?,
            calibration,
            core: Core::new(settings, log),
            jobs: JobTable::default(),
            outbox: Outbox::new(store, history),
            node: NodeMonitor::new(gpus, config.gpu_reserve_mib << 20, ask),
            slots: LaunchSlots::default(),
            gates: Gates::default(),
            suspensions: SuspendManager::default(),
            companies: Companies::default(),
            loaders: Loaders::default(),
            targets: Targets::default(),
            dry_runs: DryRuns::default(),
            health: Health::default(),
            effects,
            timers,
            paths: Paths::new(config.state.clone()),
            numbers,
            now,
            boot,
            epilogs: BTreeMap::new(),
            recovering: true,
            cleaning: false,
            disk_seen: HashMap::new(),
            unlearned: VecDeque::new(),
            config,
        };
        engine.recall_sharing();
        engine.recover()?;
        engine.recovering = false;
        Ok(engine)
    }

    /// Decides until a message stops it.
    pub(crate) fn run(
        mut self,
        from: &Receiver<Message>,
        read: impl Fn() -> Result<Config, DaemonError>,
    ) -> Stopped {
        self.finish_batch(Vec::new());
        let mut inbox = Inbox::new(from);
        while let Some(first) = inbox.wait(self.patience()) {
            let reload = first.iter().any(|message| matches!(message, Message::Reload));
            let restart = first.iter().any(|message| matches!(message, Message::GpusAppeared));
            if !self.batch(first, &mut inbox) {
                return if restart { Stopped::ToRestart } else { Stopped::ToEnd };
            }
            if reload {
                self.reload(read());
            }
        }
        Stopped::ToEnd
    }

    /// One round; false to end.
    fn batch(&mut self, first: Vec<Message>, inbox: &mut Inbox<'_>) -> bool {
        self.now = self.effects.now();
        let mut go_on = true;
        let mut replies = Vec::new();
        let mut new = Vec::new();
        for message in first {
            match message {
                Message::Asked(peer, Request::Submit(spec), reply) => {
                    new.push((peer, together::single(*spec), reply));
                }
                Message::Asked(peer, Request::SubmitTogether(members), reply) => {
                    new.push((peer, together::specs(members), reply));
                }
                Message::SupervisorEnded(attempt) => self.supervisor_ended(attempt),
                Message::Suspension(attempt, answer) => self.helped(attempt, answer),
                Message::EpilogEnded(attempt, result) => self.epilog_ended(attempt, result),
                Message::Polled(poll) => self.polled(poll),
                Message::Audited(found) => self.node.unmanaged = found,
                Message::Removed(jobs) => self.removed(jobs),
                Message::DryRunEnded(job, answer) => self.dry_run_ended(job, answer),
                Message::Stop | Message::GpusAppeared => go_on = false,
                question => self.question(question, &mut replies),
            }
        }
        self.submit(new, &mut replies);
        inbox.answer(|question| self.question(question, &mut replies));
        self.learn_some();
        self.poll();
        self.observe_targets();
        self.tend_dry_runs();
        if self.core.is_due(self.now.at) {
            self.step(Event::Tick);
        }
        if !go_on || self.timers.is_due(Timer::Save, self.now.mono) {
            self.save();
        }
        if go_on && self.timers.is_due(Timer::Clean, self.now.mono) {
            self.clean();
        }
        self.finish_batch(replies);
        go_on
    }

    /// Answers a request; the reply is sent when all is written.
    fn question(&mut self, message: Message, replies: &mut Vec<(Sender<Response>, Response)>) {
        match message {
            Message::Asked(peer, request, reply) => {
                let response = self.answer(&peer, &request);
                replies.push((reply, response));
            }
            Message::Listed(peer, listing, reply) => {
                let _ = reply.send(Ok(self.listed(&peer, listing)));
            }
            Message::Rows(peer, jobs, reply) => {
                let _ = reply.send(self.rows(&peer, &jobs));
            }
            Message::Metrics(reply) => {
                let _ = reply.send(self.figures());
            }
            _ => {}
        }
    }

    /// Writes, answers, and carries out.
    fn finish_batch(&mut self, replies: Vec<(Sender<Response>, Response)>) {
        self.tend_loaders();
        self.tend_mps();
        let committed = self.commit();
        for (reply, response) in replies {
            let response = match response {
                Response::Done if committed.is_none() => Response::Later(self.unwritten()),
                response => response,
            };
            let _ = reply.send(response);
        }
        match committed {
            Some(committed) => {
                self.carry_out(&committed);
                // What a start changed is written at once: where the supervisor is, is known to its own file too.
                self.commit();
            }
            None => {
                self.send_for_good();
                self.hold_signals();
            }
        }
    }

    /// Writes everything that changed; `None` if that is not possible now.
    fn commit(&mut self) -> Option<Committed> {
        if !self.outbox.is_clean() && !self.timers.is_due(Timer::Retry, self.now.mono) {
            return None;
        }
        self.jobs.follow(self.outbox.dirty(), &self.core.state);
        let done = self.outbox.commit(&self.jobs.entries);
        match &self.outbox.unrecorded {
            Some(sentence) => {
                self.health.report("dataset", sentence.clone());
            }
            None => self.health.resolve("dataset"),
        }
        match done {
            Ok(committed) => {
                self.health.resolve("disk");
                self.timers.clear(Timer::Retry);
                self.jobs.drop_ended(&committed.jobs);
                if committed.forgot {
                    // There may be more than one search finds.
                    self.timers.clear(Timer::Clean);
                }
                Some(committed)
            }
            Err(error) => {
                self.timers.set(Timer::Retry, self.now.mono, RETRY);
                let sentence = format!("the queue cannot be written, so no job is started: {error}");
                self.health.report("disk", sentence);
                None
            }
        }
    }

    /// Time until the engine has something to do.
    fn patience(&self) -> Duration {
        if !self.unlearned.is_empty() {
            return Duration::ZERO;
        }
        let now = self.effects.now();
        let mut patience = self.timers.left(Timer::Poll, now.mono);
        if self.has_targets() {
            patience = patience.min(self.timers.left(Timer::Targets, now.mono));
        }
        if let Some(at) = self.core.wake {
            patience = patience.min(Duration::from_millis(at.minus(now.at).0));
        }
        if self.node.has_doubts() {
            patience = patience.min(MAX_DOUBT);
        }
        if self.jobs.live.values().any(|live| !live.reported || live.supervisor.is_none()) {
            patience = patience.min(STARTING);
        }
        patience
    }

    /// Gives an event to the scheduler, and records what it decided.
    fn step(&mut self, event: Event) {
        for Decision { action, reason } in self.core.step(self.now.at, event) {
            self.decided(action, &reason);
        }
    }

    /// Changes of a job have to be written.
    fn touch(&mut self, job: u64) {
        self.outbox.touch(job);
    }

    /// Adds a line to a job's history, and shows it as the reason for where it is.
    fn say(&mut self, job: u64, text: String) {
        if let Some(entry) = self.jobs.entries.get_mut(&job) {
            entry.why.clone_from(&text);
        }
        self.remark(job, text);
        self.touch(job);
    }

    /// Adds a line to a job's history that is no reason for where it is.
    fn remark(&mut self, job: u64, text: String) {
        self.outbox.line(job, self.now.at.0, text);
    }

    /// The reply to those whose request was carried out and is not on disk.
    fn unwritten(&self) -> String {
        let why = self.health.issue("disk").unwrap_or("the queue cannot be written");
        format!("done, but lost if radrmd ends before it can be written down: {why}")
    }

    /// Keeps figures that may be lost for a minute.
    fn save(&mut self) {
        self.timers.set(Timer::Save, self.now.mono, SAVE);
        for (user, gpu_ms) in self.core.state.usage() {
            self.outbox.note(Note::Usage(user.0, gpu_ms, self.now.at.0));
        }
        let jobs: Vec<u64> = self.jobs.live.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.keep_peak(job));
        for (gpu, figures) in self.node.take_figures() {
            self.outbox.note(Note::Watched(gpu, self.now.at.0, figures));
        }
    }

    /// Searches for jobs to forget.
    fn clean(&mut self) {
        self.timers.set(Timer::Clean, self.now.mono, CLEAN);
        let jump_ms = self.effects.jump_ms();
        let kept_since = |jump_ms| crate::accounting::kept_since(radrm_os::time::epoch_ms(), jump_ms);
        self.outbox.note(Note::ForgetRuns(jump_ms.map(kept_since)));
        if self.config.keep_days == 0 || self.cleaning {
            return;
        }
        let age = u64::from(self.config.keep_days) * 86_400_000;
        let old = self.outbox.store.old(self.now.at.0.saturating_sub(age)).unwrap_or_default();
        self.cleaning = jump_ms.is_some_and(|jump_ms| self.effects.clean(old, age, jump_ms));
    }

    /// The files of these jobs are gone.
    fn removed(&mut self, jobs: Vec<u64>) {
        self.cleaning = false;
        jobs.into_iter().for_each(|job| self.outbox.note(Note::Forget(job)));
    }

    /// Takes over what can change while jobs run.
    fn reload(&mut self, read: Result<Config, DaemonError>) {
        match read {
            Ok(new) => {
                let fixed = self.config.reload(new);
                self.set_user_limits();
                let left = match fixed.as_slice() {
                    [] => String::new(),
                    names => format!("; restart radrmd for: {}", names.join(", ")),
                };
                say(super::NAME, &format!("the configuration was read again{left}"));
                self.health.resolve("config");
            }
            Err(why) => {
                self.health.report("config", format!("the configuration was not read again: {why}"));
            }
        }
    }
}
