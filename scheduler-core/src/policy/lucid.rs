//! `lucid`: jobs are tiny, medium or jumbo, and at most two share a GPU, while their scores add up to 2; the shortest first.
//!
//! Hu, Zhang, Li, Wang, Zhang, Wen: Lucid, ASPLOS '23, doi 10.1145/3575693.3575705 (indolent packing, GPU sharing capacity 2).
//! The published decision tree that scores a job from its utilisations was trained on data that is not at hand: thirds of
//! SM activity stand for it, set before any replay was seen.

use super::{Candidate, Company, DecidedBy, Fit, Policy, Progress, Rules, at_once, crowded, shortest_first};
use crate::interference::Activity;
use crate::reason::Wait;
use crate::settings::Settings;
use crate::units::Permille;

/// The most that the scores of the jobs on a device add up to.
const CAPACITY: u32 = 2;

pub(super) struct Lucid;

/// 0 tiny, 1 medium, 2 jumbo.
fn score(job: Activity) -> u32 {
    match job.smact {
        Permille(..=333) => 0,
        Permille(..=666) => 1,
        _ => 2,
    }
}

impl Rules for Lucid {
    fn rank(&self, place: &Candidate) -> Fit {
        place.by_room()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let scores: u32 = company.activities().map(score).sum();
        let left = 1000u32.saturating_sub(company.activities().map(|job| job.smact.0).sum());
        let packs = company.jobs.len() <= 2 && scores <= CAPACITY;
        packs.then(|| company.by_rule(Policy::Lucid, left, 1000)).ok_or_else(|| crowded(Policy::Lucid))
    }

    fn refusal(&self) -> &'static str {
        "two jobs at most share a GPU, and their sizes (tiny 0, medium 1, jumbo 2) add up to 2 at most"
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
        shortest_first(settings);
    }
}
