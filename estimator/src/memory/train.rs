//! Training on measured programs.
//! It learns where their lines begin, what a tensor count lacks, and how sources are weighed.

use super::combine::{Cell, Estimates, Rule, Sample};
use super::own::{Anchor, Point, own};
use super::{Line, Site};
use crate::Error;

/// Memory of tensors by a count without an allocator (FakeTensor), after each part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensors {
    /// After the forward pass.
    pub forward: f64,
    /// After the backward pass.
    pub backward: f64,
    /// In all.
    pub total: f64,
}

/// A measured run of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Samples in a batch, on each GPU.
    pub batch: f64,
    /// Measured peak.
    pub peak: f64,
    /// Memory of its tensors.
    pub tensors: Option<Tensors>,
    /// Memory that the driver held in a dry run.
    pub dry_run: Option<f64>,
}

/// Runs of one program, one for each batch size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Name of the program.
    pub name: String,
    /// Programs of one design, which are held out together.
    pub family: String,
    /// Its runs.
    pub runs: Vec<Run>,
}

impl Program {
    /// Adds a run; of two at one batch size the higher peak counts.
    pub fn add(&mut self, run: Run) {
        match self.runs.iter_mut().find(|known| known.batch == run.batch) {
            Some(known) => {
                known.peak = known.peak.max(run.peak);
                known.dry_run = known.dry_run.or(run.dry_run);
            }
            None => self.runs.push(run),
        }
    }
}

/// Data from which a site of its own is learned.
const SEVERAL_SIZES: &str = "programs with runs at two batch sizes or more";
/// Number of such programs.
const MIN_PROGRAMS: usize = 10;

/// Runs of a program that are taken as known ones: their sets grow as its powers of two.
const MAX_KNOWN: usize = 6;

/// Each run after each set of `number` other runs of its program.
pub fn cases<'a, T>(runs: &'a [T], number: usize, mut each: impl FnMut(&'a T, &[&'a T])) {
    for (at, run) in runs.iter().enumerate() {
        let others = runs.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, run)| run);
        let others: Vec<&T> = others.take(MAX_KNOWN).collect();
        for set in (0u32..1 << others.len()).filter(|set| set.count_ones() as usize == number) {
            let known: Vec<&T> =
                (0..others.len()).filter(|at| set >> at & 1 == 1).map(|at| others[at]).collect();
            each(run, &known);
        }
    }
}

/// A site, and the rule by which own runs and its tensor counts are weighed there; the line of those counts.
///
/// # Errors
/// Too few programs with runs at several batch sizes.
pub fn train(
    programs: &[Program],
    level: f64,
    name: &str,
    origin: &str,
) -> Result<(Site, Option<Line>, Rule), Error> {
    let curve = |program: &Program| -> Vec<Point> { program.runs.iter().map(point).collect() };
    let curves: Vec<Vec<Point>> = programs.iter().map(curve).collect();
    let found = curves.iter().filter(|points| points.len() > 1).count();
    let too_few = Error::TooFew { what: SEVERAL_SIZES, needed: MIN_PROGRAMS, found };
    let anchor = Anchor::learn(&curves).filter(|_| found >= MIN_PROGRAMS).ok_or(too_few)?;
    let pairs = |program: &Program| -> Vec<(f64, f64)> {
        program.runs.iter().filter_map(|run| Some((run.tensors?.total, run.peak))).collect()
    };
    let line = Line::learn(&programs.iter().map(pairs).collect::<Vec<_>>());
    let runs = programs.iter().flat_map(|program| &program.runs);
    let mut lacking: Vec<f64> = runs.filter_map(|run| Some(run.peak - run.dry_run?)).collect();
    lacking.sort_unstable_by(f64::total_cmp);
    let dry_run = lacking.get(lacking.len() / 2).map_or(anchor.idle, |lacking| lacking.max(0.0));
    let site = Site { name: name.to_owned(), anchor, dry_run, caution: 1.0 };
    let mut samples = Vec::new();
    for (program, id) in programs.iter().zip(0..) {
        for number in 0..=3 {
            cases(&program.runs, number, |run, known| {
                let points: Vec<Point> = known.iter().map(|run| point(run)).collect();
                // The figure at the job's batch size is known, those of its earlier runs are not.
                let tensors = run.tensors.zip(line).map(|(tensors, line)| line.estimate(tensors.total, &[]));
                let dry = run.dry_run.map(|dry| dry + site.dry_run).or(tensors);
                let estimates: Estimates = [own(&points, run.batch, &site.anchor), dry, None];
                let cell = Cell::of(&points, run.batch);
                samples.push(Sample { cell, program: id, estimates, measured: run.peak });
            });
        }
    }
    let rule = Rule::learn(&samples, level, origin)?;
    Ok((site, line, rule))
}

fn point(run: &Run) -> Point {
    Point { batch: run.batch, peak: run.peak }
}
