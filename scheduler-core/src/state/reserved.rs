//! Advance reservations in the scheduler: which devices are closed to a job, and what happens as they begin and end.

use radrm_base::UserId;

use super::{State, Timer};
use crate::action::Decision;
use crate::advance::{AdvanceReservation, Clash, Kept};
use crate::job::JobId;
use crate::reason::{Reason, Wait};
use crate::state::record::{Phase, Record};
use crate::units::Millis;

/// A job that is to start, as advance reservations see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    user: UserId,
    /// Longest time that it may run; `None`: there is no limit.
    limit: Option<Millis>,
    /// The same, with the time that it has to leave after that.
    takes: Option<Millis>,
}

impl State {
    /// These reservations hold from now on, and no others. Jobs that run stay, but where a reservation evicts them.
    pub(super) fn set_advance_reservations(&mut self, list: Vec<AdvanceReservation>) {
        self.reopen_reserved();
        self.advance = list;
        self.timers.retain(|(_, timer)| *timer != Timer::Reserved);
        let now = self.now;
        let turns = self.advance.iter().flat_map(|of| [of.begins.minus(of.lead), of.begins, of.ends]);
        self.timers.extend(turns.filter(|at| *at > now).map(|at| (at, Timer::Reserved)));
        self.reopen_reserved();
    }

    /// A reservation begins or ends, or its lead time begins.
    pub(super) fn reservations_turn(&mut self) {
        self.reopen_reserved();
        let now = self.now;
        self.advance.retain(|of| of.ends > now);
    }

    /// Other jobs may start on reserved devices now than before.
    fn reopen_reserved(&mut self) {
        if self.advance.is_empty() {
            return;
        }
        // It may be for a job that those devices are closed to.
        self.reservation = None;
        for record in self.jobs.values_mut().filter(|record| record.phase.queued()) {
            record.failed = None;
            record.wait = record.wait.take().filter(|wait| !matches!(wait, Wait::Kept { .. }));
        }
        let of = |of: &AdvanceReservation| of.devices.clone();
        let devices: Vec<_> = self.advance.iter().flat_map(of).collect();
        for device in devices {
            if let Some(&at) = self.numbers.get(&device) {
                self.changed(at);
            }
        }
        self.pass_due = true;
    }

    /// The job as reservations see it; `None`: there are no reservations. Of a group that starts together the longest run counts.
    pub(crate) fn claimant(&self, id: JobId) -> Option<Claimant> {
        if self.advance.is_empty() {
            return None;
        }
        let record = self.jobs.get(&id)?;
        let left = |record: &Record| {
            let ran = if record.image.is_some() { record.ran } else { Millis::ZERO };
            record.job.time_limit.map(|limit| limit.minus(ran))
        };
        let limit = match record.gathers() {
            Some(group) => {
                let all = self.members(group).map(left).collect::<Option<Vec<_>>>();
                all.and_then(|all| all.into_iter().max())
            }
            None => left(record),
        };
        let takes = limit.map(|limit| limit.plus(self.settings.eviction.kill_after));
        Some(Claimant { user: record.job.user, limit, takes })
    }

    /// The reservation that closes a device to a job that would start there at this time.
    pub(crate) fn closed_by(
        &self,
        at: usize,
        who: &Claimant,
        start: Millis,
    ) -> Option<(&AdvanceReservation, Clash)> {
        let device = self.devices[at].spec.id;
        let others = |of: &&AdvanceReservation| of.devices.contains(&device) && !of.users.contains(&who.user);
        let clash = |of: &'_ AdvanceReservation| of.clash(start, who.limit, who.takes);
        let found = self.advance.iter().filter(others).filter_map(|of| Some((of, clash(of)?)));
        found.min_by_key(|(of, _)| (of.begins, std::cmp::Reverse(of.ends)))
    }

    /// Returns true if a device is kept for a job's user now.
    pub(crate) fn is_kept_for(&self, at: usize, who: &Claimant) -> bool {
        let device = self.devices[at].spec.id;
        let own = |of: &AdvanceReservation| {
            of.holds(self.now) && of.users.contains(&who.user) && of.devices.contains(&device)
        };
        self.advance.iter().any(own)
    }

    /// Returns true if the job could start on these devices now but for what is on them.
    pub(crate) fn are_open(&self, devices: &[usize], id: JobId) -> bool {
        let who = self.claimant(id);
        who.is_none_or(|who| devices.iter().all(|at| self.closed_by(*at, &who, self.now).is_none()))
    }

    /// Asks jobs to leave that still run on devices which are kept for others, where the reservation says so.
    pub(super) fn clear_reserved(&mut self, out: &mut Vec<Decision>) {
        let holding = self.advance.iter().filter(|of| of.evicts && of.holds(self.now));
        let mut leaving = Vec::new();
        for of in holding {
            let places = of.devices.iter().filter_map(|device| self.numbers.get(device));
            let there = places.flat_map(|at| self.devices[*at].residents.iter().map(|resident| resident.job));
            let may_go = |id: &JobId| {
                self.jobs.get(id).is_some_and(|record| {
                    record.phase == Phase::Running
                        && record.job.preemption.allowed
                        && !of.users.contains(&record.job.user)
                        && !of.spared.contains(&record.job.user)
                })
            };
            leaving.extend(there.filter(may_go).map(|id| (id, of.text.clone())));
        }
        for (id, kept) in leaving {
            // A job of several GPUs is listed for each: it runs for the first alone.
            self.evict(id, Reason::KeptForOthers { kept: Box::new(kept) }, out);
        }
    }
}

/// Reason that a job waits for a device that is kept for others.
pub(super) fn wait((of, clash): (&AdvanceReservation, Clash), would_do: bool) -> Wait {
    Wait::Kept { kept: Box::new(Kept { reservation: of.text.clone(), clash, would_do }) }
}
