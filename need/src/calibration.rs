//! Calibration: how the bounds of this node's own jobs held, and what follows for the next one.

use std::collections::BTreeMap;

use radrm_estimator::calibrate::Adaptive;
use radrm_estimator::memory::DryRuns;

use super::statements::Statements;
use super::{DryRun, Need, Said, Source, Trained};
use radrm_base::UserId;
use radrm_base::{Bytes, Permille};

/// Compares what was predicted or stated with what the job took. Of a combined estimate a score is `ln(peak / estimate)` in units of the margin that the
/// model gave, so that 1 is a peak at the bound.
#[derive(Clone, Debug)]
pub struct Calibration {
    adaptive: Option<Adaptive>,
    stretch: Permille,
    pub(super) statements: Statements,
    /// Runs of programs that were dry-run before, by what their dry runs stand for: that of the first. What a dry run held is
    /// what its user states, so it corrects no other user's.
    dry_runs: BTreeMap<UserId, Vec<(DryRun, DryRuns)>>,
}

impl Default for Calibration {
    fn default() -> Self {
        Self::of(&Trained::default())
    }
}

/// Models of emulated GPUs and stacks of one user: their names are what users send.
const MAX_STACKS: usize = 16;

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
            dry_runs: BTreeMap::new(),
        }
    }

    /// Runs of this user's programs whose dry runs were [like](DryRun::is_like) this one; `None` without any.
    #[must_use]
    pub fn dry_runs(&self, user: UserId, like: &DryRun) -> Option<&DryRuns> {
        let known = self.dry_runs.get(&user)?.iter();
        known.filter(|(of, _)| of.is_like(like)).map(|(_, runs)| runs).find(|runs| runs.seen() > 0)
    }

    /// A program that was dry-run before took `peak`. Of a user's emulated GPUs and stacks those that came first are known, up
    /// to [`MAX_STACKS`].
    pub fn observe_dry_run(&mut self, user: UserId, run: &DryRun, peak: Bytes) {
        let known = self.dry_runs.entry(user).or_default();
        let at = known.iter().position(|(of, _)| of.is_like(run));
        if at.is_none() && known.len() == MAX_STACKS {
            return;
        }
        let at = at.unwrap_or_else(|| {
            known.push((run.clone(), DryRuns::default()));
            known.len() - 1
        });
        known[at].1.observe(run.figure(), peak.0 as f64);
    }

    /// The factor for the model's margins. Until [`Adaptive::ENOUGH`] jobs have ended it is at least 1.
    #[must_use]
    pub fn stretch(&self) -> Permille {
        self.stretch
    }

    /// A user's job has ended that was expected to need so much: `complete` is false if it ran out of memory at `peak`.
    pub fn observe(&mut self, user: UserId, need: &Need, peak: Bytes, complete: bool) {
        self.statements.observe(user, need, peak, complete);
        let Source::Combined { stretch, said } = &need.source else { return };
        for Said { source, .. } in said {
            if let (Source::DryRun { run, .. }, true) = (source, complete) {
                self.observe_dry_run(user, run, peak);
            }
        }
        // Of a margin that is not this model's.
        if matches!(&said[..], [Said { source: Source::DryRun { runs: 1.., .. }, .. }]) {
            return;
        }
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
    fn a_run_corrects_later_dry_runs_on_the_same_model_only() {
        let mut here = Calibration::default();
        let of = |runs| {
            let run = DryRun { steps: 3, gpu: "A100".into(), held: Bytes(1000), ..DryRun::default() };
            let source = Source::DryRun { run, runs, left_out: None };
            let said = vec![Said { source, bytes: Bytes(1500), weight: Permille::WHOLE }];
            Need::new(Bytes(1500), Bytes(2000), None, Source::Combined { said, stretch: Permille::WHOLE })
        };
        here.observe(UserId(1), &of(0), Bytes(1200), false);
        let like = |gpu: &str| DryRun { gpu: gpu.to_owned(), ..DryRun::default() };
        assert_eq!(here.dry_runs(UserId(1), &like("A100")), None, "a run that was cut short shows no peak");
        here.observe(UserId(1), &of(0), Bytes(1200), true);
        assert_eq!(here.dry_runs(UserId(1), &like("A100")).map(DryRuns::seen), Some(1));
        for (user, gpu) in [(1, "H200"), (2, "A100")] {
            assert_eq!(here.dry_runs(UserId(user), &like(gpu)), None);
        }
        for model in 0..100 {
            let run = DryRun { held: Bytes(1), gpu: model.to_string(), ..DryRun::default() };
            here.observe_dry_run(UserId(1), &run, Bytes(1));
        }
        assert_eq!(here.dry_runs[&UserId(1)].len(), MAX_STACKS, "names are what users send");
        let other = DryRun { framework: Some("PyTorch 2.14".into()), ..like("A100") };
        assert_eq!(here.dry_runs(UserId(1), &other), None, "of another stack");
        for _ in 0..40 {
            here.observe(UserId(1), &of(1), Bytes(9000), true);
        }
        assert_eq!(here.stretch(), Permille::WHOLE, "its margin is its own");
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
