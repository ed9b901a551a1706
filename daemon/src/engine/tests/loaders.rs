//! A producer runs as long as jobs that load from it, whatever becomes of it, of them, and of the daemon.

use radrm_protocol::loader::Loader;

use super::*;

/// Submits a job that loads from `data`.
fn consumer(engine: &mut Engine, gib: u64, command: &[&str]) -> u64 {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let loader = Some(Loader { name: "data".to_owned(), command, ..Loader::default() });
    let spec = Spec {
        command: vec!["train".to_owned()],
        cwd: "/".into(),
        environment: vec!["A=1".to_owned()],
        gpus: 1,
        mem: Some(gib * GIB),
        loader,
        ..Spec::default()
    };
    match ask(engine, Request::Submit(Box::new(spec))) {
        Response::Submitted { job, .. } => job,
        other => panic!("{other:?}"),
    }
}

/// The producers that are not over.
fn producers(engine: &Engine) -> Vec<u64> {
    let is_one = |entry: &&crate::store::Entry| {
        entry.stage != Stage::Ended && entry.spec.loader.as_ref().is_some_and(|loader| loader.is_producer)
    };
    engine.jobs.entries().values().filter(is_one).map(|entry| entry.id).collect()
}

/// Rounds in which what was started begins to run.
fn settle(engine: &mut Engine, world: &Recorder) {
    for _ in 0..3 {
        round(engine, world);
        world.0.borrow_mut().advance(|_| None);
    }
}

fn end(engine: &mut Engine, world: &Recorder, job: u64, end: crate::status::End) {
    let attempt = (job, engine.jobs.attempt(job));
    world.0.borrow_mut().end(attempt, end);
    settle(engine, world);
}

fn exits(code: i32) -> crate::status::End {
    crate::status::End { code: Some(code), ..Default::default() }
}

/// The time after which a dead producer is started again is over.
fn let_time_pass(engine: &mut Engine) {
    engine.loaders.due.values_mut().for_each(|due| *due = due.map(|_| 0));
}

#[test]
fn a_producer_starts_with_the_first_job_and_ends_after_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let first = consumer(&mut engine, 30, &["load"]);
    settle(&mut engine, &world);
    let producer = producers(&engine);
    assert_eq!(producer.len(), 1);
    let entry = engine.jobs.entries()[&producer[0]].clone();
    assert_eq!(
        (entry.spec.command, entry.spec.gpus, entry.stage),
        (vec!["load".to_owned()], 0, Stage::Running)
    );
    assert_eq!(engine.outbox.store().environment(producer[0]).unwrap(), ["A=1"]);
    let order = engine.order((producer[0], 1)).unwrap().1;
    assert!(order.environment.contains(&"RADRM_LOADER=data".to_owned()), "{:?}", order.environment);
    // The second waits for the GPU, the third is another's: neither needs a producer of its own.
    let second = consumer(&mut engine, 30, &["load"]);
    settle(&mut engine, &world);
    assert_eq!(producers(&engine), producer);
    end(&mut engine, &world, first, exits(0));
    assert_eq!(engine.jobs.entries()[&second].stage, Stage::Running);
    assert_eq!(producers(&engine), producer, "the second loads from it now");
    end(&mut engine, &world, second, exits(0));
    assert!(engine.jobs.entries().is_empty(), "nothing is left: {:?}", engine.jobs.entries());
    let verdict = engine.outbox.store().job(producer[0]).unwrap().unwrap().verdict;
    assert_eq!(verdict, Some(Verdict::Cancelled));
    assert!(engine.loaders.used.is_empty() && engine.loaders.due.is_empty());
}

#[test]
fn a_producer_that_dies_is_started_again_also_by_the_next_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let job = consumer(&mut engine, 30, &["load"]);
    settle(&mut engine, &world);
    let [producer] = producers(&engine)[..] else { panic!("one producer") };
    end(&mut engine, &world, producer, exits(1));
    assert_eq!(producers(&engine), [0; 0], "not at once");
    drop(engine);
    let mut engine = open(dir.path(), &world);
    settle(&mut engine, &world);
    assert_eq!(producers(&engine), [0; 0], "nor by another daemon");
    let_time_pass(&mut engine);
    settle(&mut engine, &world);
    let [again] = producers(&engine)[..] else { panic!("one producer") };
    assert!(again > producer);
    // One that has delivered everything is not needed again.
    end(&mut engine, &world, again, exits(0));
    let_time_pass(&mut engine);
    settle(&mut engine, &world);
    assert_eq!(producers(&engine), [0; 0]);
    end(&mut engine, &world, job, exits(0));
    assert!(engine.jobs.entries().is_empty() && engine.loaders.used.is_empty());
}

#[test]
fn a_loader_without_a_command_is_left_to_its_user() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let job = consumer(&mut engine, 30, &[]);
    settle(&mut engine, &world);
    assert_eq!(producers(&engine), [0; 0]);
    let declares = consumer(&mut engine, 5, &["load"]);
    settle(&mut engine, &world);
    assert_eq!(producers(&engine).len(), 1, "job {job} loads from that of job {declares}");
}

#[test]
fn no_client_submits_a_producer_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let loader = Some(Loader { name: "data".to_owned(), is_producer: true, ..Loader::default() });
    let spec = Spec { command: vec!["p".to_owned()], cwd: "/".into(), loader, ..Spec::default() };
    let answer = ask(&mut engine, Request::Submit(Box::new(spec)));
    assert!(matches!(&answer, Response::Refused(why) if why.contains("by radrmd")), "{answer:?}");
}

#[test]
fn a_producer_waits_for_no_job_in_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open_in_order(dir.path(), &world);
    submit(&mut engine, 30);
    consumer(&mut engine, 5, &["load"]);
    settle(&mut engine, &world);
    let [producer] = producers(&engine)[..] else { panic!("one producer") };
    // The first that waits keeps all others out.
    let waits = submit(&mut engine, 30);
    end(&mut engine, &world, producer, exits(1));
    let_time_pass(&mut engine);
    settle(&mut engine, &world);
    assert_eq!(engine.jobs.entries()[&waits].stage, Stage::Waiting);
    let [again] = producers(&engine)[..] else { panic!("one producer") };
    assert_eq!(engine.jobs.entries()[&again].stage, Stage::Running);
}
