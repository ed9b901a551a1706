//! Jobs whose programs do not begin.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::accounting::{UsageSums, later_than};
use crate::attempt::Attempt;
use crate::time::Now;

/// A world whose clock the test sets.
#[derive(Default)]
struct Clock(Rc<Cell<Option<Now>>>);

impl world::Programs for Clock {
    fn now(&self) -> Now {
        self.0.get().unwrap_or_else(Now::read)
    }

    fn signal(&mut self, _: Attempt, _: i32) -> bool {
        true
    }
}

#[test]
fn a_job_whose_program_never_begins_ends_and_its_time_counts() {
    let dir = tempfile::tempdir().unwrap();
    let clock: Rc<Cell<Option<Now>>> = Rc::default();
    let world = Recorder(Rc::new(RefCell::new(world::World::of(Clock(Rc::clone(&clock))))));
    let begun = Now::read();
    clock.set(Some(begun));
    let config = Config { state: dir.path().to_owned(), keep_days: 0, cpus: 8, ..Config::default() };
    let gpu = Gpu {
        index: Some(0),
        uuid: "GPU-0".into(),
        bytes: [0; 16],
        name: "G".into(),
        total: 40 * GIB,
        divided: false,
    };
    let mut engine = open_with(dir.path(), config, vec![gpu], Box::new(world.clone()));
    let command = vec!["program".to_owned()];
    let time_limit_ms = Some(60_000);
    let spec = Spec { command, cwd: "/".into(), gpus: 1, mem: Some(GIB), time_limit_ms, ..Spec::default() };
    let Response::Submitted { job, .. } = ask(&mut engine, Request::Submit(Box::new(spec))) else {
        panic!("rejected")
    };
    let mut after = |seconds: u64| {
        let at = Millis(begun.at.0 + seconds * 1000);
        clock.set(Some(Now { at, mono: begun.mono + Duration::from_secs(seconds) }));
        let ended = std::mem::take(&mut world.0.borrow_mut().ended);
        let (_to, from) = channel();
        let messages = ended.into_iter().map(Message::SupervisorEnded).collect();
        engine.batch(messages, &mut Inbox::new(&from));
        engine.batch(vec![Message::Polled(Poll::begin())], &mut Inbox::new(&from));
        let mut sums = UsageSums::new(0, u64::MAX);
        let mut next = Some(later_than(0));
        while let Some(after) = next {
            let add = |time| sums.add(&time);
            next = engine.gpu_times(&Peer::everybody(), (0, u64::MAX), after, add).unwrap();
        }
        let hours: f64 = sums.rows().iter().map(|row| row.gpu_hours).sum();
        (engine.jobs.entry(job).is_some_and(|entry| entry.stage != Stage::Ended), hours)
    };
    let (is_open, hours) = after(299);
    assert!(is_open && hours > 0.08, "it holds its GPU, and that counts: {hours}");
    after(301);
    let (is_open, hours) = after(302);
    assert!(!is_open, "its program did not begin");
    assert!((0.083..0.084).contains(&hours), "{hours}");
    let entry = engine.outbox.store().job(job).unwrap().unwrap();
    assert_eq!(entry.verdict, Some(Verdict::TimedOut));
    assert!(entry.why.contains("did not begin within"), "{}", entry.why);
}
