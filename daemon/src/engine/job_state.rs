//! The only place where the state of a job is derived: for rows, metrics and counts of the node.

use std::collections::BTreeMap;

use radrm_scheduler_core::{JobId, JobState, Phase};

use super::Engine;
use crate::store::{Entry, Stage};
use crate::suspend::Step;

/// Facts that make up the state of a job; each has an owner of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// The queue's.
    stage: Stage,
    /// Its user holds it.
    held: bool,
    /// The suspend manager's.
    step: Step,
    /// The scheduler's; `None` for a job that has ended.
    phase: Option<Phase>,
    /// A supervisor is there, and the program not yet.
    awaits_program: bool,
    /// Its attempt has ended but for the epilog.
    in_epilog: bool,
}

impl Facts {
    fn state(self) -> JobState {
        let is_stopping = self.phase == Some(Phase::Stopping);
        match (self.stage, self.step) {
            (Stage::Waiting, _) if self.held => JobState::Held,
            (Stage::Running | Stage::Starting, _) if is_stopping => JobState::Stopping,
            (Stage::Running, Step::Suspending) => JobState::Suspending,
            (Stage::Running, Step::Suspended) => JobState::Suspended,
            (Stage::Running, Step::Resuming | Step::Undoing) => JobState::Resuming,
            (Stage::Running, Step::Lost) => JobState::Stopping,
            (Stage::Running, _) if self.awaits_program => JobState::Starting,
            (Stage::Running, _) if self.in_epilog => JobState::Epilog,
            (stage, _) => stage.state(),
        }
    }
}

impl Engine {
    /// State of a job.
    pub(super) fn state_of(&self, entry: &Entry) -> JobState {
        let live = self.jobs.live(entry.id);
        let facts = Facts {
            stage: entry.stage,
            held: entry.held,
            step: entry.suspension.step,
            phase: self.core.state.phase(JobId(entry.id)),
            awaits_program: live.is_some_and(|live| !live.reported),
            in_epilog: self.epilogs.contains_key(&(entry.id, entry.attempt)),
        };
        facts.state()
    }

    /// Number of jobs in each state; of ended ones only those that are not on disk yet.
    pub(super) fn count_states(&self) -> BTreeMap<JobState, u64> {
        let mut counts: BTreeMap<JobState, u64> = JobState::ALL.map(|state| (state, 0)).into();
        for entry in self.jobs.entries().begun() {
            *counts.entry(self.state_of(entry)).or_default() += 1;
        }
        let index = self.jobs.entries().index();
        let held = index.held();
        counts.insert(JobState::Held, held);
        counts.insert(JobState::Waiting, index.waiting(None) - held);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_job_follows_the_table() {
        let waiting = Facts { phase: Some(Phase::Waiting), ..Facts::default() };
        let running = Facts { stage: Stage::Running, phase: Some(Phase::Running), ..Facts::default() };
        let stopping = Facts { phase: Some(Phase::Stopping), ..running };
        let at = |step| Facts { step, ..running };
        for (facts, expected) in [
            (waiting, "waiting"),
            (Facts { phase: Some(Phase::Held), ..waiting }, "waiting"),
            (Facts { held: true, ..waiting }, "held"),
            (Facts { stage: Stage::Starting, phase: Some(Phase::Launching), ..waiting }, "starting"),
            (Facts { awaits_program: true, phase: Some(Phase::Launching), ..running }, "starting"),
            (running, "running"),
            (Facts { held: true, ..running }, "running"),
            (at(Step::Suspending), "suspending"),
            (at(Step::Suspended), "suspended"),
            (at(Step::Resuming), "resuming"),
            (at(Step::Undoing), "resuming"),
            (at(Step::Lost), "stopping"),
            (stopping, "stopping"),
            (Facts { stage: Stage::Starting, ..stopping }, "stopping"),
            (Facts { step: Step::Suspended, ..stopping }, "stopping"),
            (Facts { awaits_program: true, ..stopping }, "stopping"),
            (Facts { in_epilog: true, ..running }, "epilog"),
            (Facts { in_epilog: true, ..stopping }, "stopping"),
            (Facts { stage: Stage::Ended, phase: None, ..running }, "ended"),
        ] {
            assert_eq!(facts.state().as_str(), expected, "{facts:?}");
        }
    }
}
