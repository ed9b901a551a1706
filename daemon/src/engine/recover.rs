//! Coming back after a crash: which jobs wait, which run, which ended meanwhile.
//!
//! | on disk | lock of the status file | the file says | then |
//! |---|---|---|---|
//! | waiting | | | it waits |
//! | starting, running | held | | its supervisor lives: adopted, suspended or running; what was on its way is brought back |
//! | | free | an end | it ended meanwhile |
//! | | free | a program and no end | the supervisor was killed: so is the job; or the machine was restarted: back to the queue |
//! | | free | no program, or no file | nothing of the attempt ever ran: it waits |
//! | | | it cannot be read | the daemon does not start |
//!
//! Signals to a job are on disk too: one that was cancelled is not tried again, one that gave its place to another
//! is. No job is started before all are recovered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use radrm_protocol::limits::DrainRow;
use radrm_scheduler_core::{
    Bytes, Event, Job, JobId, Millis, Node, NodeId, Observation, Outcome, UserId, UserLimits,
};

use super::arrays::KnownFailures;
use super::jobs::{Live, Seen};
use super::{Engine, needs};
use crate::error::DaemonError;
use crate::status::{Report, Status};
use crate::store::{Entry, Stage, drains};
use crate::suspend::Step;

/// Time for which reading a status file is tried again: what prevents it may go away.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// State in which an attempt was found.
#[derive(Debug, PartialEq)]
enum Found {
    /// It waits.
    Waiting,
    /// Its supervisor lives.
    Kept(Status),
    /// It ended.
    Over(Status),
    /// It ended with the node.
    Rebooted,
    /// Nothing of it ever ran.
    Never,
}

/// State of an attempt, from its stage on disk and its status file. Only a file that is not there, or that names no
/// program, shows that it never ran.
fn classify(stage: Stage, same_boot: bool, has_hooks: bool, report: Option<Report>) -> Found {
    if stage == Stage::Waiting {
        return Found::Waiting;
    }
    let Report { kept, status } = report.unwrap_or_default();
    match (same_boot, kept) {
        // An end that was written just before the restart of the node still counts.
        (false, _) if status.end.is_some() => Found::Over(status),
        (false, _) => Found::Rebooted,
        (true, true) => Found::Kept(status),
        (true, false) if status.program.is_some() || status.end.is_some() => Found::Over(status),
        // Its prolog may have run.
        (true, false) if has_hooks && status.supervisor.is_some() => Found::Over(status),
        (true, false) => Found::Never,
    }
}

