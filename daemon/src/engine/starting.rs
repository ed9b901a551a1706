//! Attempts that were started and whose programs are not there yet.

use radrm_scheduler_core::{Event, JobId, Millis, Phase};

use super::Engine;

/// Time from a start until its program is there, beside that of the prolog: many times what a busy node takes.
const START_TIMEOUT: Millis = Millis::from_mins(5);

impl Engine {
    /// Has jobs ended whose programs did not begin in time: as with a time limit, they hold GPUs and do not use them. A start
    /// that could not be carried out waits as long as that lasts.
    pub(super) fn end_overdue_starts(&mut self) {
        let now = self.now.at;
        let starting = self.jobs.lives().iter().filter(|(_, live)| !live.reported && live.program.is_none());
        let overdue = starting.filter_map(|(job, live)| {
            let entry = self.jobs.entry(*job)?;
            let own = START_TIMEOUT.plus(self.config.hooks.prolog_timeout());
            let limit = entry.spec.time_limit_ms.map_or(own, |limit| own.max(Millis(limit)));
            let phase = self.core.state.job(JobId(*job))?.phase;
            let is_overdue = |launched_ms: u64| Millis(launched_ms).plus(limit) <= now;
            let is_starting = matches!(phase, Phase::Launching | Phase::Running);
            // Those that start together wait for the last of them.
            let is_late = is_starting
                && is_overdue(live.launched_ms)
                && self.last_launch(entry).is_some_and(is_overdue);
            is_late.then_some((JobId(*job), entry.attempt, limit))
        });
        for (job, attempt, limit) in overdue.collect::<Vec<_>>() {
            self.step(Event::StartOverdue { job, attempt, limit });
        }
    }
}
