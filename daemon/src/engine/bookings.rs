//! Host use of jobs, beside what they booked.

use std::time::Duration;

use radrm_scheduler_core::{Bytes, Event, JobId, JobObservation};

use super::Engine;
use super::timers::Timer;
use crate::host::Snapshot;
use crate::suspend::Step;

/// One poll in so many reads the processes of jobs: that reads all of `/proc`.
const HOST_POLL_FACTOR: u32 = 5;

const MEMORY: &str = "takes more host memory than it booked";
const CPU: &str = "takes more CPU time than it booked";

impl Engine {
    /// Has the processes of the node read, where that is due.
    pub(super) fn read_processes(&mut self) {
        if self.jobs.lives().is_empty() || !self.timers.is_due(Timer::HostPoll, self.now.mono) {
            return;
        }
        let every = Duration::from_millis(self.config.poll_ms) * HOST_POLL_FACTOR;
        self.timers.set(Timer::HostPoll, self.now.mono, every);
        self.effects.read_processes();
    }

    /// Compares what the processes of jobs take with what the jobs booked.
    pub(super) fn check_bookings(&mut self, snapshot: &Snapshot) {
        let mut over = Vec::new();
        let effects = &self.effects;
        for (entry, live) in self.jobs.lives_with_entries() {
            let Some(supervisor) = live.supervisor else { continue };
            let sum = snapshot.below(supervisor.pid);
            let members = if live.host.has_memory_count() { &[] } else { sum.processes() };
            let counted = effects.memory_count((entry.id, entry.attempt), members).or(snapshot.memory);
            live.host.take(snapshot, &sum, counted);
            let (memory, cpu) = (entry.spec.host_memory, entry.spec.cpu_milli);
            // A suspended one has its device memory there, which no job reserves.
            let counts = memory > 0 && entry.suspension.step == Step::Running;
            if counts && sum.resident > memory && !live.reported_memory {
                let taken = sum.proportional();
                if taken > memory {
                    live.reported_memory = true;
                    over.push((entry.id, format!("{MEMORY}: {} of {}", Bytes(taken), Bytes(memory))));
                }
            }
            if live.host.is_over(cpu) && !live.reported_cpu {
                live.reported_cpu = true;
                let taken = live.host.cpu_milli.unwrap_or(0);
                let cores = |milli: u64| milli as f64 / 1000.0;
                over.push((entry.id, format!("{CPU}: {:.1} of {} cores", cores(taken), cores(cpu))));
            }
        }
        for (job, text) in over {
            self.note_booking(job, text);
        }
        self.report_host_use();
    }

    /// Reports to the scheduler what jobs take of the host.
    fn report_host_use(&mut self) {
        let mut news = Vec::new();
        for (entry, live) in self.jobs.lives_with_entries() {
            // A suspended one takes nothing.
            if entry.devices.is_empty() || !live.reported || entry.suspension.step != Step::Running {
                continue;
            }
            let Some(host_use) = live.host.news() else { continue };
            let used = entry.devices.first().and_then(|uuid| live.observed.used.get(uuid)).copied();
            let (used, peak) = (Bytes(used.unwrap_or_default()), Bytes(live.observed.peak));
            let seen = JobObservation { used, peak, host_use: Some(host_use), ..JobObservation::default() };
            news.push((entry.id, entry.devices[0].clone(), seen));
        }
        for (job, uuid, seen) in news {
            let Some(device) = self.node.device(&uuid) else { continue };
            self.step(Event::JobObserved { job: JobId(job), device, seen });
        }
    }

    /// Once for a job, also over restarts.
    fn note_booking(&mut self, job: u64, text: String) {
        let subject = text.split(':').next().unwrap_or_default();
        let lines = self.outbox.store().history(job).unwrap_or_default();
        if !lines.iter().any(|line| line.text.raw().starts_with(subject)) {
            self.remark(job, text);
        }
    }
}
