//! Limits of users: set while jobs run, kept by the store, and GPU-hours.

use radrm_scheduler_core::replay::events::Entry;
use radrm_scheduler_core::{Event, UserId};

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::lab_week::Timed;
use super::world::World;
use super::*;
use crate::accounting::{self, GpuTime};
use crate::long_read::PART;
use crate::time::local_minute;
use crate::user_limits::Named;

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

fn set(engine: &mut Engine, name: &str, value: Option<&str>) -> Response {
    let (scope, name, value) = ("default".to_owned(), name.to_owned(), value.map(str::to_owned));
    ask(engine, Request::SetLimit { scope, name, value })
}

/// The count of GPU-hours that is under way comes to its end.
fn count(engine: &mut Engine) {
    while engine.is_counting() {
        engine.count_some();
    }
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
    assert!(row.why.raw().contains("may run 1 job (running_jobs, default), and 1 run"), "{}", row.why);
    let Response::SetLimits(rows) = ask(&mut engine, Request::SetLimits) else { panic!("no rows") };
    assert!(matches!(&rows[..], [one] if one.by == "u" && one.value == "1"), "{rows:?}");
    assert_eq!(set(&mut engine, "running_jobs", None), Response::Done);
    rounds(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(jobs[0], 1), (jobs[1], 1)]);
    assert_eq!(ask(&mut engine, Request::SetLimits), Response::SetLimits(Vec::new()));
}

#[test]
fn what_is_not_set_cannot_be_unset() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let why = "no administrator has set gpus of default, so there is nothing to unset";
    assert_eq!(set(&mut engine, "gpus", None), Response::Refused(why.to_owned()));
    assert_eq!(set(&mut engine, "gpus", Some("2")), Response::Done);
    assert_eq!(set(&mut engine, "gpus", None), Response::Done);
    assert_eq!(set(&mut engine, "gpus", None), Response::Refused(why.to_owned()));
}

/// Memory limits as an administrator's `radrm.toml` states them.
fn memory_files(dir: &Path, text: &str) -> Vec<radrm_limits::files::Read> {
    let config = radrm_limits::config::parse(dir, text).unwrap();
    vec![radrm_limits::files::Read { path: dir.to_owned(), own: false, config }]
}

#[test]
fn the_memory_that_radrm_toml_leaves_a_group_is_shared_by_its_members_with_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let text = "[group.lab]\nmem-limit = '20GiB'\n[group.course]\nmem-limit = '10GiB'\n";
    engine.limits.memory_files = memory_files(dir.path(), text);
    engine.know_account(&Peer { groups: groups(&["lab"]), ..peer() });
    let member = Peer { uid: 99, name: "w".into(), groups: groups(&["course", "lab"]), ..peer() };
    engine.know_account(&member);
    let of = |uid: u32| {
        let quotas = engine.core.state.allowance(UserId(uid)).quotas.into_iter();
        let shown = |group: radrm_scheduler_core::GroupMembers| (group.name, group.users);
        quotas.map(|quota| (quota.bytes.0 >> 30, quota.group.map(shown))).collect::<Vec<_>>()
    };
    let mut users = vec![UserId(peer().uid), UserId(99)];
    users.sort_unstable();
    let lab = (20, Some(("lab".to_owned(), users)));
    assert_eq!(of(peer().uid), std::slice::from_ref(&lab), "the other member was known later");
    let course = (10, Some(("course".to_owned(), vec![UserId(99)])));
    assert_eq!(of(99), [course, lab], "each group by itself");
}

