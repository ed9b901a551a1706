//! The trace against the trace-event format, and against the profile that it was made from.

mod common;

use common::*;
use radrm_analyzer::{Summary, perfetto};
use radrm_profile::model::*;
use radrm_profile::{Bytes, Nanos};
use serde_json::Value;
use std::collections::BTreeMap;

fn trace(profile: &Profile) -> Value {
    let text = perfetto(profile, &Summary::from_profile(profile));
    serde_json::from_str(&text).expect("the trace is JSON")
}

/// Checks the properties that every reader of the format requires of every event.
fn check(trace: &Value) -> &Vec<Value> {
    let events = trace["traceEvents"].as_array().expect("traceEvents is a list");
    let mut last = f64::MIN;
    for event in events {
        let phase = event["ph"].as_str().expect("ph is a string");
        assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
        if phase == "M" {
            assert!(
                ["process_name", "process_sort_index", "thread_name"]
                    .contains(&event["name"].as_str().unwrap())
            );
            assert!(event["ts"].is_null(), "{event}");
            continue;
        }
        let ts = event["ts"].as_f64().expect("ts is a number");
        assert!(ts >= 0.0 && ts.is_finite() && ts >= last, "not by time: {event}");
        last = ts;
        match phase {
            "C" => {
                let series = event["args"].as_object().expect("a counter has series");
                assert!(!series.is_empty(), "{event}");
                assert!(series.values().all(|value| value.as_f64().is_some_and(|v| v >= 0.0)), "{event}");
            }
            "X" => assert!(event["dur"].as_f64().is_some_and(|dur| dur >= 0.0) && event["tid"].is_u64()),
            "i" => assert!(["g", "p", "t"].contains(&event["s"].as_str().unwrap()) && event["tid"].is_u64()),
            other => panic!("an event of phase {other}"),
        }
    }
    // Slices of a thread follow each other: readers drop those that overlap without nesting.
    let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X" && event["args"]["sample"] == true) {
        let number = |key: &str| event[key].as_f64().unwrap();
        let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let end = ends.insert(thread, number("ts") + number("dur"));
        assert!(end.is_none_or(|end| end <= number("ts") + 1e-6), "{event}");
    }
    // Every process has a name, and none two.
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    for event in events.iter().filter(|event| event["name"] == "process_name") {
        *names.entry(event["pid"].as_u64().unwrap()).or_default() += 1;
    }
    for event in events {
        assert!(names.contains_key(&event["pid"].as_u64().unwrap()), "{event}");
    }
    events
}

/// The highest value of a series of counters.
fn highest(events: &[Value], counter: &str, series: &str) -> f64 {
    let of = events.iter().filter(|event| event["ph"] == "C" && event["name"] == counter);
    of.filter_map(|event| event["args"][series].as_f64()).fold(f64::MIN, f64::max)
}

