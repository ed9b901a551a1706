//! Dry runs in the background: which job gets one, when, and what follows from it.
//!
//! A job of which nothing is known stays out of the queue until its dry run is over, but no longer than the
//! administrator allows. After that it is placed as any job without a need, and a dry run that is under way goes on until
//! the job starts: the program never runs twice at the same time.

use radrm_emulator_machine::Models;
use radrm_need::DryRun;
use radrm_scheduler_core::{Bytes, Event, HostNeed, JobId, Wait};

use super::Engine;
use super::arrays;
use super::outbox::Note;
use super::programs::program;
use crate::dry_run::stored::{self, Key};
use crate::dry_run::{self, Answer, Bounds, Order, Outcome};
use crate::error::DaemonError;
use crate::store::{Entry, Stage};
use crate::supervisor::{self, User};

/// Variables of the job that a dry run does not get.
const NOT_GIVEN: [&str; 6] =
    ["CUDA_VISIBLE_DEVICES", "RADRM_JOB", "RADRM_ATTEMPT", supervisor::ASKED, "RADRM_SEGMENT", "RADRM_QUOTA"];

impl Engine {
    /// Returns true if a job is one to dry-run: nothing is known of the memory that it needs, and its user does not
    /// refuse.
    pub(super) fn is_for_dry_run(&self, entry: &Entry) -> bool {
        let spec = &entry.spec;
        let is_known = entry.needs.as_ref().is_some_and(|needs| needs.memory.is_some());
        self.config.dry_run.on
            && spec.gpus > 0
            && !is_known
            && !spec.no_dry_run
            && spec.dry_run.is_none()
            && !entry.cancelled
            && entry.attempt == 0
            && dry_run::is_python(&spec.command)
    }

    /// Notes a job that waits for its dry run.
    pub(super) fn expect_dry_run(&mut self, job: u64) {
        self.dry_runs.expect(job);
    }

    /// Begins dry runs as far as there is room, and lets jobs go that have waited long enough.
    pub(super) fn tend_dry_runs(&mut self) {
        let Some(jobs) = self.dry_runs.due(self.now.mono) else { return };
        jobs.into_iter().for_each(|job| self.tend_dry_run(job));
        while let Some(job) = self.dry_runs.next() {
            let hindrance = self.hindrance();
            let is_hindered = hindrance.is_some();
            self.dry_runs.hinder(hindrance);
            if is_hindered {
                break;
            }
            self.begin_dry_run(job);
        }
    }

    /// Reason that no dry run can begin now.
    fn hindrance(&self) -> Option<String> {
        let settings = &self.config.dry_run;
        if self.dry_runs.active() >= settings.at_once as usize {
            return Some("others are before it".to_owned());
        }
        let load = self.effects.load();
        if load.percent > settings.max_load {
            let (is, most) = (load.percent, settings.max_load);
            return Some(format!("the node's load is {is} % of its cores, and {most} % is the most"));
        }
        let memory = settings.memory();
        let free = Bytes(load.free);
        (load.free < memory.0).then(|| format!("{free} of host memory are free, and {memory} are needed"))
    }

    /// Ends the dry run of a job that does not wait for it any more, and the job's wait where it is over.
    fn tend_dry_run(&mut self, job: u64) {
        // A job that was cancelled is not in the queue.
        let entry = self.jobs.entry(job).filter(|entry| entry.stage == Stage::Waiting);
        let view = self.core.state.job(JobId(job)).filter(|_| entry.is_some() && self.config.dry_run.on);
        let Some(view) = view.filter(|view| view.job.need.is_none()) else {
            self.give_up_dry_run(job);
            return self.dry_run_over(job);
        };
        // Its user holds it, or other jobs come first: what it reads may not be there.
        let is_kept_out = matches!(view.wait, Some(Wait::Held | Wait::After { .. }));
        if is_kept_out && self.dry_runs.is_active(job) {
            self.effects.end_dry_run(job);
        }
        let waits = view.job.awaits_dry_run && !is_kept_out;
        let waited = self.dry_runs.waited(job, !is_kept_out, waits, self.now.mono);
        if waited.is_some_and(|waited| waited.as_secs() >= self.config.dry_run.wait_s) {
            self.lose_patience(job);
        }
    }

