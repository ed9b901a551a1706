//! Activity that no figure contains, with its reasons.

mod common;

use common::*;
use radrm_analyzer::{Summary, TextOptions, text};
use radrm_profile::model::*;
use radrm_profile::*;

#[test]
fn what_is_in_no_figure_is_reported_with_its_reason() {
    let process = |kind, pid, explanation: &str, bytes: u64| UncountedProcess {
        kind,
        pid,
        command: "ask".into(),
        reason: "r".into(),
        explanation: explanation.into(),
        remedy: "do it".into(),
        first: Nanos(0),
        last: Nanos::from_secs(4),
        gpus: vec![UncountedMemory { gpu: gpu(0).uuid, index: Some(3), peak: Bytes::from_mib(bytes) }],
    };
    let mut profile = nothing();
    profile.uncounted = vec![
        process(Uncounted::Refused, 7, "is refused", 0),
        process(Uncounted::Outside, 8, "has left", 2048),
        process(Uncounted::Outside, 9, "has left", 4096),
    ];
    let failure = |pid| InitFailure {
        t: Nanos(5),
        pid,
        code: 803,
        name: "NAME".into(),
        meaning: "versions differ".into(),
        remedy: "reboot".into(),
    };
    profile.init_failures = vec![failure(4), failure(5)];
    let expected = [
        "2 processes (8, 9) of this job held up to 4.00 GiB of GPU 3 outside of the job's limit, for 4.00 s: each has left; \
         remedy: do it",
        "process 7 (ask) of this job got no GPU memory under the job's limit: it is refused; remedy: do it",
        "cuInit failed with 803 (NAME) in 2 processes (4, 5): versions differ; remedy: reboot",
    ];
    let summary = Summary::from_profile(&profile);
    assert_eq!(
        (&summary.unseen[..], &summary.notes[..3]),
        (&expected.map(str::to_owned)[..], &expected.map(str::to_owned)[..])
    );
    let shown = text(&profile, &Summary::from_profile(&profile), &TextOptions::default());
    assert!(expected.iter().all(|sentence| shown.matches(sentence).count() == 1), "{shown}");
    assert!(!shown.contains("no GPU program was seen"), "{shown}");
    let value: serde_json::Value = serde_json::from_str(&radrm_analyzer::json(&summary)).unwrap();
    assert_eq!(value["uncounted"][0]["kind"], "outside");
    assert_eq!(value["init_failures"][0]["pids"], serde_json::json!([4, 5]));
    // Beside counted processes they are notes.
    profile.processes = training().processes;
    profile.gpus = training().gpus;
    let shown = text(&profile, &Summary::from_profile(&profile), &TextOptions::default());
    assert!(expected[1..].iter().all(|sentence| shown.contains(sentence)), "{shown}");
    assert!(shown.contains("of GPU 0 outside"), "{shown}");
}
