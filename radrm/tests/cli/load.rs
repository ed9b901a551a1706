//! Load on GPUs and host that a run reports, as a trace, and compared with others.
//!
//! The program is a few lines of Python that talk to the emulated driver. The libraries must be
//! built (`cargo build --workspace`).

use std::fs;

use crate::common::{Output, Place, finish};
use serde_json::Value;

/// Copies to the first GPU for a time, in seconds; `sys.argv[1]` is the time, the second the MiB held.
const COPIES: &str = cuda_program!(
    r#"block, size = ctypes.c_uint64(), int(sys.argv[2]) << 20
call('cuMemAlloc_v2', ctypes.byref(block), ctypes.c_size_t(size))
host, end = ctypes.create_string_buffer(size), time.time() + float(sys.argv[1])
while time.time() < end:
    call('cuMemcpyHtoD_v2', block, host, ctypes.c_size_t(size))
    time.sleep(0.001)
"#
);

/// Launches a kernel again and again for a time, in seconds, and waits for each; the second word is its blocks.
const LAUNCHES: &str = cuda_program!(
    r#"module, function = ctypes.c_void_p(), ctypes.c_void_p()
ptx = b'.version 7.0\n.target sm_70\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n'
call('cuModuleLoadData', ctypes.byref(module), ptx)
call('cuModuleGetFunction', ctypes.byref(function), module, b'idle')
end = time.time() + float(sys.argv[1])
while time.time() < end:
    call('cuLaunchKernel', function, int(sys.argv[2]), 1, 1, 256, 1, 1, 0, None, None, None)
    call('cuCtxSynchronize')
"#
);

/// Runs it on an emulated machine whose GPUs get on with the wall clock; the profile's name.
fn copies(place: &Place, machine: &str, words: [&str; 2]) -> String {
    copies_in(place, machine, "real", words)
}

fn copies_in(place: &Place, machine: &str, time: &str, words: [&str; 2]) -> String {
    let before = place.profiles();
    let mut command = place.run(&["-q"]);
    command.args(["--emulate", machine, "--", "python3", "-c", COPIES]).args(words);
    command.env("RADRM_EMULATOR_TIME", time);
    finish(&mut command).code(0);
    let new = place.profiles().into_iter().find(|profile| !before.contains(profile));
    new.expect("a profile")
}

fn radrm(place: &Place, words: &[&str]) -> Output {
    finish(&mut place.command(env!("CARGO_BIN_EXE_radrm"), words))
}

fn json(output: &Output) -> Value {
    output.code(0);
    serde_json::from_str(&output.text()).unwrap_or_else(|error| panic!("{error}: {}", output.text()))
}

fn counter(summary: &Value, name: &str) -> u64 {
    let counters = summary["host"]["counters"].as_array().expect("counters");
    let found = counters.iter().find(|counter| counter["name"] == name);
    found.and_then(|counter| counter["value"].as_u64()).unwrap_or_else(|| panic!("no {name}: {summary}"))
}

