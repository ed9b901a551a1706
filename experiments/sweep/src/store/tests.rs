//! Tests of the state.

use super::*;
use crate::metrics::Logged;
use crate::plan::Run;
use std::os::unix::fs::MetadataExt;

fn groups(names: &[&str]) -> Vec<Group> {
    let run = |name: &&str| Run { command: vec![(*name).into()], ..Run::default() };
    let group = |name: &&str| Group { name: (*name).into(), runs: vec![run(name)], ..Group::default() };
    names.iter().map(group).collect()
}

#[test]
fn a_plan_that_grew_keeps_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let mut store = Store::open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let small = groups(&["a", "b"]);
    store.adopt(small.iter()).unwrap();
    let keys = small[0].keys();
    store.start(&keys).unwrap();
    let logged = Logged { last: 0.1, min: 0.05, max: 2.0, step: Some(9), count: 10 };
    let outcome = Outcome {
        state: State::Finished,
        duration_ms: 7,
        exit_code: Some(0),
        peak_bytes: Some(1 << 40),
        gpu_sm_activity: Some(0.5),
        gpu_sm_origin: Some("gpm".into()),
        launch_sm_activity: Some(0.25),
        steps_per_s: Some(2.5),
        gpu_energy_j: Some(1e4),
        has_others: true,
        profile: Some("p".into()),
        metrics: [("loss".to_owned(), logged)].into(),
        ..Outcome::default()
    };
    store.finish(&keys, std::slice::from_ref(&outcome)).unwrap();
    drop(store);
    let mut store = Store::open(&path).unwrap();
    store.adopt(groups(&["c", "a", "b"]).iter()).unwrap();
    let runs = store.runs().unwrap();
    let shapes: Vec<_> = runs.iter().map(|run| (run.group.as_str(), run.number, run.outcome.state)).collect();
    assert_eq!(shapes, [("a", 1, State::Finished), ("b", 2, State::Waiting), ("c", 3, State::Waiting)]);
    assert_eq!((&runs[0].outcome, runs[0].attempt), (&outcome, 1));
}

#[test]
fn runs_that_left_the_file_or_were_on_another_machine_are_not_those_of_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(&dir.path().join("state.db")).unwrap();
    let mut plan = Plan { groups: groups(&["b", "c"]), ..Plan::default() };
    store.adopt(groups(&["a", "b"]).iter()).unwrap();
    store.adopt(plan.groups.iter()).unwrap();
    assert_eq!(store.machine().unwrap(), None);
    plan.run_on(Some("T4"));
    store.adopt(plan.groups.iter()).unwrap();
    store.run_on(Some("T4")).unwrap();
    assert_eq!(store.machine().unwrap(), Some(Some("T4".into())));
    let numbers = |plan: &Plan| store.runs_of(plan).unwrap().iter().map(|run| run.number).collect::<Vec<_>>();
    assert_eq!((numbers(&plan), store.runs().unwrap().len()), (vec![4, 5], 5));
    plan.run_on(None);
    assert_eq!(numbers(&plan), [2, 3]);
}

#[test]
fn each_attempt_that_is_a_job_has_a_tag_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(&dir.path().join("state.db")).unwrap();
    let groups = groups(&["a"]);
    store.adopt(groups.iter()).unwrap();
    let keys = groups[0].keys();
    let submission = |store: &Store| store.run(&keys[0]).unwrap().unwrap().submission;
    assert_eq!(submission(&store), None);
    store.submit(&keys[..1], true).unwrap();
    let first = submission(&store).unwrap();
    assert_eq!((first.job, first.shares, first.withdrawn, first.tag.len()), (None, true, false, 16));
    store.submitted(&keys[..1], 7).unwrap();
    store.withdraw(&keys).unwrap();
    let expected = Submission { job: Some(7), withdrawn: true, ..first.clone() };
    assert_eq!(submission(&store), Some(expected));
    store.submit(&keys[..1], false).unwrap();
    let second = submission(&store).unwrap();
    assert_eq!((second.job, second.shares, second.withdrawn), (None, false, false));
    assert_ne!(second.tag, first.tag);
    store.start(&keys).unwrap();
    assert_eq!((submission(&store), store.run(&keys[0]).unwrap().unwrap().attempt), (None, 3));
}

#[test]
fn a_state_of_another_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    drop(Store::open(&path).unwrap());
    let file = Connection::open(&path).unwrap();
    for version in [2, 9] {
        file.pragma_update(None, "user_version", version).unwrap();
        for opened in [Store::open(&path), Store::open_existing(&path)] {
            assert!(matches!(opened, Err(SweepError::Version { found, known: 1, .. }) if found == version));
        }
        let left: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(left, version);
    }
}
