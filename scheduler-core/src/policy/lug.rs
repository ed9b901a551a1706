//! `lug`: least utilised GPU first. Among equally busy devices, which idle ones are, the one with fewer jobs.

use super::{Candidate, DecidedBy, Fit, Rules};

pub(super) struct Lug;

impl Rules for Lug {
    fn rank(&self, place: &Candidate) -> Fit {
        let jobs = i64::try_from(place.jobs).unwrap_or(0);
        // One with jobs that is not measured may be the busiest.
        let unmeasured = if place.jobs == 0 { 0 } else { i64::MAX };
        let activity = place.smact.map_or(unmeasured, |smact| i64::from(smact.0));
        Fit { rank: (activity, jobs, place.id), score: place.activity() }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Load
    }
}
