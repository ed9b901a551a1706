//! Reservations: made while jobs run, kept by the store, over before and after by the wall clock.

use std::cell::RefCell;
use std::rc::Rc;

use radrm_protocol::limits::{ReservationRow, ReserveRow};
use radrm_scheduler_core::UserId;

use super::lab_week::Timed;
use super::world::World;
use super::*;
use crate::time::LocalTime;

const HOUR_MS: u64 = 3_600_000;
/// A minute that begins an hour of the day in any time zone but for some.
const BEGIN: u64 = 1_700_000_100_000;

fn timed() -> Recorder<Timed> {
    Recorder(Rc::new(RefCell::new(World::of(Timed::at(BEGIN)))))
}

fn open_timed(dir: &Path, world: &Recorder<Timed>, file: &str) -> Engine {
    let mut config = Config::parse(file).unwrap();
    (config.state, config.keep_days, config.cpus, config.poll_ms) = (dir.to_owned(), 0, 8, 1 << 40);
    (config.scheduler.order.pace, config.scheduler.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    let gpu = |index: u32| Gpu {
        index: Some(index),
        uuid: format!("GPU-{index}"),
        bytes: [index as u8; 16],
        name: "NVIDIA A100-SXM4-40GB".into(),
        total: 40 * GIB,
        divided: false,
    };
    open_with(dir, config, vec![gpu(0), gpu(1)], Box::new(world.clone()))
}

fn local(ms: u64) -> String {
    LocalTime::of(ms).to_string()
}

/// GPU 0 and 1 for a user, so many hours after the begin.
fn row(user: &str, from: u64, until: u64) -> ReserveRow {
    ReserveRow {
        users: vec![user.to_owned()],
        from: Some(local(BEGIN + from * HOUR_MS)),
        until: local(BEGIN + until * HOUR_MS),
        reason: Some("course".to_owned()),
        ..ReserveRow::default()
    }
}

fn reserve(engine: &mut Engine, row: ReserveRow) -> u64 {
    match ask(engine, Request::Reserve(Box::new(row))) {
        Response::Reserved { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

fn rows(engine: &mut Engine) -> Vec<ReservationRow> {
    match ask(engine, Request::Reservations) {
        Response::Reservations(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn why(engine: &mut Engine, job: u64) -> String {
    match ask(engine, Request::Show { job: job.into() }) {
        Response::Job(row, _) => row.why.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Hours pass, and what is done each minute is done.
fn at(engine: &mut Engine, world: &Recorder<Timed>, ms: u64) {
    world.0.borrow_mut().programs.now = ms;
    let (_to, from) = channel();
    engine.batch(vec![Message::Polled(Poll::begin())], &mut Inbox::new(&from));
    engine.review_limits();
    engine.batch(vec![Message::Polled(Poll::begin())], &mut Inbox::new(&from));
}

fn started(world: &Recorder<Timed>) -> Vec<u64> {
    world.0.borrow().started.iter().map(|(job, _)| *job).collect()
}

#[test]
fn a_reservation_is_kept_for_the_next_daemon_and_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let mut engine = open_timed(dir.path(), &world, "");
    assert_eq!(reserve(&mut engine, row("v", 0, 5)), 1);
    let job = submit(&mut engine, 5);
    at(&mut engine, &world, BEGIN + 60_000);
    drop(engine);
    let mut engine = open_timed(dir.path(), &world, "");
    at(&mut engine, &world, BEGIN + HOUR_MS);
    assert_eq!(started(&world), [] as [u64; 0]);
    let (from, until) = (local(BEGIN), local(BEGIN + 5 * HOUR_MS));
    let expected = format!("GPUs 0, 1 are kept for v from {from} until {until} (course)");
    assert_eq!(why(&mut engine, job), expected);
    let [one] = &rows(&mut engine)[..] else { panic!("one reservation") };
    assert_eq!((one.number, one.by.as_deref(), one.holds, one.yours), (Some(1), Some("u"), true, false));
    at(&mut engine, &world, BEGIN + 5 * HOUR_MS + 1000);
    assert_eq!(started(&world), [job]);
    assert!(rows(&mut engine).is_empty(), "it is over");
    // The clock is set back: it holds again, as it was not taken back.
    world.0.borrow_mut().wall_ahead_ms = -2 * HOUR_MS as i64;
    assert_eq!(rows(&mut engine).len(), 1);
    world.0.borrow_mut().wall_ahead_ms = 0;
    at(&mut engine, &world, BEGIN + 40 * HOUR_MS);
    drop(engine);
    let engine = open_timed(dir.path(), &world, "");
    let (left, last) = crate::store::reservations::all(&engine.outbox.store().connection).unwrap();
    assert_eq!((left.len(), last), (0, 1), "it is forgotten, and its number is not given again");
}

#[test]
fn a_reservation_begins_and_ends_by_the_wall_clock_when_that_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let mut engine = open_timed(dir.path(), &world, "");
    reserve(&mut engine, ReserveRow { lead_ms: Some(0), ..row("v", 10, 20) });
    // By the daemon's own clock it is nine hours too early.
    world.0.borrow_mut().wall_ahead_ms = 10 * HOUR_MS as i64;
    at(&mut engine, &world, BEGIN + HOUR_MS);
    let job = submit(&mut engine, 5);
    at(&mut engine, &world, BEGIN + HOUR_MS + 1000);
    assert!(started(&world).is_empty() && why(&mut engine, job).contains("kept for v"));
    world.0.borrow_mut().wall_ahead_ms = 0;
    at(&mut engine, &world, BEGIN + HOUR_MS + 2000);
    assert_eq!(started(&world), [job], "it has not begun yet");
}

#[test]
fn people_of_a_reservation_start_there_and_it_is_taken_back_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let mut engine = open_timed(dir.path(), &world, "");
    let mine = ReserveRow { gpus: vec!["a100".into()], ..row("u", 0, 5) };
    let number = reserve(&mut engine, mine);
    let first = submit(&mut engine, 5);
    at(&mut engine, &world, BEGIN + 1000);
    assert_eq!(started(&world), [first]);
    assert!(rows(&mut engine)[0].yours && rows(&mut engine)[0].others.is_empty());
    let theirs = reserve(&mut engine, row("v", 0, 3));
    assert_eq!(rows(&mut engine)[0].others, [first], "it still runs where GPUs are kept for others");
    let second = submit(&mut engine, 5);
    at(&mut engine, &world, BEGIN + 2000);
    assert_eq!(started(&world), [first]);
    assert_eq!(ask(&mut engine, Request::Unreserve { number: theirs }), Response::Done);
    at(&mut engine, &world, BEGIN + 3000);
    assert_eq!(started(&world), [first, second]);
    assert_eq!(ask(&mut engine, Request::Unreserve { number }), Response::Done);
    assert!(matches!(ask(&mut engine, Request::Unreserve { number }), Response::Refused(_)));
}

#[test]
fn a_reservation_of_the_file_is_for_members_of_its_groups() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let (from, until) = (local(BEGIN), local(BEGIN + 5 * HOUR_MS));
    let file = format!(
        "[[reservations]]\ngroups = [\"lab\"]\ngpus = [0, 1]\nfrom = \"{from}\"\nuntil = \"{until}\"\n"
    );
    let mut engine = open_timed(dir.path(), &world, &file);
    let job = submit(&mut engine, 5);
    at(&mut engine, &world, BEGIN + 1000);
    assert!(started(&world).is_empty() && why(&mut engine, job).contains("kept for group lab"));
    assert_eq!(rows(&mut engine)[0].number, None);
    let groups = Groups { names: vec!["lab".to_owned()], since: Some(Instant::now()) };
    engine.know_account(&Peer { groups, ..peer() });
    at(&mut engine, &world, BEGIN + 2000);
    assert_eq!(started(&world), [job], "its user is a member now");
}

#[test]
fn no_job_is_evicted_before_it_is_known_whether_its_user_is_a_member() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let mut engine = open_timed(dir.path(), &world, "");
    submit(&mut engine, 5);
    let before = Groups { names: Vec::new(), since: Some(Instant::now()) };
    engine.know_account(&Peer { groups: before, ..peer() });
    let users = Vec::new();
    let groups = vec!["no-such-group".to_owned()];
    reserve(&mut engine, ReserveRow { users, groups, evict: true, ..row("v", 0, 5) });
    let spared = |engine: &Engine| engine.reservations.reported[0].spared.clone();
    assert!(engine.reservations.reported[0].evicts);
    assert_eq!(spared(&engine), [UserId(peer().uid)], "its user may be a member");
    let known = || Groups { names: Vec::new(), since: Some(Instant::now()) };
    engine.know_account(&Peer { uid: 99, name: "w".into(), groups: known(), ..peer() });
    assert_eq!(
        spared(&engine),
        [UserId(peer().uid)],
        "another is none: a look-up that never succeeds spares one user"
    );
    engine.know_account(&Peer { groups: known(), ..peer() });
    assert_eq!(spared(&engine), [] as [UserId; 0], "its user is none");
}

#[test]
fn a_reservation_is_not_acknowledged_while_it_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let mut engine = open_timed(dir.path(), &world, "");
    engine.outbox.store().fail_writes(true);
    let response = ask(&mut engine, Request::Reserve(Box::new(row("v", 0, 5))));
    assert!(matches!(response, Response::Later(_)), "{response:?}");
}

#[test]
fn only_administrators_reserve_and_what_is_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let world = timed();
    let mut engine = open_timed(dir.path(), &world, "");
    let refused = |engine: &mut Engine, admin: bool, row: ReserveRow| {
        let peer = Peer { admin, ..peer() };
        match engine.answer(&peer, &Request::Reserve(Box::new(row)), None) {
            Response::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(&mut engine, false, row("v", 0, 5)).contains("administrators"));
    let of = |name: &str| ReserveRow { gpus: vec![name.to_owned()], ..row("v", 0, 5) };
    assert_eq!(refused(&mut engine, true, of("7")), "there is no GPU 7; this node has 0 to 1");
    assert!(refused(&mut engine, true, of("A10O")).ends_with("; did you mean A100?"));
    assert!(refused(&mut engine, true, row("v", 5, 5)).contains("ends before it begins"));
    let peer = Peer { admin: false, ..peer() };
    let response = engine.answer(&peer, &Request::Unreserve { number: 1 }, None);
    assert!(matches!(&response, Response::Refused(why) if why.contains("administrators")), "{response:?}");
    let unknown =
        crate::user_limits::Named { unknown: Some("user v; did you mean w?".into()), ..Default::default() };
    let request = Request::Reserve(Box::new(row("v", 0, 5)));
    let response = engine.answer(&super::peer(), &request, Some(&unknown));
    let expected = "this machine has no user v; did you mean w?";
    assert!(matches!(&response, Response::Refused(why) if why == expected), "{response:?}");
}
