//! All that shows a job's state shows the same one.

use radrm_scheduler_core::JobState;

use super::*;
use crate::engine::jobs::{Over, Seen};
use crate::fence::Missing;
use crate::message::Listing;
use crate::metrics;
use crate::status::Status;
use crate::suspend::Step;

fn submit_spec(engine: &mut Engine, spec: Spec) -> u64 {
    match ask(engine, Request::Submit(Box::new(spec))) {
        Response::Submitted { job, .. } => job,
        other => panic!("{other:?}"),
    }
}

fn cancel(engine: &mut Engine, job: u64) {
    assert_eq!(ask(engine, Request::Cancel { jobs: vec![job.into()] }), Response::Done);
}

#[test]
fn rows_metrics_node_and_store_agree_on_each_state() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut config = Config { state: dir.path().to_owned(), keep_days: 0, cpus: 64, ..Config::default() };
    (config.scheduler.order.pace, config.scheduler.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    let gpus = (0..7).map(gpu).collect();
    let mut engine = open_with(dir.path(), config, gpus, Box::new(world.clone()));
    let spec = Spec {
        command: vec!["program".to_owned()],
        cwd: "/".into(),
        gpus: 1,
        mem: Some(30 * GIB),
        ..Spec::default()
    };
    let [running, suspending, suspended, resuming, stopping, epilog] =
        [(); 6].map(|()| submit_spec(&mut engine, spec.clone()));
    for _ in 0..3 {
        round(&mut engine, &world);
        world.0.borrow_mut().advance(|_| None);
    }
    let starting = submit_spec(&mut engine, spec.clone());
    let waiting = submit_spec(&mut engine, spec.clone());
    let held = submit_spec(&mut engine, Spec { held: true, ..spec.clone() });
    let ended = submit_spec(&mut engine, spec);
    cancel(&mut engine, ended);
    cancel(&mut engine, stopping);
    for (job, step) in
        [(suspending, Step::Suspending), (suspended, Step::Suspended), (resuming, Step::Resuming)]
    {
        engine.jobs.entry_mut(job).unwrap().suspension.step = step;
        engine.touch(job);
    }
    let attempt = (epilog, 1);
    let (status, killed) = (Status::default(), Default::default());
    let over = Over { attempt, status, reported: true, killed, seen: Seen::default() };
    engine.epilogs.insert(attempt, over);
    engine.finish_batch(Vec::new());

    let Response::Jobs(rows) =
        ask(&mut engine, Request::Queue { all: true, ended: 10, merge: false, first: 0 })
    else {
        panic!()
    };
    let text = metrics::text(engine.figures());
    let jobs = [
        (waiting, JobState::Waiting),
        (held, JobState::Held),
        (starting, JobState::Starting),
        (running, JobState::Running),
        (suspending, JobState::Suspending),
        (suspended, JobState::Suspended),
        (resuming, JobState::Resuming),
        (stopping, JobState::Stopping),
        (epilog, JobState::Epilog),
        (ended, JobState::Ended),
    ];
    assert_eq!(jobs.map(|(_, state)| state), JobState::ALL);
    for (job, state) in jobs {
        let row = rows.iter().find(|row| row.job == job).unwrap();
        assert_eq!(row.state, state, "job {job} in `radrm queue`");
        let Response::Job(row, _) = ask(&mut engine, Request::Show { job: job.into() }) else { panic!() };
        assert_eq!((row.state, row.end.is_some()), (state, state.is_ended()), "job {job} in `radrm show`");
        let series = format!("radrm_jobs{{state=\"{state}\"}} 1\n");
        assert_eq!(text.contains(&series), !state.is_ended(), "{state}: {text}");
        let stored = engine.outbox.store().job(job).unwrap().unwrap().stage.state();
        let kind = |state: JobState| (state.is_queued(), state.is_ended());
        assert_eq!(kind(stored), kind(state), "job {job} is stored as {stored}");
    }
    let Response::Nodes(node) = ask(&mut engine, Request::Nodes) else { panic!() };
    assert_eq!((node.waiting, node.running, node.suspended), (1, 6, 1));
}

#[test]
fn what_waits_of_an_array_is_one_row_of_a_merged_list() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open_in_order(dir.path(), &world);
    let spec = Spec {
        command: vec!["program".to_owned()],
        cwd: "/".into(),
        gpus: 1,
        mem: Some(30 * GIB),
        array: Some("3-5,9".parse().unwrap()),
        ..Spec::default()
    };
    let first = submit_spec(&mut engine, spec.clone());
    let alone = submit_spec(&mut engine, Spec { array: None, ..spec });
    round(&mut engine, &world);
    let mut list = |merge| {
        let Response::Jobs(rows) = ask(&mut engine, Request::Queue { all: false, ended: 0, merge, first: 0 })
        else {
            panic!()
        };
        rows.into_iter().map(|row| (row.job, row.tasks)).collect::<Vec<_>>()
    };
    let row = |job, tasks: &str| (job, tasks.to_owned());
    assert_eq!(list(true), [row(first, ""), row(first + 1, "4-5,9"), row(alone, "")]);
    assert_eq!(list(false).len(), 5);
}

