//! The one thread that decides: it feeds `scheduler-core` with what happens and carries out what
//! that decides.
//!
//! Every start is written to disk before it is carried out, and every end after it happened, so a
//! daemon that dies at any point finds out what was going on: see [`recover`].

mod actions;
mod bookings;
mod budgets;
mod cleaning;
mod entries;
mod inbox;
mod leaving;
mod loads;
mod looks;
mod lost;
mod possible;
mod recover;
mod requests;
mod rows;
mod suspend;
mod sweep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use radrm_scheduler_core::{Decision, DeviceId, Event, JobId, Millis, Signal, State};

use super::config::Config;
use super::events::Log;
use super::gpus::{Gpus, Look, Sample, Stranger};
use super::host::Usage;
use super::peer::Peer;
use super::status::Who;
use super::store::{self, Stage, Store, Watched};
use super::suspend::Answer;
use super::time;
use super::turns::Turns;
use super::watch::{Attempt, Watch};
use super::wire::{Line, Request, Response};
use entries::Entries;
use inbox::Inbox;
use looks::Sight;
pub(super) use looks::segment_of;

/// What the engine is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client asks.
    Asked(Peer, Request, Sender<Response>),
    /// A keeper is gone.
    KeeperEnded(Attempt),
    /// A helper that suspends a job or brings it back is gone, with its answer if it gave one.
    Suspension(Attempt, Option<Answer>),
    /// GPUs were looked at.
    Looked(Look),
    /// Processes without the shim.
    Audited(Vec<Stranger>),
    /// The files of these jobs, which ended long ago, are gone.
    Removed(Vec<u64>),
    /// The text of `/metrics`.
    Metrics(Sender<String>),
    /// The daemon is to end. Jobs run on.
    Stop,
}

/// A job that runs, as far as the daemon holds something of it.
#[derive(Debug, Default)]
struct Live {
    keeper: Option<Who>,
    /// The launcher.
    program: Option<Who>,
    /// The keeper, if it is this process's child.
    child: Option<Child>,
    /// The scheduler knows that it runs.
    told: bool,
    sight: Sight,
    /// When a signal last had to be sent and was.
    killed: Option<Instant>,
    /// How often what did not go was killed again.
    presses: u32,
    transit: suspend::Transit,
    /// What its processes take of the host, and whether it was noted that this is more than booked.
    host: Usage,
    told_memory: bool,
    told_cpu: bool,
}

/// What is carried out after it was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Todo {
    Start(Attempt),
    /// The step between running and suspended at which the job is.
    Suspension(Attempt),
    /// A signal to an attempt, and whether the scheduler knows that it has to wait.
    Signal(Attempt, Signal, bool),
    /// The files of an attempt that is over.
    Clear(Attempt),
}

/// What is written beside the jobs' rows.
#[derive(Clone, Debug)]
enum Note {
    Line(u64, Line),
    Run {
        job: u64,
        peak: u64,
        ran_ms: u64,
        complete: bool,
    },
    Usage(u32, u64, u64),
    Watched(String, Watched),
    Drained(String, bool),
    Forget(u64),
    /// All but the newest runs.
    ForgetRuns,
}

/// A pending start or an unwritten change is tried again after this.
const RETRY: Duration = Duration::from_secs(1);
/// A job that was just started is looked at so often until its program is there.
const STARTING: Duration = Duration::from_millis(20);
/// Time between two writes of figures that may be lost.
const SAVE: Duration = Duration::from_secs(60);
/// Jobs that are over are kept in memory only until they are written; ids to forget are looked for
/// so often.
const CLEAN: Duration = Duration::from_secs(3600);

pub(crate) struct Engine {
    config: Config,
    state: State,
    /// The same machine with nobody on it and all its GPUs there.
    nobody: State,
    log: Option<Log>,
    store: Store,
    gpus: Gpus,
    watch: Watch,
    entries: Entries,
    live: BTreeMap<u64, Live>,
    /// Entries that are not on disk as they are.
    dirty: BTreeSet<u64>,
    notes: Vec<Note>,
    todo: VecDeque<Todo>,
    wake: Option<Millis>,
    boot: String,
    samples: Vec<Sample>,
    /// UUIDs of GPUs that are gone for now.
    lost: BTreeSet<String>,
    /// Of those that take no new jobs.
    drained: BTreeSet<String>,
    /// Attempts that failed, whose GPU may be what failed: until the next look tells.
    doubtful: Vec<lost::Doubtful>,
    /// Jobs that an earlier daemon took and for which something is missing since this one was started.
    missing: BTreeSet<u64>,
    /// What an earlier daemon left is being taken up.
    recovering: bool,
    /// Asks for a look at which GPUs are gone.
    ask: Sender<()>,
    watched: BTreeMap<String, Watched>,
    energy: BTreeMap<String, u64>,
    strangers: Vec<Stranger>,
    /// What cannot be done at the moment: by subject.
    troubles: BTreeMap<&'static str, String>,
    turns: Turns,
    counters: Counters,
    looked: Instant,
    host_looked: Option<Instant>,
    saved: Instant,
    cleaned: Option<Instant>,
    /// Files of old jobs are being removed.
    cleaning: bool,
    retry: Option<Instant>,
}