    /// A job is placed without its dry run, which may come to an end before the job starts.
    fn lose_patience(&mut self, job: u64) {
        self.dry_runs.delay(job);
        let is_active = self.dry_runs.is_active(job);
        let wait_s = self.config.dry_run.wait_s;
        let hindrance = self.dry_runs.hindrance(job);
        let why = hindrance.map_or_else(String::new, |why| format!(" ({why})"));
        let what = if is_active { "has not come to an end" } else { "has not begun" };
        self.say(
            job,
            format!("its dry run in the background {what} within {wait_s} s{why}: it is placed without"),
        );
        self.dry_run_over(job);
    }

    /// Forgets that a job is to be dry-run, and ends its dry run if that is under way.
    fn give_up_dry_run(&mut self, job: u64) {
        self.dry_runs.forget(job);
        if self.dry_runs.is_active(job) {
            self.effects.end_dry_run(job);
        }
    }

    fn dry_run_over(&mut self, job: u64) {
        if self.core.state.job(JobId(job)).is_some_and(|view| view.job.awaits_dry_run) {
            self.step(Event::DryRunOver { job: JobId(job) });
        }
    }

    fn begin_dry_run(&mut self, job: u64) {
        let begun = self.dry_run_order(job).and_then(|(key, order)| {
            self.effects.start_dry_run(job, &order)?;
            Ok(key)
        });
        match begun {
            Ok(key) => {
                self.dry_runs.began(job, key);
                self.remark(job, "a dry run in the background begins".to_owned());
            }
            Err(why) => {
                self.effects.clear((job, 0));
                self.dry_run_failed(job, &why.to_string());
            }
        }
    }

    fn dry_run_order(&mut self, job: u64) -> Result<(Key, Order), DaemonError> {
        let settings = self.config.dry_run.clone();
        let entry = self.jobs.entry(job).ok_or(DaemonError::JobGone)?;
        let spec = &entry.spec;
        let mut environment = self.outbox.store().environment(job).map_err(DaemonError::QueueRead)?;
        environment.retain(|line| !NOT_GIVEN.contains(&line.split('=').next().unwrap_or_default()));
        environment.extend(supervisor::marks(job, 0));
        environment.extend(arrays::marks(entry));
        let (machine, model) = self.emulated_as(entry);
        let key = Key {
            uid: entry.uid,
            program: program(spec).to_string(),
            batch: spec.batch_size(),
            model,
            steps: settings.steps,
        };
        let steps = settings.steps.to_string();
        let options = [
            "--dry-run",
            "--quiet",
            "--supervised",
            "--no-dataset",
            "--no-profile",
            "--steps",
            &steps,
            "--emulate",
            &machine,
        ];
        let launcher = self.effects.launcher()?;
        let memory = settings.memory();
        let need = HostNeed { cpu_milli: u64::from(settings.cpus) * 1000, memory };
        let known = stored::known(&self.outbox.store().connection, &key, self.now.at.0);
        let root = rustix::process::geteuid().is_root();
        let order = Order {
            command: spec.command.clone(),
            launcher: [launcher].into_iter().chain(options.map(str::to_owned)).collect(),
            environment,
            cwd: spec.cwd.clone(),
            user: root.then(|| User { name: entry.user.clone(), uid: entry.uid, gid: entry.gid }),
            umask: spec.umask,
            group: self.effects.limit_host((job, 0), need, false)?,
            bounds: Bounds {
                limit_s: settings.limit_s,
                memory: memory.0,
                cpus: settings.cpus,
                processes: settings.processes,
            },
            known: known.map_err(DaemonError::QueueRead)?,
        };
        Ok((key, order))
    }

