//! Rounds of the engine: what is done in one, and what is left for the next.

use std::time::Duration;

use super::*;

fn spec(gpus: u16) -> Spec {
    Spec {
        command: vec!["program".to_owned()],
        cwd: "/".into(),
        gpus,
        mem: Some(30 * GIB),
        ..Spec::default()
    }
}

/// A node of three GPUs on which a job that had all of them has just ended, while one job waits for each. A round has time for one
/// effect.
fn three_jobs_start(dir: &Path, world: &Recorder) -> (Engine, Vec<Message>) {
    let gpu = |index: u32| Gpu {
        index: Some(index),
        uuid: format!("GPU-{index}"),
        bytes: [0; 16],
        name: "G".into(),
        total: 40 * GIB,
        divided: false,
    };
    let mut config = Config { state: dir.to_owned(), keep_days: 0, cpus: 64, ..Config::default() };
    (config.scheduler.order.pace, config.scheduler.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    let mut engine = open_with(dir, config, (0..3).map(gpu).collect(), Box::new(world.clone()));
    for gpus in [3, 1, 1, 1] {
        let submitted = ask(&mut engine, Request::Submit(Box::new(spec(gpus))));
        assert!(matches!(submitted, Response::Submitted { .. }), "{submitted:?}");
    }
    round(&mut engine, world);
    world.0.borrow_mut().advance(|_| None);
    round(&mut engine, world);
    assert_eq!(world.0.borrow().started.len(), 1, "the others wait");
    let mut all = world.0.borrow_mut();
    all.stint = Some(Duration::ZERO);
    all.advance(|_| Some(0));
    let ended = std::mem::take(&mut all.ended).into_iter().map(Message::SupervisorEnded).collect();
    drop(all);
    (engine, ended)
}

#[test]
fn clients_are_answered_between_starts_of_jobs_that_start_together() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let (mut engine, ended) = three_jobs_start(dir.path(), &world);
    let (_to, from) = channel();
    let started = || world.0.borrow().started.len();
    let mut messages = ended;
    let mut seen = Vec::new();
    for _ in 0..5 {
        engine.batch(std::mem::take(&mut messages), &mut Inbox::new(&from));
        seen.push((started(), engine.has_more_effects));
        assert!(!engine.has_more_effects || engine.patience().is_zero(), "the next round begins at once");
    }
    // The files of the job that ended come first; each of the others is started once.
    assert_eq!(seen, [(1, true), (2, true), (3, true), (4, false), (4, false)]);
}

#[test]
fn starts_that_fail_are_tried_again_and_keep_no_daemon_from_its_end() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let (mut engine, mut messages) = three_jobs_start(dir.path(), &world);
    world.0.borrow_mut().refuses_starts = true;
    let (_to, from) = channel();
    let mut seen = Vec::new();
    for _ in 0..4 {
        engine.batch(std::mem::take(&mut messages), &mut Inbox::new(&from));
        seen.push(engine.has_more_effects);
    }
    assert_eq!(seen, [true, true, true, false], "the files, and each start once");
    engine.batch(Vec::new(), &mut Inbox::new(&from));
    assert!(engine.has_more_effects, "they are tried again");
    assert!(!engine.batch(vec![Message::Stop], &mut Inbox::new(&from)));
    assert_eq!(world.0.borrow().started.len(), 1);
}

#[test]
fn a_daemon_that_ends_has_started_all_jobs_that_were_to_start() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let (mut engine, mut messages) = three_jobs_start(dir.path(), &world);
    messages.push(Message::Stop);
    let (_to, from) = channel();
    assert!(!engine.batch(messages, &mut Inbox::new(&from)));
    assert_eq!(world.0.borrow().started.len(), 4);
}

#[test]
fn submissions_are_checked_between_others_answers() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let mut engine = open(dir.path(), &world);
    world.0.borrow_mut().stint = Some(Duration::ZERO);
    let (_to, from) = channel();
    let ask = || {
        let (reply, answer) = channel();
        (Message::Asked(peer(), Request::Submit(Box::new(spec(1))), reply), answer)
    };
    let (mut messages, answers): (Vec<_>, Vec<_>) = (0..3).map(|_| ask()).unzip();
    let mut answered = Vec::new();
    for _ in 0..3 {
        assert!(engine.patience().is_zero() || answered.is_empty(), "the next round begins at once");
        engine.batch(std::mem::take(&mut messages), &mut Inbox::new(&from));
        let submitted = answers.iter().filter_map(|answer| match answer.try_recv() {
            Ok(Response::Submitted { job, .. }) => Some(job),
            _ => None,
        });
        answered.push(submitted.collect::<Vec<_>>());
    }
    assert_eq!(answered, [[1], [2], [3]], "one in each round, in order");
}

#[test]
fn clients_are_answered_between_ends_of_jobs_that_end_together() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let (mut engine, messages) = three_jobs_start(dir.path(), &world);
    world.0.borrow_mut().stint = None;
    let (to, from) = channel();
    let mut inbox = Inbox::new(&from);
    engine.batch(messages, &mut inbox);
    world.0.borrow_mut().advance(|_| None);
    round(&mut engine, &world);
    let mut all = world.0.borrow_mut();
    all.advance(|_| Some(0));
    all.stint = Some(Duration::ZERO);
    let mut messages: Vec<Message> =
        std::mem::take(&mut all.ended).into_iter().map(Message::SupervisorEnded).collect();
    drop(all);
    let (reply, answer) = channel();
    to.send(Message::Asked(peer(), Request::Nodes, reply)).unwrap();
    let mut seen = vec![engine.jobs.lives().len()];
    for _ in 0..3 {
        engine.batch(messages, &mut inbox);
        seen.push(engine.jobs.lives().len());
        messages = inbox.wait(Duration::ZERO).unwrap();
        // Asked meanwhile, it is answered by the round of the second end.
        assert_eq!(answer.try_recv().is_ok(), seen.len() == 3, "{seen:?}");
    }
    assert_eq!(seen, [3, 2, 1, 0], "an end in each round, and none is lost");
    assert!(messages.is_empty());
}

#[test]
fn only_the_acknowledgement_of_a_change_waits_until_it_is_written() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let mut engine = open(dir.path(), &world);
    let job = submit(&mut engine, 30);
    let mut replies = Vec::new();
    let mut asked = |engine: &mut Engine, request| {
        let (reply, answer) = channel();
        engine.question(Message::Asked(peer(), request, reply), &mut replies);
        engine.send_ready(&mut replies);
        answer
    };
    let shown = asked(&mut engine, Request::Show { job: job.into() });
    assert!(matches!(shown.try_recv(), Ok(Response::Job(..))), "it says what is");
    let unknown = asked(&mut engine, Request::Hold { jobs: vec![(job + 1).into()], held: true });
    assert!(matches!(unknown.try_recv(), Ok(Response::Refused(_))), "nothing changed");
    let held = asked(&mut engine, Request::Hold { jobs: vec![job.into()], held: false });
    assert!(held.try_recv().is_err(), "the change is not written yet");
    engine.finish_batch(replies);
    assert!(matches!(held.try_recv(), Ok(Response::Done)));
}
