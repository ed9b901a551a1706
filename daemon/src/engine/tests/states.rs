//! All that shows a job's state shows the same one.

use radrm_scheduler_core::JobState;

use super::*;
use crate::engine::jobs::{Over, Seen};
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
    let gpu = |index: u32| Gpu {
        index: Some(index),
        uuid: format!("GPU-{index}"),
        bytes: [0; 16],
        name: "G".into(),
        total: 40 * GIB,
        divided: false,
    };
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
        engine.jobs.entries.get_mut(&job).unwrap().suspension.step = step;
        engine.touch(job);
    }
    let attempt = (epilog, 1);
    let (status, killed) = (Status::default(), Default::default());
    let over = Over { attempt, status, reported: true, killed, seen: Seen::default() };
    engine.epilogs.insert(attempt, over);
    engine.finish_batch(Vec::new());

    let Response::Jobs(rows) = ask(&mut engine, Request::Queue { all: true, ended: 10 }) else { panic!() };
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
        let stored = engine.outbox.store.job(job).unwrap().unwrap().stage.state();
        let kind = |state: JobState| (state.is_queued(), state.is_ended());
        assert_eq!(kind(stored), kind(state), "job {job} is stored as {stored}");
    }
    let Response::Nodes(node) = ask(&mut engine, Request::Nodes) else { panic!() };
    assert_eq!((node.waiting, node.running, node.suspended), (1, 6, 1));
}
