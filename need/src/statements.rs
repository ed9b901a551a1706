//! Statements of a user about a job, read by what the user's earlier jobs took of what was stated for them.
//!
//! A declared need stays the job's limit, and all of it is reserved: a job may take what its limit lets it take, so with
//! less reserved it could take memory that another job was promised. There this source only shows what to expect. An
//! estimate of the user is no limit: there its bound is reserved, whether it is above or below the estimate.

use std::collections::{BTreeMap, VecDeque};

use radrm_estimator::calibrate::{margin, score};

use super::{Estimator, Features, Need, Source};
use radrm_base::UserId;
use radrm_base::{Bytes, Permille};

/// Coverage of a bound. Nine earlier jobs are the fewest that promise it.
const LEVEL: Permille = Permille(900);

/// Former jobs of a user that count, the newest ones.
const MAX_JOBS: usize = 64;

/// Logarithms of taken / stated of each user's jobs, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Statements(BTreeMap<UserId, VecDeque<f64>>);

/// Memory that was reserved on the user's word alone.
fn stated_by(need: &Need) -> Option<Bytes> {
    match &need.source {
        Source::Declared | Source::UserEstimate => Some(need.upper),
        Source::EarlierStatements { stated, .. } => Some(*stated),
        _ => None,
    }
    .filter(|stated| *stated > Bytes::ZERO)
}

impl Statements {
    /// A job has ended for which its user stated a need.
    pub(super) fn observe(&mut self, user: UserId, need: &Need, peak: Bytes, complete: bool) {
        let Some(stated) = stated_by(need) else { return };
        // A job that ended early for want of memory shows only that it needs more.
        if peak == Bytes::ZERO || !(complete || peak > stated) {
            return;
        }
        let scores = self.0.entry(user).or_default();
        scores.push_back(score(peak.0 as f64, stated.0 as f64));
        if scores.len() > MAX_JOBS {
            scores.pop_front();
        }
    }

    fn need(&self, user: UserId, stated: Bytes) -> Option<Need> {
        let scores = self.0.get(&user)?;
        let jobs = u32::try_from(scores.len()).unwrap_or(u32::MAX);
        let mut sorted: Vec<f64> = scores.iter().copied().collect();
        let upper = margin(&sorted, LEVEL.fraction())?;
        sorted.sort_unstable_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        // A conversion from a float saturates.
        let [bytes, upper] = [median, upper].map(|by| Bytes((stated.0 as f64 * by.exp()) as u64));
        Some(Need::new(bytes, upper, Some(LEVEL), Source::EarlierStatements { stated, jobs }))
    }
}

/// Estimates from what the user states; from nine earlier jobs of the user on.
#[derive(Clone, Copy, Debug, Default)]
pub struct EarlierStatements;

impl Estimator for EarlierStatements {
    fn name(&self) -> &'static str {
        "user's earlier statements"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        // An estimate with an origin of its own is not the user's word.
        let estimate = job.estimate.filter(|estimate| estimate.source.is_none());
        let declared = job.declared_upper.max(job.declared);
        let stated = declared.or_else(|| estimate.map(|estimate| estimate.upper))?;
        job.calibration?.statements.need(job.user?, stated)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Calibration, NeedResolver, UserEstimate};
    use super::*;

    const GIB: u64 = 1 << 30;
    const ANNE: UserId = UserId(1);

    /// Anne's jobs take about half of what is stated for them.
    fn calibration(jobs: u64) -> Calibration {
        let mut here = Calibration::default();
        for job in 0..jobs {
            here.observe(ANNE, &Need::declared(Bytes(100 * GIB)), Bytes((45 + job % 10) * GIB), true);
        }
        here
    }

    fn estimate(gib: u64) -> UserEstimate {
        UserEstimate { bytes: Bytes(gib * GIB), upper: Bytes(gib * GIB), ..UserEstimate::default() }
    }

    #[test]
    fn a_users_estimate_is_read_by_what_earlier_jobs_took() {
        let (here, few, said) = (calibration(30), calibration(8), estimate(10));
        let of = |user, calibration| Features {
            user: Some(user),
            estimate: Some(&said),
            calibration: Some(calibration),
            ..Features::default()
        };
        let resolve = |job: &Features<'_>| NeedResolver::default().resolve(job).memory.unwrap();
        let need = resolve(&of(ANNE, &here));
        assert!((Bytes(4 * GIB)..Bytes(6 * GIB)).contains(&need.upper) && !need.enforce, "{need}");
        assert!(need.bytes <= need.upper && need.confidence == Some(LEVEL), "{need}");
        assert!(need.to_string().contains("30 earlier jobs of its user"), "{need}");
        for (user, here) in [(UserId(2), &here), (ANNE, &few)] {
            assert_eq!(resolve(&of(user, here)).source, Source::UserEstimate, "too few jobs are known");
        }
        // What the calibrated need showed counts against what was stated, not against itself.
        let mut more = here.clone();
        more.observe(ANNE, &need, Bytes(20 * GIB), true);
        (0..3).for_each(|_| more.observe(ANNE, &need, Bytes(20 * GIB), true));
        let twice = resolve(&of(ANNE, &more));
        assert!((Bytes(19 * GIB)..Bytes(21 * GIB)).contains(&twice.upper), "{twice}");
    }

    #[test]
    fn a_declared_need_stays_limit_and_reservation() {
        let here = calibration(30);
        let job = Features {
            user: Some(ANNE),
            declared: Some(Bytes(10 * GIB)),
            calibration: Some(&here),
            ..Features::default()
        };
        let resolver = NeedResolver::default();
        let need = resolver.resolve(&job).memory.unwrap();
        assert_eq!((need.upper, need.enforce), (Bytes(10 * GIB), true));
        let answers = resolver.answers(&job);
        assert!(matches!(answers[1].1.source, Source::EarlierStatements { jobs: 30, .. }), "{answers:?}");
    }

    #[test]
    fn a_job_that_ran_out_of_memory_below_its_need_teaches_nothing() {
        let mut here = calibration(0);
        for _ in 0..30 {
            here.observe(ANNE, &Need::declared(Bytes(8 * GIB)), Bytes(4 * GIB), false);
            here.observe(ANNE, &Need::measured(Bytes(8 * GIB)), Bytes(4 * GIB), true);
        }
        assert!(here.statements.need(ANNE, Bytes(GIB)).is_none());
    }
}
