//! `worst-fit`: the most memory left over first.

use super::{Candidate, Fit, Rules, signed};
use crate::reason::Score;

pub(super) struct WorstFit;

impl Rules for WorstFit {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (-signed(place.left), 0, place.id), score: Score::Left { bytes: place.left } }
    }
}