#[test]
fn a_new_member_of_a_group_has_the_queue_looked_through_once_for_all_members() {
    let dir = tempfile::tempdir().unwrap();
    let events = dir.path().join("events");
    let config = Config { events: events.clone(), ..Config::default() };
    let mut engine = open_by(dir.path(), &Recorder::default(), config);
    let text = "[group.lab]\nmem-limit = '20GiB'\n[group.course]\nmem-limit = '10GiB'\n";
    engine.limits.memory_files = memory_files(dir.path(), text);
    let mut know = |uid: u32, group: &str| {
        let name = format!("u{uid}");
        engine.know_account(&Peer { uid, name, groups: groups(&[group]), ..peer() });
    };
    for (uid, group) in [(70_001, "lab"), (70_002, "lab"), (70_003, "lab"), (70_004, "course")] {
        know(uid, group);
    }
    let steps = || {
        let text = std::fs::read_to_string(&events).unwrap();
        let entries = text.lines().map(|line| serde_json::from_str::<Entry>(line).unwrap());
        let steps = entries.filter_map(|entry| match entry {
            Entry::Step { event: Event::AllowanceSet { user, .. }, .. } => Some(user.0.to_string()),
            Entry::Step { event: Event::Paused { paused }, .. } => Some(format!("paused: {paused}")),
            _ => None,
        });
        steps.collect::<Vec<_>>()
    };
    let before = steps().len();
    know(70_005, "lab");
    let expected = ["paused: true", "70001", "70002", "70003", "70005", "paused: false"];
    assert_eq!(steps()[before..], expected);
}

#[test]
fn the_memory_that_radrm_toml_leaves_a_user_is_what_jobs_are_placed_by() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let file = |text: &str| memory_files(dir.path(), text);
    engine.limits.memory_files = file("[user.u]\nmem-limit = '20GiB'\n");
    let first = submit(&mut engine, 15);
    let of_user = |engine: &Engine| {
        let quotas = engine.core.state.allowance(UserId(peer().uid)).quotas;
        quotas.iter().map(|quota| quota.bytes.0 >> 30).collect::<BTreeSet<_>>()
    };
    assert_eq!(of_user(&engine), [20].into());
    let second = submit(&mut engine, 15);
    for _ in 0..3 {
        round(&mut engine, &world);
        world.0.borrow_mut().advance(|_| None);
    }
    let on = |job: u64| engine.jobs.entry(job).unwrap().devices.clone();
    assert!(on(second).is_empty() || on(second) != on(first), "{:?} {:?}", on(first), on(second));
    engine.limits.memory_files = file("[user.v]\nmem-limit = '20GiB'\n");
    submit(&mut engine, 1);
    assert_eq!(of_user(&engine), BTreeSet::new());
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
        count(engine);
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
        let response = engine.answer(&other, &request, None);
        assert!(
            matches!(&response, Response::Refused(why) if why.contains("administrators")),
            "{response:?}"
        );
    }
    assert!(matches!(engine.answer(&other, &Request::Limits { user: None }, None), Response::Limits(_)));
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
        count(engine);
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

#[test]
fn gpu_hours_are_counted_in_parts_between_which_requests_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path(), &Recorder::default());
    let (uid, now) = (peer().uid, engine.now.at.0);
    let of = |job: u64| GpuTime {
        job,
        attempt: 1,
        uid,
        user: "u".to_owned(),
        start_ms: now - 2 * HOUR_MS,
        end_ms: now - HOUR_MS,
        ran_ms: HOUR_MS,
        gpus: 1,
        share: 1000,
        ..GpuTime::default()
    };
    let insert = |tx: &rusqlite::Transaction<'_>| {
        (1..=PART as u64 + 1).try_for_each(|job| accounting::insert(tx, &of(job)))
    };
    engine.outbox.write_now(insert).unwrap();
    assert_eq!(set(&mut engine, "running_jobs", Some("1")), Response::Done);
    assert!(!engine.is_counting(), "no limit is on them");
    assert_eq!(set(&mut engine, "gpu_hours", Some(&format!("{}", PART + 1))), Response::Done);
    let mut parts = 0;
    while engine.is_counting() {
        let Response::Limits(row) = ask(&mut engine, Request::Limits { user: None }) else { panic!() };
        assert!(!row.behind, "after {parts} parts");
        engine.count_some();
        parts += 1;
    }
    let Response::Limits(row) = ask(&mut engine, Request::Limits { user: None }) else { panic!() };
    assert!(row.behind && parts == 2, "{parts} parts");
}

/// The answer to an administrator who asks for the limits of this account.
fn show(engine: &mut Engine, name: &str, named: Named) -> Response {
    engine.answer(&peer(), &Request::Limits { user: Some(name.to_owned()) }, Some(&named))
}

