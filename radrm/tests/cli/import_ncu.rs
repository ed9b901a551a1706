//! `radrm import-ncu`: a CSV file of Nsight Compute beside a run of emulated kernels whose launches are known. The files have
//! the form of Nsight Compute's documentation; none is of a real GPU.

use std::fs;

use serde_json::Value;

use crate::common::{Output, Place, finish};

/// Launches two kernels, with mangled names as the compiler gives them, 30 and 10 times, and a third one 10 times.
const PROGRAM: &str = cuda_program!(
    r#"module = ctypes.c_void_p()
names = {b'_Z3addPKfPfi': 30, b'_ZN2at4fillILi4EfEEviT0_': 10, b'other': 10}
entry = b'.visible .entry %s()\n{\nret;\n}\n'
ptx = b'.version 7.0\n.target sm_70\n.address_size 64\n' + b''.join(entry % name for name in names)
call('cuModuleLoadData', ctypes.byref(module), ptx)
for name, count in names.items():
    function = ctypes.c_void_p()
    call('cuModuleGetFunction', ctypes.byref(function), module, name)
    for _ in range(count):
        call('cuLaunchKernel', function, 108, 1, 1, 256, 1, 1, 0, None, None, None)
        call('cuCtxSynchronize')
"#
);

/// Of 30 launches of 10 us and of 10 launches of 50 us.
const CSV: &str = r#"==PROF== Connected to process 7 (/usr/bin/python3)
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","lts__throughput.avg.pct_of_peak_sustained_elapsed","sm__cycles_active.avg","sm__cycles_elapsed.max","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","%","%","usecond","%","cycle","cycle","%","%"
"0","7","python3","127.0.0.1","add(const float *, float *, int)","1","7","(256, 1, 1)","(108, 1, 1)","0","8.0","60.00","40.00","10.00","32.00","9,000.00","10,000","20.00","50.00"
"1","7","python3","127.0.0.1","void at::fill<(int)4, float>(int, T2)","1","7","(256, 1, 1)","(108, 1, 1)","0","8.0","60.00","80.00","50.00","8.00","10,000.00","10,000","4.00","n/a"
"2","7","python3","127.0.0.1","never(int)","1","7","(256, 1, 1)","(108, 1, 1)","0","8.0","1.00","1.00","50.00","8.00","10,000.00","10,000","4.00","5.00"
==PROF== Disconnected from process 7
"#;

fn radrm(place: &Place, words: &[&str]) -> Output {
    finish(&mut place.command(env!("CARGO_BIN_EXE_radrm"), words))
}

fn json(output: &Output) -> Value {
    output.code(0);
    serde_json::from_str(&output.text()).unwrap_or_else(|error| panic!("{error}: {}", output.text()))
}

/// A run; `kernels` is what is recorded of its launches.
fn recorded(place: &Place, kernels: &str) {
    let mut command =
        place.run(&["-q", "-o", "run.radrm", "--kernels", kernels, "--emulate", "A100-40GB", "--"]);
    let times = place.join("times");
    fs::write(&times, "* 2000000\n").unwrap();
    command.args(["python3", "-c", PROGRAM]).env("RADRM_EMULATOR_TIME", "real");
    finish(command.env("RADRM_EMULATOR_KERNEL_TIMES", &times)).code(0);
    fs::write(place.join("step.csv"), CSV).unwrap();
}

fn value(features: &Value, name: &str) -> f64 {
    assert_eq!(features[name]["origin"], "imported", "{name}: {features}");
    features[name]["value"].as_f64().unwrap()
}

fn features(place: &Place) -> Value {
    json(&radrm(place, &["dataset", "list", "--json"]))[0]["features"]["processes"][0]["features"].clone()
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-6
}

