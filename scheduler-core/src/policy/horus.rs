//! `horus`: GPU use that was predicted adds up to a whole GPU at most; the least used device first.
//!
//! Yeung, Borowiec, Yang, Friday, Harper, Garraghan: Horus, IEEE TPDS 33(1), 2022, doi 10.1109/TPDS.2021.3079202. Jobs share
//! a GPU while their predicted utilisations and memory fit, where the cost (utilisation) is lowest. Its predictor of
//! utilisation is not public: SM activity stands for it here.

use super::{Candidate, Company, DecidedBy, Fit, Policy, Progress, Rules, at_once, crowded};
use crate::reason::Wait;
use crate::settings::Settings;

pub(super) struct Horus;

impl Rules for Horus {
    fn rank(&self, place: &Candidate) -> Fit {
        place.by_room()
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let sum: u32 = company.activities().map(|job| job.smact.0).sum();
        let left = 1000u32.checked_sub(sum).ok_or_else(|| crowded(Policy::Horus))?;
        Ok(company.by_rule(Policy::Horus, left, 1000))
    }

    fn refusal(&self) -> &'static str {
        "the SM activities of the jobs of each device that it could share add up to more than a whole GPU with its own"
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
    }
}