/// Since the daemon started.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    submitted: u64,
    started: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    ooms: u64,
    /// Jobs that ran and are over, their time in the queue and on GPUs.
    over: u64,
    waited_ms: u64,
    ran_ms: u64,
}

impl Engine {
    /// Brings back what an earlier daemon left, and makes everything ready.
    pub(crate) fn new(
        config: Config,
        store: Store,
        gpus: Gpus,
        watch: Watch,
        boot: String,
        ask: Sender<()>,
    ) -> Result<Self, String> {
        let mut settings = config.scheduler.clone();
        // What the shim counts is by GPU: a job comes back to those that it was on.
        settings.eviction.migrate = false;
        let now = Instant::now();
        let mut log = match config.events.as_os_str().is_empty() {
            true => None,
            false => Some(Log::open(&config.events)?),
        };
        if let Some(log) = &mut log {
            log.start(&settings);
        }
        let mut engine = Self {
            nobody: possible::nobody(&settings),
            state: State::new(settings),
            log,
            config,
            store,
            gpus,
            watch,
            entries: Entries::default(),
            live: BTreeMap::new(),
            dirty: BTreeSet::new(),
            notes: Vec::new(),
            todo: VecDeque::new(),
            wake: None,
            boot,
            samples: Vec::new(),
            lost: BTreeSet::new(),
            drained: BTreeSet::new(),
            doubtful: Vec::new(),
            missing: BTreeSet::new(),
            recovering: true,
            ask,
            watched: BTreeMap::new(),
            energy: BTreeMap::new(),
            strangers: Vec::new(),
            troubles: BTreeMap::new(),
            turns: Turns::default(),
            counters: Counters::default(),
            looked: now,
            host_looked: None,
            saved: now,
            cleaned: None,
            cleaning: false,
            retry: None,
        };
        engine.recover()?;
        engine.recovering = false;
        Ok(engine)
    }

    /// Decides until it is told to stop.
    pub(crate) fn run(mut self, from: &Receiver<Message>) {
        self.finish_batch(Vec::new());
        let mut inbox = Inbox::new(from);
        while let Some(first) = inbox.wait(self.patience()) {
            if !self.batch(first, &mut inbox) {
                return;
            }
        }
    }

    /// One round; false to end.
    fn batch(&mut self, first: Vec<Message>, inbox: &mut Inbox<'_>) -> bool {
        let mut go_on = true;
        let mut replies = Vec::new();
        let mut new = Vec::new();
        for message in first {
            match message {
                Message::Asked(peer, Request::Submit(spec), reply) => new.push((peer, spec, reply)),
                Message::KeeperEnded(attempt) => self.keeper_ended(attempt),
                Message::Suspension(attempt, answer) => self.helped(attempt, answer),
                Message::Looked(look) => self.looked_at(look),
                Message::Audited(found) => self.strangers = found,
                Message::Removed(jobs) => self.removed(jobs),
                Message::Stop => go_on = false,
                question => self.question(question, &mut replies),
            }
        }
        self.submit(new, &mut replies);
        inbox.answer(|question| self.question(question, &mut replies));
        self.look();
        if self.wake.is_some_and(|at| at <= time::now()) {
            self.wake = None;
            self.step(Event::Tick);
        }
        if !go_on || self.saved.elapsed() >= SAVE {
            self.save();
        }
        if go_on && self.cleaned.is_none_or(|last| last.elapsed() >= CLEAN) {
            self.clean();
        }
        self.finish_batch(replies);
        go_on
    }

    /// Answers what was asked; it is told when all is written.
    fn question(&mut self, message: Message, replies: &mut Vec<(Sender<Response>, Response)>) {
        match message {
            Message::Asked(peer, request, reply) => {
                let response = self.answer(&peer, &request);
                replies.push((reply, response));
            }
            Message::Metrics(reply) => {
                let _ = reply.send(self.metrics());
            }
            _ => {}
        }
    }

    /// Writes, answers, and carries out.
    fn finish_batch(&mut self, replies: Vec<(Sender<Response>, Response)>) {
        let written = self.write();
        for (reply, response) in replies {
            let response = match response {
                Response::Done if !written => Response::Refused(self.unwritten()),
                response => response,
            };
            let _ = reply.send(response);
        }
        if written {
            self.carry_out();
            // What a start changed is written at once: where the keeper is, is known to its own file too.
            self.write();
        } else {
            self.send_for_good();
            self.hold_signals();
        }
    }

