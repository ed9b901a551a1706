//! What is kept of a run that is over, as far as decisions about later runs follow from it.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Millis, Permille};

/// What a job does to a GPU when it has it to itself: means over its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Activity {
    /// SM activity (SMACT).
    pub smact: Permille,
    /// SM occupancy (SMOCC).
    pub smocc: Permille,
    /// DRAM activity (DRAMA).
    pub drama: Permille,
}

impl Activity {
    /// The same work stretched over more time (`by` under 1) or less; nothing is busier than always.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        let part = |value: Permille| Permille::from_fraction(value.fraction() * by).min(Permille::WHOLE);
        Self { smact: part(self.smact), smocc: part(self.smocc), drama: part(self.drama) }
    }
}

/// One earlier run of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct PastRun {
    /// Its batch size, if that is known.
    pub batch: Option<u32>,
    /// Its peak of device memory on the GPU where that was highest. Of a run that ran out of memory: what it
    /// held there and asked for on top.
    pub peak: Bytes,
    /// How long it ran.
    pub ran: Millis,
    /// What it did to a GPU, if it was measured.
    pub activity: Option<Activity>,
    /// It was not cut short: a run that was needs at least its peak, and longer.
    pub complete: bool,
}
