//! The engine's loop: it takes messages, and in each round writes, answers and carries out what follows from them.

use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use radrm_protocol::wire::{Request, Response};
use radrm_scheduler_core::Event;
use radrm_text::output::{Priority, log, say};

use super::changes;
use super::inbox::Inbox;
use super::monitor::MAX_DOUBT;
use super::outbox::{Committed, Note};
use super::router::{Engine, SAVE};
use super::timers::Timer;
use super::together;
use crate::accounting;
use crate::config::Config;
use crate::error::DaemonError;
use crate::message::{Message, PAGE};
use crate::process::{NAME, Stopped};
use crate::store::{MAX_FORGOTTEN, Stage};

/// A job that was started is polled this often until its program is there.
const STARTING: Duration = Duration::from_millis(20);
/// Time after which a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two searches for ended jobs to forget.
const CLEAN: Duration = Duration::from_secs(3600);
/// The same for users who have more of them than are kept: they can submit and cancel without end.
const EXCESS: Duration = Duration::from_secs(60);

impl Engine {
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
                log(Priority::Info, NAME, &self.end_sentence(restart));
                return if restart { Stopped::ToRestart } else { Stopped::ToEnd };
            }
            if reload {
                self.reload(read());
            }
        }
        Stopped::ToEnd
    }

    /// Sentence on the jobs that the daemon leaves when it ends.
    fn end_sentence(&self, restart: bool) -> String {
        let of = |stages: &[Stage]| {
            self.jobs.entries().values().filter(|entry| stages.contains(&entry.stage)).count()
        };
        let (running, waiting) = (of(&[Stage::Starting, Stage::Running]), of(&[Stage::Waiting]));
        let then = if restart { "starts again, as GPUs have appeared" } else { "ends" };
        let lost = match self.outbox.unlearned() {
            0 => String::new(),
            lost => format!("; runs and observations that the dataset has not taken: {lost}"),
        };
        format!("{then}; jobs that run on: {running}; jobs that wait for its next start: {waiting}{lost}")
    }

    /// One round; false to end.
    pub(super) fn batch(&mut self, first: Vec<Message>, inbox: &mut Inbox<'_>) -> bool {
        self.now = self.effects.now();
        let mut go_on = true;
        let mut replies = Vec::new();
        let mut new = Vec::new();
        // What a daemon that ends does not take up is found by the next one, later.
        let is_last = first.iter().any(|message| matches!(message, Message::Stop | Message::GpusAppeared));
        let (begun, mut ends) = (Instant::now(), 0);
        for message in first {
            match message {
                Message::SupervisorEnded(_)
                    if ends > 0 && !is_last && begun.elapsed() >= self.effects.stint() =>
                {
                    inbox.put_back(message);
                }
                Message::Asked(peer, Request::Submit(spec), reply) => {
                    new.push((peer, together::single(*spec), reply));
                }
                Message::Asked(peer, Request::SubmitTogether(members), reply) => {
                    new.push((peer, together::specs(members), reply));
                }
                Message::SupervisorEnded(attempt) => {
                    ends += 1;
                    self.supervisor_ended(attempt);
                }
                Message::Suspension(attempt, answer) => self.helped(attempt, answer),
                Message::EpilogEnded(attempt, result) => self.epilog_ended(attempt, result),
                Message::Swept(attempt, killed) => self.swept(attempt, killed),
                Message::Polled(poll) => self.polled(poll),
                Message::Processes(snapshot) => self.check_bookings(&snapshot),
                Message::Audited(found) => self.node.set_unmanaged(found),
                Message::Removed(jobs) => self.removed(jobs),
                Message::Groups(found) => self.take_groups(found),
                Message::Measured(job, uid, bytes) => self.outbox.note(Note::Disk(job, uid, bytes)),
                Message::DryRunEnded(job, answer) => self.dry_run_ended(job, answer),
                Message::Stop | Message::GpusAppeared => go_on = false,
                question => self.question(question, &mut replies),
            }
        }
        let new = self.arrivals.checkable(new);
        // Those of a daemon that ends are known to the next.
        self.submit(new, !go_on, &mut replies);
        self.write_some(!go_on, &mut replies);
        self.take_up_some(!go_on, &mut replies);
        self.change_some(!go_on, &mut replies);
        self.send_ready(&mut replies);
        inbox.answer(|question| {
            self.question(question, &mut replies);
            self.send_ready(&mut replies);
        });
        self.learn_some();
        self.poll();
        self.observe_targets();
        self.tend_dry_runs();
        self.end_overdue_starts();
        if self.core.is_due(self.now.at) {
            self.step(Event::Tick);
        }
        if !go_on || self.timers.is_due(Timer::Save, self.now.mono) {
            self.save();
        }
        self.count_some();
        if go_on && self.timers.is_due(Timer::Excess, self.now.mono) {
            self.forget_excess();
        }
        if go_on && self.timers.is_due(Timer::Clean, self.now.mono) {
            self.clean();
        }
        if !go_on {
            self.outbox.end();
        }
        self.finish_batch(replies);
        while !go_on && self.has_more_effects {
            self.finish_batch(Vec::new());
        }
        go_on
    }

    /// Sends the answers for which nothing has to be written: those that say what is, and those on jobs that are on disk already.
    /// After a commit that failed none is sent before another has gone over it: a job that is refused could be in the log.
    pub(super) fn send_ready(&self, replies: &mut Vec<(Sender<Response>, Response)>) {
        if self.outbox.store().has_failed() {
            return;
        }
        let acknowledges =
            |response: &Response| matches!(response, Response::Done | Response::Reserved { .. });
        for (reply, response) in replies.extract_if(.., |(_, response)| !acknowledges(response)) {
            let _ = reply.send(response);
        }
    }

    /// Answers a request. What is in `replies` then is sent when all is written, or before by [`Self::send_ready`].
    pub(super) fn question(&mut self, message: Message, replies: &mut Vec<(Sender<Response>, Response)>) {
        match message {
            Message::Asked(peer, request, reply) => match changes::of(&peer, request) {
                Ok(asked) => self.ask_change(peer, asked, reply, replies),
                Err(request) => {
                    let response = self.answer(&peer, &request, None);
                    replies.push((reply, response));
                }
            },
            Message::AskedOf(peer, request, named, reply) => {
                let response = self.answer(&peer, &request, Some(&named));
                replies.push((reply, response));
            }
            Message::Listed(peer, listing, reply) => {
                let mut list = self.listed(&peer, listing);
                // Most lists are no longer: their clients need not wait for another round.
                let rest = list.jobs.split_off(list.jobs.len().min(PAGE));
                list.first = self.rows(&peer, &list.jobs);
                list.jobs = rest;
                let _ = reply.send(Ok(list));
            }
            Message::Rows(peer, jobs, reply) => {
                let _ = reply.send(self.rows(&peer, &jobs));
            }
            Message::Read(peer, read, reply) => {
                let _ = reply.send(self.read_on(&peer, read));
            }
            Message::Metrics(reply) => {
                let _ = reply.send(self.figures());
            }
            _ => {}
        }
    }

    /// Writes, answers, and carries out.
    pub(super) fn finish_batch(&mut self, replies: Vec<(Sender<Response>, Response)>) {
        self.tend_loaders();
        self.tend_mps();
        let goes_on = std::mem::take(&mut self.has_more_effects);
        let committed = self.commit();
        for (reply, response) in replies {
            let response = match response {
                Response::Done | Response::Reserved { .. } if committed.is_none() => {
                    Response::Later(self.unwritten())
                }
                response => response,
            };
            let _ = reply.send(response);
        }
        match committed {
            Some(committed) => {
                if !goes_on {
                    // Once in all rounds of the same effects: starts that fail each time have no end.
                    self.outbox.take_up_later();
                }
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
    pub(super) fn commit(&mut self) -> Option<Committed> {
        if !self.outbox.is_clean() && !self.timers.is_due(Timer::Retry, self.now.mono) {
            return None;
        }
        self.jobs.follow(self.outbox.dirty(), &self.core.state);
        let done = self.outbox.commit(self.jobs.entries());
        match self.outbox.unrecorded() {
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
    pub(super) fn patience(&self) -> Duration {
        let has_work = !self.unlearned.is_empty() || !self.arrivals.is_empty() || self.has_more_effects;
        if has_work || !self.changes.is_empty() || self.is_counting() {
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
        if self.jobs.lives().values().any(|live| !live.reported || live.supervisor.is_none()) {
            patience = patience.min(STARTING);
        }
        patience
    }

    /// Keeps figures that may be lost for a minute.
    fn save(&mut self) {
        self.timers.set(Timer::Save, self.now.mono, SAVE);
        self.discard_some();
        self.forget_accounts();
        self.review_limits();
        self.look_up_groups();
        for (user, gpu_ms) in self.core.state.usage() {
            self.outbox.note(Note::Usage(user.0, gpu_ms, self.now.at.0));
        }
        let jobs: Vec<u64> = self.jobs.lives().keys().copied().collect();
        for job in jobs {
            self.keep_peak(job);
            self.measure_disk(job);
        }
        self.note_energy();
        for (gpu, figures) in self.node.take_figures() {
            self.outbox.note(Note::Watched(gpu, self.now.at.0, figures));
        }
    }

    /// Searches for jobs to forget.
    fn clean(&mut self) {
        self.timers.set(Timer::Clean, self.now.mono, CLEAN);
        let jump_ms = self.effects.jump_ms();
        let kept_since = |jump_ms| accounting::kept_since(radrm_os::time::epoch_ms(), jump_ms);
        self.outbox.note(Note::ForgetRuns(jump_ms.map(kept_since)));
        if self.config.keep_days == 0 || self.cleaning {
            return;
        }
        let age = u64::from(self.config.keep_days) * 86_400_000;
        let old = self.outbox.store().old(self.now.at.0.saturating_sub(age)).unwrap_or_default();
        self.cleaning = jump_ms.is_some_and(|jump_ms| self.effects.clean(old, age, jump_ms));
    }

    /// Forgets the oldest ended jobs of a user who has more than are kept, whatever the clock says.
    fn forget_excess(&mut self) {
        self.timers.set(Timer::Excess, self.now.mono, EXCESS);
        if !self.cleaning {
            let excess = self.outbox.store().excess(self.config.jobs_per_user).unwrap_or_default();
            self.cleaning = self.effects.clean(excess, 0, 0);
        }
    }

    /// The files of these jobs are gone.
    fn removed(&mut self, jobs: Vec<u64>) {
        self.cleaning = false;
        if jobs.len() as u64 >= MAX_FORGOTTEN {
            self.timers.clear(Timer::Excess);
        }
        jobs.into_iter().for_each(|job| self.outbox.note(Note::Forget(job)));
    }

    /// Takes over what can change while jobs run.
    fn reload(&mut self, read: Result<Config, DaemonError>) {
        match read {
            Ok(new) => {
                let fixed = self.config.reload(new);
                self.set_user_limits();
                self.reload_limits();
                let left = match fixed.as_slice() {
                    [] => String::new(),
                    names => format!("; restart radrmd for: {}", names.join(", ")),
                };
                say(NAME, &format!("the configuration was read again{left}"));
                self.health.resolve("config");
            }
            Err(why) => {
                self.health.report("config", format!("the configuration was not read again: {why}"));
            }
        }
    }
}
