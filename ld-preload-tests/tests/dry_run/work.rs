//! The work of a step that a dry run records, and its predicted time.

use radrm_preload_tests::python::script;
use serde_json::Value;

use super::harness::{dry_run, plain_dry_run, python};

/// FLOP of the step that the report has, of products of matrices and convolutions.
fn flop(step: &Value) -> f64 {
    let counts = |row: &&Value| {
        ["gemm", "convolution", "convolution-backward"].contains(&row["kind"].as_str().unwrap_or_default())
    };
    let of =
        |row: &Value| row["count"].as_f64().unwrap_or(f64::NAN) * row["flop"].as_f64().unwrap_or(f64::NAN);
    step["work"].as_array().into_iter().flatten().filter(counts).map(of).sum()
}

/// PyTorch's own counter works on the shapes of tensors without memory, in another process that uses no GPU.
#[test]
fn flop_of_a_step_are_those_of_its_tensor_shapes() {
    let Some(python) = python() else { return };
    for model in ["perceptron", "resnet50", "gpt2"] {
        let program = script("dry_run_work.py");
        let counted = dry_run(&python, &[], &[&program, model, "--count"]).ok();
        let counted: f64 = counted.ended.stdout.trim().parse().expect("FLOP");
        let run = dry_run(&python, &[], &[&program, model]).ok();
        let step = &run.report["dry_run"]["step"];
        let recorded = flop(step);
        assert!((recorded / counted - 1.0).abs() < 0.01, "{model}: {recorded} recorded, {counted} counted");
        assert_eq!(step["unknown"], Value::Array(Vec::new()), "{model}");
    }
}

#[test]
fn a_step_is_recorded_without_a_trace_of_it_in_the_output() {
    let Some(python) = python() else { return };
    let run = plain_dry_run(&python, &["--emulate", "A100-80GB"], &[&script("dry_run_gpt2.py")]).ok();
    let step = &run.report["dry_run"]["step"];
    assert_eq!(
        (&step["number"], &step["card"]),
        (&2.into(), &"A100-80GB".into()),
        "{:#}",
        run.report["dry_run"]
    );
    assert_eq!(step["unknown"], Value::Array(Vec::new()));
    let order = step["order"].as_array().expect("the order of its operations");
    assert_eq!(Some(order.len() as u64), step["operations"].as_u64());
    let first = order[0].as_u64().and_then(|at| step["work"].get(at as usize));
    assert!(first.is_some_and(|row| row["seconds"].as_f64() > Some(0.0)), "{first:?}");
    let card = |name: &str| {
        step["cards"].as_array().into_iter().flatten().find(|time| time["card"] == name).cloned()
    };
    let [time, low, high] =
        [0, 1, 2].map(|at| card("A100-80GB").expect("a time")["gpu_seconds"][at].as_f64().expect("s"));
    assert!(0.0 < low && low < time && time < high, "{low} {time} {high}");
    let on_l4 = card("L4").expect("a time")["gpu_seconds"][0].as_f64().expect("s");
    assert!(on_l4 > 2.0 * time, "L4 {on_l4} s, A100 {time} s");
    assert_eq!(card("T4"), None, "it has no brain floats");
    assert!(!run.ended.stderr.to_lowercase().contains("trace"), "{}", run.ended.stderr);
    run.leaves_nothing();
}

#[test]
fn a_whole_training_has_the_time_of_its_steps_and_the_cost_of_its_hours() {
    let Some(python) = python() else { return };
    let options = ["--emulate", "A100-80GB", "--total-steps", "36000", "--price", "a100-80gb=2"];
    let run = plain_dry_run(&python, &options, &[&script("dry_run_gpt2.py")]).ok();
    let dry_run = &run.report["dry_run"];
    let on = |part: &Value| {
        let mut cards = part["cards"].as_array().into_iter().flatten();
        cards.find(|card| card["card"] == "A100-80GB").expect("the card").clone()
    };
    let (step, training) = (on(&dry_run["step"]), on(&dry_run["training"]));
    let low = step["low"].as_f64().expect("s");
    let near = |value: &Value, other: f64| (value.as_f64().expect("a figure") / other - 1.0).abs() < 1e-9;
    assert!(near(&training["seconds"]["low"], 36_000.0 * low), "{training} {low}");
    assert!(near(&training["cost"]["low"], 20.0 * low), "{training} {low}");
    let unpriced = dry_run["training"]["cards"].as_array().into_iter().flatten();
    assert_eq!(unpriced.filter(|card| !card["cost"].is_null()).count(), 1);
    assert_eq!(dry_run["training"]["steps"], 36_000);
    run.leaves_nothing();
}

/// PyTorch's trace of operators ends a program where it begins or ends at the wrong moment.
#[test]
fn threads_and_evaluations_between_steps_end_as_they_do_without_a_record() {
    let Some(python) = python() else { return };
    for way in ["threads", "threads", "threads", "evaluations"] {
        let run = plain_dry_run(&python, &[], &[&script("dry_run_steppers.py"), way]).ok();
        assert_eq!(run.ended.stdout.trim(), "done", "{way}");
        run.leaves_nothing();
    }
}
