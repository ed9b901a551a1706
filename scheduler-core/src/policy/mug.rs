//! `mug`: most utilised GPU first.

use super::{Candidate, Fit, Rules};
use crate::reason::Score;

pub(super) struct Mug;

impl Rules for Mug {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (-i64::from(place.smact.0), 0, place.id), score: Score::Busy { smact: place.smact } }
    }

    fn reads_load(&self) -> bool {
        true
    }
}
