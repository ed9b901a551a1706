//! `mug`: most utilised GPU first.

use super::{Candidate, DecidedBy, Fit, Rules};
use crate::reason::Score;

pub(super) struct Mug;

impl Rules for Mug {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (-i64::from(place.smact.0), 0, place.id), score: Score::Busy { smact: place.smact } }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Load
    }
}
