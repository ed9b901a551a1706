//! `horus`: GPU use that was predicted adds up to a whole GPU at most; the least used device first.
//!
//! Yeung, Borowiec, Yang, Friday, Harper, Garraghan: Horus, IEEE TPDS 33(1), 2022, doi 10.1109/TPDS.2021.3079202. Jobs share
//! a GPU while their predicted utilisations and memory fit, where the cost (utilisation) is lowest. Its predictor of
//! utilisation is not public: SM activity stands for it here.

use super::{CROWDED, Candidate, Company, DecidedBy, Fit, Progress, Rules, at_once};
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
        let left = 1000u32.checked_sub(sum).ok_or(CROWDED)?;
        Ok(Progress { gain: left, speed: 1000, slowest: 1000 })
    }

    fn as_published(&self, settings: &mut Settings) {
        at_once(settings);
    }
}
