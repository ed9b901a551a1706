//! Memory model of how programs take GPU memory, as one file.
//! The file is the shipped one, or one that was trained on a dataset.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::combine::{Combined, Rule, SOURCES, Source, guarded};
use super::compare::outcomes;
use super::dry_runs::{DryRunFigure, DryRuns, Learned};
use super::network::{Network, Networks};
use super::outliers::LeftOut;
use super::own::{Anchor, Point, own};
use super::train::{Program, train};
use super::{Estimates, Line};
use crate::Error;
use crate::calibrate::{margin, score};
use crate::evaluate::Outcome;

/// Memory that programs hold at a site beside their own: the software and the GPUs differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// GPU and software of its measurements, and their year.
    pub name: String,
    /// Point near which the lines of its programs pass.
    pub anchor: Anchor,
    /// Memory that a dry run's figure lacks: context, code and libraries.
    pub dry_run: f64,
    /// Part of the rule's margin after one run: bounds hold at all sites, so each may be closer.
    pub caution: f64,
}

impl Site {
    /// This one with what the dry runs of another lack, in the median.
    fn by_dry_runs<'a>(&self, runs: impl Iterator<Item = &'a super::Run>) -> Self {
        let mut lacking: Vec<f64> = runs.filter_map(|run| Some(run.peak - run.dry_run?)).collect();
        lacking.sort_unstable_by(f64::total_cmp);
        let dry_run = lacking.get(lacking.len() / 2).map_or(self.dry_run, |lacking| lacking.max(0.0));
        Self { name: "this site".to_owned(), dry_run, ..self.clone() }
    }
}

/// Estimates memory from all sources. All figures are bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryModel {
    version: u64,
    /// Source and licence of its rows.
    origin: String,
    /// The sites that a job may run at: bounds hold at each of them.
    sites: Vec<Site>,
    /// From a count of tensors (FakeTensor) to a peak.
    tensors: Option<Line>,
    /// Weights and margins.
    rule: Rule,
    /// Of a dry run's figure without own runs: logarithm of bound / estimate, and how often it holds.
    dry_run: (f64, f64),
    /// Quantiles of `ln(measured / estimate) / ln(bound / estimate)` over its rows: 1 is a peak at the bound.
    scores: Vec<f64>,
    /// From the layers of a network.
    networks: Option<Networks>,
}

/// Knowledge about a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known<'a> {
    /// Peaks of its program's runs at other batch sizes.
    pub points: &'a [Point],
    /// Its batch size; without one no other batch size says anything.
    pub batch: Option<f64>,
    /// A dry run of it.
    pub dry_run: Option<DryRunFigure>,
    /// Real runs of dry-run programs where it will run.
    pub here: Option<&'a DryRuns>,
}

/// An estimate from all sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The figure to expect.
    pub value: f64,
    /// The upper bound.
    pub bound: f64,
    /// Coverage of the bound, 0 to 1.
    pub level: f64,
    /// Estimate and weight of each source that was asked.
    pub said: Vec<(Source, f64, f64)>,
    /// Real runs that corrected the dry run.
    pub corrected_by: usize,
    /// Real runs that were left out: no other lets expect such a peak.
    pub left_out: Vec<LeftOut>,
    /// The margin was stretched: it is not one that real runs of dry-run programs gave.
    pub is_stretched: bool,
}

const VERSION: u64 = 1;

const MIB: f64 = 1_048_576.0;

/// PyTorch's allocator takes GPU memory for requests of up to 10 MiB in pieces of this size.
const PIECE: f64 = 20.0 * MIB;

/// Deviation of any peak from its dry run, bytes: each of the two may have a piece more than the other.
const AMOUNT: f64 = std::f64::consts::SQRT_2 * PIECE;

/// Batch sizes below this were not measured: there what does not grow with the batch counts as fewer samples.
const MEASURED: f64 = 8.0;