    /// The machine to emulate for a job, and what its GPUs are called.
    fn emulated_as(&self, entry: &Entry) -> (String, String) {
        let usable = self.node.gpus().list.iter().filter(|gpu| !gpu.divided);
        let wanted = usable.filter(|gpu| entry.spec.model.as_ref().is_none_or(|model| *model == gpu.name));
        let name = wanted.max_by_key(|gpu| gpu.total).map(|gpu| gpu.name.clone());
        Models::machine_for(entry.spec.gpus.max(1), name)
    }

    /// A helper has ended.
    pub(super) fn dry_run_ended(&mut self, job: u64, answer: Answer) {
        self.effects.clear((job, 0));
        let Some(key) = self.dry_runs.ended(job) else { return };
        let Answer { digest, outcome, again, unfit, took_ms } = answer;
        let Some(outcome) = outcome else {
            // Where its job waits still, as it was held meanwhile, it is made again.
            return;
        };
        if let Some(digest) = digest.filter(|_| !again) {
            let (key, outcome) = (key.clone(), outcome.clone());
            self.outbox.note(Note::DryRun(Box::new((key, digest, outcome, self.now.at.0))));
        }
        match outcome {
            Outcome::Failed(why) if unfit => {
                self.remark(job, format!("no dry run in the background: {why}"));
                self.dry_runs.forget(job);
                self.dry_run_over(job);
            }
            Outcome::Failed(why) if again => self.dry_run_failed(job, &format!("as the last time, {why}")),
            Outcome::Failed(why) => self.dry_run_failed(job, &why),
            Outcome::Held { bytes, kind, step } => {
                let when = match again {
                    true => "earlier".to_owned(),
                    false => format!("in {:.1} s", took_ms as f64 / 1000.0),
                };
                let (held, gpu) = (Bytes(bytes), key.model.clone());
                let (steps, step) = (key.steps, step.map(Box::new));
                let found = DryRun { held, kind, steps, gpu, step, background: true, ..DryRun::default() };
                for job in self.alike(job, &key) {
                    self.take_dry_run(job, &found, &when);
                }
            }
        }
    }

    fn dry_run_failed(&mut self, job: u64, why: &str) {
        self.dry_runs.forget(job);
        if self.jobs.entry(job).is_some_and(|entry| entry.stage == Stage::Waiting) {
            self.say(job, format!("the dry run in the background shows no need: {why}"));
            self.dry_run_over(job);
        }
    }

    /// This job, and those that wait for the same dry run.
    fn alike(&self, job: u64, key: &Key) -> Vec<u64> {
        let Some(of) = self.jobs.entry(job) else { return Vec::new() };
        let is_alike = |other: &u64| {
            let entry = self.jobs.entry(*other);
            entry.is_some_and(|entry| {
                entry.uid == key.uid
                    && entry.spec.model == of.spec.model
                    && entry.spec.batch_size() == key.batch
                    && program(&entry.spec).as_str() == key.program
            })
        };
        let others = self.dry_runs.waiting().filter(|other| *other != job);
        std::iter::once(job).chain(others.filter(is_alike)).collect()
    }

    /// A job gets what a dry run of its program held.
    fn take_dry_run(&mut self, job: u64, found: &DryRun, when: &str) {
        self.dry_runs.forget(job);
        let Some(entry) = self.jobs.entry_mut(job).filter(|entry| entry.stage == Stage::Waiting) else {
            return;
        };
        entry.spec.dry_run = Some(found.clone());
        let entry = entry.clone();
        self.outbox.note(Note::Spec(job, Box::new(entry.spec.clone())));
        self.remark(job, format!("the dry run in the background, {when}, held {}", found.held));
        let needs = self.needs_of(&entry);
        self.learn(job, needs);
        self.dry_run_over(job);
    }
}
