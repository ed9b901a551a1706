//! `best-fit`: the least memory left over first.

use super::{Candidate, Fit, Rules, signed};
use crate::reason::Score;

pub(super) struct BestFit;

impl Rules for BestFit {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (signed(place.left), 0, place.id), score: Score::Left { bytes: place.left } }
    }
}
