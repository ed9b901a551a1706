//! The engine against a world that records: no processes, no GPUs, no waiting.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Instant;

use radrm_scheduler_core::{JobId, Millis, Outcome, SharingMode, Verdict};

use super::effects::Effects;
use super::inbox::Inbox;
use super::timers::Timer;
use super::*;
use crate::config::Config;
use crate::gpus::{Gpus, Poll};
use crate::history::History;
use crate::limited_groups::Groups;
use crate::message::Message;
use crate::numbers::Numbers;
use crate::peer::Peer;
use crate::store::{Stage, Store};
use radrm_os::nvml::Gpu;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{Request, Response};

const GIB: u64 = 1 << 30;

mod arrays;
mod changes;
mod dry_runs;
mod kills;
mod lab_week;
mod leftovers;
mod light;
mod loaders;
mod one_path;
mod reservations;
mod room;
mod rounds;
mod sharing;
mod starting;
mod statements;
mod states;
mod user_energy;
mod user_limits;
mod world;

use world::{Crash, Recorder};

/// An engine on one GPU of 40 GiB, with what is on disk in this folder.
fn open(dir: &Path, world: &Recorder) -> Engine {
    open_by(dir, world, Config::default())
}

/// Likewise, with jobs in the order of the queue only.
fn open_in_order(dir: &Path, world: &Recorder) -> Engine {
    let mut config = Config::default();
    config.scheduler.order.backfill = false;
    open_by(dir, world, config)
}

fn open_by(dir: &Path, world: &Recorder, config: Config) -> Engine {
    let mut config = Config { state: dir.to_owned(), keep_days: 0, cpus: 8, ..config };
    (config.scheduler.order.pace, config.scheduler.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    open_with(dir, config, vec![gpu(0)], Box::new(world.clone()))
}

/// A GPU of 40 GiB.
fn gpu(index: u32) -> Gpu {
    let uuid = format!("GPU-{index}");
    Gpu {
        index: Some(index),
        uuid,
        bytes: [index as u8; 16],
        name: "G".into(),
        total: 40 * GIB,
        divided: false,
    }
}

fn open_with(dir: &Path, config: Config, list: Vec<Gpu>, effects: Box<dyn Effects>) -> Engine {
    let mut config = config;
    // What these tests are about is not what jobs cost each other.
    config.scheduler.sharing.get_or_insert(SharingMode::Mps);
    let gpus = Gpus { list, ..Gpus::off() };
    std::fs::create_dir_all(dir.join("jobs")).unwrap();
    let store = Store::open(&dir.join("queue.db")).unwrap();
    let (history, failed) = History::open(dir, "");
    assert_eq!(failed, None);
    let (ask, asked) = channel();
    // The channel stays open: a poll can be asked for.
    std::mem::forget(asked);
    let (numbers, _) = Numbers::open(dir, store.highest().unwrap()).unwrap();
    let disk = Disk { store, history, numbers };
    Engine::with(config, disk, gpus, effects, "boot".to_owned(), ask).unwrap()
}

fn peer() -> Peer {
    let uid = rustix::process::geteuid().as_raw();
    Peer { uid, gid: uid, name: "u".into(), groups: Groups::default(), admin: true }
}

fn ask(engine: &mut Engine, request: Request) -> Response {
    let (reply, answer) = channel();
    let (_to, from) = channel();
    let mut inbox = Inbox::new(&from);
    let message = Message::Asked(peer(), request, reply);
    match &message {
        Message::Asked(_, Request::Submit(_), _) => engine.batch(vec![message], &mut inbox),
        _ => {
            let mut replies = Vec::new();
            engine.question(message, &mut replies);
            engine.finish_batch(replies);
            true
        }
    };
    // A large array is answered when all its jobs are taken up.
    for _ in 0..100 {
        if let Ok(response) = answer.try_recv() {
            return response;
        }
        engine.batch(Vec::new(), &mut inbox);
    }
    panic!("no answer");
}

fn submit(engine: &mut Engine, gib: u64) -> u64 {
    let command = vec!["program".to_owned()];
    let spec = Spec { command, cwd: "/".into(), gpus: 1, mem: Some(gib * GIB), ..Spec::default() };
    match ask(engine, Request::Submit(Box::new(spec))) {
        Response::Submitted { job, .. } => job,
        other => panic!("{other:?}"),
    }
}

/// One round with all that happened; polls find all GPUs there.
fn round(engine: &mut Engine, world: &Recorder) {
    let ended = std::mem::take(&mut world.0.borrow_mut().ended);
    let mut messages: Vec<Message> = ended.into_iter().map(Message::SupervisorEnded).collect();
    let (_to, from) = channel();
    engine.batch(std::mem::take(&mut messages), &mut Inbox::new(&from));
    let poll = Poll::begin();
    engine.batch(vec![Message::Polled(poll)], &mut Inbox::new(&from));
}

/// Verdicts of the jobs, and the number of starts of each.
type Fates = BTreeMap<u64, (Option<Verdict>, usize)>;

/// Four jobs one after another, of which one fails and one is cancelled while it runs. The daemon is killed at one
/// point, and comes back. Also returns how many points there were.
fn run(crash_at: Option<usize>) -> (Fates, usize) {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = Some(open(dir.path(), &world));
    // A client whose submission is not acknowledged submits again: that is not what is tried here.
    let jobs: Vec<u64> = [30, 20, 30, 30].map(|gib| submit(engine.as_mut().unwrap(), gib)).to_vec();
    let cancelled = jobs[2];
    world.0.borrow_mut().crash_at = crash_at.map(|at| at + world.0.borrow().points);
    let before = world.0.borrow().points;
    for _ in 0..100 {
        let mut here = engine.take().unwrap_or_else(|| open(dir.path(), &world));
        let done = catch_unwind(AssertUnwindSafe(|| {
            if here.jobs.entry(cancelled).is_some_and(|entry| entry.started_ms.is_some()) {
                ask(&mut here, Request::Cancel { jobs: vec![cancelled.into()] });
            }
            round(&mut here, &world);
        }));
        match done {
            Ok(()) => engine = Some(here),
            Err(panic) if panic.is::<Crash>() => {
                drop(here);
                // What ended meanwhile is not reported.
                world.0.borrow_mut().ended.clear();
                world.0.borrow_mut().crash_at = None;
            }
            Err(panic) => resume_unwind(panic),
        }
        let code = |job| (job != cancelled).then_some(if job == jobs[1] { 3 } else { 0 });
        world.0.borrow_mut().advance(code);
        if engine.as_ref().is_some_and(|engine| engine.jobs.entries().is_empty()) {
            break;
        }
    }
    let engine = engine.expect("an engine");
    let starts = |job: u64| world.0.borrow().started.iter().filter(|(id, _)| *id == job).count();
    let fate = |job: u64| {
        let entry = engine.outbox.store().job(job).unwrap().unwrap();
        assert_eq!(entry.stage, Stage::Ended, "job {job} with the daemon killed at {crash_at:?}");
        (entry.verdict, starts(job))
    };
    let fates = jobs.iter().map(|job| (*job, fate(*job))).collect();
    (fates, world.0.borrow().points - before)
}

#[test]
fn a_daemon_killed_at_any_point_changes_no_jobs_fate() {
    let (uninterrupted, points) = run(None);
    let ended = |code| Some(Verdict::Ended(Outcome::Exited { code }));
    let expected = [(ended(0), 1), (ended(3), 1), (Some(Verdict::Cancelled), 1), (ended(0), 1)];
    assert_eq!(uninterrupted.values().cloned().collect::<Vec<_>>(), expected);
    assert!(points >= 16, "a start and a clean-up of each job, before and after: {points}");
    for at in 1..=points {
        assert_eq!(run(Some(at)).0, uninterrupted, "killed at point {at}");
    }
}

#[test]
fn a_submission_to_a_queue_that_cannot_be_read_takes_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let first = submit(&mut engine, 30);
    let kept = || std::fs::read_to_string(dir.path().join("last-job")).unwrap();
    let before = kept();
    // Its tables are gone.
    let other = rusqlite::Connection::open_in_memory().unwrap();
    let queue = std::mem::replace(&mut engine.outbox.store_mut().connection, other);
    let command = vec!["program".to_owned()];
    let spec = Spec { command, cwd: "/".into(), ..Spec::default() };
    let response = ask(&mut engine, Request::Submit(Box::new(spec)));
    assert!(
        matches!(&response, Response::Later(why) if why.contains("the queue cannot be read")),
        "{response:?}"
    );
    assert_eq!(kept(), before, "numbers up to the largest there is would be lost for good");
    engine.outbox.store_mut().connection = queue;
    assert_eq!(submit(&mut engine, 30), first + 1);
}