/// Shipped memory model. `radrm train` made it; `estimator/tests/memory.rs` compares.
static SHIPPED: LazyLock<MemoryModel> = LazyLock::new(|| {
    // It is part of the program, and read by the tests.
    MemoryModel::parse(include_str!("../../data/memory.json")).expect("a model that ships is sound")
});

impl MemoryModel {
    /// The model that ships.
    #[must_use]
    pub fn shipped() -> &'static Self {
        &SHIPPED
    }

    /// Trains on programs of one site for use at others: bounds hold also at a second site, an A100 with the software of
    /// 2026, whose contexts are far smaller (`docs/estimators.md` has where the figures come from).
    ///
    /// # Errors
    /// Too few programs, or too few networks if there are any.
    pub fn for_any_site(
        programs: &[Program],
        networks: &[Network],
        level: f64,
        origin: &str,
    ) -> Result<Self, Error> {
        let (site, tensors, rule) = train(programs, level, "A100 40 GB, PyTorch of 2024", origin)?;
        let first = Site { dry_run: 1260.0 * MIB, caution: 0.8, ..site };
        let anchor = Anchor { idle: 430.0 * MIB, ..first.anchor };
        let name = "A100 40 GB, PyTorch of 2026".to_owned();
        let second = Site { name, anchor, dry_run: 28.0 * MIB, caution: 0.2 };
        let networks = match networks {
            [] => None,
            networks => Some(Networks::train(networks, level, origin)?),
        };
        let model = Self {
            version: VERSION,
            origin: origin.to_owned(),
            sites: vec![first, second],
            tensors,
            rule,
            dry_run: (1.1_f64.ln(), 0.9),
            scores: Vec::new(),
            networks,
        };
        Ok(model.scored(programs))
    }

    /// Trains on the programs of this site, for use here. What they are too few for is taken from the model that ships.
    ///
    /// # Errors
    /// Too few programs with runs at several batch sizes, and too few dry runs.
    pub fn for_this_site(programs: &[Program], level: f64, origin: &str) -> Result<Self, Error> {
        const MIN_DRY_RUNS: usize = 20;
        let shipped = Self::shipped();
        let runs = || programs.iter().flat_map(|program| &program.runs);
        let enough = runs().filter(|run| run.dry_run.is_some()).count() >= MIN_DRY_RUNS;
        let (site, tensors, mut rule) = match train(programs, level, "this site", origin) {
            // Dry runs of programs at one batch size each show what a process holds here.
            Err(Error::TooFew { .. }) if enough => {
                (shipped.sites[0].by_dry_runs(runs()), None, shipped.rule.clone())
            }
            trained => trained?,
        };
        rule.fill(&shipped.rule);
        let of = |run: &super::Run| Some(score(run.peak, run.dry_run? + site.dry_run));
        let dry_runs: Vec<f64> = runs().filter_map(of).collect();
        let dry_run = margin(&dry_runs, level).filter(|_| enough).map(|margin| (margin.max(0.0), level));
        let model = Self {
            version: VERSION,
            origin: origin.to_owned(),
            sites: vec![site],
            tensors: tensors.or(shipped.tensors),
            rule,
            dry_run: dry_run.unwrap_or(shipped.dry_run),
            scores: Vec::new(),
            networks: shipped.networks.clone(),
        };
        Ok(model.scored(programs))
    }

    fn scored(self, programs: &[Program]) -> Self {
        Self { scores: quantiles(&self, &programs.iter().collect::<Vec<_>>()), ..self }
    }

    /// The peak of a network like those that were measured, and its bound; `None` for any other.
    #[must_use]
    pub fn from_network(&self, network: &Network) -> Option<(f64, f64)> {
        self.networks.as_ref()?.estimate(network)
    }

    /// Coverage of a bound, 0 to 1.
    #[must_use]
    pub fn level(&self) -> f64 {
        self.rule.level()
    }

    /// Quantiles of `ln(measured / estimate) / ln(bound / estimate)` over its rows.
    #[must_use]
    pub fn scores(&self) -> &[f64] {
        &self.scores
    }

    /// The line of dry runs' figures before any run here: the constants of the sites are what it may be.
    fn dry_line(&self) -> Line {
        const MIN_SPREAD: f64 = 100.0 * MIB;
        let constants = || self.sites.iter().map(|site| site.dry_run);
        let (least, most) = (constants().fold(f64::MAX, f64::min), constants().fold(0.0, f64::max));
        let spread = ((most - least) / 2.0).max(MIN_SPREAD);
        let (fixed, factor) = ((least + most) / 2.0, 1.0);
        Line { fixed, factor, fixed_spread: spread, factor_spread: 0.02, noise: 0.05 }
    }

    /// The estimate for a job. `stretch` is what the site's own jobs make of the margin: 1 is as trained. It is not used where
    /// a dry run is the only source and was corrected by runs here, which give it a margin of its own. The bound is never below
    /// what the dry run held, or the peak of a smaller batch.
    #[must_use]
    pub fn estimate(&self, job: &Known<'_>, stretch: f64) -> Option<Answer> {
        let points = if job.batch.is_some() { &rising(job.points)[..] } else { &[] };
        let batch = job.batch.unwrap_or(1.0);
        let (here, left_out) = match job.here {
            Some(here) => here.screened(&self.dry_line(), AMOUNT),
            None => (DryRuns::default(), Vec::new()),
        };
        let learned = here.learn(&self.dry_line(), AMOUNT, self.rule.level());
        let corrected_by = learned.as_ref().map_or(0, |learned| learned.counted);
        // Of two runs and more the line is the program's own: where it begins at a site weighs little.
        let sites = if points.len() > 1 { &self.sites[..1] } else { &self.sites[..] };
        let mut of_sites: Vec<(Estimates, Combined)> = Vec::with_capacity(sites.len());
        for site in sites {
            of_sites.push(self.at_site(site, points, batch, (job.dry_run, learned.as_ref()))?);
        }
        let mean = |of: &dyn Fn(&(Estimates, Combined)) -> f64| {
            (of_sites.iter().map(|found| of(found).ln()).sum::<f64>() / of_sites.len() as f64).exp()
        };
        let value = mean(&|found| found.1.value);
        let bound = of_sites.iter().map(|found| found.1.bound).fold(0.0, f64::max);
        if let (Some(learned), true) = (&learned, points.is_empty()) {
            return Some(Answer { left_out, ..self.corrected(value, learned, &job.dry_run?) });
        }
        let bound = value * (bound / value).powf(stretch);
        // What a dry run held, the program holds.
        let held = job.dry_run.filter(|_| points.is_empty()).map_or(0.0, |dry| dry.held);
        let weights = of_sites.first()?.1.weights;
        let asked = (0..SOURCES.len()).filter(|at| of_sites.iter().all(|found| found.0[*at].is_some()));
        let said = asked.map(|at| (SOURCES[at], mean(&|found| found.0[at].unwrap_or(1.0)), weights[at]));
        let said = said.collect();
        let level = if points.is_empty() { self.dry_run.1 } else { self.rule.level() };
        let Combined { value, bound, .. } = guarded(points, batch, Combined { value, bound, weights });
        let bound = bound.max(held);
        Some(Answer { value, bound, level, said, corrected_by, left_out, is_stretched: true })
    }

    /// By a dry run alone, after runs here. Until these are enough the bound is not below the one that ships.
    fn corrected(&self, value: f64, learned: &Learned, dry: &DryRunFigure) -> Answer {
        let own = (value * learned.margin(dry)).max(dry.held);
        let constant = self.sites.iter().map(|site| site.dry_run).fold(0.0, f64::max);
        let shipped = (dry.held + constant) * self.dry_run.0.exp();
        let (bound, level) =
            if learned.enough { (own, learned.level) } else { (own.max(shipped), self.dry_run.1) };
        Answer {
            value,
            bound,
            level,
            said: vec![(Source::Dry, value, 1.0)],
            corrected_by: learned.counted,
            left_out: Vec::new(),
            is_stretched: false,
        }
    }

    fn at_site(
        &self,
        site: &Site,
        points: &[Point],
        batch: f64,
        (dry, learned): (Option<DryRunFigure>, Option<&Learned>),
    ) -> Option<(Estimates, Combined)> {
        let peak = |dry: DryRunFigure| learned.map_or(dry.held + site.dry_run, |found| found.estimate(&dry));
        let dry = dry.filter(|dry| dry.held > 0.0).map(peak);
        if points.is_empty() {
            let value = dry?;
            let bound = value * self.dry_run.0.exp();
            return Some(([None, dry, None], Combined { value, bound, weights: [0.0, 1.0, 0.0] }));
        }
        let least = points.iter().map(|point| point.batch).fold(f64::MAX, f64::min);
        let (few, caution) = match points.len() {
            1 => ((least / MEASURED).min(1.0), site.caution),
            _ => (1.0, 1.0),
        };
        let anchor = Anchor { samples: site.anchor.samples * few, ..site.anchor };
        let estimates = [own(points, batch, &anchor), dry, None];
        let found = self.rule.weighted(points, batch, &estimates)?;
        let bound = found.value * (found.bound / found.value).powf(caution);
        Some((estimates, Combined { bound, ..found }))
    }

    /// The peak that a count of tensors (FakeTensor) stands for, and its bound.
    #[must_use]
    pub fn from_tensors(&self, bytes: f64) -> Option<Answer> {
        let estimate = self.tensors.as_ref()?.estimate(bytes, &[]);
        let found = self.rule.weighted(&[], 1.0, &[None, Some(estimate), None])?;
        let said = vec![(Source::Dry, estimate, 1.0)];
        Some(Answer {
            value: found.value,
            bound: found.bound,
            level: self.rule.level(),
            said,
            corrected_by: 0,
            left_out: Vec::new(),
            is_stretched: true,
        })
    }

    /// Source of its rows.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The model as the text of a file.
    ///
    /// # Errors
    /// A value cannot be written: it cannot happen for a model that was trained or read.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Json(error.to_string()))
    }

    /// Reads a model file, which may come from anywhere.
    ///
    /// # Errors
    /// Another version, or what is wrong with the file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let model: Self = crate::model::versioned(text, VERSION)?;
        model.rule.check()?;
        let is_amount = |value: f64| value.is_finite() && value >= 0.0;
        let is_site = |site: &Site| {
            let of = [site.anchor.idle, site.anchor.samples, site.dry_run, site.caution];
            of.into_iter().all(is_amount) && site.caution <= 10.0
        };
        if model.sites.is_empty() || model.sites.len() > 100 || !model.sites.iter().all(is_site) {
            return Err(Error::Malformed("it has no sites, or figures of a site make no sense".into()));
        }
        let line = |line: &Line| {
            let spreads = [line.fixed_spread, line.factor_spread, line.noise];
            line.fixed.is_finite()
                && line.factor.is_finite()
                && spreads.into_iter().all(|of| of.is_finite() && of > 0.0)
        };
        let (margin, level) = model.dry_run;
        let scored = model.scores.len() <= 10_000 && model.scores.iter().all(|score| score.is_finite());
        let sound = is_amount(margin) && level > 0.0 && level < 1.0 && scored;
        if !sound || !model.tensors.as_ref().is_none_or(line) {
            return Err(Error::Malformed("what it says of dry runs or of tensors makes no sense".into()));
        }
        model.networks.iter().try_for_each(Networks::check)?;
        Ok(model)
    }
}