#[test]
fn a_run_tells_what_it_did_on_gpu_and_host() {
    let place = Place::new();
    let profile = copies(&place, "H200", ["1.5", "8"]);
    let summary = json(&radrm(&place, &["report", &profile, "--json"]));
    let load = &summary["gpus"][0]["load"];
    assert_eq!(load["meter"], "gpm", "{load}");
    for key in
        ["energy_mj", "mean_power_mw", "dram_active_share", "pcie_to_gpu_bytes_per_s", "mean_sm_clock_mhz"]
    {
        assert!(load[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {load}");
    }
    assert!(counter(&summary, "task_clock_ns") > 1_000_000);
    assert!(counter(&summary, "page_faults") > 100 && counter(&summary, "context_switches") > 10);
    assert!(summary["host"]["resident_peak_bytes"].as_u64().is_some_and(|bytes| bytes > 8 << 20));
    assert!(summary["host"]["mean_busy_processors"].as_f64().is_some_and(|busy| busy > 0.0 && busy < 64.0));
    let features = summary["processes"][0]["features"].as_array().expect("features");
    let feature = |name: &str| features.iter().find(|feature| feature["name"] == name).expect(name);
    assert_eq!(feature("memory_footprint_bytes")["value"].as_f64(), Some(f64::from(8 << 20)));
    assert!(feature("dram_throughput")["how"].as_str().unwrap().contains("by GPM"), "{features:?}");
    assert!(feature("threads_per_launch")["value"].is_null(), "{features:?}");
    assert!(features.iter().all(|feature| !feature["how"].as_str().unwrap().is_empty()));
    let text = radrm(&place, &["report", &profile, "--timeline"]).text();
    for part in ["activity ", "SM activity", "\nhost\n", "processor time", "resident memory", "\nlimits\n"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let page = radrm(&place, &["report", &profile, "--html=-"]).text();
    assert!(page.contains(r#""name":"SMs active""#) && page.contains("<h2>Host</h2>"));
}

/// Waiting for them takes none of the host's time: what they did in it is nonsense, and left out everywhere.
#[test]
fn emulated_gpus_that_take_no_time_have_no_load_and_limit_nothing() {
    let place = Place::new();
    let profile = copies_in(&place, "H200", "", ["1.3", "8"]);
    let summary = json(&radrm(&place, &["report", &profile, "--json"]));
    let gpu = &summary["gpus"][0];
    assert_eq!((&summary["gpu_clock"], &summary["limits"]["limit"]), (&"modelled".into(), &"unknown".into()));
    assert!(gpu["load"].is_null() && gpu["estimate"].is_null(), "{gpu}");
    assert!(gpu["nvml"]["job_peak_bytes"].as_u64().is_some_and(|bytes| bytes > 8 << 20), "{gpu}");
    for key in ["mean_utilization", "max_power_mw", "max_temperature"] {
        assert!(gpu["nvml"][key].is_null(), "{key}: {gpu}");
    }
    for window in summary["processes"][0]["windows"].as_array().expect("windows") {
        assert!(
            window["copied_bytes"].as_u64() > Some(0) && window["launched_gpu_time"].is_null(),
            "{window}"
        );
    }
    let text = radrm(&place, &["report", &profile, "--timeline"]).text();
    for word in ["\n  load ", "power and clocks", "activity  ", "SM activity", "a kernel ran", "limits it"] {
        assert!(!text.contains(word), "{word:?} in {text}");
    }
    assert!(text.contains("\nnot measured\n  load, power and energy of the emulated GPUs"), "{text}");
    let trace = radrm(&place, &["report", &profile, "--perfetto=-"]).text();
    assert!(!trace.contains("power, W") && !trace.contains("activity, %"), "{trace}");
    let comparison = radrm(&place, &["compare", &profile, &profile, "--json"]).text();
    assert!(comparison.contains("gpu0.peak_bytes") && !comparison.contains("gpu0.energy"), "{comparison}");
}

/// Timed launches show how full a GPU was that no meter reports on.
#[test]
fn timed_launches_tell_what_limits_a_job_on_gpus_without_a_meter() {
    let place = Place::new();
    let mut command = place.run(&["-q", "--kernels", "all", "--emulate", "A100-40GB", "--", "python3", "-c"]);
    // 27 of 108 SMs for 2 ms each, one after the other.
    let times = place.join("times");
    fs::write(&times, "* 2000000\n").unwrap();
    command.arg(LAUNCHES).arg("1.5").arg("27").env("RADRM_EMULATOR_TIME", "real");
    finish(command.env("RADRM_EMULATOR_KERNEL_TIMES", &times)).code(0);
    let profile = place.profiles().remove(0);
    let summary = json(&radrm(&place, &["report", &profile, "--json"]));
    let estimate = &summary["gpus"][0]["estimate"];
    let active = estimate["sm_active_share"].as_f64().unwrap_or_else(|| panic!("{summary}"));
    // A quarter of the SMs for as long as kernels ran.
    let kernels = estimate["kernel_time_share"].as_f64().unwrap();
    assert!(kernels > 0.3 && (active / kernels - 0.25).abs() < 0.02, "{estimate}");
    let sentence = summary["limits"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("estimated from the shapes of launches"), "{sentence}");
    let text = radrm(&place, &["report", &profile]).text();
    assert!(
        text.contains("(estimated from the shapes") && !text.contains("--kernels sample estimates"),
        "{text}"
    );
    let advice = json(&radrm(&place, &["advise", "--json"]));
    let program = &advice["programs"][0];
    let smact = program["activity"]["smact"].as_f64().unwrap_or_else(|| panic!("{advice}"));
    assert!((smact - active * 1000.0).abs() <= 1.0, "{smact}: {estimate}");
    assert_eq!(
        (&program["activity_source"], &advice["pairs"][0]["runs"]),
        (&"launches".into(), &serde_json::json!([1, 1]))
    );
    let text = radrm(&place, &["advise"]).text();
    assert!(text.contains("~") && text.contains("estimated from the shapes of launches"), "{text}");
}

/// Two launches that take long, and a thousand behind them that take next to nothing, which is unknown before they ran.
const QUEUE: &str = cuda_program!(
    r#"module, function = ctypes.c_void_p(), ctypes.c_void_p()
ptx = b'.version 7.0\n.target sm_70\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n'
call('cuModuleLoadData', ctypes.byref(module), ptx)
call('cuModuleGetFunction', ctypes.byref(function), module, b'idle')
launch = lambda blocks: call('cuLaunchKernel', function, blocks, 1, 1, 256, 1, 1, 0, None, None, None)
launch(int(sys.argv[1]))
call('cuCtxSynchronize')
launch(int(sys.argv[1]))
for _ in range(1000):
    launch(4)
call('cuCtxSynchronize')
"#
);

#[test]
fn what_was_guessed_of_queued_launches_does_not_outlive_their_times() {
    let place = Place::new();
    let mut command =
        place.run(&["-q", "--kernels", "sample", "--emulate", "A100-40GB", "--", "python3", "-c"]);
    command.arg(QUEUE).arg("500000000").env("RADRM_EMULATOR_TIME", "real");
    finish(&mut command).code(0);
    let summary = json(&radrm(&place, &["report", &place.profiles().remove(0), "--json"]));
    let number = |value: &Value| value.as_f64().expect("a number");
    let total = number(&summary["kernels"][0]["gpu_time"]["total_ns"]);
    assert!(total > 2e9, "long enough to be written down in between: {total}");
    let estimate = &summary["gpus"][0]["estimate"];
    let of_gpu = number(&estimate["kernel_time_share"]) * number(&estimate["over_ns"]);
    assert!((of_gpu / total - 1.0).abs() < 0.01, "{of_gpu} of {total}");
    let windows = summary["processes"][0]["windows"].as_array().expect("windows");
    let launched = |window: &Value| {
        let span = number(&window["to_ns"]) - number(&window["from_ns"]);
        window["launched_gpu_time"].as_f64().map_or(0.0, |share| share * span)
    };
    let launched: f64 = windows.iter().map(launched).sum();
    // A guess counts up to a fifth of what is known.
    assert!((0.9 * total..1.21 * total).contains(&launched), "{launched} of {total}: {windows:?}");
}

#[test]
fn what_is_not_measured_is_said_and_nothing_is_made_up() {
    let place = Place::new();
    let profile = copies(&place, "A100-40GB", ["1.2", "1"]);
    let summary = json(&radrm(&place, &["report", &profile, "--json"]));
    assert!(summary["gpus"][0]["load"]["sm_active_share"].is_null());
    let clauses = summary["unmeasured"].as_array().unwrap();
    let of_gpu = |clause: &&Value| clause.as_str().unwrap().starts_with("SM activity of GPU 0: ");
    assert_eq!(clauses.iter().filter(of_gpu).count(), 1, "{clauses:?}");
    let limit = summary["limits"]["limit"].as_str().unwrap();
    assert!(["unknown", "copy", "host"].contains(&limit), "{summary}");
    let text = radrm(&place, &["report", &profile]).text();
    assert!(!text.contains("bottleneck unknown"), "{text}");
    assert!(text.contains("\n  SM activity of GPU 0") && text.contains("--kernels sample"), "{text}");
}

#[test]
fn what_children_do_is_the_jobs() {
    let place = Place::new();
    // Each child tells how much processor time it took; the middle shell waits for none of them.
    let child = "import time\nwhile time.process_time() < 0.15: pass\nprint(time.process_time_ns())";
    let script = format!("(python3 -c '{child}' & python3 -c '{child}' & wait)");
    let output = finish(place.run(&["-q"]).args(["--", "sh", "-c", &script]));
    output.code(0);
    let took: u64 = output.text().lines().map(|line| line.parse::<u64>().unwrap()).sum();
    let summary = json(&radrm(&place, &["report", &place.profiles()[0], "--json"]));
    let counted = counter(&summary, "task_clock_ns");
    assert!(counted >= took - took / 20, "{counted} of {took}");
}

#[test]
fn a_trace_is_written_where_it_is_wanted() {
    let place = Place::new();
    let profile = copies(&place, "H200", ["0.4", "4"]);
    let named = radrm(&place, &["report", "--perfetto", &profile, "trace.json"]);
    named.code(0);
    assert_eq!(named.text(), "trace.json\n");
    let trace: Value = serde_json::from_slice(&fs::read(place.join("trace.json")).unwrap()).unwrap();
    assert_eq!(trace, json(&radrm(&place, &["report", &profile, "--perfetto=-"])));
    let events = trace["traceEvents"].as_array().unwrap();
    let held = events.iter().filter(|event| event["ph"] == "C" && event["name"] == "GPU 0 memory");
    let most = held.filter_map(|event| event["args"]["device"].as_u64()).max();
    assert_eq!(most, Some(4 << 20), "{trace}");
    radrm(&place, &["report", "--perfetto", &profile, "none/trace.json"])
        .code(1)
        .one_sentence("none/trace.json");
}

#[test]
fn runs_are_compared_and_noise_is_told_from_change() {
    let place = Place::new();
    let run = |size| copies(&place, "H200", ["0.05", size]);
    let (old, new): (Vec<String>, Vec<String>) =
        ((0..3).map(|_| run("4")).collect(), (0..3).map(|_| run("6")).collect());
    let mut words = vec!["compare", "--json", "--before"];
    words.extend(old.iter().map(String::as_str));
    words.push("--after");
    words.extend(new.iter().map(String::as_str));
    let comparison = json(&radrm(&place, &words));
    let figure = |name: &str| {
        let figures = comparison["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let peak = figure("gpu0.peak_bytes");
    assert_eq!((peak["change"].as_f64(), &peak["verdict"]), (Some((2 << 20) as f64), &Value::from("real")));
    assert_eq!(figure("gpu0.vmm.peak_bytes")["verdict"], "same");
    let text = radrm(&place, &["compare", &old[0], &new[0]]);
    text.code(0);
    assert!(text.text().contains("GPU 0 peak") && text.text().contains("+2.00 MiB"), "{}", text.text());
    assert!(text.text().contains("n/a") && text.text().contains("--before"), "{}", text.text());
    let itself = radrm(&place, &["compare", &old[0], &old[0]]);
    itself.code(0);
    assert!(itself.text().contains("nothing changed"), "{}", itself.text());
    radrm(&place, &["compare", &old[0], "none.radrm"]).code(1).one_sentence("none.radrm");
}

#[test]
fn features_are_those_of_a_program_whose_work_is_known() {
    let place = Place::new();
    let mut command = place.run(&["-q", "--kernels", "all"]);
    command.args(["--emulate", "H200", "--", "python3", "-c", LAUNCHES]).args(["0.4", "24"]);
    finish(command.env("RADRM_EMULATOR_TIME", "real")).code(0);
    let profile = &place.profiles()[0];
    let summary = json(&radrm(&place, &["report", profile, "--json"]));
    let process = &summary["processes"][0];
    let features = process["features"].as_array().expect("features");
    let feature = |name: &str| features.iter().find(|feature| feature["name"] == name).expect(name);
    let value = |name: &str| feature(name)["value"].as_f64().unwrap_or_else(|| panic!("{}", feature(name)));
    assert_eq!((value("threads_per_launch"), value("blocks_per_launch")), (24.0 * 256.0, 24.0));
    assert_eq!((value("memset_bytes_per_second"), value("copy_to_device_bytes_per_second")), (0.0, 0.0));
    let registers = summary["kernels"][0]["registers"].as_f64();
    assert_eq!(Some(value("registers_per_thread")), registers);
    let rate = summary["launches"].as_f64().unwrap();
    let life = (process["ended_ns"].as_f64().unwrap() - process["joined_ns"].as_f64().unwrap()) / 1e9;
    assert!((value("launches_per_second") - rate / life).abs() < 1e-6 * rate / life);
    assert_eq!(Some(value("host_busy_processors")), summary["host"]["mean_busy_processors"].as_f64());
    assert!(value("host_memory") > 0.0 && value("host_memory") < 100.0, "{features:?}");
    assert!(feature("l2_throughput")["value"].is_null());
    let windows = process["windows"].as_array().expect("windows");
    for window in windows.iter().filter(|window| window["launches"].as_u64() > Some(0)) {
        assert_eq!(window["threads_per_launch"].as_f64(), Some(24.0 * 256.0), "{window}");
        assert_eq!(window["registers_per_thread"].as_f64(), registers, "{window}");
    }
    assert!(!windows.is_empty());
    let text = radrm(&place, &["report", profile, "--features"]).text();
    assert!(text.contains("features of process") && text.contains("host busy processors"), "{text}");
    assert!(!radrm(&place, &["report", profile]).text().contains("features of process"));
}

#[test]
fn timed_launches_stand_in_the_trace_where_they_ran() {
    let place = Place::new();
    let mut command = place.run(&["-q", "--kernels", "all"]);
    // A second's worth of small kernels, each waited for.
    command.args(["--emulate", "H200", "--", "python3", "-c", LAUNCHES]).args(["1", "24"]);
    finish(command.env("RADRM_EMULATOR_TIME", "real")).code(0);
    let profile = &place.profiles()[0];
    let summary = json(&radrm(&place, &["report", profile, "--json"]));
    let trace = json(&radrm(&place, &["report", profile, "--perfetto=-"]));
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|event| event["args"]["sample"] == true).collect();
    assert!((10..=200).contains(&slices.len()), "{}", slices.len());
    let process = &summary["processes"][0];
    let us = |key: &str| process[key].as_f64().unwrap() / 1e3;
    for slice in &slices {
        assert_eq!((&slice["name"], &slice["pid"]), (&Value::from("idle"), &process["pid"]), "{slice}");
        assert_eq!(slice["args"]["blocks"], 24, "{slice}");
        assert_eq!(slice["args"]["threads_per_block"], 256, "{slice}");
        let (ts, launched) = (slice["ts"].as_f64().unwrap(), slice["args"]["launched_us"].as_f64().unwrap());
        assert!(ts >= launched - 1e-3 && ts >= us("joined_ns") && ts <= us("ended_ns"), "{slice}");
        assert!(slice["args"]["placed_within_ns"].is_u64(), "{slice}");
    }
    // Of launches that are waited for the place is known well.
    let mut within: Vec<u64> =
        slices.iter().filter_map(|slice| slice["args"]["placed_within_ns"].as_u64()).collect();
    within.sort_unstable();
    assert!(within[within.len() / 2] < 5_000_000, "{within:?}");
    let threads = events.iter().filter(|event| event["name"] == "thread_name");
    assert_eq!(threads.count(), 1);
}

#[test]
fn what_was_not_recorded_is_not_called_none_nor_gone() {
    let place = Place::new();
    let run = |mode: &str| {
        let before = place.profiles();
        let mut command = place.run(&["-q", "--kernels", mode]);
        command.args(["--emulate", "H200", "--", "python3", "-c", LAUNCHES]).args(["0.2", "4"]);
        finish(&mut command).code(0);
        place.profiles().into_iter().find(|profile| !before.contains(profile)).expect("a profile")
    };
    let (off, count) = (run("off"), run("count"));
    let text = radrm(&place, &["report", &off]).text();
    assert!(text.contains("kernels were not recorded (--kernels off)"), "{text}");
    let summary = json(&radrm(&place, &["report", &off, "--json"]));
    assert_eq!(summary["processes"][0]["kernels_mode"], "off", "{summary}");
    let summary = json(&radrm(&place, &["report", &count, "--json"]));
    assert_eq!(summary["processes"][0]["kernels_mode"], "count", "{summary}");
    assert!(summary["launches"].as_u64() > Some(0), "{summary}");
    for words in [["compare", &count, &off], ["compare", &off, &count]] {
        let text = radrm(&place, &words).text();
        assert!(text.contains("they were not recorded (--kernels off)"), "{text}");
        // What the host did was recorded in both, and may well have happened once and not again.
        for line in text.lines().filter(|line| !line.starts_with("  host ")) {
            for wrong in ["gone", "new", "-100", "  launches ", "copied"] {
                assert!(!line.contains(wrong) || line.contains("were not recorded"), "{wrong} in {text}");
            }
        }
    }
}