impl Engine {
    pub(super) fn recover(&mut self) -> Result<(), DaemonError> {
        let failed = DaemonError::QueueRead;
        let drains = drains::all(&self.outbox.store().connection).map_err(failed)?;
        self.node.set_drained(drains.into_iter().collect());
        self.step(Event::Paused { paused: true });
        self.announce();
        for (uid, gpu_ms, _) in self.outbox.store().usage().map_err(failed)? {
            self.step(Event::UsageRestored { user: UserId(uid), gpu_ms });
        }
        let store = &self.outbox.store();
        self.effects.sweep_dry_runs(&|job| store.job(job).ok().flatten().map(|entry| entry.uid));
        // All are read before anything changes: nothing happened where one cannot be read.
        let entries = self.outbox.store().open_jobs().map_err(failed)?;
        let users = entries.iter().map(|entry| (entry.uid, entry.user.clone()));
        self.recover_limits(users.collect())?;
        let found = entries.into_iter().map(|entry| Ok((self.find(&entry)?, entry)));
        let found: Vec<(Found, Entry)> = found.collect::<Result<_, DaemonError>>()?;
        let (mut waiting, mut over) = (Vec::new(), Vec::new());
        let attempts: BTreeMap<u64, u32> = found.iter().map(|(_, entry)| (entry.id, entry.attempt)).collect();
        self.effects.clear_others(&attempts);
        for (found, entry) in found {
            let attempt = (entry.id, entry.attempt);
            match found {
                Found::Waiting => waiting.push(entry),
                Found::Kept(status) => {
                    self.adopt(entry, &status, true);
                    if let Some(supervisor) = status.supervisor {
                        self.effects.watch(attempt, supervisor);
                    }
                }
                Found::Over(status) => {
                    self.adopt(entry, &status, false);
                    over.push((attempt, status));
                }
                Found::Rebooted => {
                    self.adopt(entry, &Status::default(), false);
                    self.step(Event::Finished {
                        job: JobId(attempt.0),
                        attempt: attempt.1,
                        outcome: Outcome::Lost,
                    });
                }
                Found::Never if entry.spec.together.is_some() => {
                    // Others may wait for it. Its number stays used: the next start has a barrier of its own.
                    let first = entry.spec.together.map(|place| place.first(entry.id));
                    let first = first.and_then(|first| Some((first, *attempts.get(&first)?)));
                    self.give_up_found(&entry, first);
                    waiting.push(Entry { stage: Stage::Waiting, ..entry });
                }
                Found::Never => {
                    let attempts = entry.attempt.saturating_sub(1);
                    waiting.push(Entry { stage: Stage::Waiting, attempt: attempts, ..entry });
                }
            }
        }
        let mut submitted = Vec::new();
        for mut entry in waiting {
            self.resolve_needs(&mut entry);
            submitted.push((entry.id, entry.cancelled));
            self.jobs.insert(entry.id, entry);
        }
        // Those that wait learn from what ended meanwhile.
        for (attempt, status) in over {
            self.attempt_over(attempt, status, true, Seen::default());
        }
        // Jobs come in the order of their numbers and wait for lower ones only, so that what ends meanwhile is in no range that
        // was searched before.
        let mut failures = KnownFailures::new();
        for (id, cancelled) in submitted {
            let Some(entry) = self.jobs.entry(id) else { continue };
            let (awaits_dry_run, assumed) = (self.is_for_dry_run(entry), self.config.scheduler.assumed);
            let mut job = Box::new(Job { admitted: true, awaits_dry_run, ..needs::job(entry, assumed) });
            if awaits_dry_run {
                self.expect_dry_run(id);
            }
            self.name_failures(&mut job, &mut failures);
            self.mark_begun(&mut job);
            self.touch(id);
            self.step(Event::Submitted { job });
            if cancelled {
                self.cancel(id);
            }
        }
        self.recover_changes()?;
        // Attempts that run count towards GPU-hours. All are counted before a job starts.
        self.review_limits();
        while self.is_counting() {
            self.count_some();
        }
        // The order of the queue is known now.
        self.step(Event::Paused { paused: false });
        Ok(())
    }

    fn announce(&mut self) {
        let cpus = match self.config.cpus {
            0 => std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            cpus => u64::from(cpus),
        };
        let memory = match self.config.host_memory {
            0 => super::rows::host_memory(),
            bytes => bytes,
        };
        let memory_bandwidth = Some(self.config.memory_bandwidth).filter(|bytes| *bytes > 0);
        let node = Node { id: NodeId(0), cpu_milli: cpus * 1000, memory: Bytes(memory), memory_bandwidth };
        self.step(Event::NodeAdded { node });
        for device in self.node.descriptions() {
            let id = device.id;
            self.step(Event::DeviceAdded { device });
            // Until the first poll shows more.
            self.step(Event::DeviceObserved { device: id, seen: Observation::unmeasured(Bytes::ZERO) });
        }
        self.set_user_limits();
        // Until an administrator takes it back, whatever becomes of the daemon.
        for (uuid, DrainRow { reason, .. }) in self.node.drained().clone() {
            let Some(device) = self.node.device(&uuid) else { continue };
            self.step(Event::DeviceDrained { device, drained: true });
            radrm_text::output::say(
                crate::process::NAME,
                &format!(
                    "{uuid} is drained: it takes no new jobs{}",
                    reason.map_or_else(String::new, |r| format!(" ({r})"))
                ),
            );
        }
    }

    /// Gives the core the limits of users.
    pub(super) fn set_user_limits(&mut self) {
        let limits =
            UserLimits { jobs: Some(self.config.jobs_per_user), priority: Some(self.config.user_priority) };
        self.step(Event::UserLimitsSet { limits });
    }