/// Peaks that do not fall with the batch size: of a program that contradicts itself the higher peak is believed, for a run
/// that ended early shows too little and none shows too much.
fn rising(points: &[Point]) -> Vec<Point> {
    let mut points = points.to_vec();
    points.sort_unstable_by(|a, b| a.batch.total_cmp(&b.batch));
    let mut highest: f64 = 0.0;
    for point in &mut points {
        highest = highest.max(point.peak);
        point.peak = highest;
    }
    points
}

/// A score for each hundredth of the programs' cases, to three places.
fn quantiles(model: &MemoryModel, programs: &[&Program]) -> Vec<f64> {
    const PARTS: usize = 100;
    let of = |outcome: &Outcome| {
        let margin = (outcome.bound / outcome.estimate).ln();
        (margin > 1e-4).then(|| (outcome.measured / outcome.estimate).ln() / margin)
    };
    let mut scores: Vec<f64> =
        outcomes(model, programs).iter().filter_map(|(_, outcome)| of(outcome)).collect();
    scores.sort_unstable_by(f64::total_cmp);
    let Some(last) = scores.len().checked_sub(1) else { return scores };
    (0..=PARTS).map(|at| (scores[at * last / PARTS] * 1000.0).round() / 1000.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Run, Tensors};

    const GIB: f64 = 1024.0 * MIB;

    /// Programs at a site whose processes hold 1 GiB, each with its own memory for a sample.
    pub(super) fn model() -> MemoryModel {
        let program = |n: u32| {
            let each = (20.0 + f64::from(n)) * MIB;
            let run = |batch: f64| {
                let wobble = 1.0 + 0.02 * ((f64::from(n) * batch) % 7.0 - 3.0) / 3.0;
                let peak = (GIB + each * (batch + 5.0)) * wobble;
                let total = each * batch;
                let tensors = Tensors { forward: 0.4 * total, backward: 0.9 * total, total };
                Run { batch, peak, tensors: Some(tensors), dry_run: None }
            };
            Program {
                name: n.to_string(),
                family: n.to_string(),
                runs: [8.0, 16.0, 32.0, 64.0].map(run).to_vec(),
            }
        };
        MemoryModel::for_any_site(&(0..80).map(program).collect::<Vec<_>>(), &[], 0.95, "a test").unwrap()
    }

    fn of(batch: f64, peak: f64) -> Point {
        Point { batch, peak }
    }

    #[test]
    fn bounds_hold_at_every_site_and_stay_between_other_peaks() {
        let model = model();
        let run = [of(32.0, 4.0 * GIB)];
        let at = |points: &[Point], batch: f64| {
            model.estimate(&Known { points, batch: Some(batch), ..Known::default() }, 1.0).unwrap()
        };
        let found = at(&run, 64.0);
        assert!(found.value > 6.0 * GIB && found.value < found.bound && found.bound < 8.5 * GIB, "{found:?}");
        let smaller = at(&run, 16.0);
        assert!(smaller.value < run[0].peak && smaller.bound < run[0].peak, "{smaller:?}");
        assert!(at(&run, 31.0).bound <= 1.01 * run[0].peak, "no more than the larger size needed");
        // A batch of one sample says nothing of how much does not grow.
        assert!(at(&[of(1.0, 20.0 * GIB)], 2.0).bound > 32.0 * GIB);
        assert!(at(&[of(8.0, 0.4 * GIB)], 16.0).bound >= 1.01 * 0.4 * GIB);
        let none = Known { points: &run, ..Known::default() };
        assert_eq!(model.estimate(&none, 1.0), None, "without a batch size no line can be followed");
    }

    #[test]
    fn a_dry_run_is_one_more_source_and_alone_it_is_the_only_one() {
        let model = model();
        let alone = Known { dry_run: Some((4.0 * GIB).into()), ..Known::default() };
        let alone = model.estimate(&alone, 1.0).unwrap();
        assert!((5.0 * GIB..6.0 * GIB).contains(&alone.bound) && alone.level == 0.9, "{alone:?}");
        assert_eq!(alone.said.len(), 1);
        let run = [of(32.0, 4.0 * GIB)];
        let both = Known { points: &run, batch: Some(64.0), dry_run: Some((6.0 * GIB).into()), here: None };
        let both = model.estimate(&both, 1.0).unwrap();
        let sources: Vec<Source> = both.said.iter().map(|said| said.0).collect();
        assert_eq!(sources, [Source::Own, Source::Dry]);
        assert!((both.said.iter().map(|said| said.2).sum::<f64>() - 1.0).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn runs_here_correct_a_dry_run_and_narrow_its_bound_after_ten() {
        let model = model();
        let mut here = DryRuns::default();
        let ask = |here: &DryRuns| {
            let job = Known { dry_run: Some((4.0 * GIB).into()), here: Some(here), ..Known::default() };
            model.estimate(&job, 1.0).unwrap()
        };
        let shipped = ask(&here);
        for n in 1..=DryRuns::ENOUGH {
            let dry = (1.0 + n as f64) * GIB / 2.0 + 1.0;
            here.observe(dry, dry + 400.0 * MIB);
            let found = ask(&here);
            let error = (found.value / (4.0 * GIB + 400.0 * MIB) - 1.0).abs();
            assert!(error < if n == 1 { 0.04 } else { 0.02 }, "{n}: {found:?}");
            match n < DryRuns::ENOUGH {
                true => assert!(found.bound >= shipped.bound && found.level == 0.9, "{n}: {found:?}"),
                false => assert!(found.bound < 1.06 * found.value && found.level > 0.9, "{n}: {found:?}"),
            }
        }
        // Beside own runs the corrected figure is the dry run's.
        let points = [of(32.0, 4.0 * GIB)];
        let job = Known {
            points: &points,
            batch: Some(64.0),
            dry_run: Some((6.0 * GIB).into()),
            here: Some(&here),
        };
        let both = model.estimate(&job, 1.0).unwrap();
        let dry = both.said.iter().find(|said| said.0 == Source::Dry).unwrap().1;
        assert!((dry / (6.0 * GIB + 400.0 * MIB) - 1.0).abs() < 0.01, "{both:?}");
    }

    #[test]
    fn a_sites_own_jobs_stretch_the_margin_within_the_guard() {
        let model = model();
        let job = Known { points: &[of(32.0, 4.0 * GIB)], batch: Some(64.0), ..Known::default() };
        let bounds = [0.0, 1.0, 2.0].map(|stretch| model.estimate(&job, stretch).unwrap().bound);
        assert!(bounds[0] < bounds[1] && bounds[1] < bounds[2], "{bounds:?}");
    }

    #[test]
    fn a_model_survives_its_file_and_a_broken_one_is_refused() {
        let text = model().to_json().unwrap();
        assert_eq!(MemoryModel::parse(&text).unwrap(), model());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let refused = |path: &str, with: serde_json::Value| {
            let mut json = json.clone();
            *json.pointer_mut(path).unwrap() = with;
            let error = MemoryModel::parse(&json.to_string()).unwrap_err().to_string();
            assert!(!error.contains('\n'));
            error
        };
        assert!(refused("/version", 9.into()).contains("version 9"));
        assert!(refused("/sites", serde_json::json!([])).contains("no sites"));
        assert!(refused("/sites/0/dry_run", (-1.0).into()).contains("site"));
        assert!(refused("/sites/0/anchor/idle", (-1.0).into()).contains("site"));
        assert!(refused("/dry_run", serde_json::json!([0.1, 2.0])).contains("dry runs"));
        assert!(refused("/tensors/noise", 0.into()).contains("tensors"));
        assert!(refused("/rule/cells/0/margin", serde_json::json!("x")).contains("not a model file"));
        assert!(MemoryModel::parse("").is_err() && MemoryModel::parse("{}").is_err());
    }
}
