//! Launch budgets: a job that slows a more important one gets less, and more again when all is calm.

use super::State;
use crate::action::{Action, Decision, LaunchBudget};
use crate::job::JobId;
use crate::reason::{Calm, Reason};
use crate::sharing_mode::SharingMode;
use crate::state::record::{Phase, Record};
use crate::units::Permille;

impl State {
    pub(super) fn set_budget(
        &mut self,
        id: JobId,
        budget: Option<LaunchBudget>,
        reason: Reason,
        out: &mut Vec<Decision>,
    ) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        if record.budget == budget {
            return;
        }
        record.budget = budget;
        record.budget_changed = self.now;
        // What changes every window would leave no room for the other reasons.
        let is_same = record.history.back().is_some_and(|(_, last)| last.is_alike(&reason));
        if !is_same {
            record.note(self.now, reason.clone());
        }
        out.push(Decision { action: Action::SetBudget { job: id, budget }, reason });
    }

    /// A job that is about to run, or was found running, is held to what it declared: not by a budget where it has an SM partition.
    pub(super) fn declare_share(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let is_divided =
            |at: &usize| self.settings.sharing_of(self.devices[*at].spec.id.0) == SharingMode::Partitions;
        let record = self.jobs.get(&id).filter(|record| !record.devices.iter().any(is_divided));
        let share = record.and_then(|record| record.job.share);
        if let Some(share) = share.filter(|share| *share < Permille::WHOLE) {
            let budget = LaunchBudget {
                share,
                in_flight: self.settings.throttle.in_flight,
                period: None,
                between: None,
            };
            self.set_budget(id, Some(budget), Reason::DeclaredShare, out);
        }
    }

    /// Checks a device after it, or a job on it, was observed.
    pub(super) fn throttle(&mut self, at: usize, out: &mut Vec<Decision>) {
        let settings = self.settings.throttle;
        if !settings.on {
            return;
        }
        self.free_fillers(at, out);
        let dev = &self.devices[at];
        let running: Vec<&Record> = dev
            .residents
            .iter()
            .filter_map(|resident| self.jobs.get(&resident.job))
            .filter(|record| record.phase == Phase::Running && record.held_for.is_none())
            .collect();
        if self.is_evened_out(at) {
            return;
        }
        if running.len() < 2 {
            // Alone again: nothing to be held back for.
            let alone: Vec<JobId> = running.iter().map(|record| record.job.id).collect();
            for id in alone {
                self.grow_budget(id, Permille::WHOLE, Calm::Alone, out);
            }
            return;
        }
        let suffers = running
            .iter()
            .filter(|record| record.speed.is_some_and(|speed| speed < settings.speed))
            .max_by_key(|record| record.importance());
        let least = running.iter().min_by_key(|record| record.importance());
        let Some(least) = least else { return };
        let busy =
            settings.smact.and_then(|limit| Some((limit, dev.seen.smact.filter(|smact| *smact > limit)?)));
        let reason = match (suffers, busy) {
            (Some(record), _) if record.job.priority > least.job.priority => {
                let speed = record.speed.unwrap_or(Permille::WHOLE);
                Some(Reason::SlowsNeighbour { job: record.job.id, speed })
            }
            (_, Some((limit, smact))) => Some(Reason::TooBusy { device: dev.spec.id, smact, limit }),
            _ => None,
        };
        let all: Vec<JobId> = running.iter().map(|record| record.job.id).collect();
        let least = least.job.id;
        match reason {
            Some(reason) => self.halve_budget(least, reason, out),
            None => {
                let why = Calm::NoneSuffers { least: settings.speed };
                all.into_iter().for_each(|id| self.grow_budget(id, settings.step, why, out));
            }
        }
    }

    fn may_change(&self, record: &Record) -> bool {
        self.now.minus(record.budget_changed) >= self.settings.throttle.every || record.budget.is_none()
    }

    fn halve_budget(&mut self, id: JobId, reason: Reason, out: &mut Vec<Decision>) {
        let settings = self.settings.throttle;
        let Some(record) = self.jobs.get(&id).filter(|record| self.may_change(record)) else { return };
        let before = record.budget.map_or(Permille::WHOLE, |budget| budget.share);
        let share = Permille((before.0 / 2).max(settings.least.0)).min(before);
        let budget = LaunchBudget { share, in_flight: settings.in_flight, period: None, between: None };
        self.set_budget(id, Some(budget), reason, out);
    }

    /// Lets a job go faster by a step, up to what it declared or to no budget at all.
    fn grow_budget(&mut self, id: JobId, step: Permille, why: Calm, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get(&id).filter(|record| self.may_change(record)) else { return };
        let Some(budget) = record.budget else { return };
        let most = record.job.share.unwrap_or(Permille::WHOLE).min(Permille::WHOLE);
        let share = budget.share.plus(step).min(most);
        let next = (share < Permille::WHOLE).then_some(LaunchBudget { share, between: None, ..budget });
        self.set_budget(id, next, Reason::Calm { why }, out);
    }
}