fn groups(names: &[&str]) -> Groups {
    Groups { names: names.iter().map(|name| (*name).to_owned()).collect(), since: Some(Instant::now()) }
}

#[test]
fn a_question_of_an_administrator_changes_no_limit_that_holds() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[limits.users.alice]\ngpus = 1\n";
    let mut engine = open_by(dir.path(), &Recorder::default(), Config::parse(text).unwrap());
    let alice = Peer { uid: 7001, gid: 7001, name: "alice".into(), groups: groups(&["lab"]), admin: false };
    engine.know_account(&alice);
    let most = |engine: &Engine| engine.core.state.allowance(UserId(7001)).gpus.map(|bound| bound.most);
    assert_eq!(most(&engine), Some(1));
    let account = Some((7001, "alias".to_owned(), Groups::default()));
    let Response::Limits(row) = show(&mut engine, "ALICE", Named { account, ..Named::default() }) else {
        panic!("no limits")
    };
    assert_eq!((row.user.as_str(), row.groups), ("alice", vec!["lab".to_owned()]), "as its jobs have it");
    assert_eq!(most(&engine), Some(1));
    assert!(matches!(show(&mut engine, "bob", Named::default()), Response::Refused(_)));
    let scope = "user:bob".to_owned();
    let set = Request::SetLimit { scope, name: "gpus".to_owned(), value: Some("1".to_owned()) };
    let unknown = Named { unknown: Some("user bob".to_owned()), ..Named::default() };
    assert!(matches!(engine.answer(&peer(), &set, Some(&unknown)), Response::Refused(_)));
    // Without a job of hers all of it is forgotten, and known again when she comes.
    engine.forget_accounts();
    assert_eq!(most(&engine), None);
    engine.know_account(&alice);
    assert_eq!(most(&engine), Some(1));
}

#[test]
fn limits_of_a_group_hold_after_a_restart_while_no_group_can_be_looked_up() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    // No account of this machine is named u, so a look-up finds none.
    let config = || Config::parse("[limits.groups.lab]\nrunning_jobs = 1\n").unwrap();
    let mut engine = open_by(dir.path(), &world, config());
    engine.know_account(&Peer { groups: groups(&["lab"]), ..peer() });
    let jobs = [5, 5].map(|gib| submit(&mut engine, gib));
    rounds(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(jobs[0], 1)], "one who asks without groups has those of before");
    drop(engine);
    let mut engine = open_by(dir.path(), &world, config());
    rounds(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(jobs[0], 1)]);
    assert!(engine.core.state.allowance(UserId(peer().uid)).running.is_some());
}

#[test]
fn quiet_hours_follow_the_wall_clock_and_not_the_schedulers() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    // The clock was set right while the daemon ran.
    world.0.borrow_mut().jump_ms = Some(12 * HOUR_MS);
    let mut engine = open(dir.path(), &world);
    engine.know_account(&peer());
    let (_, minute) = local_minute(engine.now.at).unwrap();
    let quiet = |engine: &mut Engine, later: u16| {
        let hour = |after: u16| (minute / 60 + later + after) % 24;
        let hours = format!("{:02}:00-{:02}:00", hour(0), hour(3));
        assert_eq!(set(engine, "quiet_hours", Some(&hours)), Response::Done);
        engine.core.state.allowance(UserId(peer().uid)).quiet.is_some()
    };
    assert!(!quiet(&mut engine, 0), "it is no such hour");
    assert!(quiet(&mut engine, 11));
}

