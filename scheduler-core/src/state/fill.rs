//! Jobs with targets and the jobs beside them: who is held back, and by how much.

use super::State;
use crate::action::{Decision, LaunchBudget};
use crate::fill::{Fill, FillBounds, max_min};
use crate::job::JobId;
use crate::reason::{Calm, Reason};
use crate::settings::Objective;
use crate::state::record::{Phase, Record};
use crate::target::{Standing, TargetObservation};
use crate::units::{Millis, Permille};

/// Launch limit of a job for the sake of one beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    /// The job with the target.
    target: JobId,
    share: Permille,
    in_flight: u16,
    between: bool,
    period: Option<Millis>,
    pressure: u32,
}

impl State {
    /// A window of a job was observed.
    pub(super) fn observe_target(&mut self, id: JobId, seen: TargetObservation, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id).filter(|record| record.phase == Phase::Running) else {
            return;
        };
        record.target_seen = seen;
        if !self.settings.throttle.on {
            return;
        }
        match self.settings.throttle.objective {
            Objective::Targets => self.keep_target(id, out),
            Objective::MaxMin => self.even_out(id, out),
        }
    }

    fn keep_target(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let fillers = self.fillers(id);
        let settings = self.settings.throttle;
        let Some(record) = self.jobs.get_mut(&id) else { return };
        let count = u32::try_from(fillers.len()).unwrap_or(1);
        let bounds = FillBounds { fillers: count, step: settings.step, least: settings.least };
        record.fill = match (record.job.target.pressure(&record.target_seen), record.fill) {
            // Nothing is observed that could be kept: no job is held back for it.
            (None, _) => None,
            _ if fillers.is_empty() => None,
            (Some(pressure), before) => {
                Some(Fill::next(before, pressure, record.target_seen.under_way, bounds))
            }
        };
        self.hold_back(&fillers, out);
    }

    /// Jobs that fill what a job with a target leaves: those beside it that have no target and are not more important.
    fn fillers(&self, id: JobId) -> Vec<JobId> {
        let Some(record) = self.jobs.get(&id).filter(|record| !record.job.target.is_none()) else {
            return Vec::new();
        };
        let fills = |other: &Record| {
            other.phase.on_devices()
                && other.job.target.is_none()
                && other.job.priority <= record.job.priority
        };
        let mut found = self.beside(record);
        found.retain(|other| self.jobs.get(other).is_some_and(fills));
        found
    }

    /// Other jobs on a job's devices, each once.
    fn beside(&self, record: &Record) -> Vec<JobId> {
        let residents = record.devices.iter().flat_map(|at| &self.devices[*at].residents);
        let mut found: Vec<JobId> =
            residents.map(|resident| resident.job).filter(|job| *job != record.job.id).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Launch limit of a job for the sake of those with targets beside it: of several the lowest counts.
    fn hold_of(&self, id: JobId) -> Option<Hold> {
        let record = self.jobs.get(&id)?;
        if !record.job.target.is_none() || self.settings.throttle.objective != Objective::Targets {
            return None;
        }
        let holds = self.beside(record).into_iter().filter_map(|target| {
            let beside = self.jobs.get(&target)?;
            let fill = beside.fill.filter(|_| beside.phase == Phase::Running)?;
            let fillers = self.fillers(target);
            let count = u32::try_from(fillers.len()).unwrap_or(1);
            let (share, in_flight) = fill.each(count, self.settings.throttle.in_flight);
            fillers.contains(&id).then(|| Hold {
                target,
                share,
                in_flight,
                between: fill.between,
                period: beside.job.target.period(),
                pressure: beside.job.target.pressure(&beside.target_seen).unwrap_or(0),
            })
        });
        holds.min_by_key(|hold| (hold.share, !hold.between, hold.in_flight, hold.target))
    }

    /// Sets the budgets of jobs beside those with targets, and lifts those that are held back no longer.
    fn hold_back(&mut self, jobs: &[JobId], out: &mut Vec<Decision>) {
        for &id in jobs {
            let hold = self.hold_of(id);
            let Some(record) = self.jobs.get_mut(&id) else { continue };
            let was_held = std::mem::replace(&mut record.held_for, hold.map(|hold| hold.target));
            let declared = record.job.share.unwrap_or(Permille::WHOLE);
            let in_flight = self.settings.throttle.in_flight;
            match hold {
                Some(Hold { target, share, in_flight, between, period, pressure }) => {
                    let share = share.min(declared);
                    let between = between.then_some(target);
                    let is_held = share < Permille::WHOLE || between.is_some();
                    let budget = is_held.then_some(LaunchBudget { share, in_flight, period, between });
                    self.set_budget(id, budget, Reason::KeepsTarget { job: target, pressure }, out);
                }
                None => {
                    let Some(job) = was_held else { continue };
                    let runs = |target: &Record| target.phase == Phase::Running;
                    let is_there =
                        self.jobs.get(&id).is_some_and(|record| self.beside(record).contains(&job));
                    let why = match is_there && self.jobs.get(&job).is_some_and(runs) {
                        true => Calm::TargetUnseen { job },
                        false => Calm::TargetLeft { job },
                    };
                    let budget = (declared < Permille::WHOLE).then_some(LaunchBudget {
                        share: declared,
                        in_flight,
                        period: None,
                        between: None,
                    });
                    self.set_budget(id, budget, Reason::Calm { why }, out);
                }
            }
        }
    }

    /// A job comes to a device: it begins with what those with targets there leave, and those beside it share with it.
    pub(super) fn begin_beside(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get(&id).filter(|_| self.targets) else { return };
        let mut all = self.beside(record);
        all.push(id);
        self.hold_back(&all, out);
    }

    /// Frees the jobs of a device that are held back for one that is gone.
    pub(super) fn free_fillers(&mut self, at: usize, out: &mut Vec<Decision>) {
        if !self.targets {
            return;
        }
        let is_held = |id: &JobId| self.jobs.get(id).is_some_and(|record| record.held_for.is_some());
        let held: Vec<JobId> =
            self.devices[at].residents.iter().map(|resident| resident.job).filter(is_held).collect();
        self.hold_back(&held, out);
    }

    /// Max-min fairness: once a window all jobs of a device are compared, when the last of them was observed.
    fn even_out(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let settings = self.settings.throttle;
        let devices = self.jobs.get(&id).map(|record| record.devices.clone()).unwrap_or_default();
        for at in devices {
            let residents = self.devices[at].residents.iter().map(|resident| resident.job);
            let running: Vec<&Record> = residents
                .filter_map(|job| self.jobs.get(&job))
                .filter(|record| record.phase == Phase::Running)
                .collect();
            if running.iter().map(|record| record.job.id).max() != Some(id) || running.len() < 2 {
                continue;
            }
            let share = |record: &Record| record.budget.map_or(Permille::WHOLE, |budget| budget.share);
            let known: Option<Vec<_>> = running
                .iter()
                .map(|record| Some((record.job.id, record.target_seen.speed?, share(record))))
                .collect();
            let Some(known) = known else { continue };
            let slowest = known.iter().map(|job| job.1).min().unwrap_or_default();
            for (job, share) in max_min(&known, settings.step, settings.least) {
                let declared = self.jobs.get(&job).and_then(|record| record.job.share);
                let share = share.min(declared.unwrap_or(Permille::WHOLE));
                let speed = known.iter().find(|one| one.0 == job).map_or(Permille::WHOLE, |one| one.1);
                let budget = (share < Permille::WHOLE).then_some(LaunchBudget {
                    share,
                    in_flight: settings.in_flight,
                    period: None,
                    between: None,
                });
                self.set_budget(job, budget, Reason::Fair { speed, slowest }, out);
            }
        }
    }

    /// Returns true if the budgets of a device's jobs follow from max-min fairness.
    pub(super) fn is_evened_out(&self, at: usize) -> bool {
        self.settings.throttle.objective == Objective::MaxMin && self.devices[at].residents.len() > 1
    }

    /// Progress of a running job against its target.
    pub(super) fn standing(&self, record: &Record) -> Option<Standing> {
        (record.phase == Phase::Running && !record.job.target.is_none()).then(|| Standing {
            target: record.job.target.clone(),
            seen: record.target_seen.clone(),
            fill: record.fill.map(|fill| fill.part),
            between: record.fill.is_some_and(|fill| fill.between),
            fillers: u32::try_from(self.fillers(record.job.id).len()).unwrap_or(u32::MAX),
            ignored: self.settings.throttle.objective != Objective::Targets || !self.settings.throttle.on,
        })
    }
}
