//! Arrays of many jobs, taken up piece by piece.

use std::sync::mpsc::Receiver;

use radrm_protocol::after::{After, AfterList};

use super::*;
use crate::job_output::Disk;

#[test]
fn a_large_array_is_taken_up_between_others_answers() {
    const JOBS: usize = 1500;
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (_to, from) = channel();
    let mut inbox = Inbox::new(&from);
    let single = Spec { command: vec!["p".into()], cwd: "/".into(), held: true, ..Spec::default() };
    let array = format!("0-{}", JOBS - 1).parse().unwrap();
    let large = Spec { array: Some(array), ..single.clone() };
    let submit = |spec: &Spec| {
        let (reply, answer) = channel();
        (Message::Asked(peer(), Request::Submit(Box::new(spec.clone())), reply), answer)
    };
    let ((first, all), (second, one)) = (submit(&large), submit(&single));
    engine.batch(vec![first], &mut inbox);
    // All are written before the first is taken up.
    while engine.jobs.entries().is_empty() {
        engine.batch(Vec::new(), &mut inbox);
    }
    let taken = engine.jobs.entries().len();
    assert!(taken > 0 && taken < JOBS, "{taken} in one round");
    assert!(all.try_recv().is_err(), "not all are there");
    // Its user's next job is checked against the limits of a user once all are counted.
    engine.batch(vec![second], &mut inbox);
    assert!(one.try_recv().is_err());
    let mut rounds = 0;
    let Response::Submitted { job, .. } = (loop {
        engine.batch(Vec::new(), &mut inbox);
        rounds += 1;
        match all.try_recv() {
            Ok(answer) => break answer,
            Err(_) => assert!(rounds < JOBS),
        }
    }) else {
        panic!("rejected")
    };
    assert_eq!(engine.jobs.entries().len(), JOBS);
    assert!(engine.jobs.entries().keys().copied().eq(job..job + JOBS as u64));
    engine.batch(Vec::new(), &mut inbox);
    let Ok(Response::Submitted { job: next, .. }) = one.try_recv() else { panic!("no answer") };
    assert_eq!(next, job + JOBS as u64);
}

#[test]
fn an_array_that_would_take_the_reserve_of_the_disk_is_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let node = Recorder::default();
    node.0.borrow_mut().disk = Some(Disk { free: 2 << 20, all: 10 << 20, ..Disk::default() });
    let mut engine = open(dir.path(), &node);
    let (_to, from) = channel();
    let mut submitted = |array: &str| {
        let command = vec!["x".repeat(10_000)];
        let array = Some(array.parse().unwrap());
        let spec = Spec { command, cwd: "/".into(), held: true, array, ..Spec::default() };
        let (reply, answer) = channel();
        let mut inbox = Inbox::new(&from);
        engine.batch(vec![Message::Asked(peer(), Request::Submit(Box::new(spec)), reply)], &mut inbox);
        loop {
            match answer.try_recv() {
                Ok(answer) => break answer,
                Err(_) => _ = engine.batch(Vec::new(), &mut inbox),
            }
        }
    };
    let Response::Later(error) = submitted("0-499") else { panic!("it would take 5 MB of 2") };
    assert!(error.contains("kept for the jobs that are there"), "{error}");
    assert!(matches!(submitted("0-9"), Response::Submitted { .. }));
}

#[test]
fn no_job_is_accepted_where_few_inodes_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let node = Recorder::default();
    let mut engine = open(dir.path(), &node);
    let (_to, from) = channel();
    let mut submitted = |free_inodes, all_inodes| {
        let disk = Disk { free: 1 << 40, all: 1 << 41, free_inodes, all_inodes };
        node.0.borrow_mut().disk = Some(disk);
        let (reply, answer) = channel();
        let spec = Spec { command: vec!["p".into()], cwd: "/".into(), held: true, ..Spec::default() };
        let mut inbox = Inbox::new(&from);
        engine.batch(vec![Message::Asked(peer(), Request::Submit(Box::new(spec)), reply)], &mut inbox);
        answer.try_recv().unwrap()
    };
    // A tenth of them, or one for each 16 KiB of the 256 MiB, and half of that.
    let Response::Later(error) = submitted(499, 10_000) else { panic!("it would take the last ones") };
    assert!(error.contains("has room for only 499 files"), "{error}");
    assert!(matches!(submitted(500, 10_000), Response::Submitted { .. }));
    assert!(matches!(submitted(8191, 1 << 30), Response::Later(_)));
    assert!(matches!(submitted(8192, 1 << 30), Response::Submitted { .. }));
    assert!(matches!(submitted(0, 0), Response::Submitted { .. }), "made as they are needed");
}

#[test]
fn a_daemon_that_stops_amid_an_array_has_answered_for_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (_to, from) = channel();
    let spec = Spec {
        command: vec!["p".into()],
        cwd: "/".into(),
        held: true,
        array: Some("0-999".parse().unwrap()),
        ..Spec::default()
    };
    let (reply, answer) = channel();
    let submit = Message::Asked(peer(), Request::Submit(Box::new(spec)), reply);
    assert!(!engine.batch(vec![submit, Message::Stop], &mut Inbox::new(&from)));
    assert!(matches!(answer.try_recv(), Ok(Response::Submitted { .. })));
    drop(engine);
    assert_eq!(open(dir.path(), &Recorder::default()).jobs.entries().len(), 1000);
}

/// A submission of this many jobs that wait, and its answer.
fn large(peer: Peer, jobs: usize) -> (Message, Receiver<Response>) {
    let spec = Spec {
        command: vec!["p".into()],
        cwd: "/".into(),
        held: true,
        array: (jobs > 1).then(|| format!("0-{}", jobs - 1).parse().unwrap()),
        ..Spec::default()
    };
    let (reply, answer) = channel();
    (Message::Asked(peer, Request::Submit(Box::new(spec)), reply), answer)
}

