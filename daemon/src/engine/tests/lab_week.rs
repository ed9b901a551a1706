//! A week of fifteen users, while administrators change every limit, reserve GPUs and the daemon is killed: the store and what runs
//! agree.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use nix::unistd::{Gid, Group, User};
use radrm_base::random::Rng;
use radrm_protocol::limits::{LimitsRow, ReserveRow, SetLimitRow};

use super::world::{Programs, World};
use super::*;
use crate::attempt::Attempt;
use crate::limited_groups::LimitedGroups;
use crate::status::End;
use crate::time::{LocalTime, Now};

const USERS: usize = 15;
const GPUS: u32 = 8;
const BEGIN: u64 = 1_700_000_000_000;
const STEP_MS: u64 = 1_200_000;
const HOUR_MS: u64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
const KILL_AFTER_MS: u64 = 400;

/// A node on which time passes when the test says so. Programs end by any signal.
pub(super) struct Timed {
    begun: Instant,
    first: u64,
    pub(super) now: u64,
}

impl Timed {
    pub(super) fn at(now: u64) -> Self {
        Self { begun: Instant::now(), first: now, now }
    }
}

impl Programs for Timed {
    fn now(&self) -> Now {
        Now { at: Millis(self.now), mono: self.begun + Duration::from_millis(self.now - self.first) }
    }

    fn signal(&mut self, _: Attempt, _: i32) -> bool {
        true
    }
}

/// Limits that were set, by section and name, as they were written.
type Model = BTreeMap<(String, &'static str), String>;

/// A reservation that was made.
struct Kept {
    users: BTreeSet<usize>,
    gpus: BTreeSet<u64>,
    from: u64,
    until: u64,
    lead: u64,
}

/// An attempt that was started.
struct Run {
    user: usize,
    gpus: u64,
    since: u64,
    length: u64,
}

struct Lab {
    dir: tempfile::TempDir,
    world: Recorder<Timed>,
    engine: Option<Engine>,
    rng: Rng,
    users: Vec<Peer>,
    model: Model,
    reservations: BTreeMap<u64, Kept>,
    last_reservation: u64,
    /// Of reservations alone: with them or without, users submit the same jobs.
    reserving: Rng,
    /// Starts on GPUs that are to be kept for others later.
    before: u64,
    /// User, GPUs, and the run time of jobs that were taken.
    jobs: BTreeMap<u64, (usize, u64, u64)>,
    running: BTreeMap<Attempt, Run>,
    /// Number of starts that were checked.
    checked: usize,
    starts: Vec<u64>,
    /// GPU time of each attempt: user, begin, end, GPUs.
    used: Vec<(usize, u64, u64, u64)>,
    refused: u64,
}

/// Accounts of this machine with one group each, but root.
fn accounts() -> Vec<Peer> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split(':').next());
    let users =
        names.filter_map(|name| User::from_name(name).ok().flatten()).filter(|user| !user.uid.is_root());
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let limited = LimitedGroups::default();
    limited.set_names(groups.lines().filter_map(|line| line.split(':').next()).map(str::to_owned).collect());
    let mut peers: Vec<Peer> = Vec::new();
    for user in users {
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        let groups = limited.of(&user.name, gid);
        if peers.len() < USERS && groups.names.len() == 1 && peers.iter().all(|peer| peer.uid != uid) {
            peers.push(Peer { uid, gid, name: user.name, groups, admin: false });
        }
    }
    peers
}

fn config(dir: &Path) -> Config {
    let mut config = Config {
        state: dir.to_owned(),
        keep_days: 0,
        cpus: 64,
        host_memory: 512 * GIB,
        poll_ms: 1 << 40,
        ..Config::default()
    };
    config.scheduler.eviction.kill_after = Millis(KILL_AFTER_MS);
    config
}

impl Lab {
    fn new(seed: u64, users: Vec<Peer>) -> Self {
        let programs = Timed::at(BEGIN);
        let mut lab = Self {
            dir: tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" })
                .unwrap(),
            world: Recorder(Rc::new(RefCell::new(World::of(programs)))),
            engine: None,
            rng: Rng::seeded(seed),
            starts: vec![0; users.len()],
            users,
            model: Model::new(),
            reservations: BTreeMap::new(),
            last_reservation: 0,
            reserving: Rng::seeded(seed + 1000),
            before: 0,
            jobs: BTreeMap::new(),
            running: BTreeMap::new(),
            checked: 0,
            used: Vec::new(),
            refused: 0,
        };
        // By the wall clock all of it is years ago: nothing is forgotten for that.
        lab.world.0.borrow_mut().jump_ms = None;
        lab.open();
        lab
    }

