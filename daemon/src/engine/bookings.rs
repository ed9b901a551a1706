//! What jobs take of the host, beside what they booked.

use std::time::Duration;

use radrm_scheduler_core::Bytes;

use super::Engine;
use super::timers::Timer;
use crate::suspend::Step;

/// Looks at jobs' processes are as far apart as so many others: each reads all of `/proc`.
const SELDOM: u32 = 5;

const MEMORY: &str = "takes more host memory than it booked";
const CPU: &str = "takes more CPU time than it booked";

impl Engine {
    /// Looks at the processes of jobs.
    pub(super) fn take_bookings(&mut self) {
        if self.jobs.live.is_empty() || !self.timers.is_due(Timer::HostPoll, self.now.mono) {
            return;
        }
        let every = Duration::from_millis(self.config.look_ms) * SELDOM;
        self.timers.set(Timer::HostPoll, self.now.mono, every);
        let look = self.effects.processes();
        let mut over = Vec::new();
        for (job, live) in &mut self.jobs.live {
            let Some(supervisor) = live.supervisor else { continue };
            let sum = look.below(supervisor.pid);
            live.host.take(&look, &sum);
            let Some(entry) = self.jobs.entries.get(job) else { continue };
            let (memory, cpu) = (entry.spec.host_memory, entry.spec.cpu_milli);
            // A suspended one has its device memory there, which no job reserves.
            let counts = memory > 0 && entry.suspension.step == Step::Running;
            if counts && sum.resident > memory && !live.told_memory {
                let taken = sum.proportional();
                if taken > memory {
                    live.told_memory = true;
                    over.push((*job, format!("{MEMORY}: {} of {}", Bytes(taken), Bytes(memory))));
                }
            }
            if live.host.is_over(cpu) && !live.told_cpu {
                live.told_cpu = true;
                let taken = live.host.cpu_milli.unwrap_or(0);
                let cores = |milli: u64| milli as f64 / 1000.0;
                over.push((*job, format!("{CPU}: {:.1} of {} cores", cores(taken), cores(cpu))));
            }
        }
        for (job, text) in over {
            self.note_booking(job, text);
        }
    }

    /// Once for a job, also over restarts.
    fn note_booking(&mut self, job: u64, text: String) {
        let subject = text.split(':').next().unwrap_or_default();
        let lines = self.outbox.store.history(job).unwrap_or_default();
        if !lines.iter().any(|line| line.text.starts_with(subject)) {
            self.remark(job, text);
        }
    }
}
