//! A memory model beside what programs really took.

use std::collections::BTreeMap;

use super::dry_runs::{DryRunFigure, DryRuns};
use super::model::{Known, MemoryModel};
use super::own::Point;
use super::train::{Program, cases};
use crate::Error;
use crate::evaluate::{Outcome, Scores, group_folds};

/// Knowledge about a run before it.
/// It is the number of earlier runs at other batch sizes (3 stands for more), and whether there was a dry run or a
/// count of tensors.
pub type Case = (usize, &'static str);

/// Outcomes of a model on programs, each run after each set of up to three others.
#[must_use]
pub fn outcomes(model: &MemoryModel, programs: &[&Program]) -> Vec<(Case, Outcome)> {
    let mut found = Vec::new();
    for program in programs {
        for number in 0..=3 {
            cases(&program.runs, number, |run, known| {
                let points: Vec<Point> =
                    known.iter().map(|run| Point { batch: run.batch, peak: run.peak }).collect();
                let mut add = |what, dry_run| {
                    let known = Known { points: &points, batch: Some(run.batch), dry_run, here: None };
                    if let Some(answer) = model.estimate(&known, 1.0) {
                        let (estimate, bound) = (answer.value, answer.bound);
                        found.push(((number, what), Outcome { measured: run.peak, estimate, bound }));
                    }
                };
                add("own runs", None);
                if run.dry_run.is_some() {
                    add("and a dry run", run.dry_run.map(DryRunFigure::from));
                }
                let tensors = run.tensors.filter(|_| number == 0);
                if let Some(answer) = tensors.and_then(|tensors| model.from_tensors(tensors.total)) {
                    let (estimate, bound) = (answer.value, answer.bound);
                    found.push(((0, "count of tensors"), Outcome { measured: run.peak, estimate, bound }));
                }
            });
        }
    }
    found
}

/// Scores by case.
#[must_use]
pub fn scores(outcomes: &[(Case, Outcome)]) -> BTreeMap<Case, Scores> {
    let mut by_case: BTreeMap<Case, Vec<Outcome>> = BTreeMap::new();
    for (case, outcome) in outcomes {
        by_case.entry(*case).or_default().push(*outcome);
    }
    by_case.into_iter().map(|(case, of)| (case, Scores::of(of))).collect()
}

/// Dry runs alone: as the model that ships reads them, and corrected by the runs of all other families.
fn dry_runs(programs: &[Program]) -> Vec<(Case, Outcome)> {
    let model = MemoryModel::shipped();
    let mut found = Vec::new();
    for program in programs {
        let mut here = DryRuns::default();
        let others = programs.iter().filter(|other| other.family != program.family);
        for run in others.flat_map(|other| &other.runs) {
            run.dry_run.into_iter().for_each(|dry_run| here.observe(dry_run, run.peak));
        }
        for run in &program.runs {
            for (what, here) in [("a dry run", None), ("a dry run, corrected by other families", Some(&here))]
            {
                let known = Known { dry_run: run.dry_run.map(DryRunFigure::from), here, ..Known::default() };
                let Some(answer) = model.estimate(&known, 1.0) else { continue };
                let (estimate, bound) = (answer.value, answer.bound);
                found.push(((0, what), Outcome { measured: run.peak, estimate, bound }));
            }
        }
    }
    found
}

/// [`outcomes`] by models that did not see the program's family, and what dry runs alone let expect. Of programs that
/// ran at one batch size each only the latter.
///
/// # Errors
/// Too few programs, and no dry runs.
pub fn held_out(programs: &[Program], folds: usize, level: f64) -> Result<Vec<(Case, Outcome)>, Error> {
    let mut found = dry_runs(programs);
    match own_runs(programs, folds, level) {
        Err(Error::TooFewToHoldOut { .. }) if !found.is_empty() => {}
        of_models => found.extend(of_models?),
    }
    Ok(found)
}

fn own_runs(programs: &[Program], folds: usize, level: f64) -> Result<Vec<(Case, Outcome)>, Error> {
    let families: Vec<&str> = programs.iter().map(|program| program.family.as_str()).collect();
    let fold_of = group_folds(&families, folds);
    let mut found = Vec::new();
    for fold in 0..folds {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..programs.len()).partition(|at| fold_of[*at] == fold);
        let learn: Vec<Program> = outside.iter().map(|at| programs[*at].clone()).collect();
        let model = MemoryModel::for_any_site(&learn, &[], level, "");
        let model = model.map_err(|error| of_all(error, programs, folds))?;
        found.extend(outcomes(&model, &inside.iter().map(|at| &programs[*at]).collect::<Vec<_>>()));
    }
    Ok(found)
}

