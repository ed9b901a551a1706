//! Limits of users: set while jobs run, kept by the store, and GPU-hours.

use radrm_scheduler_core::UserId;

use std::cell::RefCell;
use std::rc::Rc;

use super::lab_week::Timed;
use super::world::World;
use super::*;
use crate::accounting::{self, GpuTime};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

fn set(engine: &mut Engine, name: &str, value: Option<&str>) -> Response {
    let (scope, name, value) = ("default".to_owned(), name.to_owned(), value.map(str::to_owned));
    ask(engine, Request::SetLimit { scope, name, value })
}

fn rounds(engine: &mut Engine, world: &Recorder) {
    for _ in 0..3 {
        round(engine, world);
        world.0.borrow_mut().advance(|_| None);
    }
}

#[test]
fn a_limit_that_was_set_holds_for_the_next_daemon_until_it_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    assert_eq!(set(&mut engine, "running_jobs", Some("1")), Response::Done);
    let jobs = [5, 5].map(|gib| submit(&mut engine, gib));
    rounds(&mut engine, &world);
    drop(engine);
    let mut engine = open(dir.path(), &world);
    rounds(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(jobs[0], 1)]);
    let Response::Job(row, _) = ask(&mut engine, Request::Show { job: jobs[1].into() }) else {
        panic!("no job")
    };
    assert!(row.why.contains("may run 1 job (running_jobs, default), and 1 run"), "{}", row.why);
    let Response::SetLimits(rows) = ask(&mut engine, Request::SetLimits) else { panic!("no rows") };
    assert!(matches!(&rows[..], [one] if one.by == "u" && one.value == "1"), "{rows:?}");
    assert_eq!(set(&mut engine, "running_jobs", None), Response::Done);
    rounds(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(jobs[0], 1), (jobs[1], 1)]);
    assert_eq!(ask(&mut engine, Request::SetLimits), Response::SetLimits(Vec::new()));
}

#[test]
fn gpu_hours_of_seven_days_count_and_older_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (uid, now) = (peer().uid, engine.now.at.0);
    let attempt = |job, ago_ms: u64| GpuTime {
        job,
        attempt: 1,
        uid,
        user: "u".to_owned(),
        start_ms: now - ago_ms - 2 * HOUR_MS,
        end_ms: now - ago_ms,
        ran_ms: 2 * HOUR_MS,
        idle_ms: 0,
        gpus: 3,
        share: 1000,
        out_of_memory: false,
    };
    let add = |engine: &mut Engine, of: GpuTime| {
        engine.outbox.write_now(|tx| accounting::insert(tx, &of)).unwrap();
    };
    add(&mut engine, attempt(1, 8 * DAY_MS));
    assert_eq!(set(&mut engine, "gpu_hours", Some("6")), Response::Done);
    let is_behind = |engine: &mut Engine| {
        let Response::Limits(row) = ask(engine, Request::Limits { user: None }) else { panic!("no limits") };
        assert_eq!(row.behind, engine.core.state.allowance(UserId(uid)).behind);
        row.behind
    };
    assert!(!is_behind(&mut engine), "they are more than seven days ago");
    add(&mut engine, attempt(2, DAY_MS));
    assert!(!is_behind(&mut engine), "they are counted each minute");
    engine.review_limits();
    assert!(is_behind(&mut engine), "six hours of six");
    assert_eq!(set(&mut engine, "gpu_hours", Some("7")), Response::Done);
    assert!(!is_behind(&mut engine));
    // No job is refused for it.
    assert_eq!(set(&mut engine, "gpu_hours", Some("0")), Response::Done);
    submit(&mut engine, 5);
}

#[test]
fn users_set_no_limits_and_see_none_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let other = Peer { uid: peer().uid + 1, name: "v".into(), admin: false, ..peer() };
    let (scope, name) = ("user:v".to_owned(), "gpus".to_owned());
    for request in [
        Request::SetLimit { scope, name, value: Some("9".to_owned()) },
        Request::SetLimits,
        Request::Limits { user: Some("u".to_owned()) },
    ] {
        let response = engine.answer(&other, &request);
        assert!(
            matches!(&response, Response::Refused(why) if why.contains("administrators")),
            "{response:?}"
        );
    }
    assert!(matches!(engine.answer(&other, &Request::Limits { user: None }), Response::Limits(_)));
}

#[test]
fn gpu_hours_follow_a_clock_that_jumps_by_weeks() {
    const NOW: u64 = 1_700_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let begin = |now: u64| {
        let world = Recorder(Rc::new(RefCell::new(World::of(Timed::at(now)))));
        // By the wall clock all of it is years ago: nothing is forgotten for that.
        world.0.borrow_mut().jump_ms = None;
        let config = Config { poll_ms: 1 << 40, ..Config::default() };
        let engine = open_with(dir.path(), config, Vec::new(), Box::new(world.clone()));
        (engine, world)
    };
    let (mut engine, world) = begin(NOW);
    let of = GpuTime {
        job: 1,
        attempt: 1,
        uid: peer().uid,
        user: "u".to_owned(),
        start_ms: NOW - 4 * HOUR_MS,
        end_ms: NOW - 2 * HOUR_MS,
        ran_ms: 2 * HOUR_MS,
        gpus: 3,
        share: 1000,
        ..GpuTime::default()
    };
    engine.outbox.write_now(|tx| accounting::insert(tx, &of)).unwrap();
    assert_eq!(set(&mut engine, "gpu_hours", Some("6")), Response::Done);
    let is_behind = |engine: &mut Engine| {
        let Response::Limits(row) = ask(engine, Request::Limits { user: None }) else { panic!("no limits") };
        row.behind
    };
    assert!(is_behind(&mut engine));
    // The machine slept for weeks: the next minute's count is of another week.
    world.0.borrow_mut().programs.now += 21 * DAY_MS;
    let (_to, from) = channel();
    engine.batch(Vec::new(), &mut Inbox::new(&from));
    assert!(!is_behind(&mut engine), "three weeks later");
    drop(engine);
    // It was started again with a clock that is weeks behind: what ends in its future does not count for ever.
    let (mut engine, _world) = begin(NOW - 21 * DAY_MS);
    assert!(!is_behind(&mut engine), "three weeks before");
    drop(engine);
    let (mut engine, _world) = begin(NOW);
    assert!(is_behind(&mut engine), "with the clock set right");
}