    fn open(&mut self) {
        let (dir, effects) = (self.dir.path(), Box::new(self.world.clone()));
        self.engine = Some(open_with(dir, config(dir), (0..GPUS).map(gpu).collect(), effects));
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }

    fn now(&self) -> u64 {
        self.world.0.borrow().programs.now
    }

    /// The value of a limit for a user by what was set: the user's own, the strictest of the groups, the default.
    fn stated(&self, user: usize, name: &'static str) -> Option<u64> {
        let of = |scope: String| self.model.get(&(scope, name)).cloned();
        let number = |text: String| match text.as_str() {
            "none" => u64::MAX,
            text => text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap(),
        };
        let peer = &self.users[user];
        let groups =
            peer.groups.names.iter().filter_map(|group| of(format!("group:{group}"))).map(number).min();
        let own = of(format!("user:{}", peer.name)).map(number);
        own.or(groups).or_else(|| of("default".to_owned()).map(number)).filter(|most| *most < u64::MAX)
    }

    /// Returns true if no job of a user may start.
    fn is_quiet(&self, user: usize) -> bool {
        let of = |scope: String| self.model.get(&(scope, "quiet_hours")).cloned();
        let peer = &self.users[user];
        let of_group = || peer.groups.names.iter().find_map(|group| of(format!("group:{group}")));
        let own = of(format!("user:{}", peer.name)).or_else(of_group).or_else(|| of("default".to_owned()));
        own.is_some_and(|text| text != "none")
    }

    fn held(&self, user: usize) -> (u64, u64) {
        let own = self.running.values().filter(|run| run.user == user);
        own.fold((0, 0), |(jobs, gpus), run| (jobs + 1, gpus + run.gpus))
    }

    /// Takes note of attempts that were started, and compares each with the limits of its user.
    fn check_starts(&mut self) {
        let started: Vec<Attempt> = self.world.0.borrow().started[self.checked..].to_vec();
        self.checked += started.len();
        for attempt in started {
            let (user, gpus, length) = self.jobs[&attempt.0];
            let run = Run { user, gpus, since: self.now(), length };
            self.running.insert(attempt, run);
            self.starts[user] += 1;
            let (jobs, all) = self.held(user);
            let entry = self.engine().jobs.entry(attempt.0).unwrap().clone();
            let who = format!("{}'s job {attempt:?}: {:?}", self.users[user].name, self.model);
            let most = |name| self.stated(user, name).unwrap_or(u64::MAX);
            assert!(gpus == 0 || all <= most("gpus"), "{all} GPUs of {who}");
            assert!(jobs <= most("running_jobs"), "{jobs} jobs of {who}");
            assert!(!self.is_quiet(user), "quiet hours of {who}");
            let hours = most("max_time");
            let time = entry.spec.time_limit_ms;
            assert!(hours == u64::MAX || time.is_some_and(|ms| ms <= hours * HOUR_MS), "{time:?} of {who}");
            let gib = most("memory");
            assert!(gpus == 0 || gib == u64::MAX || entry.limit.is_some_and(|of| of <= gib * GIB), "{who}");
            let only = self.stated(user, "allowed_gpus").map(|at| format!("GPU-{at}"));
            assert!(only.is_none_or(|only| entry.devices.iter().all(|uuid| *uuid == only)), "{who}");
            self.check_reservations(user, time, &entry.devices);
        }
    }

    /// On GPUs that are kept for others only what is gone before starts, and nothing while they are kept.
    fn check_reservations(&mut self, user: usize, time: Option<u64>, devices: &[String]) {
        let now = self.now();
        for of in self.reservations.values() {
            let has = |gpu: &u64| devices.contains(&format!("GPU-{gpu}"));
            if of.until <= now || of.users.contains(&user) || !of.gpus.iter().any(has) {
                continue;
            }
            let gone = match time {
                Some(limit) => now + limit + KILL_AFTER_MS <= of.from,
                None => now + of.lead <= of.from,
            };
            assert!(gone, "{time:?} on {devices:?} at {now}, from {} until {}", of.from, of.until);
            self.before += 1;
        }
    }

