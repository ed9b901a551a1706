//! Bounds from a run's first steps, on recorded early phases of runs.

#[path = "published/mod.rs"]
mod published;

use std::collections::BTreeMap;

use radrm_estimator::early::{Basis, Early, STEP, Shapes, bound};

/// Reserved memory of one run: after each step, and at its end.
struct Run {
    steps: BTreeMap<u32, u64>,
    last: u64,
    variable: bool,
    validated: bool,
}

fn runs() -> Option<Vec<Run>> {
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
    Some(all.into_values().collect())
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
