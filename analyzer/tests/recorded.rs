//! Launches, kernels and copies that were not recorded are not called none.

mod common;

use common::*;
use radrm_analyzer::{Comparison, Summary, TextOptions, comparison_text, html, json, perfetto, text};
use radrm_profile::model::*;
use radrm_profile::*;

/// The training run with `--kernels off` in its first processes: the shim counts nothing there.
fn unrecorded(processes: usize) -> Profile {
    let mut profile = recorded();
    for process in profile.processes.iter_mut().take(processes) {
        process.kernels_mode = Some(KernelsMode::Off);
        process.kernels.clear();
        process.timings = Timings::default();
        (process.state.launches, process.state.graph_launches) = (0, 0);
    }
    profile
}

fn recorded() -> Profile {
    let mut profile = training();
    for process in &mut profile.processes {
        process.timings.copies =
            vec![Copies { way: "host_to_device".into(), count: 3, bytes: Bytes::from_mib(5) }];
    }
    profile
}

fn summaries(profiles: &[Profile]) -> Vec<Summary> {
    profiles.iter().map(Summary::from_profile).collect()
}

fn compared(before: &[Profile], after: &[Profile]) -> (Comparison, String) {
    let comparison = Comparison::of(&summaries(before), &summaries(after));
    let text = comparison_text(&comparison, &TextOptions::default());
    (comparison, text)
}

const OF_LAUNCHES: [&str; 3] = ["launches", "graph_launches", "copied_bytes"];

#[test]
fn a_report_without_kernels_says_that_none_were_recorded() {
    let profile = unrecorded(2);
    let summary = Summary::from_profile(&profile);
    let shown = text(&profile, &summary, &TextOptions::default());
    let sentence = "kernels were not recorded (--kernels off), nor launches and copies";
    assert!(shown.contains(&format!("\n{sentence}\n")), "{shown}");
    assert!(!shown.contains("no kernel was launched"), "{shown}");
    let page = html(&profile, &summary);
    assert!(page.contains(sentence) && page.contains("<td>-</td>"), "{page}");
    let json = json(&summary);
    assert!(json.contains("\"kernels_mode\": \"off\"") && json.contains("\"processes_without_kernels\": 2"));
    assert!(perfetto(&profile, &summary).contains("\"launches\":null"));
}

#[test]
fn a_report_with_some_kernels_says_whose_are_missing() {
    let profile = unrecorded(1);
    let mut mixed = profile.clone();
    mixed.processes[1].kernels = recorded().processes[0].kernels.clone();
    mixed.processes[1].state.launches = 7;
    let sentence = "kernels of 1 of 2 processes were not recorded (--kernels off)";
    for profile in [profile, mixed] {
        let summary = Summary::from_profile(&profile);
        let shown = text(&profile, &summary, &TextOptions::default());
        assert!(shown.contains(sentence), "{shown}");
        assert!(html(&profile, &summary).contains(sentence));
    }
    let profile = recorded();
    let summary = Summary::from_profile(&profile);
    assert!(!text(&profile, &summary, &TextOptions::default()).contains("not recorded"));
    assert!(!html(&profile, &summary).contains("not recorded"));
}

#[test]
fn what_one_side_did_not_record_is_not_compared() {
    let both =
        [(vec![recorded()], vec![unrecorded(2)], "after"), (vec![unrecorded(1)], vec![recorded()], "before")];
    for (before, after, side) in both {
        let (comparison, text) = compared(&before, &after);
        let of_launches = |name: &str| OF_LAUNCHES.contains(&name);
        assert!(!comparison.figures.iter().any(|figure| of_launches(&figure.name)), "{text}");
        assert!(comparison.figures.iter().any(|figure| figure.name == "gpu0.peak_bytes"));
        assert!(comparison.kernels.is_empty() && !text.contains("gone"), "{text}");
        let note = format!("not compared: {side} they were not recorded (--kernels off)");
        assert!(comparison.notes.iter().any(|said| said.contains(&note)), "{text}");
        assert!(text.contains(&note), "{text}");
    }
}

#[test]
fn runs_that_did_not_record_take_nothing_from_the_mean_of_the_others() {
    let before = [recorded(), unrecorded(2), recorded()];
    let (comparison, text) = compared(&before, &[recorded()]);
    let launches = comparison.figures.iter().find(|figure| figure.name == "launches").unwrap();
    assert_eq!((launches.before, launches.change), (1_291_445.0, 0.0));
    assert!(comparison.kernels.is_empty(), "{:?}", comparison.kernels);
    assert!(text.contains("1 of 3 runs before did not record launches, kernels and copies"), "{text}");
}

#[test]
fn a_run_that_timed_launches_is_not_told_to_time_launches() {
    for (mode, told) in [
        (KernelsMode::Count, true),
        (KernelsMode::Off, true),
        (KernelsMode::Sample, false),
        (KernelsMode::All, false),
    ] {
        let mut profile = recorded();
        profile.unmeasured = vec!["SM activity of GPU 0: DCGM is not installed".into()];
        profile.processes[0].kernels_mode = Some(mode);
        let shown = text(&profile, &Summary::from_profile(&profile), &TextOptions::default());
        assert_eq!(shown.contains("; --kernels sample estimates it"), told, "{mode:?}: {shown}");
    }
}
