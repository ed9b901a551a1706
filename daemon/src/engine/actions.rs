//! Carrying out what was decided.

use std::time::{Duration, Instant};

use radrm_scheduler_core::{
    Action, Bytes, Event, JobId, Millis, Observation, Outcome, Reason, Signal, Verdict,
};

use super::effects::Owner;
use super::jobs::Live;
use super::outbox::{Committed, Effect};
use super::{Engine, arrays, epilog, loaders};
use crate::accounting::{self, GpuTime};
use crate::attempt::Attempt;
use crate::config::VisibleDevices;
use crate::error::DaemonError;
use crate::fence::{Fence, Missing};
use crate::store::{Entry, Stage};
use crate::supervisor::{self, Order, User};
use crate::suspend::Suspension;

/// After a kill, what has not gone is killed again.
const KILL_INTERVAL: Duration = Duration::from_secs(2);
/// After so many kills the launcher is killed too, and a supervisor that hangs.
const MAX_KILL_RETRIES: u32 = 5;

/// An attempt's GPU time over a span of ms since 1970, on devices with so much memory.
pub(super) fn gpu_time(
    entry: &Entry,
    attempt: u32,
    span: (u64, u64),
    ran_ms: u64,
    totals: &[u64],
) -> GpuTime {
    GpuTime {
        job: entry.id,
        attempt,
        uid: entry.uid,
        user: entry.user.clone(),
        start_ms: span.0,
        end_ms: span.1,
        ran_ms,
        idle_ms: entry.idle_ms.min(ran_ms.saturating_mul(entry.devices.len() as u64)),
        gpus: u16::try_from(entry.devices.len()).unwrap_or(u16::MAX),
        share: accounting::share(entry.reserved, totals),
        out_of_memory: false,
    }
}

impl Engine {
    /// Takes up one decision: into the entries now, into the world after it was written.
    pub(super) fn decided(&mut self, action: Action, reason: &Reason) {
        let now = self.now.at.0;
        match action {
            Action::Start { job, attempt, devices, limit, reserved } => {
                let devices: Vec<String> = devices.iter().map(|device| self.node.uuid(*device)).collect();
                let boot = self.boot.clone();
                let emulated = self.node.gpus().emulated.clone().filter(|_| !devices.is_empty());
                let label =
                    emulated.as_ref().map_or_else(String::new, |spec| format!(" (emulated GPUs: {spec})"));
                let Some(entry) = self.jobs.entry_mut(job.0) else { return };
                entry.stage = Stage::Starting;
                (entry.attempt, entry.boot, entry.devices) = (attempt, boot, devices);
                entry.emulated = emulated;
                entry.limit = limit.map(|bytes| bytes.0);
                entry.reserved = reserved.map(|bytes| bytes.0);
                (entry.started_ms, entry.idle_ms) = (None, 0);
                entry.suspension = Suspension::default();
                self.say(job.0, format!("attempt {attempt}: {reason}{label}"));
                self.outbox.effect(Effect::Start((job.0, attempt)));
            }
            Action::SetAside { job, .. } => self.say(job.0, reason.to_string()),
            Action::SetBudget { job, budget } => self.budget(job.0, budget, reason),
            Action::Signal { job, signal } => self.stop_job(job.0, signal, reason),
            Action::Suspend { job } => {
                self.say(job.0, format!("to be suspended: {reason}"));
                self.suspend(job.0);
            }
            Action::Resume { job, .. } => {
                self.say(job.0, format!("to be brought back: {reason}"));
                self.resume(job.0);
            }
            Action::Requeue { job, attempts, ooms, floor } => {
                self.keep_place(job.0);
                if let Some(entry) = self.jobs.entry_mut(job.0) {
                    entry.stage = Stage::Waiting;
                    (entry.attempt, entry.ooms, entry.floor) = (attempts, ooms, floor.0);
                    (entry.limit, entry.reserved) = (None, None);
                    entry.suspension = Suspension::default();
                }
                if matches!(reason, Reason::RanOutOfMemory { .. }) {
                    self.health.counters.ooms += 1;
                }
                self.say(job.0, format!("back in the queue: {reason}"));
            }
            Action::Ready { job } => {
                self.keep_place(job.0);
                self.say(job.0, reason.to_string());
            }
            Action::End { job, verdict } => {
                if let Some(entry) = self.jobs.entry_mut(job.0) {
                    entry.stage = Stage::Ended;
                    entry.verdict = Some(verdict);
                    entry.ended_ms = Some(now);
                    if matches!(verdict, Verdict::Ended(Outcome::OutOfMemory { .. })) {
                        entry.ooms += 1;
                    }
                    self.health.counters.job_ended(entry, &verdict, now);
                }
                self.say(job.0, self.end_words(job.0, &verdict, reason));
            }
            Action::WakeAt { at } => self.core.wake = Some(at),
        }
    }

