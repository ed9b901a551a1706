//! Arrays of many jobs, taken up piece by piece.

use super::*;

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
    let taken = engine.jobs.entries.len();
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
    assert_eq!(engine.jobs.entries.len(), JOBS);
    assert!(engine.jobs.entries.keys().copied().eq(job..job + JOBS as u64));
    engine.batch(Vec::new(), &mut inbox);
    let Ok(Response::Submitted { job: next, .. }) = one.try_recv() else { panic!("no answer") };
    assert_eq!(next, job + JOBS as u64);
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
    assert_eq!(open(dir.path(), &Recorder::default()).jobs.entries.len(), 1000);
}