#[test]
fn small_jobs_start_in_quiet_hours_as_soon_as_an_administrator_lets_them() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    assert_eq!(set(&mut engine, "quiet_hours", Some("00:00-24:00")), Response::Done);
    let jobs = [8, 5].map(|gib| submit(&mut engine, gib));
    rounds(&mut engine, &world);
    assert!(world.0.borrow().started.is_empty());
    assert_eq!(set(&mut engine, "quiet_memory", Some("6GiB")), Response::Done);
    rounds(&mut engine, &world);
    assert_eq!(world.0.borrow().started, [(jobs[1], 1)], "the larger one before it waits");
    let Response::Limits(row) = ask(&mut engine, Request::Limits { user: None }) else { panic!("no limits") };
    let shown = row.limits.iter().find(|limit| limit.name == "quiet_memory").unwrap();
    assert_eq!((shown.number, shown.from.as_deref()), (Some(6 << 30), Some("default")));
    assert_eq!(set(&mut engine, "quiet_hours", None), Response::Done);
    rounds(&mut engine, &world);
    assert!(world.0.borrow().started.contains(&(jobs[0], 1)));
}

#[test]
fn a_group_that_gets_limits_has_them_for_members_with_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open_by(dir.path(), &Recorder::default(), Config::default());
    // Groups were not looked up: none had limits.
    let member = Peer { uid: 0, gid: 0, name: "root".into(), groups: Groups::default(), admin: false };
    engine.know_account(&member);
    let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(0)).unwrap().unwrap().name;
    let most = |engine: &Engine| engine.core.state.allowance(UserId(0)).gpus.map(|bound| bound.most);
    let set = |engine: &mut Engine, value: Option<&str>| {
        let (scope, name) = (format!("group:{group}"), "gpus".to_owned());
        let request = Request::SetLimit { scope, name, value: value.map(str::to_owned) };
        assert_eq!(engine.answer(&peer(), &request, Some(&Named::default())), Response::Done);
        most(engine)
    };
    assert_eq!(set(&mut engine, Some("1")), Some(1));
    assert_eq!(set(&mut engine, None), None);
}

#[test]
fn a_remark_about_a_limit_names_the_section_that_decided() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[limits.default]\ndefault_time = \"4h\"\n[limits.groups.students]\nmax_time = \"1h\"\n";
    let mut engine = open_by(dir.path(), &Recorder::default(), Config::parse(text).unwrap());
    let remark = |engine: &mut Engine, names: &[&str]| {
        engine.know_account(&Peer { groups: groups(names), ..peer() });
        let mut spec = Spec::default();
        (engine.limit_time(peer().uid, &mut spec).unwrap_or_default(), spec.time_limit_ms)
    };
    let (text, ms) = remark(&mut engine, &["students"]);
    assert!(text.ends_with("(max_time, group students)") && ms == Some(HOUR_MS), "{text}");
    let (text, ms) = remark(&mut engine, &[]);
    assert!(text.ends_with("(default_time, default)") && ms == Some(4 * HOUR_MS), "{text}");
}

#[test]
fn the_reason_of_a_drain_is_shown_for_a_job_that_the_gpu_could_hold() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut config = Config { state: dir.path().to_owned(), keep_days: 0, cpus: 8, ..Config::default() };
    (config.scheduler.order.pace, config.scheduler.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    let mut engine = open_with(dir.path(), config, vec![gpu(0), gpu(1)], Box::new(world.clone()));
    let reason = Some("fan broken".to_owned());
    assert_eq!(ask(&mut engine, Request::Drain { gpu: "1".into(), drained: true, reason }), Response::Done);
    let alone = |engine: &mut Engine| {
        let command = vec!["program".to_owned()];
        let spec = Spec { command, cwd: "/".into(), gpus: 1, exclusive: true, ..Spec::default() };
        match ask(engine, Request::Submit(Box::new(spec))) {
            Response::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    };
    let jobs = [alone(&mut engine), alone(&mut engine)];
    rounds(&mut engine, &world);
    let why = |engine: &mut Engine| match ask(engine, Request::Show { job: jobs[1].into() }) {
        Response::Job(row, _) => row.why.into_raw(),
        other => panic!("{other:?}"),
    };
    let text = why(&mut engine);
    assert!(text.ends_with("; GPU 1 is drained: fan broken"), "{text}");
    assert_eq!(set(&mut engine, "allowed_gpus", Some("0")), Response::Done);
    rounds(&mut engine, &world);
    let text = why(&mut engine);
    assert!(!text.contains("drained"), "the user's jobs do not use it: {text}");
}
