//! Expected figures on a real GPU, corrected by real runs of dry-run programs in the dataset.

use std::path::Path;
use std::process::Command;

use radrm_collector::dataset::{Dataset, Filter, Origin, Row};
use radrm_preload_tests::{artifacts, child};
use serde_json::Value;

use super::harness::{PATIENCE, python};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Holds 3 GiB and multiplies, or with an argument also tells PyTorch to try cuDNN's algorithms.
const PROGRAM: &str = "import sys, torch
torch.backends.cudnn.benchmark = len(sys.argv) > 1
small = torch.ones(8, 8, device='cuda') @ torch.ones(8, 8, device='cuda')
torch.empty(3 << 30, dtype=torch.uint8, device='cuda')
";

#[test]
fn real_runs_of_dry_run_programs_correct_later_dry_runs() {
    let Some(python) = python() else { return };
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("d.db");
    let run = |arguments: &[&str]| {
        let profile = place.path().join("a.radrm");
        let mut command = Command::new(artifacts::file("radrm-run"));
        command.args(["--dry-run", "--emulate", "A100-40GB", "--json=-", "-o"]).arg(&profile);
        command.arg("--dataset").arg(&file).arg("--").arg(&python).args(["-c", PROGRAM]).args(arguments);
        let ended = child::run(command, PATIENCE).ok();
        let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
        (report["dry_run"].clone(), profile)
    };
    let newest = || Dataset::open(&file).unwrap().rows(&Filter::default()).unwrap().remove(0);

    let (shipped, _) = run(&[]);
    let held = shipped["gpus"][0]["held_peak"].as_u64().unwrap();
    let expected = &shipped["expected"];
    assert_eq!((&expected["runs"], &expected["gpu_model"]), (&Value::from(0), &Value::Null), "{expected}");
    let bytes = |report: &Value, name: &str| report["expected"][name].as_u64().unwrap();
    assert!(held > 3 * GIB && bytes(&shipped, "bytes") > held, "{expected}");
    assert!(bytes(&shipped, "upper") > held + 1260 * MIB, "bounds hold at all sites: {expected}");
    let row = newest();
    assert_eq!(row.predicted_bytes, expected["bytes"].as_u64());
    assert_eq!(row.predicted_confidence_permille, Some(900));
    assert!(row.framework.as_deref().is_some_and(|it| it.starts_with("PyTorch 2")), "{:?}", row.framework);

    // At this site a process holds 200 MiB more than it does in a dry run.
    let mut dataset = Dataset::open(&file).unwrap();
    for program in 1..=12 {
        let dry = Row { footprint_bytes: Some(program * GIB), ..of_program(program, &row) };
        // A real run has NVIDIA's own libraries, with versions.
        let with_versions = |all: &str| {
            let all = all.replace("CUDA runtime", "CUDA runtime 13").replace("cuBLAS", "cuBLAS 13");
            format!("{all}, cuDNN 9, NCCL 2")
        };
        let framework = dry.framework.as_deref().map(with_versions);
        let real = Row {
            origin: Origin::Measured,
            emulated: None,
            framework,
            footprint_bytes: Some(program * GIB + 200 * MIB),
            ..dry.clone()
        };
        for row in [dry, real] {
            dataset.add(&row, None).unwrap();
        }
    }
    let (corrected, profile) = run(&[]);
    let expected = &corrected["expected"];
    assert_eq!(expected["runs"], 12, "{expected}");
    assert_eq!(expected["gpu_model"].as_str(), row.gpu_model.as_deref());
    assert!(bytes(&corrected, "bytes").abs_diff(held + 200 * MIB) < 30 * MIB, "{expected} {held}");
    assert!(bytes(&corrected, "upper") < (held + 200 * MIB) / 100 * 107, "{expected}");
    let row = newest();
    assert_eq!(row.predicted_upper_bytes, expected["upper"].as_u64());
    let source: Value = serde_json::from_str(row.predicted_source.as_deref().unwrap()).unwrap();
    // In the form of every need.
    assert_eq!(source, expected["source"]);
    let said = &source["combined"]["said"][0]["source"]["dry_run"];
    assert_eq!((&said["runs"], &said["held"]), (&12.into(), &held.into()));
    assert_eq!((&said["kind"], &corrected["kind"]), (&"other".into(), &"other".into()));
    assert_eq!(row.dry_run.map(|run| run.held.0), Some(held));
    // Text and page have it too.
    let shown = |arguments: &[&str]| {
        let mut command = Command::new(artifacts::file("radrm"));
        command.arg("report").arg(&profile).args(arguments);
        child::run(command, PATIENCE).ok().stdout
    };
    let page = place.path().join("page.html");
    shown(&[&format!("--html={}", page.display())]);
    for text in [shown(&[]), std::fs::read_to_string(&page).unwrap()] {
        assert!(text.contains("corrected by 12 runs of dry-run programs on NVIDIA A100"), "{text}");
    }

    let (unbounded, _) = run(&["benchmark"]);
    assert_eq!(unbounded["expected"]["upper"], Value::Null, "{:#}", unbounded["remarks"]);
}

/// A row of another program, dry-run like this one.
fn of_program(number: u64, like: &Row) -> Row {
    let command = ["python3".to_owned(), format!("train{number}.py")];
    let of = Row::of_command(&command, Path::new("/work"), 1);
    Row { id: 0, command: of.command, arguments: of.arguments, program_key: of.program_key, ..like.clone() }
}
