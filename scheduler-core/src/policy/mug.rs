//! `mug`: most utilised GPU first.

use super::{Candidate, DecidedBy, Fit, Rules};

pub(super) struct Mug;

impl Rules for Mug {
    fn rank(&self, place: &Candidate) -> Fit {
        // One that is not measured may be idle.
        let activity = place.smact.map_or(0, |smact| i64::from(smact.0));
        Fit { rank: (-activity, 0, place.id), score: place.activity() }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Load
    }
}