    /// How long nothing has to be done.
    fn patience(&self) -> Duration {
        let mut patience = Duration::from_millis(self.config.look_ms).saturating_sub(self.looked.elapsed());
        if let Some(at) = self.wake {
            patience = patience.min(Duration::from_millis(at.minus(time::now()).0));
        }
        if !self.doubtful.is_empty() {
            patience = patience.min(lost::MOST);
        }
        if self.live.values().any(|live| !live.told || live.keeper.is_none()) {
            patience = patience.min(STARTING);
        }
        patience
    }

    /// Tells the scheduler what happened, and takes up what it decided.
    fn step(&mut self, event: Event) {
        let at = time::now();
        let kept = self.log.is_some().then(|| event.clone());
        let decisions = self.state.step(at, event);
        if let (Some(log), Some(event)) = (&mut self.log, kept) {
            log.step(at, event, &decisions);
        }
        for Decision { action, reason } in decisions {
            self.decided(action, &reason);
        }
    }

    /// Changes of a job have to be written.
    fn touch(&mut self, job: u64) {
        self.dirty.insert(job);
    }

    /// Adds a line to a job's history, and shows it as the reason for where it is.
    fn say(&mut self, job: u64, text: String) {
        self.notes.push(Note::Line(job, Line { at_ms: time::now().0, text: text.clone() }));
        if let Some(entry) = self.entries.get_mut(&job) {
            entry.why = text;
        }
        self.touch(job);
    }

    /// Writes everything that changed, in one transaction. What cannot be written is kept.
    fn write(&mut self) -> bool {
        if self.dirty.is_empty() && self.notes.is_empty() {
            return true;
        }
        if self.retry.is_some_and(|last| last.elapsed() < RETRY) {
            return false;
        }
        for job in &self.dirty {
            let view = self.state.job(JobId(*job));
            let Some(entry) = self.entries.get_mut(job) else { continue };
            if entry.stage == Stage::Running {
                // What is set aside follows what a job was seen to hold.
                let seen = view.as_ref().and_then(|view| view.reserved);
                entry.reserved = seen.map(|bytes| bytes.0).or(entry.reserved);
            }
            entry.leaving = view.and_then(|view| view.leaving);
        }
        let (entries, dirty, notes) = (&self.entries, &self.dirty, &self.notes);
        let models = &self.gpus.list;
        let done = self.store.transaction(|tx| {
            for entry in dirty.iter().filter_map(|job| entries.get(job)) {
                store::update(tx, entry)?;
            }
            for note in notes {
                actions::write_note(tx, note, entries, models)?;
            }
            Ok(())
        });
        match done {
            Ok(()) => {
                self.troubles.remove("disk");
                self.retry = None;
                self.notes.clear();
                for job in std::mem::take(&mut self.dirty) {
                    if self.entries.get(&job).is_some_and(|entry| entry.stage == Stage::Ended) {
                        self.entries.remove(&job);
                        self.missing.remove(&job);
                    }
                }
                true
            }
            Err(error) => {
                self.retry = Some(Instant::now());
                self.trouble("disk", format!("the queue cannot be written, so no job is started: {error}"));
                false
            }
        }
    }

    /// What is said to those whose request was carried out and is not on disk.
    fn unwritten(&self) -> String {
        let why = self.troubles.get("disk").map_or("the queue cannot be written", String::as_str);
        format!("done, but lost if radrmd ends before it can be written down: {why}")
    }

    /// Something cannot be done; said once.
    fn trouble(&mut self, subject: &'static str, sentence: String) {
        if self.troubles.get(subject) != Some(&sentence) {
            crate::output::say(super::NAME, &sentence);
            self.troubles.insert(subject, sentence);
        }
    }

    fn attempts(&self) -> PathBuf {
        self.config.state.join("attempts")
    }

    fn status_file(&self, (job, attempt): Attempt) -> PathBuf {
        self.attempts().join(format!("{job}.{attempt}"))
    }

    fn folder(&self, job: u64) -> PathBuf {
        self.config.state.join("jobs").join(job.to_string())
    }

    fn device(&self, uuid: &str) -> Option<DeviceId> {
        let at = self.gpus.list.iter().position(|gpu| gpu.uuid == uuid)?;
        u32::try_from(at).ok().map(DeviceId)
    }

    fn uuid(&self, device: DeviceId) -> String {
        self.gpus.list.get(device.0 as usize).map(|gpu| gpu.uuid.clone()).unwrap_or_default()
    }

    /// Keeps figures that may be lost for a minute.
    fn save(&mut self) {
        self.saved = Instant::now();
        let now = time::now().0;
        let usage: Vec<_> = self.state.usage().collect();
        for (user, gpu_ms) in usage {
            self.notes.push(Note::Usage(user.0, gpu_ms, now));
        }
        let jobs: Vec<u64> = self.live.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.keep_peak(job));
        for (gpu, figures) in std::mem::take(&mut self.watched) {
            self.notes.push(Note::Watched(gpu, figures));
        }
    }
}
