//! `first-fit`: the lowest number first.

use super::{Candidate, Fit, Rules};
use crate::reason::Score;

pub(super) struct FirstFit;

impl Rules for FirstFit {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (0, 0, place.id), score: Score::First }
    }
}
