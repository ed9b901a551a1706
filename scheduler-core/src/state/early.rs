//! Reservation of a running job by what it held after its first optimizer steps.

use radrm_estimator::early::{Basis, Early, Shapes, bound};

use super::State;
use crate::action::{Action, Decision};
use crate::early::{EarlyBound, FirstSteps};
use crate::job::JobId;
use crate::reason::Reason;
use crate::settings::Memory;
use crate::state::record::{Phase, Record};
use crate::units::Bytes;
use radrm_need::{Need, Source};

impl State {
    /// A job has made its first steps. What it holds then bounds what it will need, if all that follows is known to take
    /// no more; else all stays as it is.
    pub(super) fn observe_steps(
        &mut self,
        id: JobId,
        attempt: u32,
        first: FirstSteps,
        out: &mut Vec<Decision>,
    ) {
        let Some(record) = self.jobs.get(&id).filter(|record| self.may_tighten(record, attempt)) else {
            return;
        };
        let Some(fixed) = first.fixed else { return };
        let prior = self.prior(record);
        let held = first.held.max(record.peak);
        let aside = record.reserved.unwrap_or_else(|| self.smallest(record));
        let seen = Early { steps: first.steps, reserved: held.0, shapes: Shapes::Fixed };
        let found = bound(&seen, prior.0, &[]);
        if found.basis != Basis::FixedShapes {
            return;
        }
        // One that was tightened before a restart keeps the tighter bound, or has broken it already.
        let bound = Bytes(found.bytes).min(aside);
        let (devices, peak) = (record.devices.clone(), record.peak);
        if let Some(record) = self.jobs.get_mut(&id) {
            record.early = Some(EarlyBound { bound, prior });
        }
        if peak > bound {
            return self.loosen(id, out);
        }
        if bound == aside {
            return;
        }
        self.set_claim(id, bound, Reason::StepsSettled { steps: first.steps, held, bound, fixed }, out);
        devices.into_iter().for_each(|at| self.changed(at));
    }

    /// Returns true if a bound may be taken from its first steps.
    /// A declared need is its user's: with less reserved, a job within it could take what another was promised. An
    /// equal run shows the peak itself. A job that ran out of memory has shown that bounds were too low.
    fn may_tighten(&self, record: &Record, attempt: u32) -> bool {
        let need = record.job.need.as_ref();
        self.settings.memory == Memory::Reserved
            && self.settings.early_bounds
            && record.phase == Phase::Running
            && record.attempt == attempt
            && !record.devices.is_empty()
            && !record.job.exclusive
            && record.ooms == 0
            && record.floor == Bytes::ZERO
            && !record.early_broken
            && need.is_none_or(is_estimate)
    }

    /// The bound of before it ran.
    fn prior(&self, record: &Record) -> Bytes {
        let smallest = self.smallest(record);
        let largest = self.largest(record.job.model.as_deref());
        let need = record.job.need.as_ref().map(|need| need.reserved(self.settings.slack, largest));
        need.map_or(smallest, |need| need.min(smallest))
    }

    /// The smallest of its devices.
    fn smallest(&self, record: &Record) -> Bytes {
        let sizes = record.devices.iter().map(|at| self.devices[*at].spec.capacity);
        sizes.min().unwrap_or(Bytes::ZERO)
    }

    /// A job that holds more than its first steps bounded gets the bound of before again, as far as there is room.
    pub(super) fn loosen_if_broken(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let broken = |record: &Record| record.early.is_some_and(|early| record.peak > early.bound);
        if self.jobs.get(&id).is_some_and(broken) {
            self.loosen(id, out);
        }
    }

    fn loosen(&mut self, id: JobId, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        record.early_broken = true;
        let Some(EarlyBound { bound, prior }) = record.early.take() else { return };
        let (peak, devices) = (record.peak, record.devices.clone());
        let before = record.reserved.unwrap_or(prior);
        let wanted = prior.max(peak);
        // What is set aside never exceeds a device: what the job holds beyond that counts as it is seen.
        let room = |at: &usize| {
            let dev = &self.devices[*at];
            let others = dev.residents.iter().filter(|resident| resident.job != id).map(|other| other.claim);
            dev.spec.capacity.minus(others.sum::<Bytes>())
        };
        let claim = devices.iter().map(room).min().unwrap_or(before).min(wanted).max(before);
        // The job that devices are kept for may find less beside this one than was expected.
        if self.reservation.as_ref().is_some_and(|kept| devices.iter().any(|at| kept.devices.contains(at))) {
            self.reservation = None;
        }
        self.pass_due = true;
        self.set_claim(id, claim, Reason::StepsExceeded { bound, peak, reserved: claim }, out);
    }

    /// Sets so much aside for a job on each of its devices.
    pub(super) fn set_claim(&mut self, id: JobId, claim: Bytes, reason: Reason, out: &mut Vec<Decision>) {
        let Some(record) = self.jobs.get_mut(&id) else { return };
        (record.reserved, record.open) = (Some(claim), false);
        record.note(self.now, reason.clone());
        for at in record.devices.clone() {
            for resident in self.devices[at].residents.iter_mut().filter(|resident| resident.job == id) {
                resident.claim = claim;
                resident.whole = false;
            }
        }
        out.push(Decision { action: Action::SetAside { job: id, reserved: claim }, reason });
    }
}

/// Returns true if its need rests on no equal run, and on no declaration of its user.
fn is_estimate(need: &Need) -> bool {
    !matches!(
        need.source,
        Source::Declared
            | Source::EqualRuns { .. }
            | Source::EqualRunsAndOutOfMemory { .. }
            | Source::OutOfMemory
    )
}
