//! Control daemons of MPS: a helper holds one for each user whose jobs run under MPS, and one for each MIG instance of such jobs
//! ([`crate::mps`]).

use std::collections::BTreeSet;

use super::Engine;
use crate::attempt::Attempt;
use crate::error::DaemonError;
use crate::mps;
use crate::store::Entry;
use crate::supervisor::Order;

impl Engine {
    /// Returns true if a job that has its GPUs runs under MPS: its user asked for it, or the administrator has it so. MIG instances
    /// and emulated GPUs without MPS need no exception: `radrm-run --mps` reports where there is none.
    pub(super) fn is_under_mps(&self, entry: &Entry) -> bool {
        entry.spec.mps || self.config.mps.holds(&entry.user, &entry.devices, &self.node.gpus().list)
    }

    /// Has the control daemon of a job's user held, from before the job is started.
    pub(super) fn serve_mps(&mut self, job: u64, order: &mut Order) -> Result<(), DaemonError> {
        if let Some(entry) = self.jobs.entry(job).filter(|entry| self.is_under_mps(entry)) {
            let client = mps::Client::of(entry.uid, &entry.devices);
            order.mps = Some(self.effects.serve_mps(client, &mps::Order::of(order))?);
        }
        Ok(())
    }

    /// The same for a job that an earlier daemon started.
    pub(super) fn serve_mps_again(&mut self, attempt: Attempt) {
        if self.jobs.entry(attempt.0).is_some_and(|entry| self.is_under_mps(entry))
            && let Ok((_, mut order)) = self.order(attempt)
        {
            // The job itself holds what it uses.
            let _ = self.serve_mps(attempt.0, &mut order);
        }
    }

    /// Ends the helpers of users who have no such job any more.
    pub(super) fn tend_mps(&mut self) {
        let live = self.jobs.lives().keys().filter_map(|job| self.jobs.entry(*job));
        let clients: BTreeSet<mps::Client> = live
            .filter(|entry| self.is_under_mps(entry))
            .map(|entry| mps::Client::of(entry.uid, &entry.devices))
            .collect();
        self.effects.keep_mps(&clients);
    }
}