#[test]
fn an_estimate_is_what_a_submission_is_given_by_the_same_rules() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let command = vec!["program".to_owned()];
    let spec = Spec { command, cwd: "/".into(), gpus: 1, mem: Some(5 * GIB), ..Spec::default() };
    let estimate = Request::Estimate(Box::new(spec));
    let Response::Estimate(row) = ask(&mut engine, estimate.clone()) else { panic!("no estimate") };
    assert!(
        engine.jobs.entries().is_empty() && engine.outbox.store().highest().unwrap() == 0,
        "nothing is stored"
    );
    let job = submit(&mut engine, 5);
    assert_eq!(Some(&row.needs), engine.jobs.entries()[&job].needs.as_ref());
    assert_eq!(row.model.as_deref(), Some("G"));
    let other =
        Peer { uid: u32::MAX - 1, gid: 0, name: String::new(), groups: Groups::default(), admin: false };
    let response = engine.answer(&other, &estimate, None);
    assert!(matches!(response, Response::Refused(_)), "no account here: {response:?}");
}

#[test]
fn nothing_starts_and_nothing_is_acknowledged_while_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let first = submit(&mut engine, 30);
    let second = submit(&mut engine, 30);
    round(&mut engine, &world);
    world.0.borrow_mut().advance(|_| None);
    round(&mut engine, &world);
    world.0.borrow_mut().advance(|_| Some(0));
    engine.outbox.store().fail_writes(true);
    round(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(first, 1)], "the next is decided and not written");
    let response = ask(&mut engine, Request::Hold { jobs: vec![second.into()], held: false });
    assert!(matches!(&response, Response::Later(why) if why.contains("lost if radrmd ends")), "{response:?}");
    engine.outbox.store().fail_writes(false);
    engine.timers.clear(Timer::Retry);
    round(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(first, 1), (second, 1)]);
}