    /// An administrator reserves some GPUs for some users for a part of the next two days, or takes a reservation back.
    fn change_reservations(&mut self) {
        let now = self.now();
        if let Some(number) = self.reservations.keys().copied().find(|number| number % 3 == 0) {
            self.reservations.remove(&number);
            assert_eq!(self.ask(&peer(), &Request::Unreserve { number }), Response::Done);
            return;
        }
        let some = |rng: &mut Rng, of: u64, one_in: u64| {
            (0..of).filter(|_| rng.below(one_in) == 0).collect::<Vec<_>>()
        };
        let (count, first) = (self.users.len() as u64, self.reserving.below(self.users.len() as u64));
        let mut users = some(&mut self.reserving, count, 6);
        users.push(first);
        let mut gpus = some(&mut self.reserving, u64::from(GPUS), 3);
        gpus.push(self.reserving.below(u64::from(GPUS)));
        let minute = |ms: u64| LocalTime::of(ms);
        let from = minute(now + HOUR_MS * self.reserving.below(24));
        let until = minute(now + HOUR_MS * (24 + self.reserving.below(24)));
        let lead = HOUR_MS * self.reserving.below(8);
        let row = ReserveRow {
            users: users.iter().map(|user| self.users[*user as usize].name.clone()).collect(),
            gpus: gpus.iter().map(u64::to_string).collect(),
            from: Some(from.to_string()),
            until: until.to_string(),
            lead_ms: Some(lead),
            evict: self.reserving.below(2) == 0,
            ..ReserveRow::default()
        };
        let kept = Kept {
            users: users.into_iter().map(|user| user as usize).collect(),
            gpus: gpus.into_iter().collect(),
            from: from.epoch_ms().unwrap(),
            until: until.epoch_ms().unwrap(),
            lead,
        };
        // The engine starts jobs by it before it answers.
        let next = self.last_reservation + 1;
        self.last_reservation = next;
        self.reservations.insert(next, kept);
        match self.ask(&peer(), &Request::Reserve(Box::new(row))) {
            Response::Reserved { number, .. } => assert_eq!(number, next),
            other => panic!("{other:?}"),
        }
    }

    /// A round with these messages, at any point of which the daemon may be killed.
    fn batch(&mut self, messages: Vec<Message>) {
        let mut engine = self.engine.take().unwrap();
        let done = catch_unwind(AssertUnwindSafe(|| {
            let (_to, from) = channel();
            engine.batch(messages, &mut Inbox::new(&from));
        }));
        match done {
            Ok(()) => self.engine = Some(engine),
            Err(panic) if panic.is::<Crash>() => {
                drop(engine);
                self.world.0.borrow_mut().crash_at = None;
                // Their ends are reported to no daemon.
                self.note_ended();
                self.open();
            }
            Err(panic) => resume_unwind(panic),
        }
        self.check_starts();
    }

    fn ask(&mut self, peer: &Peer, request: &Request) -> Response {
        let mut replies = Vec::new();
        let (reply, answer) = channel();
        let engine = self.engine();
        engine.question(Message::Asked(peer.clone(), request.clone(), reply), &mut replies);
        engine.finish_batch(replies);
        let response = answer.recv().unwrap();
        self.check_starts();
        response
    }

    fn submit(&mut self, user: usize) {
        let gpus = [0, 1, 1, 1, 2, 3][self.rng.below(6) as usize];
        let length = HOUR_MS / 3 * (1 + self.rng.below(12));
        let spec = Spec {
            command: vec!["program".to_owned()],
            cwd: "/".into(),
            gpus,
            mem: (gpus > 0).then(|| (1 + self.rng.below(30)) * GIB),
            exclusive: gpus > 0 && self.rng.below(2) == 0,
            time_limit_ms: (self.rng.below(3) > 0).then_some(length + HOUR_MS),
            ..Spec::default()
        };
        let (reply, answer) = channel();
        let peer = self.users[user].clone();
        let (_to, from) = channel();
        self.engine().batch(
            vec![Message::Asked(peer, Request::Submit(Box::new(spec)), reply)],
            &mut Inbox::new(&from),
        );
        match answer.recv().unwrap() {
            Response::Submitted { job, .. } => _ = self.jobs.insert(job, (user, u64::from(gpus), length)),
            Response::Refused(why) => {
                assert!(why.contains("rejected by a limit of its user"), "{why}");
                self.refused += 1;
            }
            other => panic!("{other:?}"),
        }
        self.check_starts();
    }

