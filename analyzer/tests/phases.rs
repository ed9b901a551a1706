//! Phases of a program in every form of the report.

mod common;

use common::*;
use radrm_analyzer::{Comparison, Summary, TextOptions, comparison_text, html, json, perfetto, text};
use radrm_profile::model::*;
use radrm_profile::{Bytes, Nanos};
use serde_json::Value;

fn name(id: u32, name: &str, ranges: u64, mean_ms: u64, peak: u64) -> RangeName {
    let memory = RangeMemory {
        peak: Bytes::from_mib(peak),
        entry_at_peak: Bytes::from_mib(peak / 2),
        exit_at_peak: Bytes::from_mib(peak / 4),
        change: -((peak / 4) as i64) << 20,
        ranges,
        ..RangeMemory::default()
    };
    RangeName {
        id,
        name: name.into(),
        ranges,
        total: Nanos::from_millis(mean_ms * ranges),
        shortest: Nanos::from_millis(mean_ms / 2),
        longest: Nanos::from_millis(mean_ms * 2),
        first: Nanos::from_millis(100),
        last: Nanos::from_millis(100 + mean_ms * (ranges - 1)),
        end: Nanos::from_millis(100 + mean_ms * ranges),
        gpus: vec![memory],
        ..RangeName::default()
    }
}

fn event(name: u32, depth: u32, from_ms: u64, length_ms: u64) -> RangeEvent {
    RangeEvent {
        process: ProcessKey { slot: 0, generation: 1 },
        name,
        depth,
        start: Nanos::from_millis(from_ms),
        length: Nanos::from_millis(length_ms),
        is_nested: true,
        gpu: Some(GpuIndex(0)),
        peak: Some(Bytes(7)),
        ..RangeEvent::default()
    }
}

fn profile(mean_ms: u64) -> Profile {
    let mut profile = training();
    let key = profile.processes[0].key;
    let mark = RangeName { id: 3, name: "saved\u{1b}[2J<b>".into(), marks: 1, ..RangeName::default() };
    let cut = RangeName { name_cut: true, without_peak: 1, ..name(2, "load [io]", 1, 40, 8) };
    profile.processes[0].ranges = Some(Ranges {
        key,
        names: vec![name(1, "step", 11, mean_ms, 64), cut, mark],
        open: vec![OpenRange { name: 1, start: Nanos::from_secs(3), step: Some(11), ..OpenRange::default() }],
        unlisted: 5,
        not_kept: 2,
        ..Ranges::default()
    });
    let of = |event: RangeEvent| RangeEvent { process: key, ..event };
    profile.range_events = vec![
        of(event(1, 0, 100, 100)),
        of(event(2, 1, 110, 40)),
        // Of another domain: it ends after the range that it is in.
        of(event(2, 1, 180, 90)),
        of(RangeEvent { is_nested: false, ..event(2, 0, 190, 500) }),
        of(RangeEvent { is_mark: true, ..event(3, 0, 300, 0) }),
        of(RangeEvent { step: Some(10), ..event(1, 0, 300, 100) }),
    ];
    profile
}

#[test]
fn the_text_lists_phases_and_what_is_missing() {
    let profile = profile(200);
    let summary = Summary::from_profile(&profile);
    let text = text(&profile, &summary, &TextOptions::default());
    for expected in [
        "phases of the program: 12 ranges, 1 mark",
        "11 steps (step): 5.00 steps/s",
        "not ended: step 11 · pid 4711 · since 3.00 s",
        "5 ranges and marks not kept one by one; all figures include them",
        "2 ranges and marks not counted",
        ">= 8.00 MiB",
        "load [io]…",
        "saved\\u{1b}[2J<b>",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn json_has_the_figures_with_their_units() {
    let summary = Summary::from_profile(&profile(200));
    let json: Value = serde_json::from_str(&json(&summary)).unwrap();
    let step = &json["ranges"]["names"][0];
    assert_eq!((&step["name"], &step["mean_ns"]), (&"step".into(), &200_000_000.into()));
    assert_eq!(step["gpus"][0]["peak_bytes"], 64 << 20);
    assert_eq!(step["gpus"][0]["mean_change_bytes"], (-16i64 << 20) / 11);
    assert_eq!(json["ranges"]["steps"]["per_second"], 5.0);
    assert_eq!(json["ranges"]["names"][1]["gpus"][0]["peak_is_exact"], false);
    let without: Value =
        serde_json::from_str(&radrm_analyzer::json(&Summary::from_profile(&training()))).unwrap();
    assert!(without["ranges"].is_null());
}

#[test]
fn the_trace_has_slices_that_nest() {
    let profile = profile(200);
    let trace: Value = serde_json::from_str(&perfetto(&profile, &Summary::from_profile(&profile))).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str, name: &str| {
        events.iter().filter(|event| event["ph"] == phase && event["name"] == name).count()
    };
    assert_eq!((count("X", "step"), count("X", "load [io]")), (2, 1));
    // The one that does not nest, and the one that may have ended elsewhere.
    assert_eq!((count("b", "load [io]"), count("e", "load [io]")), (2, 2));
    assert_eq!(count("i", "saved\\u{1b}[2J<b>"), 1);
    let step = events.iter().find(|event| event["args"]["step"] == 10).expect("the step's number");
    assert_eq!(step["args"]["memory_peak_bytes"], 7);
}

#[test]
fn the_page_draws_phases_and_has_them_as_a_table() {
    let profile = profile(200);
    let page = html(&profile, &Summary::from_profile(&profile));
    let (_, data) = page.split_once("id=\"phases-data\">").expect("the data");
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).expect("JSON");
    assert_eq!(data["ranges"].as_array().unwrap().len(), 5);
    assert_eq!(data["marks"], serde_json::json!([[data["names"].as_array().unwrap().len() - 1, 300_000]]));
    assert_eq!((&data["rows"], &data["left_out"]), (&3.into(), &0.into()));
    assert!(page.contains("aria-label=\"Phases of the program\""));
    assert!(!page.contains("[2J<b>") && !page.contains('\u{1b}'));
    assert!(!html(&training(), &Summary::from_profile(&training())).contains("id=\"phases"));
}

#[test]
fn runs_are_compared_by_phase() {
    let runs = [profile(200), profile(300)].map(|profile| Summary::from_profile(&profile));
    let comparison = Comparison::of(&runs[..1], &runs[1..]);
    let figure = |name: &str| comparison.figures.iter().find(|figure| figure.name == name).expect("a figure");
    assert_eq!((figure("phase.step.mean_ns").before, figure("phase.step.mean_ns").after), (2e8, 3e8));
    assert_eq!(figure("step_time_ns").change, 1e8);
    assert_eq!(figure("phase.step.peak_bytes").verdict, "same");
    let text = comparison_text(&comparison, &TextOptions::default());
    assert!(text.contains("phase step mean"), "{text}");
}
