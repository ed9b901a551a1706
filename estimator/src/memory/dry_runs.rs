//! Dry runs at one site: what real runs of dry-run programs took there corrects the figure and the bound of the next one.

use radrm_base::ProgramKind;

use super::Line;
use super::outliers::{self, LeftOut, Pair, SPREADS};
use super::posterior::Posterior;
use crate::calibrate::{Adaptive, margin, ratio, student, tempered_score};

/// Figure from a dry run of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DryRunFigure {
    /// Memory that the driver held.
    pub held: f64,
    /// Its kind of program, if that was recorded.
    pub kind: Option<ProgramKind>,
}

impl From<f64> for DryRunFigure {
    /// A figure of a program of unknown kind.
    fn from(held: f64) -> Self {
        Self { held, kind: None }
    }
}

/// Real runs of programs that were dry-run before, of one stack: one model of GPU, and the same versions of frameworks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DryRuns {
    /// The dry run and the real run's peak, the oldest first.
    pairs: Vec<Pair>,
}

/// Line and margins that the runs of a site teach.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Learned {
    line: Posterior,
    /// Kinds that have a factor of their own.
    kinds: Vec<ProgramKind>,
    /// Runs that count.
    pub(super) counted: usize,
    /// Of each run the line of the others, and the peak's score by that: in its spreads, and as it is.
    others: Vec<(Posterior, f64, f64)>,
    /// The least margin, in units of the line's spread.
    pooled: f64,
    /// Coverage of a bound, 0 to 1.
    pub(super) level: f64,
    /// The pairs are so many that what ships is no longer a floor of the bound.
    pub(super) enough: bool,
}

impl Learned {
    /// The peak to expect for a dry run.
    pub(super) fn estimate(&self, dry: &DryRunFigure) -> f64 {
        self.line.estimate(&only(&self.kinds, dry))
    }

    /// `bound / estimate` for a dry run: the level's quantile of what the lines without one of the runs, and the
    /// scores of these, make of it (Barber, Candès, Ramdas, Tibshirani: Predictive inference with the jackknife+, Ann. Stat. 49(1), 2021).
    pub(super) fn margin(&self, dry: &DryRunFigure) -> f64 {
        let dry = &only(&self.kinds, dry);
        let estimate = self.line.estimate(dry);
        // A dry run of which more is unknown is no further off than the pair itself, or than any pair that counts may be.
        let bound = |(line, spreads, score): &(Posterior, f64, f64)| {
            let spread = line.spread(dry);
            tempered_score(line.estimate(dry), estimate)
                + (spreads * spread).min((SPREADS * spread).max(*score))
        };
        let bounds: Vec<f64> = self.others.iter().map(bound).collect();
        let pooled = self.pooled * self.line.spread(dry);
        // The rank of that level is a whole number, which must not be rounded up to the next.
        ratio(margin(&bounds, self.level - 1e-9).map_or(pooled, |own| own.max(pooled)))
    }
}

impl DryRuns {
    /// Pairs after which what ships is no longer a floor of the bound.
    pub const ENOUGH: usize = Adaptive::ENOUGH;
    /// Pairs that are kept, the newest.
    pub const KEPT: usize = 200;

    /// A real run has ended: `dry` is a dry run of its program at its batch size. Equal figures are one program at one
    /// batch size, of which the newest run counts. Figures that are no amounts count nothing.
    pub fn observe(&mut self, dry: impl Into<DryRunFigure>, peak: f64) {
        let dry = dry.into();
        let is_amount = |value: f64| value.is_finite() && value > 0.0;
        if !(is_amount(dry.held) && is_amount(peak)) {
            return;
        }
        self.pairs.retain(|pair| pair.0.held != dry.held);
        self.pairs.push((dry, peak));
        if self.pairs.len() > Self::KEPT {
            self.pairs.remove(0);
        }
    }

    /// Programs and batch sizes whose runs are kept.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.pairs.len()
    }

    /// Without the runs that no dry run explains, and these.
    pub(super) fn screened(&self, prior: &Line, amount: f64) -> (Self, Vec<LeftOut>) {
        let (pairs, left_out) = outliers::screened(&Posterior::prior(prior, amount), &self.pairs);
        (Self { pairs }, left_out)
    }

    /// Learns from the pairs, beginning with a shipped line; `None` without pairs.
    /// Every peak may be off by `amount`, however small its dry run is.
    ///
    /// A quantile of scores is as good as the pairs are many and alike. So the shipped spread counts like some pairs more, and the
    /// larger of both margins holds.
    pub(super) fn learn(&self, prior: &Line, amount: f64, level: f64) -> Option<Learned> {
        let seen = self.pairs.len();
        if seen == 0 {
            return None;
        }
        let prior = Posterior::prior(prior, amount);
        let kinds = kinds(&prior, &self.pairs);
        let pairs = of_kinds(&kinds, &self.pairs);
        let weights = outliers::weights(&prior, &pairs);
        let line = prior.after_weighted(&pairs, &weights);
        let others: Vec<(Posterior, f64, f64)> = pairs
            .iter()
            .zip(line.without_own(&pairs, &weights))
            .map(|((dry, peak), (line, spreads))| (line, spreads, tempered_score(*peak, line.estimate(dry))))
            .collect();
        let squares: f64 = others.iter().map(|(_, spreads, _)| spreads.abs().min(SPREADS).powi(2)).sum();
        let freedom = Adaptive::PRIOR + seen as f64;
        let pooled = student(level, freedom) * ((Adaptive::PRIOR + squares) / freedom).sqrt();
        // So many scores cannot promise more.
        let level = level.min(seen as f64 / (seen + 1) as f64);
        Some(Learned { line, kinds, counted: seen, others, pooled, level, enough: seen >= Self::ENOUGH })
    }
}

