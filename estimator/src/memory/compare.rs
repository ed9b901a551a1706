//! A memory model beside what programs really took.

use std::collections::BTreeMap;

use super::dry_runs::DryRunFigure;
use super::model::{Known, MemoryModel};
use super::own::Point;
use super::train::{Program, cases};
use crate::Error;
use crate::evaluate::{Outcome, Scores, group_folds};

/// What was known of a run before it: the number of earlier runs at other batch sizes (3 stands for more), and whether
/// there was a dry run or a count of tensors.
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

/// [`outcomes`] by models that did not see the program's family.
///
/// # Errors
/// Too few programs.
pub fn held_out(programs: &[Program], folds: usize, level: f64) -> Result<Vec<(Case, Outcome)>, Error> {
    let families: Vec<&str> = programs.iter().map(|program| program.family.as_str()).collect();
    let fold_of = group_folds(&families, folds);
    let mut found = Vec::new();
    for fold in 0..folds {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..programs.len()).partition(|at| fold_of[*at] == fold);
        let learn: Vec<Program> = outside.iter().map(|at| programs[*at].clone()).collect();
        let model = MemoryModel::for_any_site(&learn, &[], level, "")?;
        found.extend(outcomes(&model, &inside.iter().map(|at| &programs[*at]).collect::<Vec<_>>()));
    }
    Ok(found)
}
