//! Bounds from a run's first steps, on recorded early phases of runs.

use std::collections::BTreeMap;

use radrm_estimator::early::{Basis, Course, Early, STEP, Shapes, bound, shapes};

use crate::published;

/// Reserved memory of one run: after each step, and at its end.
struct Run {
    steps: BTreeMap<u32, u64>,
    last: u64,
    variable: bool,
    validated: bool,
}

fn runs() -> Option<Vec<Run>> {
    by_name().map(|runs| runs.into_values().collect())
}

/// By the set and the number of the program: one of each set is the same program at another batch size.
fn by_name() -> Option<BTreeMap<(String, String), Run>> {
    let mut all: BTreeMap<(String, String), Run> = BTreeMap::new();
    for row in published::rows("early_runs/early.csv.gz")?.iter() {
        let key = (row.text("set").to_owned(), row.text("seed").to_owned());
        let run = all.entry(key).or_insert_with(|| Run {
            steps: BTreeMap::new(),
            last: 0,
            variable: row.text("variable") == "True",
            validated: !row.text("val_at").is_empty(),
        });
        let reserved: u64 = row.text("max_reserved").parse().expect("bytes");
        run.last = run.last.max(reserved);
        if let Some(step) = row.text("phase").strip_prefix("step") {
            run.steps.insert(step.parse().expect("a step"), reserved);
        }
    }
    Some(all)
}

impl Run {
    fn course(&self) -> Option<Course> {
        let early = *self.steps.get(&STEP)?;
        Some(Course { steps: STEP, early, last: self.last })
    }
}

#[test]
fn bounds_of_fixed_shapes_hold_for_19_of_20_runs_from_the_third_step_on() {
    let Some(runs) = runs() else { return };
    let fixed: Vec<&Run> = runs.iter().filter(|run| !run.variable && !run.validated).collect();
    assert!(fixed.len() > 50, "{}", fixed.len());
    for step in [STEP, 8] {
        let broken = fixed.iter().filter(|run| {
            let seen = Early { steps: step, reserved: run.steps[&step], shapes: Shapes::Fixed };
            let bound = bound(&seen, u64::MAX, &[]);
            assert_eq!(bound.basis, Basis::FixedShapes);
            bound.bytes < run.last
        });
        let share = broken.count() as f64 / fixed.len() as f64;
        assert!(share <= 0.05, "step {step}: {share}");
    }
}

#[test]
fn bounds_of_other_runs_stay_what_they_were() {
    let Some(runs) = runs() else { return };
    for run in runs.iter().filter(|run| run.variable || run.validated) {
        for (step, reserved) in &run.steps {
            let seen = Early { steps: *step, reserved: *reserved, shapes: Shapes::Open };
            assert_eq!(bound(&seen, run.last, &[]).bytes, run.last);
        }
    }
}

/// Of all programs that ran at two batch sizes, whatever their shapes and phases are.
#[test]
fn bounds_hold_where_a_run_at_another_batch_size_did_not_grow() {
    let Some(runs) = by_name() else { return };
    let (mut bounded, mut open, mut broken) = (0u32, 0u32, 0u32);
    for ((set, program), run) in &runs {
        let other = if set == "runs" { "runs2" } else { "runs" };
        let earlier = runs.get(&(other.to_owned(), program.clone())).and_then(Run::course);
        let (Some(earlier), Some(reserved)) = (earlier, run.steps.get(&STEP).copied()) else { continue };
        let shapes = shapes(STEP, false, &[earlier]);
        let bound = bound(&Early { steps: STEP, reserved, shapes }, u64::MAX, &[]);
        match bound.basis {
            Basis::FixedShapes => {
                bounded += 1;
                broken += u32::from(bound.bytes < run.last);
            }
            _ => open += 1,
        }
    }
    println!("{bounded} bounded, {broken} above, {open} keep the bound of before");
    assert!(bounded > 50 && open > 20, "{bounded} {open}");
    assert!(f64::from(broken) <= 0.05 * f64::from(bounded), "{broken} of {bounded}");
}