    /// Since when a job waits outlives the daemon: one whose slot is over stays behind those that waited.
    pub(super) fn keep_place(&mut self, job: u64) {
        let since = self.core.state.job(JobId(job)).map(|view| view.lined_up.0);
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.lined_up_ms = since.filter(|since| *since != entry.submitted_ms);
        }
        self.touch(job);
    }

    /// Carries out the effects that were decided and are on disk, in so much time that clients are answered soon: jobs that end
    /// together let as many others start, and each start takes some ms. The rest follows in the next round.
    pub(super) fn carry_out(&mut self, _: &Committed) {
        let begun = Instant::now();
        for done in 0..self.outbox.waiting() {
            if done > 0 && begun.elapsed() >= self.effects.stint() {
                self.has_more_effects = true;
                break;
            }
            let Some(effect) = self.outbox.next_effect() else { break };
            match effect {
                Effect::Start(attempt) => {
                    let entry = self.jobs.entry(attempt.0);
                    let is_decided = entry.is_some_and(|entry| entry.stage == Stage::Starting);
                    if !is_decided || !self.jobs.is_current(attempt) {
                        continue;
                    }
                    if self.dry_runs.is_active(attempt.0) {
                        // Its program runs without a GPU, and must not run twice at once. It is about to end.
                        self.effects.end_dry_run(attempt.0);
                        self.outbox.later(effect);
                        continue;
                    }
                    if !self.may_start_together(attempt.0) {
                        let (job, attempt) = (JobId(attempt.0), attempt.1);
                        self.step(Event::Finished { job, attempt, outcome: Outcome::Lost });
                        continue;
                    }
                    match self.launch(attempt) {
                        Ok(()) => {
                            self.health.resolve("start");
                            self.health.counters.started += 1;
                        }
                        Err(sentence) => {
                            // The node's fault, not the job's: it is tried again.
                            self.health.report("start", format!("jobs cannot be started: {sentence}"));
                            self.outbox.later(effect);
                        }
                    }
                }
                Effect::Suspension(attempt) => self.start_helper(attempt),
                Effect::Signal(attempt, signal, held) => self.send(attempt, signal, held),
                Effect::Clear(attempt) => self.effects.clear(attempt),
            }
        }
    }

    fn launch(&mut self, attempt: Attempt) -> Result<(), DaemonError> {
        let (owner, mut order) = self.order(attempt)?;
        let entry = self.jobs.entry(attempt.0);
        let part = entry.and_then(|entry| self.mps_part(entry, &order.environment));
        // Before the program's own words.
        if let Some(part) = part
            && let Some(at) = order.argv.iter().position(|word| word == "--")
        {
            order.argv.splice(at..at, part.option());
        }
        let need = self.jobs.entry(attempt.0).map(|entry| entry.spec.host()).unwrap_or_default();
        self.serve_mps(attempt.0, &mut order)?;
        order.group =
            self.effects.limit_host(attempt, need, order.fence.is_some() || !order.hidden.is_empty())?;
        let supervisor = self.effects.start(attempt, owner, &order)?;
        if let Some(part) = part {
            let is_under_mps = self.jobs.entry(attempt.0).is_some_and(|entry| self.is_under_mps(entry));
            self.remark(attempt.0, part.sentence(is_under_mps));
        }
        self.jobs.begin(attempt.0, Live { supervisor, launched_ms: self.now.at.0, ..Live::default() });
        if let Some(entry) = self.jobs.entry_mut(attempt.0) {
            entry.stage = Stage::Running;
        }
        self.touch(attempt.0);
        Ok(())
    }

    pub(super) fn order(&self, (job, attempt): Attempt) -> Result<(Owner, Order), DaemonError> {
        let entry = self.jobs.entry(job).ok_or(DaemonError::JobGone)?;
        let mut environment = self.outbox.store().environment(job).map_err(DaemonError::QueueRead)?;
        let own = [
            "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER",
            "RADRM_JOB",
            "RADRM_ATTEMPT",
            supervisor::ASKED,
            "RADRM_SEGMENT",
            "RADRM_QUOTA",
        ];
        let is_own = |name: &str| own.contains(&name) || arrays::VARIABLES.contains(&name);
        let loader = entry.spec.loader.as_ref();
        let is_own = |name: &str| is_own(name) || (loader.is_some() && name == loaders::VARIABLE);
        environment.retain(|line| !is_own(line.split('=').next().unwrap_or_default()));
        environment.extend(self.visible(entry));
        environment.extend(supervisor::marks(job, attempt));
        environment.push(format!("{}={}", supervisor::ASKED, self.paths.asked((job, attempt)).display()));
        environment.extend(arrays::marks(entry));
        environment.extend(loader.map(|loader| format!("{}={}", loaders::VARIABLE, loader.name)));
        let folder = self.paths.folder(job);
        let profile = folder.join(format!("{attempt}.radrm"));
        let launcher = self.effects.launcher()?;
        let options = ["--quiet", "--supervised", "-o"].map(str::to_owned);
        let mut argv: Vec<String> = [launcher].into_iter().chain(options).collect();
        argv.push(profile.display().to_string());
        if let Some(machine) = &self.node.gpus().machine {
            argv.extend(["--machine".to_owned(), machine.display().to_string()]);
        }
        // Whatever the program does to CUDA_VISIBLE_DEVICES.
        let own = if entry.devices.is_empty() { "none".to_owned() } else { entry.devices.join(",") };
        argv.extend(["--only-gpus".to_owned(), own]);
        if let Some(limit) = entry.limit {
            argv.extend(["--mem-limit".to_owned(), format!("{limit}B")]);
        }
        if self.is_under_mps(entry) {
            argv.extend(self.config.mps.options(entry.spec.share, entry.spec.exclusive));
        }
        let times_launches = environment.iter().any(|line| line.starts_with("RADRM_KERNELS="));
        if entry.spec.fixed_shapes || self.config.estimator.mark_steps {
            argv.push("--mark-steps".to_owned());
        }
        if !self.config.kernels.is_empty() && !times_launches {
            argv.extend(["--kernels".to_owned(), self.config.kernels.clone()]);
        } else if entry.spec.target.latency.is_some() && !times_launches {
            // What is observed of a program that marks no steps.
            argv.extend(["--kernels".to_owned(), "sample".to_owned()]);
        }
        argv.push("--".to_owned());
        argv.extend(entry.spec.command.iter().cloned());
        let root = rustix::process::geteuid().is_root();
        let order = Order {
            argv,
            environment,
            cwd: entry.spec.cwd.clone(),
            user: root.then(|| User { name: entry.user.clone(), uid: entry.uid, gid: entry.gid }),
            umask: entry.spec.umask,
            output: super::rows::output(entry, &folder),
            output_limit: self.output_limit(entry),
            error: entry.spec.error.clone(),
            profile,
            prolog: self.config.hooks.prolog(epilog::environment(entry)),
            group: None,
            barrier: self.barrier(entry),
            mps: None,
            host_memory: Some(entry.spec.host_memory).filter(|bytes| *bytes > 0),
            hidden: self.node.gpus().hidden_from(&entry.devices),
            grace_ms: self.time_to_stop(entry),
            fence: self
                .node
                .gpus()
                .has_fence()
                .then(|| Fence { devices: entry.devices.clone(), limit: entry.limit }),
        };
        Ok((Owner { uid: entry.uid, gid: entry.gid }, order))
    }

    /// The longest time between the first signal to a job and its kill, ms.
    fn time_to_stop(&self, entry: &Entry) -> u64 {
        let job = entry.spec.job(entry.id, entry.uid, Millis(entry.submitted_ms));
        let checkpoint = job.preemption.checkpoint_signal.map_or(Millis::ZERO, |_| job.preemption.grace);
        checkpoint
            .plus(self.config.scheduler.eviction.kill_after)
            .0
            .saturating_add(KILL_INTERVAL.as_millis() as u64)
    }

    /// By which variables an attempt's programs see its GPUs. Numbers are what most programs read; they are only used
    /// where they cannot mean another GPU.
    fn visible(&self, entry: &Entry) -> [String; 2] {
        let list = &self.node.gpus().list;
        let is_numbered =
            list.iter().all(|gpu| gpu.index.is_some() && !gpu.divided && !self.node.is_lost(&gpu.uuid));
        let by_number =
            is_numbered && !self.is_under_mps(entry) && self.config.visible_devices == VisibleDevices::Index;
        let number = |uuid: &String| list.iter().position(|gpu| gpu.uuid == *uuid).map(|at| at.to_string());
        let numbers: Option<Vec<String>> = entry.devices.iter().map(number).collect();
        let names = numbers.filter(|_| by_number).unwrap_or_else(|| entry.devices.clone());
        [format!("CUDA_VISIBLE_DEVICES={}", names.join(",")), "CUDA_DEVICE_ORDER=PCI_BUS_ID".to_owned()]
    }

    /// Sends a signal to a job, wherever it is on its way.
    pub(super) fn signal(&mut self, job: u64, signal: Signal) {
        let attempt = (job, self.jobs.attempt(job));
        let Some(live) = self.jobs.live_mut(job) else {
            // Decided and not started: it never will be.
            if let Some((_, attempt)) = self.outbox.take_back_start(job) {
                self.give_up_together(job);
                self.step(Event::Finished { job: JobId(job), attempt, outcome: Outcome::NotStarted });
            }
            return;
        };
        if signal == Signal::Kill {
            live.killed = Some(self.now.mono);
        }
        let number = match signal {
            Signal::Checkpoint(number) => number,
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
        };
        let effects = &mut self.effects;
        let supervisor = live.supervisor.filter(|who| effects.lives(*who));
        let has_program = live.program.is_some();
        let program = live.program.filter(|who| effects.lives(*who));
        match (signal, supervisor, program) {
            (Signal::Kill, Some(supervisor), launcher) => effects.kill_below(supervisor, launcher),
            // Its program is about to be there: the same signal again when it is.
            (_, Some(_), None) if !has_program => live.observed.owed = Some(number),
            (_, None, None) => {}
            // Also of one whose first process has ended by an earlier signal.
            (_, supervisor, program) => effects.signal_job(attempt, supervisor, program, number),
        }
        if !has_program {
            self.give_up_together(job);
        }
    }

    /// Kills again what did not go. Where that does not help, the launcher is killed too, and a supervisor that hangs, and what
    /// they leave is swept up.
    pub(super) fn kill_again(&mut self) {
        for live in self.jobs.lives_mut().map(|(_, live)| live) {
            if let (Some(last), Some(supervisor)) = (live.killed, live.supervisor)
                && self.now.mono - last > KILL_INTERVAL
                && self.effects.lives(supervisor)
            {
                live.killed = Some(self.now.mono);
                live.kill_retries += 1;
                let last = live.kill_retries >= MAX_KILL_RETRIES;
                let launcher = live.program.filter(|_| !last);
                self.effects.kill_again(supervisor, launcher, last);
            }
        }
    }

    /// The program is there.
    pub(super) fn started(&mut self, job: u64, attempt: u32, at_ms: u64) {
        let now = at_ms.min(self.now.at.0);
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.started_ms = Some(now);
            entry.first_start_ms.get_or_insert(now);
            entry.stage = Stage::Running;
        }
        if let Some(live) = self.jobs.live_mut(job) {
            live.reported = true;
        }
        self.touch(job);
        self.step(Event::Started { job: JobId(job), attempt });
        // What was measured of its GPUs is of the time before it was there.
        for uuid in self.jobs.entry(job).map(|entry| entry.devices.clone()).unwrap_or_default() {
            let used =
                self.node.samples().iter().find(|sample| sample.uuid == uuid).map(|sample| sample.used);
            if let (Some(device), Some(used)) = (self.node.device(&uuid), used) {
                let seen = Observation::unmeasured(Bytes(used));
                self.step(Event::DeviceObserved { device, seen });
            }
        }
    }
}

