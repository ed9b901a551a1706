//! `round-robin`: one device after the other, whatever is on it.

use super::{Candidate, DecidedBy, Fit, Rules};
use crate::reason::Score;
use crate::settings::{Memory, Settings};

pub(super) struct RoundRobin;

impl Rules for RoundRobin {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (0, 0, i64::try_from(place.turn).unwrap_or(i64::MAX)), score: Score::Turn }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Turn
    }

    fn as_published(&self, settings: &mut Settings) {
        settings.memory = Memory::Blind;
        settings.preconditions.smact = None;
    }
}
