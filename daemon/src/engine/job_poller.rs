//! The job poller: segments of running jobs are read at intervals.

use std::collections::BTreeMap;
use std::time::Duration;

use radrm_scheduler_core::{Bytes, Event, JobId, JobObservation};

use super::Engine;
use super::timers::Timer;
use crate::gpus::Poll;
use crate::status;

impl Engine {
    /// Polls whatever is due.
    pub(super) fn poll(&mut self) {
        self.find_programs();
        self.settle_doubts(None);
        if !self.timers.is_due(Timer::Poll, self.now.mono) {
            return;
        }
        self.timers.set(Timer::Poll, self.now.mono, Duration::from_millis(self.config.poll_ms));
        self.kill_again();
        let jobs: Vec<u64> = self.jobs.lives().keys().copied().collect();
        for job in jobs {
            if !self.is_off(job) && self.poll_job(job) {
                self.report_suspend(job);
                self.observe_steps(job);
                self.report_unreadable(job);
            }
        }
        self.bring_back();
        self.measure_loads();
        self.read_companies();
        self.measure_paces();
        self.observe_sharing();
        self.assign_slots();
        self.read_processes();
    }

    /// Jobs that were started and whose program was not there yet.
    fn find_programs(&mut self) {
        let pending: Vec<u64> = self
            .jobs
            .lives()
            .iter()
            .filter(|(_, live)| !live.reported || live.supervisor.is_none())
            .map(|(job, _)| *job)
            .collect();
        for job in pending {
            let Some(attempt) = self.jobs.entry(job).map(|entry| entry.attempt) else { continue };
            // What cannot be read now is read again soon.
            let Ok(report) = self.effects.status((job, attempt)) else { continue };
            let status::Report { kept, status } = report.unwrap_or_default();
            let Some(live) = self.jobs.live_mut(job) else { continue };
            if live.supervisor.is_none() {
                match (status.supervisor, kept) {
                    (_, false) => {
                        self.supervisor_ended((job, attempt));
                        continue;
                    }
                    (Some(supervisor), true) => {
                        live.supervisor = Some(supervisor);
                        self.effects.watch((job, attempt), supervisor);
                    }
                    // It is about to say who it is.
                    (None, true) => {}
                }
            }
            let Some(program) = status.program.filter(|_| !live.reported) else { continue };
            let Some(live) = self.jobs.live_mut(job) else { continue };
            live.program = Some(program);
            if let Some(owed) = live.observed.owed.take()
                && self.effects.lives(program)
            {
                self.effects.signal_job((job, attempt), live.supervisor, Some(program), owed);
            }
            self.report_fences(job, status.missing.as_ref());
            self.started(job, attempt, status.began_ms);
        }
    }

    /// Polls a job if that is due; returns whether it did.
    fn poll_job(&mut self, job: u64) -> bool {
        let Some(entry) = self.jobs.entry(job) else { return false };
        let (may_leave, uid) = (entry.spec.preemptible, entry.uid);
        let Some(live) = self.jobs.live_mut(job) else { return false };
        let now = self.now.mono;
        if !live.observed.is_due(now) {
            return false;
        }
        let Some(program) = live.program else { return false };
        let observed = &mut live.observed;
        observed.find_segment(Some(program), &*self.effects);
        // One whose user's segments took too much time is read later.
        let read = self.read_times.read(uid, now, |_| (observed.totals(), observed.pids()));
        let Some((seen, pids)) = read else { return false };
        let least = Duration::from_millis(self.config.poll_ms);
        let mut named: BTreeMap<String, u64> = self
            .node
            .gpus()
            .list
            .iter()
            .filter_map(|gpu| Some((gpu.uuid.clone(), *seen.get(&gpu.bytes)?)))
            .collect();
        // The driver gives memory in larger pieces, and a context is counted only where there is a limit.
        for sample in self.node.samples() {
            let own = sample.processes.iter().filter(|(pid, _)| pids.contains(pid));
            let held: u64 = own.map(|(_, bytes)| bytes).sum();
            if held > 0 {
                let counted = named.entry(sample.uuid.clone()).or_default();
                *counted = held.max(*counted);
            }
        }
        let most = named.values().copied().max().unwrap_or(0);
        // Of one that may have to leave it must be known early what it uses; so it must before the third step.
        let early = (may_leave && named.is_empty()) || observed.steps.is_near();
        let changed = named != observed.used || observed.segment().is_none() || early;
        observed.was_read(now, changed, least);
        observed.peak = observed.peak.max(most);
        let peak = observed.peak;
        if named == observed.used {
            return true;
        }
        observed.used = named.clone();
        for (uuid, used) in named {
            if let Some(device) = self.node.device(&uuid) {
                let seen =
                    JobObservation { used: Bytes(used), peak: Bytes(peak), ..JobObservation::default() };
                self.step(Event::JobObserved { job: JobId(job), device, seen });
            }
        }
        true
    }

    /// Says once of a job that its segment takes too long to read.
    fn report_unreadable(&mut self, job: u64) {
        let is_news = self.jobs.live_mut(job).is_some_and(|live| live.observed.is_newly_too_long());
        if is_news {
            let words = "its launches cannot be read: its segment takes too long; what they are used for is not known";
            self.remark(job, words.to_owned());
        }
    }

    /// GPUs were polled.
    pub(super) fn polled(&mut self, poll: Poll) {
        if let Some(sentence) = &poll.broken {
            self.health.report("machine", sentence.clone());
        }
        self.come_and_gone(&poll);
        if poll.samples.is_empty() {
            return;
        }
        self.report_unknown();
        self.count_loads(&poll.samples);
        self.node.polled_at(poll.begun, poll.unmetered);
        self.report_companies(&poll.samples);
        let mut samples = poll.samples;
        self.by_launches(&mut samples);
        self.note_outside(&samples);
        let mut jobs: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in self.jobs.on_gpus() {
            entry.devices.iter().for_each(|uuid| jobs.entry(uuid.clone()).or_default().push(entry.id));
        }
        let window = self.config.scheduler.preconditions.window;
        for (device, seen) in self.node.observe(samples, &jobs, Duration::from_millis(window.0)) {
            self.step(Event::DeviceObserved { device, seen });
        }
        self.add_idle_time();
    }

    /// Keeps the highest memory that a job was seen to hold beyond the daemon's end: a suspended job shows nothing
    /// of it.
    pub(super) fn keep_peak(&mut self, job: u64) {
        let seen = self.jobs.live(job).map(|live| live.observed.peak).filter(|peak| *peak > 0);
        if let Some(entry) = self.jobs.entry_mut(job)
            && seen > entry.peak
        {
            entry.peak = seen;
            self.touch(job);
        }
    }
}
