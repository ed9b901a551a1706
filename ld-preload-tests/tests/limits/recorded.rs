//! Limits in profiles and reports.

use std::process::Command;

use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::model::MemoryLimit;
use radrm_profile::model::postmortem::Scope;
use radrm_profile::{Bytes, Nanos, Profile};

use super::mps::until;

/// `steps.c` under these limits, waiting at its first `pause`.
fn started(rig: &Rig, options: &[&str], steps: &[&str]) -> Running {
    let mut command = rig.launcher();
    command.args(options).arg("--").arg(programs::compile("steps.c", &[])).args(steps);
    let mut running = Running::start(command, PATIENCE);
    running.until_ready();
    running
}

fn limits(rig: &Rig) -> Vec<MemoryLimit> {
    Profile::open(&rig.profile_path()).expect("a profile").memory_limits
}

#[test]
fn a_limit_that_refused_nothing_is_recorded_with_its_changes() {
    let rig = Rig::emulated("1xA100-40GB");
    let steps = ["use:0", "alloc:a:1g", "pause", "alloc:b:1g"];
    let mut job = started(&rig, &["--mem-limit", "6GiB"], &steps);
    // The job is looked at a few times a second.
    until(|| Profile::open(&rig.profile_path()).is_ok_and(|profile| !profile.memory_limits.is_empty()));
    let mut change = Command::new(artifacts::file("radrm"));
    change.args(["quota", "set", &job.pid().to_string(), "4GiB"]);
    child::run(change, PATIENCE).ok();
    job.go_on();
    job.end().ok();
    let [first, second] = limits(&rig)[..] else { panic!("{:?}", limits(&rig)) };
    let of = |limit: &MemoryLimit| (limit.gpu.0, limit.scope, limit.limit);
    assert_eq!(of(&first), (0, Scope::Job, Some(Bytes::from_gib(6))));
    assert_eq!(of(&second), (0, Scope::Job, Some(Bytes::from_gib(4))));
    assert!(first.t == Nanos::ZERO && second.t > Nanos::ZERO, "{second:?}");
    let text = rig.report(&[]).stdout;
    let line = text.lines().find(|line| line.contains("quota of the job")).expect("the quota");
    assert!(line.contains("6.00 GiB; from ") && line.ends_with(" on 4.00 GiB"), "{line}");
    let json: serde_json::Value = serde_json::from_str(&rig.report(&["--json"]).stdout).expect("JSON");
    let spans = &json["gpus"][0]["quotas"][0]["spans"];
    assert_eq!(
        (&spans[0]["limit_bytes"], &spans[1]["limit_bytes"]),
        (&(6u64 << 30).into(), &(4u64 << 30).into())
    );
}

#[test]
fn a_run_without_a_limit_has_none_in_its_profile() {
    let rig = Rig::emulated("1xA100-40GB");
    let mut job = started(&rig, &[], &["use:0", "alloc:a:1g", "pause"]);
    job.go_on();
    job.end().ok();
    assert_eq!(limits(&rig), []);
    assert!(!rig.report(&[]).stdout.contains("quota of"));
}
