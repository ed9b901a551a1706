//! How the bounds of this node's own jobs held, and what follows for the next one.

use radrm_estimator::calibrate::Adaptive;

use super::combined::Trained;
use super::statements::Statements;
use super::{Need, Source};
use crate::job::UserId;
use crate::units::{Bytes, Permille};

/// Compares what was predicted or stated with what the job took. Of a combined estimate a score is `ln(peak / estimate)` in units of the margin that the
/// model gave, so that 1 is a peak at the bound.
#[derive(Clone, Debug)]
pub struct Calibration {
    adaptive: Option<Adaptive>,
    stretch: Permille,
    pub(super) statements: Statements,
}

impl Default for Calibration {
    fn default() -> Self {
        Self::of(&Trained::default())
    }
}

/// Range of the factor: jobs that are all alike must not make the margin vanish.
const STRETCH: [f64; 2] = [0.2, 5.0];

impl Calibration {
    /// Of a model whose jobs have not run here yet.
    #[must_use]
    pub fn of(model: &Trained) -> Self {
        let model = model.get();
        Self {
            adaptive: Adaptive::new(model.scores(), model.level()),
            stretch: Permille::WHOLE,
            statements: Statements::default(),
        }
    }

    /// The factor for the model's margins. Until [`Adaptive::ENOUGH`] jobs have ended it is at least 1.
    #[must_use]
    pub fn stretch(&self) -> Permille {
        self.stretch
    }

    /// A user's job has ended that was expected to need so much: `complete` is false if it ran out of memory at `peak`.
    pub fn observe(&mut self, user: UserId, need: &Need, peak: Bytes, complete: bool) {
        self.statements.observe(user, need, peak, complete);
        let Source::Combined { stretch, .. } = &need.source else { return };
        let Some(adaptive) = &mut self.adaptive else { return };
        // A job that ended early for want of memory shows only that it needs more.
        if peak == Bytes::ZERO || !(complete || peak > need.upper) {
            return;
        }
        let ln = |bytes: Bytes| (bytes.0 as f64 / need.bytes.0.max(1) as f64).ln();
        let margin = ln(need.upper) * 1000.0 / f64::from(stretch.0.max(1));
        if margin < 1e-4 {
            return;
        }
        adaptive.observe(ln(peak) / margin);
        let least = if adaptive.seen() < Adaptive::ENOUGH { 1.0 } else { STRETCH[0] };
        self.stretch = Permille::from_fraction(adaptive.margin().clamp(least, STRETCH[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(stretch: Permille) -> Need {
        let upper = 1000.0 * (0.2 * f64::from(stretch.0) / 1000.0).exp();
        Need::new(Bytes(1000), Bytes(upper as u64), None, Source::Combined { said: Vec::new(), stretch })
    }

    #[test]
    fn bounds_widen_after_misses_and_narrow_only_after_ten_jobs() {
        let mut here = Calibration::default();
        for job in 0..40 {
            assert!(job >= 10 || here.stretch() >= Permille::WHOLE, "job {job}: {}", here.stretch());
            here.observe(UserId(1), &need(here.stretch()), Bytes(1010), true);
        }
        assert!(here.stretch() < Permille(800), "{}", here.stretch());
        for _ in 0..40 {
            here.observe(UserId(1), &need(here.stretch()), Bytes(1700), true);
        }
        assert!(here.stretch() > Permille(2000), "{}", here.stretch());
    }

    #[test]
    fn what_was_no_combined_estimate_teaches_nothing() {
        let mut here = Calibration::default();
        for _ in 0..40 {
            here.observe(UserId(1), &Need::declared(Bytes(1000)), Bytes(9000), true);
            // It ran out of memory below its bound: another job's fault.
            here.observe(UserId(1), &need(Permille::WHOLE), Bytes(1100), false);
        }
        assert_eq!(here.stretch(), Permille::WHOLE);
        here.observe(UserId(1), &need(Permille::WHOLE), Bytes(9000), false);
        assert!(here.stretch() > Permille::WHOLE);
    }
}