#[test]
fn imported_metrics_are_weighted_by_launches_and_kept_with_the_run() {
    let place = Place::new();
    recorded(&place, "count");
    let before = features(&place);
    assert!(before["l2_throughput"].is_null() && before["kernel_l2_throughput"].is_null(), "{before}");

    let told = radrm(&place, &["import-ncu", "step.csv"]);
    let text = told.code(0).text();
    for part in [
        "run.radrm (run 1): 2 of 3 kernels found in step.csv, with 80.0 % of the launches",
        "by name 0, by signature 2, by the function's name alone 0",
        "kernels of the run without metrics (1)\n   20.0 % of the launches  other",
        "kernels of the file that the run never launched (1)\n  never(int)",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }

    // By launches times the profiled time: 300 us of one, 500 us of the other.
    let after = features(&place);
    for (name, expected) in [
        ("kernel_dram_throughput", (300.0 * 40.0 + 500.0 * 80.0) / 800.0),
        ("kernel_l2_throughput", (300.0 * 32.0 + 500.0 * 8.0) / 800.0),
        ("kernel_sm_throughput", (300.0 * 20.0 + 500.0 * 4.0) / 800.0),
        ("kernel_memory_throughput", 60.0),
        // Of the one kernel that has it.
        ("kernel_occupancy", 50.0),
    ] {
        assert!(close(value(&after, name), expected), "{name}: {after}");
    }
    let report = radrm(&place, &["report", "run.radrm", "--features"]).code(0).text();
    assert!(report.contains("by Nsight Compute (step.csv)"), "{report}");
    // The same again changes nothing.
    radrm(&place, &["import-ncu", "step.csv", "--run", "1"]).code(0);
    radrm(&place, &["import-ncu", "step.csv", "--run", "run.radrm"]).code(0);
    assert_eq!(features(&place), after);
    let found = json(&radrm(&place, &["import-ncu", "step.csv", "--run", "run.radrm", "--json"]));
    assert_eq!(
        (&found["run"], &found["import"]["found"][0]["by"]),
        (&1.into(), &"signature".into()),
        "{found}"
    );
}

/// The estimator of interference reads activity over time.
#[test]
fn imported_activity_reaches_the_estimator_where_no_meter_is() {
    let place = Place::new();
    recorded(&place, "all");
    let advised = |place: &Place| json(&radrm(place, &["advise", "--json"]));
    let before = advised(&place);
    assert_eq!(before["programs"][0]["activity_source"], "launches", "{before}");
    radrm(&place, &["import-ncu", "step.csv", "--run", "run.radrm"]).code(0);
    let after = advised(&place);
    let found = features(&place);
    // All launches took 2 ms: 30 of one kernel, 10 of the other.
    assert!((value(&found, "kernel_dram_throughput") - 50.0).abs() < 1.0, "{found}");
    let busy = found["kernel_time_share"]["value"].as_f64().unwrap() / 100.0;
    let dram = value(&found, "dram_throughput");
    assert!((dram - value(&found, "kernel_dram_throughput") * busy).abs() < 1e-6, "{found}");
    assert_eq!(after["programs"][0]["activity_source"], "measured", "{after}");
    let activity = &after["programs"][0]["activity"];
    assert_eq!(activity["drama"].as_f64(), Some((dram * 10.0).round()), "{activity}");
    assert_eq!(after["pairs"][0]["runs"], serde_json::json!([1, 1]), "{after}");
}

#[test]
fn a_wrong_file_changes_nothing_and_is_one_sentence() {
    let place = Place::new();
    recorded(&place, "count");
    let profile = |place: &Place| fs::read(place.join("run.radrm")).unwrap();
    let (bytes, row) = (profile(&place), features(&place));
    let write = |name: &str, text: &str| fs::write(place.join(name), text).unwrap();
    write("empty.csv", "");
    write("other.csv", "program,batch,peak_mib\na,1,2\n");
    write("value.csv", &CSV.replace("\"40.00\"", "\"forty\""));
    write("kernels.csv", &CSV.replace("add(", "sub(").replace("fill<", "pour<"));
    fs::write(place.join("binary.csv"), [0xff, 0xfe, 0, 1]).unwrap();
    for (words, code, part) in [
        (vec!["empty.csv"], 1, "empty.csv: empty"),
        (vec!["other.csv"], 1, "other.csv: no table of Nsight Compute"),
        (vec!["value.csv"], 1, "\"forty\", which is not a number"),
        (vec!["kernels.csv"], 1, "was another program profiled?"),
        (vec!["binary.csv"], 1, "binary.csv"),
        (vec!["missing.csv"], 1, "missing.csv"),
        (vec!["."], 1, "not a regular file"),
        (vec!["step.csv", "--run", "99"], 1, "no run 99"),
        (vec!["step.csv", "--run", "no.radrm"], 1, "no.radrm"),
        (vec!["step.csv", "--run", "step.csv"], 1, "not a radrm profile"),
        (vec![], 2, "missing"),
    ] {
        let told = radrm(&place, &[&["import-ncu"], &words[..]].concat());
        told.code(code).one_sentence(part);
        assert_eq!((profile(&place), features(&place)), (bytes.clone(), row.clone()), "{words:?}");
    }
    // A profile whose last frame is missing its end would hide what is appended.
    fs::write(place.join("cut.radrm"), &bytes[..bytes.len() - 3]).unwrap();
    radrm(&place, &["import-ncu", "step.csv", "--run", "cut.radrm"]).code(1).one_sentence("cut off");
    // A later run has taken the profile's place.
    recorded(&place, "count");
    radrm(&place, &["import-ncu", "step.csv", "--run", "1"]).code(1).one_sentence("replaced");
    radrm(&place, &["import-ncu", "step.csv", "--run", "2"]).code(0);
}
