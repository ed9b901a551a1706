//! Leftovers of attempts whose supervisors were killed.

use std::collections::BTreeSet;

use super::*;
use crate::attempt::Attempt;
use crate::gpus::Sample;

/// An engine on which a job lost its supervisor and a second one waits for its GPU; what the first one left takes long to
/// find. Also the attempt of the first, and the second job.
fn with_leftovers(dir: &Path, world: &Recorder) -> (Engine, Attempt, u64) {
    let mut engine = open(dir, world);
    let (first, second) = (submit(&mut engine, 30), submit(&mut engine, 30));
    for _ in 0..3 {
        round(&mut engine, world);
        world.0.borrow_mut().advance(|_| None);
    }
    let attempt = (first, 1);
    assert_eq!(world.0.borrow().started, [attempt]);
    world.0.borrow_mut().sweeps_late = true;
    world.0.borrow_mut().lose(attempt);
    for _ in 0..3 {
        round(&mut engine, world);
    }
    (engine, attempt, second)
}

/// The search for what an attempt left is over.
fn found(engine: &mut Engine, attempt: Attempt, killed: BTreeSet<u32>) {
    let (_to, from) = channel();
    engine.batch(vec![Message::Swept(attempt, killed)], &mut Inbox::new(&from));
}

/// A poll that lists these processes on the GPU.
fn listed(engine: &mut Engine, processes: Vec<(u32, u64)>) {
    let samples = vec![Sample { uuid: "GPU-0".into(), processes, ..Sample::default() }];
    let (_to, from) = channel();
    engine.batch(vec![Message::Polled(Poll { samples, ..Poll::begin() })], &mut Inbox::new(&from));
}

#[test]
fn leftovers_that_take_long_to_find_keep_their_gpu_until_they_are_off_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let (mut engine, attempt, second) = with_leftovers(dir.path(), &world);
    assert_eq!(world.0.borrow().started, [attempt], "its GPU is not free");
    assert_eq!((world.0.borrow().swept.as_slice(), world.0.borrow().cleared.len()), (&[attempt][..], 0));
    found(&mut engine, attempt, BTreeSet::from([7]));
    listed(&mut engine, vec![(7, GIB)]);
    assert_eq!(world.0.borrow().started, [attempt], "the one that was killed is on the GPU still");
    listed(&mut engine, Vec::new());
    assert_eq!(world.0.borrow().started, [attempt, (second, 1)]);
    assert_eq!(world.0.borrow().cleared, [attempt]);
    found(&mut engine, attempt, BTreeSet::from([7]));
    assert!(engine.sweeping.is_empty());
}

#[test]
fn a_daemon_killed_amid_a_search_for_leftovers_searches_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let (engine, attempt, second) = with_leftovers(dir.path(), &world);
    drop(engine);
    let mut engine = open(dir.path(), &world);
    round(&mut engine, &world);
    assert_eq!(world.0.borrow().swept, [attempt, attempt]);
    assert_eq!(world.0.borrow().started, [attempt], "its GPU is not free");
    found(&mut engine, attempt, BTreeSet::new());
    round(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [attempt, (second, 1)]);
}
