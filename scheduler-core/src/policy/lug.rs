//! `lug`: least utilised GPU first. Among equally busy devices, which idle ones are, the one with fewer jobs.

use super::{Candidate, DecidedBy, Fit, Rules};
use crate::reason::Score;

pub(super) struct Lug;

impl Rules for Lug {
    fn rank(&self, place: &Candidate) -> Fit {
        let jobs = i64::try_from(place.jobs).unwrap_or(0);
        Fit { rank: (i64::from(place.smact.0), jobs, place.id), score: Score::Busy { smact: place.smact } }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Load
    }
}