    fn set(&mut self, scope: String, name: &'static str, value: Option<String>) {
        let was = self.model.contains_key(&(scope.clone(), name));
        let is_refused = value.is_none() && !was;
        match &value {
            Some(value) => self.model.insert((scope.clone(), name), value.clone()),
            None => self.model.remove(&(scope.clone(), name)),
        };
        let request = Request::SetLimit { scope, name: name.to_owned(), value };
        let response = self.ask(&peer(), &request);
        match is_refused {
            true => assert!(matches!(response, Response::Refused(_)), "nothing is set there: {response:?}"),
            false => assert_eq!(response, Response::Done),
        }
    }

    fn change_a_limit(&mut self) {
        let user = self.rng.below(self.users.len() as u64) as usize;
        let scope = match self.rng.below(8) {
            0 => "default".to_owned(),
            1 => {
                let group = Group::from_gid(Gid::from_raw(self.users[user].gid)).ok().flatten();
                group.map_or("default".to_owned(), |group| format!("group:{}", group.name))
            }
            _ => format!("user:{}", self.users[user].name),
        };
        let number = self.rng.below(4);
        let (name, value) = match self.rng.below(8) {
            0 => ("gpus", number.to_string()),
            1 => ("running_jobs", number.to_string()),
            2 => ("default_time", format!("{}h", 1 + number)),
            3 => ("max_time", format!("{}h", 1 + 2 * number)),
            4 => ("memory", format!("{}GiB", 8 * (1 + number))),
            5 => ("allowed_gpus", number.to_string()),
            6 => ("gpu_hours", (5 * number).to_string()),
            _ => ("quiet_hours", "00:00-24:00".to_owned()),
        };
        let value = match self.rng.below(4) {
            0 => Some("none".to_owned()),
            1 | 2 => None,
            _ => Some(value),
        };
        self.set(scope, name, value);
    }

    /// Time passes: programs begin and end.
    fn pass(&mut self) {
        for (attempt, run) in &self.running {
            self.world.0.borrow_mut().begin(*attempt, run.since);
        }
        self.world.0.borrow_mut().programs.now += STEP_MS;
        let now = self.now();
        let over = |(attempt, run): (&Attempt, &Run)| (now >= run.since + run.length).then_some(*attempt);
        for attempt in self.running.iter().filter_map(over).collect::<Vec<_>>() {
            self.world.0.borrow_mut().end(attempt, End { code: Some(0), at_ms: now, ..End::default() });
        }
        self.take_ended();
        self.batch(vec![Message::Polled(Poll::begin())]);
        // Those that were stopped.
        self.take_ended();
    }

    fn note_ended(&mut self) -> Vec<Attempt> {
        let ended = std::mem::take(&mut self.world.0.borrow_mut().ended);
        for attempt in &ended {
            if let Some(run) = self.running.remove(attempt) {
                self.used.push((run.user, run.since, self.now(), run.gpus));
            }
        }
        ended
    }

    fn take_ended(&mut self) {
        let ended = self.note_ended();
        self.batch(ended.into_iter().map(Message::SupervisorEnded).collect());
    }