#[test]
fn a_predicted_step_is_a_track_of_its_own_that_says_so() {
    let row = |kind: &str, seconds| step::WorkRow {
        kind: kind.into(),
        operand: "f16".into(),
        seconds,
        ..step::WorkRow::default()
    };
    let predicted = PredictedStep {
        card: "L4".into(),
        work: vec![row("gemm", Some(2e-3)), row("norm", Some(5e-6)), row("copy", None)],
        unknown: vec![("aten::fancy".into(), 3)],
        order: vec![1, 0, 2, 1],
        ..PredictedStep::default()
    };
    let mut profile = training();
    let before = check(&trace(&profile)).len();
    profile.step = Some(predicted.clone());
    let whole = trace(&profile);
    let events = check(&whole);
    let name = events.iter().find(|event| {
        event["name"] == "process_name" && event["args"]["name"].as_str().unwrap().contains("predicted")
    });
    let name = name.expect("its process has a name");
    assert_eq!(name["args"]["name"], "a step, predicted on L4: no GPU ran it");
    let own: Vec<&Value> = events.iter().filter(|event| event["pid"] == name["pid"]).collect();
    let slices: Vec<(&str, f64, f64)> = own
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| {
            (event["name"].as_str().unwrap(), event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(slices, [("norm f16", 0.0, 5.0), ("gemm f16", 5.0, 2000.0), ("norm f16", 2005.0, 5.0)]);
    let marks = own.iter().filter(|event| event["ph"] == "i").map(|event| event["name"].as_str().unwrap());
    let marks: Vec<&str> = marks.collect();
    assert_eq!(marks, ["operations of unknown work are left out", "copy f16: no predicted time"]);
    // A step without the order of its operations has no track.
    profile.step = Some(PredictedStep { order: Vec::new(), ..predicted });
    assert_eq!(check(&trace(&profile)).len(), before);
}

#[test]
fn a_training_run_is_a_valid_trace() {
    let mut profile = training();
    profile.events = vec![Event {
        t: Nanos::from_secs(1),
        process: profile.processes[0].key,
        gpu: Some(GpuIndex(0)),
        kind: EventKind::Allocated { kind: 0, size: Bytes::from_mib(3) },
    }];
    profile.host.spans = vec![HostSpan {
        span: Nanos::from_secs(2),
        busy: Nanos::from_secs(3),
        resident: Bytes(77),
        processes: 2,
        threads: 9,
        ..HostSpan::default()
    }];
    let share = |share| Share::new(share);
    profile.activity = vec![GpuSpan {
        span: Nanos::from_secs(5),
        sm_active: share(0.75),
        power_mw: Some(300_000),
        pcie_to_gpu: Some(Bytes(9)),
        ..GpuSpan::default()
    }];
    let work = |launches, kernels| KernelActivity {
        launches,
        kernels,
        copied: Bytes(launches * 3),
        ways: COPY_WAYS.map(|way| match way {
            "host_to_device" => Bytes(launches * 2),
            "memset" => Bytes(launches),
            _ => Bytes::ZERO,
        }),
        active: kernels,
        ..KernelActivity::default()
    };
    let span = |at, work| KernelSpan {
        process: profile.processes[0].key,
        t: Nanos::from_secs(at),
        span: Nanos::from_secs(2),
        kernel_activity: work,
    };
    // The second one follows at once, the third one after a rest.
    profile.kernel_activity = vec![
        span(1, work(800, Nanos::from_secs(1))),
        span(3, work(600, Nanos::ZERO)),
        span(9, work(400, Nanos::from_millis(500))),
    ];
    let trace = trace(&profile);
    let events = check(&trace);
    let launches = events.iter().filter(|event| event["name"] == "launches per second");
    let launches: Vec<_> = launches
        .map(|e| (e["ts"].as_f64().unwrap() / 1e6, e["args"]["launches"].as_f64().unwrap()))
        .collect();
    assert_eq!(launches, [(1.0, 400.0), (3.0, 300.0), (5.0, 0.0), (9.0, 200.0), (11.0, 0.0)]);
    assert_eq!(highest(events, "copies host to device, bytes/s", "bytes per second"), 800.0);
    assert_eq!(highest(events, "memsets, bytes/s", "bytes per second"), 400.0);
    let mut copies = events.iter().filter(|event| event["name"] == "memsets, bytes/s");
    assert_eq!(copies.next_back().unwrap()["args"]["bytes per second"], 0.0, "the last span ends");
    assert_eq!(highest(events, "copies peer, bytes/s", "bytes per second"), f64::MIN);
    assert_eq!(highest(events, "GPU time launched per time", "kernels"), 0.5);
    assert_eq!(highest(events, "SMs by its launches, %", "active"), 50.0);
    let account = &profile.processes[0].state.accounts[0];
    for kind in [Kind::Device, Kind::Vmm, Kind::PinnedHost] {
        let expected = account.kinds[kind.index()].peak.0 as f64;
        assert_eq!(highest(events, "GPU 0 memory", kind.label()), expected, "{kind:?}");
    }
    assert_eq!(highest(events, "activity, %", "SMs active"), 75.0);
    assert_eq!(highest(events, "power, W", "power"), 300.0);
    assert_eq!(highest(events, "PCI Express, bytes/s", "to the GPU"), 9.0);
    assert_eq!(highest(events, "processors busy", "busy"), 1.5);
    assert_eq!(highest(events, "resident memory", "resident"), 77.0);
    // Kinds that were never held have no track, and what was not measured none either.
    assert_eq!(highest(events, "GPU 0 memory", "imported"), f64::MIN);
    assert_eq!(highest(events, "activity, %", "tensor cores"), f64::MIN);
    let slice = events.iter().find(|event| event["ph"] == "X" && event["pid"] == 4711).unwrap();
    assert_eq!(slice["args"]["kernels"][0]["launches"], 1_203_433);
    assert!(events.iter().any(|event| event["name"] == "allocated" && event["s"] == "t"));
}

#[test]
fn timed_launches_are_slices_of_their_stream_and_named_samples() {
    let mut profile = training();
    let launch = |stream, kernel, launched_ms, began_ms, took_ms| TimedLaunch {
        process: profile.processes[0].key,
        kernel,
        stream,
        launched: Nanos::from_millis(launched_ms),
        seen_after: Nanos::from_millis(took_ms + 2),
        duration: Nanos::from_millis(took_ms),
        end: Some(Nanos::from_millis(began_ms + took_ms)),
        blocks: 96,
        threads: 256,
        dynamic_shared: Bytes(512),
        ..TimedLaunch::default()
    };
    profile.launches = vec![
        launch(0, Some(1), 2_000, 1_000, 5),
        launch(0, Some(2), 2_010, 1_011, 7),
        launch(1, None, 2_020, 1_020, 90),
        launch(1, Some(777), 2_200, 1_201, 1),
    ];
    let trace = trace(&profile);
    let events = check(&trace);
    let slices: Vec<&Value> = events.iter().filter(|event| event["args"]["sample"] == true).collect();
    let names: Vec<_> = slices.iter().map(|slice| slice["name"].as_str().unwrap()).collect();
    assert!(names[0].starts_with("vectorized_elementwise_kernel"), "{names:?}");
    assert!(names[1].starts_with("ampere_bf16") && names[2..] == ["graph", "(unknown kernel)"], "{names:?}");
    // The clocks differ by 1000 ms; one began at once, and one 1 ms after its launch.
    let times: Vec<_> =
        slices.iter().map(|s| (s["ts"].as_f64().unwrap(), s["dur"].as_f64().unwrap())).collect();
    let expected = [(2.0e6, 5e3), (2.011e6, 7e3), (2.02e6, 90e3), (2.201e6, 1e3)];
    assert!(
        times.iter().zip(expected).all(|(a, b)| (a.0 - b.0).abs() < 1.0 && (a.1 - b.1).abs() < 1e-9),
        "{times:?}"
    );
    let args = &slices[1]["args"];
    assert_eq!((&args["blocks"], &args["threads_per_block"]), (&Value::from(96), &Value::from(256)));
    assert_eq!(
        (&args["registers_per_thread"], &args["dynamic_shared_bytes"]),
        (&Value::from(34), &Value::from(512))
    );
    assert!(args["placed_within_ns"].as_u64().is_some_and(|ns| ns <= 1_100_000), "{args}");
    assert!(slices[2]["args"]["blocks"].is_null());
    let threads: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
    assert_eq!(threads.len(), 2);
    assert_eq!(threads[1]["args"]["name"], "GPU 0 stream 1: sample of launches");
    assert_ne!(slices[0]["tid"], slices[2]["tid"]);
}

#[test]
fn out_of_memory_is_marked_at_its_moment_in_process_and_gpu() {
    let profile = out_of_memory();
    let trace = trace(&profile);
    let events = check(&trace);
    let marks: Vec<_> = events.iter().filter(|event| event["name"] == "out of memory").collect();
    assert_eq!(marks.len(), 2 * profile.processes[0].state.failures.len());
    assert_eq!(marks[0]["ts"], 186_400_000.0);
    assert_eq!(marks[0]["args"]["size_bytes"], Bytes::from_gib(140).0);
    assert!(trace["otherData"]["emulated"].as_str().unwrap().starts_with("2xH200"));
}

#[test]
fn any_profile_is_a_valid_trace() {
    for profile in [several(), nothing(), idle()] {
        check(&trace(&profile));
    }
    // Two programs with one process id, one after the other.
    let mut profile = training();
    let mut second = profile.processes[0].clone();
    second.key.generation += 1;
    second.identity.command = "\u{1b}[2J \"quoted\" \\ name".into();
    profile.processes.push(second);
    check(&trace(&profile));
}
