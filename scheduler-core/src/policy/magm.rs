//! `magm`: most available GPU memory first.

use super::{Candidate, Fit, Rules, signed};
use crate::reason::Score;

pub(super) struct Magm;

impl Rules for Magm {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (-signed(place.free), 0, place.id), score: Score::Free { bytes: place.free } }
    }
}
