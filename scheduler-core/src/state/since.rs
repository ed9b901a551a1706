//! Devices on which something changed for a job since it found no place.

use super::State;
use super::record::Failed;
use crate::reserve::Reservation;

/// Devices that can have a place now for jobs that found none at one time: those that changed, and those that were kept from
/// them then. Of the jobs behind the first blocked one most were searched at the same time, so the list is kept for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Since {
    /// Basis of the list: changes then and now, versions of the reservation then and now.
    key: Option<[u64; 4]>,
    devices: Vec<usize>,
    more: Vec<usize>,
}

impl Since {
    /// Lists them anew where the last list was another one. Returns false if they are not known any more.
    pub(super) fn bring_up_to(
        &mut self,
        state: &State,
        failed: &Failed,
        version: u64,
        kept: Option<&Reservation>,
    ) -> bool {
        let key = Some([failed.upto, state.upto(), failed.under, version]);
        if self.key == key {
            return true;
        }
        self.key = None;
        let Some(skip) = failed.upto.checked_sub(state.changes_from) else { return false };
        self.devices.clear();
        self.devices.extend(state.changes.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)));
        if failed.under != version && failed.under > 0 {
            let Some(held) = state.held_under(failed.under) else { return false };
            // What is near a blocker still is kept from each job still.
            let is_free = |at: &&usize| kept.is_none_or(|kept| kept.near.binary_search(at).is_err());
            self.devices.extend(held.own.iter().chain(held.near.iter().filter(is_free)));
        }
        self.devices.sort_unstable();
        self.devices.dedup();
        self.key = key;
        true
    }

    /// The devices, in order.
    pub(super) fn devices(&self) -> &[usize] {
        &self.devices
    }

    /// The same and others, in order.
    pub(super) fn with(&mut self, others: &[usize]) -> &[usize] {
        self.more.clear();
        self.more.extend(self.devices.iter().chain(others));
        self.more.sort_unstable();
        self.more.dedup();
        &self.more
    }
}
