//! `muri`: jobs whose stages interleave best share a GPU; the shortest first.
//!
//! Zhao, Liu, Peng, Zhu, Li, Liu, Jin: Multi-Resource Interleaving for Deep Learning Training (Muri), SIGCOMM '22, doi
//! 10.1145/3544216.3544224. An iteration has stages that each use one resource; jobs of a group use different ones at any
//! time, and a group has no more jobs than there are resources. Of the four resources two are known here: the GPU for the
//! part a of the time (SM activity), and all others for the rest. For two jobs the period of both together is
//! `max(a, 1 - b) + max(1 - a, b)` of that of each alone. Muri-S, with run times known; its grouping by matching over the
//! whole queue is placement one by one here.

use super::{Candidate, Company, DecidedBy, Fit, Policy, Progress, Rules, at_once, crowded, shortest_first};
use crate::reason::Wait;
use crate::settings::Settings;
use crate::units::Permille;

pub(super) struct Muri;

impl Rules for Muri {
    fn rank(&self, place: &Candidate) -> Fit {
        place.by_gain()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let [a, b] = *company.activities().map(|job| job.smact.fraction()).collect::<Vec<_>>() else {
            return Err(crowded(Policy::Muri));
        };
        let speed = 1.0 / (a.max(1.0 - b) + b.max(1.0 - a)).max(1.0);
        let [gain, speed] = [2.0 * speed - 1.0, speed].map(|part| Permille::from_fraction(part.max(0.0)).0);
        (gain > 0).then(|| company.by_rule(Policy::Muri, gain, speed)).ok_or_else(|| crowded(Policy::Muri))
    }

    fn refusal(&self) -> &'static str {
        "two jobs at most share a GPU, and only where their stages would interleave"
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
        shortest_first(settings);
    }
}