/// Error of a part as one of all programs, of which a part is held out.
fn of_all(error: Error, programs: &[Program], folds: usize) -> Error {
    let Error::TooFew { what, needed, .. } = error else { return error };
    let found = programs.iter().filter(|program| program.runs.len() > 1).count();
    // The largest part is held out too.
    let suffice = |all: &usize| all - all.div_ceil(folds) >= needed;
    let needed = (needed..).find(suffice).unwrap_or(needed).max(found + 1);
    Error::TooFewToHoldOut { what, needed, found, folds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Run;

    /// Programs of families of two, each dry-run and run once at the same batch size.
    fn programs(count: u32) -> Vec<Program> {
        let program = |n: u32| {
            let held = 1e9 * (1.0 + f64::from(n));
            let peak = (held + 5e8) * (1.0 + 0.01 * f64::from(n % 3));
            let run = Run { batch: 8.0, peak, tensors: None, dry_run: Some(held) };
            Program { name: n.to_string(), family: (n / 2).to_string(), runs: vec![run] }
        };
        (0..count).map(program).collect()
    }

    #[test]
    fn dry_runs_of_programs_at_one_batch_size_are_scored() {
        let found = scores(&held_out(&programs(24), 5, 0.95).unwrap());
        let cases: Vec<&Case> = found.keys().collect();
        assert_eq!(cases, [&(0, "a dry run"), &(0, "a dry run, corrected by other families")]);
        let [shipped, corrected] = [0, 1].map(|at| found[cases[at]]);
        assert!(
            shipped.rows == 24 && corrected.median < 0.015 && corrected.median < shipped.median,
            "{corrected}"
        );
        assert!(corrected.under <= 0.05 && corrected.over < shipped.over, "{corrected} {shipped}");
    }

    /// Programs with runs at three batch sizes.
    fn with_sizes(count: u32) -> Vec<Program> {
        let program = |n: u32| {
            let run = |batch: f64| {
                let peak = 5e8 + 1e7 * (f64::from(n % 7) + 5.0) * batch;
                Run { batch, peak, tensors: None, dry_run: None }
            };
            Program { name: n.to_string(), family: n.to_string(), runs: [8.0, 16.0, 32.0].map(run).into() }
        };
        (0..count).map(program).collect()
    }

    #[test]
    fn the_number_of_programs_that_is_named_suffices_and_one_less_does_not() {
        let train = |count| MemoryModel::for_this_site(&with_sizes(count), 0.95, "");
        for few in [12, 25] {
            let why = train(few).unwrap_err().to_string();
            let says = format!(
                "{few} programs with as many batch sizes each as these are too few: at least 26 are needed"
            );
            assert_eq!(why, says);
        }
        assert!(train(26).is_ok());
    }

    #[test]
    fn programs_that_are_held_out_count_in_what_is_named() {
        let why = |count| held_out(&with_sizes(count), 5, 0.95).map_err(|error| error.to_string());
        let of = |count, what, needed| {
            Err(format!(
                "{count} programs with {what} are too few: at least {needed} are needed, as one in 5 is held out"
            ))
        };
        assert_eq!(why(12).map(drop), of(12, "runs at two batch sizes or more", 13));
        assert_eq!(why(32).map(drop), of(32, "as many batch sizes each as these", 33));
        assert!(why(33).is_ok());
    }

    #[test]
    fn a_site_is_trained_on_dry_runs_alone_and_too_few_are_named() {
        let model = MemoryModel::for_this_site(&programs(24), 0.95, "a test").unwrap();
        let known = Known { dry_run: Some(5e9.into()), ..Known::default() };
        let found = model.estimate(&known, 1.0).unwrap();
        assert!((found.value / 5.5e9 - 1.0).abs() < 0.03, "{found:?}");
        let why = MemoryModel::for_this_site(&programs(12), 0.95, "").unwrap_err().to_string();
        assert_eq!(
            why,
            "0 programs with runs at two batch sizes or more are too few: at least 10 are needed"
        );
    }
}