/// By how much a kind's own factor may take its peaks further off: with few runs that much is chance.
const MAX_LOSS: f64 = 1.15;

/// A dry run whose kind counts only if it has a factor of its own.
fn only(kinds: &[ProgramKind], dry: &DryRunFigure) -> DryRunFigure {
    DryRunFigure { kind: dry.kind.filter(|kind| kinds.contains(kind)), ..*dry }
}

fn of_kinds(kinds: &[ProgramKind], pairs: &[Pair]) -> Vec<Pair> {
    pairs.iter().map(|(dry, peak)| (only(kinds, dry), *peak)).collect()
}

/// Kinds that have a factor of their own: all but those whose peaks it takes further off, when each is estimated from the
/// others.
fn kinds(prior: &Posterior, pairs: &[Pair]) -> Vec<ProgramKind> {
    let off = |kinds: &[ProgramKind], of: ProgramKind| -> f64 {
        let split = of_kinds(kinds, pairs);
        let others = prior.after(&split).without_own(&split, &[]);
        let scores = pairs.iter().zip(&split).zip(others);
        let of_kind = scores.filter(|((pair, _), _)| pair.0.kind == Some(of));
        of_kind.map(|((pair, split), (line, _))| tempered_score(pair.1, line.estimate(&split.0)).abs()).sum()
    };
    let gains = |kind: &ProgramKind| off(&ProgramKind::ALL, *kind) < MAX_LOSS * off(&[], *kind);
    ProgramKind::ALL.into_iter().filter(gains).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Line =
        Line { fixed: 600.0, factor: 1.0, fixed_spread: 600.0, factor_spread: 0.03, noise: 0.05 };

    fn pairs(count: u32) -> DryRuns {
        let mut here = DryRuns::default();
        for n in 0..count {
            let dry = 1000.0 + 700.0 * f64::from(n);
            let wobble = 1.0 + 0.02 * (f64::from(n % 5) - 2.0);
            here.observe(dry, (1200.0 + dry) * wobble);
        }
        here
    }

    #[test]
    fn one_run_teaches_most_of_a_sites_constant() {
        assert_eq!(DryRuns::default().learn(&PRIOR, 20.0, 0.95), None);
        let mut here = DryRuns::default();
        here.observe(1000.0, 2200.0);
        let learned = here.learn(&PRIOR, 20.0, 0.95).unwrap();
        assert!((2100.0..2200.0).contains(&learned.estimate(&1000.0.into())), "{learned:?}");
        assert!((1.05..1.1).contains(&learned.margin(&1000.0.into())), "{learned:?}");
        assert!(!learned.enough && learned.level == 0.5, "{learned:?}");
    }

    #[test]
    fn a_level_is_stated_that_the_runs_can_promise() {
        let of = |count| pairs(count).learn(&PRIOR, 20.0, 0.95).unwrap();
        assert_eq!((of(9).enough, of(9).level), (false, 0.9));
        assert_eq!((of(10).enough, of(10).level), (true, 10.0 / 11.0));
        assert_eq!(of(30).level, 0.95);
        let learned = of(30);
        let estimate = learned.estimate(&9000.0.into());
        assert!((estimate / 10_200.0 - 1.0).abs() < 0.01, "{estimate}");
        assert!((1.05..1.1).contains(&learned.margin(&9000.0.into())), "{learned:?}");
    }

    #[test]
    fn runs_of_one_program_count_once_and_old_ones_are_dropped() {
        let mut here = pairs(3);
        for _ in 0..50 {
            here.observe(1000.0, 9000.0);
        }
        assert_eq!(here.seen(), 3);
        for wrong in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            here.observe(wrong, 5.0);
            here.observe(5.0, wrong);
        }
        assert_eq!(here.seen(), 3);
        assert_eq!(pairs(500).seen(), DryRuns::KEPT);
    }

    #[test]
    fn runs_all_alike_leave_a_margin_for_programs_unlike_them() {
        let mut here = DryRuns::default();
        let mut margins = Vec::new();
        for n in 1..=DryRuns::KEPT {
            let dry = 1000.0 + 50.0 * n as f64;
            here.observe(dry, dry + 1200.0);
            margins.push(here.learn(&PRIOR, 20.0, 0.95).unwrap().margin(&5000.0.into()).ln());
        }
        assert!(margins.is_sorted_by(|before, after| before > after), "{margins:?}");
        // With as many as the shipped spread counts for it is divided by the root of two.
        let spread = (0.05 * 5000.0f64).hypot(20.0) / 6200.0;
        let expected = spread * 1.725 / std::f64::consts::SQRT_2;
        assert!((expected..1.15 * expected).contains(&margins[9]), "{} {expected}", margins[9]);
    }

    #[test]
    fn a_program_unlike_the_others_widens_the_bound() {
        let mut here = pairs(12);
        let before = here.learn(&PRIOR, 20.0, 0.95).unwrap().margin(&5000.0.into());
        here.observe(5555.0, 9000.0);
        assert!(here.learn(&PRIOR, 20.0, 0.95).unwrap().margin(&5000.0.into()) > 1.25, "{before}");
    }
}