#[test]
fn lists_follow_the_queue_and_count_what_they_leave_out() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open_in_order(dir.path(), &world);
    let spec = Spec {
        command: vec!["program".to_owned()],
        cwd: "/".into(),
        gpus: 1,
        mem: Some(30 * GIB),
        ..Spec::default()
    };
    let array = |text: &str| Spec { array: Some(text.parse().unwrap()), ..spec.clone() };
    let first = submit_spec(&mut engine, array("3-9%2"));
    let alone = submit_spec(&mut engine, spec.clone());
    let urgent = submit_spec(&mut engine, Spec { priority: 5, ..array("0-2") });
    round(&mut engine, &world);
    let hold = |engine: &mut Engine, jobs: &[u64]| {
        let jobs = jobs.iter().map(|job| (*job).into()).collect();
        ask(engine, Request::Hold { jobs, held: true });
    };
    hold(&mut engine, &[first + 4, alone, urgent + 1]);
    let list = |engine: &Engine, merge, most| {
        let listing = Listing { all: false, ended: 0, merge, first: most };
        let list = engine.listed(&peer(), listing);
        (list.jobs.into_iter().map(|(job, tasks)| (job - first, tasks)).collect::<Vec<_>>(), list.left_out)
    };
    let row = |job, tasks: &str| (job, tasks.to_owned());
    // 0: the first job of the array runs; 7: alone; 8 to 10: the urgent array.
    let begun = [row(0, "")];
    let lines = [row(8, "0,2"), row(1, "4-6,8-9"), row(4, "7"), row(7, ""), row(9, "1")];
    assert_eq!(list(&engine, true, 0), ([&begun[..], &lines].concat(), 0));
    assert_eq!(list(&engine, true, 2), ([&begun[..], &lines[..2]].concat(), 3));
    assert_eq!(list(&engine, true, 3), ([&begun[..], &lines[..3]].concat(), 2));
    let single = [0, 8, 10, 1, 2, 3, 4, 5, 6, 7, 9].map(|job| row(job, ""));
    assert_eq!(list(&engine, false, 0).0, single);
    // A release is followed at once.
    ask(&mut engine, Request::Hold { jobs: vec![(first + 4).into()], held: false });
    let lines = [row(8, "0,2"), row(1, "4-9"), row(7, ""), row(9, "1")];
    assert_eq!(list(&engine, true, 0), ([&begun[..], &lines].concat(), 0));
}

#[test]
fn a_fence_that_could_not_be_set_is_shown_as_long_as_that_attempt_runs() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    engine.node.gpus_mut().files = vec![("GPU-0".to_owned(), 0), ("GPU-1".to_owned(), 1)];
    let fence = |engine: &Engine| engine.node(&peer()).gpu_fence.files;
    assert!(fence(&engine));
    let refused = Missing { files: Some("Operation not permitted".to_owned()), driver: None };
    let shows = |engine: &Engine, holds: bool| {
        assert_eq!(fence(engine), holds);
        let issues = engine.node(&peer()).issues;
        assert_eq!(
            issues.iter().any(|issue| issue.raw().ends_with("Operation not permitted")),
            !holds,
            "{issues:?}"
        );
    };
    let begin = |engine: &mut Engine, missing| {
        let job = submit(engine, 1);
        round(engine, &world);
        world.0.borrow_mut().lacks((job, 1), missing);
        world.0.borrow_mut().begin((job, 1), 0);
        round(engine, &world);
        let Response::Job(_, lines) = ask(engine, Request::Show { job: job.into() }) else { panic!() };
        let said = lines
            .iter()
            .any(|line| line.text.raw().contains("filter of device files: Operation not permitted"));
        (job, said)
    };
    let (first, said) = begin(&mut engine, refused);
    assert!(said, "the user of job {first} does not see it");
    shows(&engine, false);
    // The next one has its fence, and the first one still runs without.
    let (second, said) = begin(&mut engine, Missing::default());
    assert!(!said);
    shows(&engine, false);
    let mut engine = {
        drop(engine);
        let mut engine = open(dir.path(), &world);
        engine.node.gpus_mut().files = vec![("GPU-0".to_owned(), 0), ("GPU-1".to_owned(), 1)];
        engine
    };
    shows(&engine, false);
    let end = |engine: &mut Engine, job: u64| {
        world.0.borrow_mut().advance(|id| (id == job).then_some(0));
        round(engine, &world);
    };
    end(&mut engine, first);
    shows(&engine, true);
    end(&mut engine, second);
    shows(&engine, true);
}

#[test]
fn the_dashboard_asks_for_series_that_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), &Recorder::default());
    let series = metrics::text(engine.figures());
    let dashboard = include_str!("../../../../contrib/grafana/radrm.json");
    let mut asked = 0;
    for rest in dashboard.split("radrm_").skip(1) {
        let name = rest.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap();
        let parts = ["_total", "_sum", "_count"];
        let name = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        assert!(series.contains(&format!("# TYPE radrm_{name} ")), "radrm_{name}: {series}");
        asked += 1;
    }
    assert!(asked > 15, "{asked}");
}
