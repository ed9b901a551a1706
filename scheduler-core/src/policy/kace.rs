//! `kace`: two jobs share a GPU where their summed throughput is predicted to be most, learned from the pairs that ran.
//!
//! KACE: Kernel-Aware Colocation for Efficient GPU Spatial Sharing, SoCC '24, doi 10.1145/3698038.3698555. A linear regression from the kernel metrics of two workloads to the sum of their throughputs
//! ([`PairSum`](radrm_estimator::interference::PairSum)); a workload gets the partner with the highest prediction. Throughput
//! is relative to that alone here, and of the metrics SM and DRAM activity are known of a job. A pair that gets less done than one job
//! alone is not made. It learns as the daemon or the replay observes pairs.

use super::{Candidate, Company, DecidedBy, Fit, Policy, Progress, Rules, at_once, crowded};
use crate::reason::Wait;
use crate::settings::Settings;
use crate::units::Permille;

pub(super) struct Kace;

impl Rules for Kace {
    fn rank(&self, place: &Candidate) -> Fit {
        place.by_gain()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let [one, other] = *company.activities().collect::<Vec<_>>() else {
            return Err(crowded(Policy::Kace));
        };
        let sum = company.predictor.pair_sum(one, other);
        let [gain, speed] = [sum - 1.0, sum / 2.0].map(|part| Permille::from_fraction(part.max(0.0)).0);
        (gain > 0).then(|| company.by_rule(Policy::Kace, gain, speed)).ok_or_else(|| crowded(Policy::Kace))
    }

    fn refusal(&self) -> &'static str {
        "two jobs at most share a GPU, and only where its regression predicts that they get more done than one"
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
    }
}
