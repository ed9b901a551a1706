//! Phases of PyTorch's own work, made by its hooks.

use radrm_preload_tests::{artifacts, python::script};
use serde_json::Value;

use super::harness::{dry_run_with, python};

#[test]
fn modules_and_steps_of_pytorch_are_phases() {
    let Some(python) = python() else { return };
    let module = artifacts::workspace().join("contrib/python").display().to_string();
    let run = dry_run_with(&python, &[], &[("PYTHONPATH", &module)], &[&script("torch_phases.py")]).ok();
    assert_eq!(run.ended.stdout, "True\n");
    let names = run.report["ranges"]["names"].as_array().expect("phases");
    let mut found: Vec<(&str, u64)> =
        names.iter().filter_map(|name| Some((name["name"].as_str()?, name["ranges"].as_u64()?))).collect();
    // Steps that `radrm-run` marks are no ranges.
    found.retain(|(_, ranges)| *ranges > 0);
    found.sort_unstable();
    // The sixth pass raised in its first module, and the last one came after the hooks were removed.
    let expected = [
        ("0", 6),
        ("1", 5),
        ("1.0", 5),
        ("1.1", 5),
        ("2", 5),
        ("Sequential", 6),
        ("after", 1),
        ("optimizer step [Adam]", 5),
    ];
    assert_eq!(found, expected);
    assert_eq!(run.report["ranges"]["steps"]["steps"], 5, "{:#}", run.report["ranges"]);
    for none in ["unbalanced", "not_counted"] {
        assert_eq!(run.report["ranges"][none], 0, "{none}");
    }
    assert_eq!(run.report["ranges"]["open"], Value::Array(Vec::new()));
}