impl Engine {
    /// Shows which fences could not be set for an attempt: to its user, and as long as it runs to those who look at the node.
    pub(super) fn report_fences(&mut self, job: u64, missing: Option<&Missing>) {
        let Some(missing) = missing.filter(|missing| !missing.is_none()) else { return };
        if let Some(live) = self.jobs.live_mut(job) {
            live.missing = missing.clone();
        }
        let what = missing.sentence();
        self.remark(job, format!("a fence around its GPUs could not be set, the shim's quota holds: {what}"));
        self.review_fences();
    }

    /// Shows whether some running attempt lacks a fence.
    pub(super) fn review_fences(&mut self) {
        match self.jobs.lacking() {
            Some((job, missing)) => {
                let what = missing.sentence();
                self.health
                    .report("fence", format!("job {job} runs without a fence around its GPUs: {what}"));
            }
            None => self.health.resolve("fence"),
        }
    }
}

pub(super) fn words(signal: Signal) -> String {
    match signal {
        Signal::Checkpoint(0) => "asked for a checkpoint (radrm.should_checkpoint)".to_owned(),
        Signal::Checkpoint(number) => {
            format!("asked for a checkpoint ({})", radrm_base::signal::name(number))
        }
        Signal::Terminate => "asked to end (SIGTERM)".to_owned(),
        Signal::Kill => "killed (SIGKILL)".to_owned(),
    }
}