fn rows(engine: &Engine) -> usize {
    let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let count = engine.outbox.store().connection.query_row("SELECT count(*) FROM jobs", [], count);
    usize::try_from(count.unwrap()).unwrap()
}

#[test]
fn a_daemon_that_is_killed_between_the_pieces_of_an_array_leaves_none_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (_to, from) = channel();
    let (submit, answer) = large(peer(), 1000);
    engine.batch(vec![submit], &mut Inbox::new(&from));
    engine.batch(Vec::new(), &mut Inbox::new(&from));
    let written = rows(&engine);
    assert!(written > 0 && written < 1000, "{written} rows");
    // What is written of it is no job for others either.
    assert_eq!(engine.outbox.store().job(1).unwrap(), None);
    assert!(answer.try_recv().is_err());
    drop(engine);
    let mut engine = open(dir.path(), &Recorder::default());
    assert_eq!((engine.jobs.entries().len(), rows(&engine)), (0, 0));
    // Its numbers are not given again.
    assert_eq!(submit_one(&mut engine), 1001);
}

fn submit_one(engine: &mut Engine) -> u64 {
    let spec = Spec { command: vec!["p".into()], cwd: "/".into(), held: true, ..Spec::default() };
    match ask(engine, Request::Submit(Box::new(spec))) {
        Response::Submitted { job, .. } => job,
        other => panic!("{other:?}"),
    }
}

#[test]
fn others_are_answered_between_the_pieces_of_an_array() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (_to, from) = channel();
    let mut inbox = Inbox::new(&from);
    let (submit, all) = large(peer(), 1500);
    engine.batch(vec![submit], &mut inbox);
    let mut before = rows(&engine);
    assert!(before <= 200, "{before} rows in one round");
    // Only root takes other users' jobs.
    let other = Peer { uid: peer().uid + 1, name: "v".into(), admin: false, ..peer() };
    let is_root = rustix::process::geteuid().is_root();
    let mut others = Vec::new();
    while all.try_recv().is_err() {
        let (reply, nodes) = channel();
        let mut messages = vec![Message::Asked(peer(), Request::Nodes, reply)];
        let (one, answer) = large(other.clone(), 1);
        messages.extend(is_root.then_some(one));
        engine.batch(messages, &mut inbox);
        assert!(matches!(nodes.try_recv(), Ok(Response::Nodes(_))));
        if is_root {
            let Ok(Response::Submitted { job, .. }) = answer.try_recv() else { panic!("not answered") };
            others.push(job);
        }
        let after = rows(&engine);
        assert!(after - before <= 201, "{} rows in one round", after - before);
        before = after;
    }
    assert!(others.iter().all(|job| *job > 1500), "{others:?}");
    assert_eq!(engine.jobs.entries().len(), 1500 + others.len());
}

#[test]
fn an_array_that_the_disk_takes_a_part_of_is_refused_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (_to, from) = channel();
    let (submit, answer) = large(peer(), 1000);
    engine.batch(vec![submit], &mut Inbox::new(&from));
    engine.outbox.store().fail_writes(true);
    engine.batch(Vec::new(), &mut Inbox::new(&from));
    assert!(matches!(answer.try_recv(), Ok(Response::Refused(_) | Response::Later(_))));
    assert!(engine.jobs.entries().is_empty() && rows(&engine) > 0);
    engine.discard_some();
    assert!(rows(&engine) > 0, "nothing can be removed yet");
    engine.outbox.store().fail_writes(false);
    engine.discard_some();
    assert_eq!(rows(&engine), 0);
    assert!(submit_one(&mut engine) > 1000);
}

#[test]
fn jobs_of_a_large_environment_are_written_in_pieces_by_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (_to, from) = channel();
    let spec = Spec {
        command: vec!["p".into()],
        cwd: "/".into(),
        held: true,
        environment: vec![format!("A={}", "x".repeat(100 << 10))],
        array: Some("0-99".parse().unwrap()),
        ..Spec::default()
    };
    let (reply, _answer) = channel();
    let submit = Message::Asked(peer(), Request::Submit(Box::new(spec)), reply);
    engine.batch(vec![submit], &mut Inbox::new(&from));
    let written = rows(&engine);
    assert!(written > 0 && written <= 40, "{written} rows of 100 KiB in one round");
}

/// Jobs that wait, and jobs that wait for all of them by this word, several times over.
fn dependents(engine: &mut Engine, jobs: usize, word: &str) -> u64 {
    let mut submit = |after: Vec<After>| {
        let spec = Spec {
            command: vec!["p".into()],
            cwd: "/".into(),
            held: true,
            array: Some(format!("0-{}", jobs - 1).parse().unwrap()),
            after,
            ..Spec::default()
        };
        match ask(engine, Request::Submit(Box::new(spec))) {
            Response::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    };
    let first = submit(Vec::new());
    let AfterList(after) = format!("{word}:{}", vec![first.to_string(); 99].join(",")).parse().unwrap();
    submit(after)
}

#[test]
fn a_dependency_that_is_named_many_times_is_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let dependent = dependents(&mut engine, 3, "any");
    let after = &engine.jobs.entry(dependent).unwrap().spec.after;
    assert_eq!(after.iter().map(|after| after.jobs).collect::<Vec<_>>(), [Some([1, 3])]);
}

#[test]
fn a_restart_searches_each_range_of_jobs_once() {
    const JOBS: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    dependents(&mut engine, JOBS, "ok");
    drop(engine);
    let engine = open(dir.path(), &Recorder::default());
    assert_eq!(engine.jobs.entries().len(), 2 * JOBS);
    assert_eq!(engine.outbox.store().searches(), 1);
}