    /// Finds the state of an attempt.
    fn find(&mut self, entry: &Entry) -> Result<Found, DaemonError> {
        if entry.stage == Stage::Waiting {
            return Ok(classify(entry.stage, true, false, None));
        }
        let begun = Instant::now();
        let report = loop {
            match self.effects.status((entry.id, entry.attempt)) {
                Ok(report) => break report,
                Err(_) if begun.elapsed() < READ_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
                Err(why) => return Err(DaemonError::FateUnknown { job: entry.id, why }),
            }
        };
        Ok(classify(entry.stage, entry.boot == self.boot, self.config.hooks.is_any(), report))
    }

    fn adopt(&mut self, mut entry: Entry, status: &Status, alive: bool) {
        let (id, attempt, cancelled) = (entry.id, entry.attempt, entry.cancelled);
        let reported = status.program.is_some();
        entry.stage = Stage::Running;
        let (step, ran_ms) = (entry.suspension.step, entry.suspension.ran_ms);
        if ran_ms > 0 {
            // Time in which it was suspended does not count.
            entry.started_ms = entry.started_ms.or((step != Step::Suspended).then_some(self.now.at.0));
        } else if status.program.is_some() && entry.started_ms.is_none() {
            entry.started_ms = Some(status.began_ms);
            entry.first_start_ms = entry.first_start_ms.or(entry.started_ms);
        }
        let since = Millis(entry.started_ms.unwrap_or(self.now.at.0).saturating_sub(ran_ms));
        let devices = self.node.devices(&entry.devices);
        let reserved = entry.reserved.map(Bytes);
        let leaving = entry.leaving.clone().map(Box::new);
        self.resolve_needs(&mut entry);
        let assumed = self.config.scheduler.assumed;
        let mut job = Box::new(Job { attempts: attempt, admitted: true, ..needs::job(&entry, assumed) });
        self.mark_begun(&mut job);
        self.jobs.insert(id, entry);
        if alive {
            let live = Live {
                launched_ms: self.now.at.0,
                supervisor: status.supervisor,
                program: status.program,
                reported,
                missing: status.missing.clone().unwrap_or_default(),
                ..Live::default()
            };
            self.jobs.begin(id, live);
            self.review_fences();
        }
        self.touch(id);
        if alive && step == Step::Suspended {
            self.adopt_suspended(job);
        } else {
            self.step(Event::Adopted { job, devices, since, reserved, leaving });
        }
        if alive {
            // A job that could be suspended is not made to leave by signals.
            self.check_suspend(id);
            self.adopted_on_its_way(id);
            self.serve_mps_again((id, attempt));
        }
        // Also where it is over: it is not tried again, whatever became of it.
        if cancelled {
            self.step(Event::Cancelled { job: JobId(id) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::End;
    use radrm_os::ProcessIdentity;

    #[test]
    fn what_is_found_of_an_attempt_follows_the_table() {
        let who = ProcessIdentity { pid: 1, start: 1 };
        let none = Status::default();
        let starting = Status { supervisor: Some(who), ..Status::default() };
        let running = Status { program: Some(who), ..starting.clone() };
        let ended = Status { end: Some(End::default()), ..running.clone() };
        let report = |kept, status: &Status| Some(Report { kept, status: status.clone() });
        for stage in [Stage::Starting, Stage::Running] {
            for (same_boot, found, expected) in [
                (true, report(true, &none), Found::Kept(none.clone())),
                (true, report(true, &running), Found::Kept(running.clone())),
                (true, report(false, &ended), Found::Over(ended.clone())),
                (true, report(false, &running), Found::Over(running.clone())),
                (true, report(false, &starting), Found::Never),
                (true, None, Found::Never),
                (false, report(false, &ended), Found::Over(ended.clone())),
                (false, report(false, &running), Found::Rebooted),
                (false, None, Found::Rebooted),
            ] {
                assert_eq!(
                    classify(stage, same_boot, false, found.clone()),
                    expected,
                    "{same_boot} {found:?}"
                );
            }
        }
        assert_eq!(classify(Stage::Waiting, false, false, None), Found::Waiting);
        let prepared = classify(Stage::Running, true, true, report(false, &starting));
        assert_eq!(prepared, Found::Over(starting), "its epilog has to run");
    }
}
