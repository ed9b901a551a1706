//! Jobs that do not go when they are killed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::attempt::Attempt;
use crate::time::Now;

/// Programs that no signal ends, and a clock that the test sets.
struct Stubborn(Rc<Cell<Now>>);

impl world::Programs for Stubborn {
    fn now(&self) -> Now {
        self.0.get()
    }

    fn signal(&mut self, _: Attempt, _: i32) -> bool {
        false
    }
}

#[test]
fn a_launcher_that_does_not_go_is_spared_for_some_kills_only() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Now::read();
    let clock = Rc::new(Cell::new(begun));
    let world = Recorder(Rc::new(RefCell::new(world::World::of(Stubborn(Rc::clone(&clock))))));
    let config = Config { state: dir.path().to_owned(), keep_days: 0, cpus: 8, ..Config::default() };
    let mut engine = open_with(dir.path(), config, vec![gpu(0)], Box::new(world.clone()));
    let job = submit(&mut engine, 1);
    let (_to, from) = channel();
    let mut is_cancelled = false;
    for second in 0..300 {
        let at = Millis(begun.at.0 + second * 1000);
        clock.set(Now { at, mono: begun.mono + Duration::from_secs(second) });
        world.0.borrow_mut().advance(|_| None);
        engine.batch(vec![Message::Polled(Poll::begin())], &mut Inbox::new(&from));
        let runs = engine.jobs.entry(job).is_some_and(|entry| entry.started_ms.is_some());
        if runs && !std::mem::replace(&mut is_cancelled, true) {
            assert_eq!(ask(&mut engine, Request::Cancel { jobs: vec![job.into()] }), Response::Done);
        }
    }
    let kills = world.0.borrow().killed_again.clone();
    let spared: Vec<bool> = kills.iter().map(|(is_spared, _)| *is_spared).take(6).collect();
    assert_eq!(spared, [true, true, true, true, false, false], "{kills:?}");
    assert!(kills.iter().all(|(is_spared, is_last)| is_spared != is_last), "{kills:?}");
}
