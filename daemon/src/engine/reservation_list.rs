//! Reservations of the file and of administrators.

use std::collections::BTreeMap;

use radrm_scheduler_core::AdvanceReservation;

use crate::reservations::{Reservation, ReservationSection, SetReservation};

/// Reservations of the file and of administrators.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    pub(super) file: Vec<Reservation>,
    pub(super) set: BTreeMap<u64, SetReservation>,
    /// Highest number that was given.
    pub(super) last: u64,
    /// Those that the scheduler has.
    pub(super) reported: Vec<AdvanceReservation>,
}

impl Reservations {
    /// Those of the file, which was checked.
    pub(super) fn new(file: &[ReservationSection]) -> Self {
        Self { file: stated(file), ..Self::default() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Reservation> {
        self.file.iter().chain(self.set.values().map(|set| &set.of))
    }

    /// Groups for which there are some.
    pub(super) fn groups(&self) -> impl Iterator<Item = String> {
        self.all().flat_map(|of| of.groups.iter().cloned())
    }
}

/// Those of a file that was checked.
pub(super) fn stated(file: &[ReservationSection]) -> Vec<Reservation> {
    file.iter().filter_map(|section| section.stated().ok()).collect()
}