    fn rows(&mut self) -> Vec<SetLimitRow> {
        match self.ask(&peer(), &Request::SetLimits) {
            Response::SetLimits(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    fn limits(&mut self, user: usize) -> LimitsRow {
        let peer = self.users[user].clone();
        match self.ask(&peer, &Request::Limits { user: None }) {
            Response::Limits(row) => *row,
            other => panic!("{other:?}"),
        }
    }

    /// Compares limits that were set, and use of them, by the daemon and by the model.
    fn compare(&mut self) {
        let rows: Model = self
            .rows()
            .into_iter()
            .map(|row| {
                let names = self.model.keys().map(|(_, name)| *name);
                ((row.scope, names.clone().find(|name| *name == row.name).unwrap_or("")), row.value)
            })
            .collect();
        assert_eq!(rows, self.model, "what was set");
        let now = self.now();
        let kept = match self.ask(&peer(), &Request::Reservations) {
            Response::Reservations(rows) => rows,
            other => panic!("{other:?}"),
        };
        let kept: BTreeMap<u64, (u64, u64)> =
            kept.into_iter().filter_map(|row| Some((row.number?, (row.from_ms, row.until_ms)))).collect();
        let model = self.reservations.iter().filter(|(_, of)| of.until > now);
        let model: BTreeMap<u64, (u64, u64)> =
            model.map(|(number, of)| (*number, (of.from, of.until))).collect();
        assert_eq!(kept, model, "what was reserved");
        for user in 0..self.users.len() {
            let (jobs, gpus) = self.held(user);
            let row = self.limits(user);
            let used = |name: &str| row.limits.iter().find(|limit| limit.name == name).unwrap().used;
            assert_eq!((used("running_jobs"), used("gpus")), (Some(jobs as f64), Some(gpus as f64)));
            if self.stated(user, "gpu_hours").is_some() {
                let (now, since) = (self.now(), self.now().saturating_sub(WEEK_MS));
                let run = self.running.values().map(|run| (run.user, run.since, now, run.gpus));
                let all = self.used.iter().copied().chain(run).filter(|of| of.0 == user);
                let hours = |(_, from, to, gpus): (usize, u64, u64, u64)| {
                    to.saturating_sub(from.max(since)) as f64 * gpus as f64 / HOUR_MS as f64
                };
                let (mine, theirs) = (all.map(hours).sum::<f64>(), used("gpu_hours").unwrap());
                assert!((mine - theirs).abs() < 0.05 * mine + 2.0, "{mine} and {theirs} GPU-hours");
            }
        }
    }

    /// The daemon ends without notice, and comes back.
    fn begin_anew(&mut self) {
        let state = |engine: &Engine| {
            let jobs: Vec<u64> = engine.jobs.entries().values().map(|entry| entry.id).collect();
            (jobs, engine.core.state.queue())
        };
        let (jobs, mut order) = state(self.engine());
        self.engine = None;
        self.open();
        self.check_starts();
        let (jobs_after, order_after) = state(self.engine());
        assert_eq!(jobs_after, jobs, "jobs that the next daemon knows");
        // It may have started the first ones already. How users' jobs come after each other depends on shares that are rounded.
        order.retain(|job| order_after.contains(job));
        for user in 0..self.users.len() {
            let own = |order: &[JobId]| -> Vec<u64> {
                order.iter().map(|job| job.0).filter(|job| self.jobs[job].0 == user).collect()
            };
            assert_eq!(own(&order_after), own(&order), "the order of a user's jobs");
        }
        self.compare();
    }
}

#[test]
fn in_a_week_of_changes_and_kills_no_limit_is_exceeded_and_the_store_agrees() {
    let users = accounts();
    if !rustix::process::geteuid().is_root() || users.len() < 5 {
        eprintln!("skipped: only root takes jobs of other users, and there are {} of them", users.len());
        return;
    }
    for seed in 1..=2 {
        let mut lab = Lab::new(seed, users.clone());
        for step in 0..WEEK_MS / STEP_MS {
            for user in 0..lab.users.len() {
                if lab.rng.below(15) == 0 {
                    lab.submit(user);
                }
            }
            if lab.rng.below(2) == 0 {
                lab.change_a_limit();
            }
            if lab.reserving.below(20) == 0 {
                lab.change_reservations();
            }
            match lab.rng.below(60) {
                0 => lab.begin_anew(),
                1 => {
                    let mut world = lab.world.0.borrow_mut();
                    world.crash_at = Some(world.points + 1 + step as usize % 7);
                }
                _ => {}
            }
            lab.pass();
            lab.world.0.borrow_mut().crash_at = None;
        }
        lab.compare();
        assert!(
            lab.starts.iter().all(|starts| *starts > 0),
            "each user had a job that ran: {:?}",
            lab.starts
        );
        assert!(lab.refused > 10, "{}", lab.refused);
        assert!(lab.before > 10, "{} jobs ran before a reservation", lab.before);
        for (scope, name) in lab.model.keys().cloned().collect::<Vec<_>>() {
            lab.set(scope, name, None);
        }
        for (name, value) in [("gpus", "3"), ("running_jobs", "2"), ("gpu_hours", "10")] {
            lab.set("default".to_owned(), name, Some(value.to_owned()));
        }
        for _ in 0..60 * 24 * HOUR_MS / STEP_MS {
            if lab.engine().jobs.entries().is_empty() {
                break;
            }
            lab.pass();
        }
        let left = lab.engine().jobs.entries().len();
        assert_eq!(left, 0, "jobs that wait though their limits let them start");
    }
}
