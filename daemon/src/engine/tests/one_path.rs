//! The same submissions through the daemon's code and through the replay: every need and every decision is equal.
//!
//! Both have a node of their own that runs jobs alike: a job is there when it is started, runs as long as it runs alone,
//! and ends at once where its peak is over its limit or over what is free. A job that can be suspended leaves its GPUs, and
//! comes back, at the replay's rate; launch budgets are those of declared shares.
//!
//! Not compared is what a replay does not model: budgets by observed load or observed speeds (a replay without a monitor
//! observes neither), suspensions that fail, lost and drained GPUs, cancelled and held jobs, reloads of the configuration,
//! daemons that are killed, and unmanaged processes. `docs/replay-model.md` lists the same.

mod submissions;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use radrm_protocol::after::After;
use radrm_scheduler_core::replay::events::Entry as Logged;
use radrm_scheduler_core::replay::{Cluster, Knowledge, Model, Options, Source, TraceJob, replay};
use radrm_scheduler_core::{Action, Activity, Bytes, Decision, Dependency, Event, Node, NodeId};
use radrm_telemetry::{Segment, SegmentFile, Writer};
use serde_json::Value;

use self::submissions::{spec, submissions};
use super::world::{Programs, World};
use super::*;
use crate::attempt::Attempt;
use crate::error::DaemonError;
use crate::gpus::Sample;
use crate::status::End;
use crate::supervisor::Order;
use crate::suspend::{self, Answer};
use crate::time::Now;

const GPUS: u32 = 4;
const CPUS: u32 = 16;
const HOST: u64 = 256 * GIB;
/// Bytes a second of a suspension, as a replay has it.
const SUSPEND_RATE: u64 = 5_000_000_000;
/// Earliest time of the first job, ms since 1970.
const BEGIN: u64 = 1_700_000_000_000;

/// An attempt that was started, and whose program is not there yet.
struct Start {
    attempt: Attempt,
    /// Of the job in the trace.
    index: usize,
    devices: Vec<String>,
    limit: u64,
}

/// An attempt that runs.
struct Run {
    devices: Vec<String>,
    bytes: u64,
    /// The how-manieth start or signal it is: of those that end at once the first ends first.
    number: u64,
    end: End,
    until: u64,
    /// A helper is at it, or it is off its GPUs.
    transit: Option<Transit>,
}

/// Between running and suspended, with what is left to run, ms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transit {
    Suspending { left: u64 },
    Suspended { left: u64 },
    Resuming { left: u64 },
}

impl Run {
    fn is_on(&self, uuid: &String) -> bool {
        !matches!(self.transit, Some(Transit::Suspended { .. })) && self.devices.contains(uuid)
    }
}

/// The segment of all jobs that can be suspended: that of a process that called nothing that rules it out.
struct Quiet {
    file: SegmentFile,
    _writer: Writer,
    _folder: tempfile::TempDir,
}

impl Quiet {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&folder.path().join("segments"), 1).unwrap();
        let path = std::ffi::CString::new(file.path().as_os_str().as_encoded_bytes()).unwrap();
        let writer = Writer::join(&path).unwrap();
        writer.driver_version(13_000);
        Self { file, _writer: writer, _folder: folder }
    }
}

/// A node on which time passes when the test says so.
struct Machine {
    trace: Vec<TraceJob>,
    begun: Instant,
    now: u64,
    count: u64,
    /// In the order in which they were started.
    starts: VecDeque<Start>,
    runs: BTreeMap<Attempt, Run>,
    /// Time left to run of jobs that wrote a checkpoint, ms.
    kept: BTreeMap<u64, u64>,
    /// Places in the trace of the attempts that were started.
    indices: BTreeMap<Attempt, usize>,
    quiet: Quiet,
}

impl Programs for Machine {
    fn now(&self) -> Now {
        Now { at: Millis(self.now), mono: self.begun + Duration::from_millis(self.now - BEGIN) }
    }

    fn start(&mut self, attempt: Attempt, order: &Order) {
        let value = |name: &str| {
            let mut lines = order.environment.iter();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap().to_owned()
        };
        let own = order.argv.iter().position(|word| word == "--only-gpus").unwrap();
        let devices =
            order.argv[own + 1].split(',').filter(|uuid| *uuid != "none").map(String::from).collect();
        let limit = order.argv.iter().position(|word| word == "--mem-limit");
        let limit = limit.map_or(u64::MAX, |at| order.argv[at + 1].trim_end_matches('B').parse().unwrap());
        let index = value("INDEX").parse().unwrap();
        self.indices.insert(attempt, index);
        self.starts.push_back(Start { attempt, index, devices, limit });
    }

    fn segment(&self, attempt: Attempt) -> Option<Segment> {
        let job = &self.trace[self.indices[&attempt]];
        job.preemption.suspend.is_ok().then(|| self.quiet.file.segment().unwrap())
    }

    fn start_helper(&mut self, attempt: Attempt, order: &suspend::Order) -> Result<(), DaemonError> {
        self.count += 1;
        let run = self.runs.get_mut(&attempt).unwrap();
        run.transit = Some(match (order.task, run.transit) {
            (suspend::Task::Suspend, None) => {
                Transit::Suspending { left: run.until.saturating_sub(self.now) }
            }
            (suspend::Task::Resume, Some(Transit::Suspended { left })) => Transit::Resuming { left },
            other => panic!("{attempt:?}: {:?}", other.0),
        });
        run.until = self.now + run.bytes * 1000 / SUSPEND_RATE;
        run.number = self.count;
        Ok(())
    }

    /// A program writes its checkpoint and goes on; by any other signal it ends a second later.
    fn signal(&mut self, attempt: Attempt, number: i32) -> bool {
        let Some(run) = self.runs.get_mut(&attempt) else { return false };
        let killed = self.now + 1000;
        if number == libc::SIGUSR1 {
            self.kept.insert(attempt.0, (run.until - self.now).max(1));
        } else if run.until > killed {
            self.count += 1;
            let end = End { signal: Some(libc::SIGTERM), ..End::default() };
            (run.until, run.number, run.end) = (killed, self.count, end);
        }
        false
    }
}

impl World<Machine> {
    /// The next program of those that were started begins, or ends at once for want of memory.
    fn begin_next(&mut self) -> Option<Vec<Message>> {
        let Machine { trace, now, count, starts, runs, kept, .. } = &mut self.programs;
        let Start { attempt, index, devices, limit } = starts.pop_front()?;
        let used =
            |uuid: &String| -> u64 { runs.values().filter(|run| run.is_on(uuid)).map(|run| run.bytes).sum() };
        let room = devices.iter().map(|uuid| (40 * GIB).saturating_sub(used(uuid))).min().unwrap_or(u64::MAX);
        let (bytes, now) = (trace[index].peak.0, *now);
        let left = kept.remove(&attempt.0).unwrap_or(trace[index].duration.0);
        if bytes > room.min(limit) {
            self.end(attempt, End { code: Some(1), oom: Some(bytes), at_ms: now, ..End::default() });
            return Some(self.take_ended());
        }
        *count += 1;
        let end = End { code: Some(0), peak: (!devices.is_empty()).then_some(bytes), ..End::default() };
        runs.insert(attempt, Run { devices, bytes, number: *count, end, until: now + left, transit: None });
        self.begin(attempt, now);
        Some(Vec::new())
    }

    /// Takes an attempt to its next change now: it ends, is suspended, or is back.
    fn pass(&mut self) -> Vec<Message> {
        let Machine { now, count, runs, .. } = &mut self.programs;
        let due = runs.iter_mut().filter(|(_, run)| run.until <= *now);
        let Some((attempt, run)) = due.min_by_key(|(_, run)| run.number) else { return Vec::new() };
        let attempt = *attempt;
        let answer = match run.transit {
            None => {
                let end = End { at_ms: *now, ..run.end.clone() };
                runs.remove(&attempt);
                self.end(attempt, end);
                return self.take_ended();
            }
            Some(Transit::Suspending { left }) => {
                (run.transit, run.until) = (Some(Transit::Suspended { left }), u64::MAX);
                let bytes = run.devices.iter().map(|uuid| (uuid.clone(), run.bytes)).collect();
                Answer::Suspended { processes: Vec::new(), bytes }
            }
            Some(Transit::Resuming { left }) => {
                *count += 1;
                (run.transit, run.until, run.number) = (None, *now + left, *count);
                Answer::Resumed
            }
            Some(Transit::Suspended { .. }) => panic!("{attempt:?} has no time"),
        };
        vec![Message::Suspension(attempt, Some(answer))]
    }

    fn take_ended(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.ended).into_iter().map(Message::SupervisorEnded).collect()
    }
}

fn settings() -> radrm_scheduler_core::Settings {
    // Jobs of which nothing is known slow no other, in the prediction and in the replay's node.
    let mut settings = radrm_scheduler_core::Settings { assumed: Activity::default(), ..Default::default() };
    settings.eviction.migrate = false;
    settings.sharing = Some(SharingMode::Mps);
    // SIGKILL comes while the program still ends by SIGTERM.
    settings.eviction.kill_after = Millis(400);
    settings
}

/// The daemon's way: the log of its events, each job's number, and why a job was rejected.
fn by_daemon(trace: &[TraceJob]) -> (Vec<Logged>, BTreeMap<u64, u64>, BTreeMap<u64, String>) {
    let dir = tempfile::tempdir().unwrap();
    let programs = Machine {
        trace: trace.to_vec(),
        begun: Instant::now(),
        now: BEGIN,
        count: 0,
        starts: VecDeque::new(),
        runs: BTreeMap::new(),
        kept: BTreeMap::new(),
        indices: BTreeMap::new(),
        quiet: Quiet::new(),
    };
    let world = Recorder(Rc::new(RefCell::new(World::of(programs))));
    let config = Config {
        state: dir.path().to_owned(),
        events: dir.path().join("events"),
        keep_days: 0,
        cpus: CPUS,
        host_memory: HOST,
        poll_ms: 1 << 40,
        scheduler: settings(),
        ..Config::default()
    };
    let mut engine = open_with(dir.path(), config, (0..GPUS).map(gpu).collect(), Box::new(world.clone()));
    let (mut numbers, mut rejected) = (BTreeMap::new(), BTreeMap::new());
    let mut next = 0;
    loop {
        let arrival = trace.get(next).map(|job| job.arrival.0);
        let runs = |world: &World<Machine>| world.programs.runs.values().map(|run| run.until).min();
        let end = runs(&world.0.borrow()).filter(|until| *until < u64::MAX);
        let Some(happens) = arrival.into_iter().chain(end).min() else { break };
        let now = engine.core.wake.map_or(happens, |wake| happens.min(wake.0));
        world.0.borrow_mut().programs.now = now;
        let mut messages = world.0.borrow_mut().pass();
        if messages.is_empty()
            && let Some(job) = trace.get(next).filter(|job| job.arrival.0 == now)
        {
            let (reply, answer) = channel();
            let peer = Peer {
                uid: job.user.0,
                gid: job.user.0,
                name: "u".into(),
                groups: Groups::default(),
                admin: true,
            };
            let mut spec = spec(next, job);
            spec.after = job.after.iter().map(|after| named(after, &numbers)).collect();
            messages.push(Message::Asked(peer, Request::Submit(Box::new(spec)), reply));
            batch(&mut engine, messages);
            match answer.recv().unwrap() {
                Response::Submitted { job, .. } => _ = numbers.insert(job, next as u64),
                Response::Refused(why) | Response::Later(why) => _ = rejected.insert(next as u64, why),
                other => panic!("{other:?}"),
            }
            next += 1;
        } else {
            batch(&mut engine, messages);
        }
        loop {
            let Some(messages) = world.0.borrow_mut().begin_next() else { break };
            batch(&mut engine, messages);
            // A poll of the GPUs shows which jobs can be suspended. Its figures are of no GPU that jobs have.
            let sample = Sample { uuid: "GPU-9".into(), ..Sample::default() };
            let poll = Poll { samples: vec![sample], ..Poll::begin() };
            batch(&mut engine, vec![Message::Polled(poll)]);
        }
    }
    drop(engine);
    let text = std::fs::read_to_string(dir.path().join("events")).unwrap();
    let log = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (log, numbers, rejected)
}

/// A dependency by the daemon's number of the job.
fn named(after: &Dependency, numbers: &BTreeMap<u64, u64>) -> After {
    let (job, _) = numbers.iter().find(|(_, index)| **index == after.first.0).unwrap();
    After { condition: after.condition, job: (*job).into(), jobs: None }
}

fn batch(engine: &mut Engine, messages: Vec<Message>) {
    let (_to, from) = channel();
    engine.batch(messages, &mut Inbox::new(&from));
}

fn by_replay(trace: &[TraceJob]) -> Vec<Logged> {
    let mut cluster = Cluster::uniform(GPUS, "G", Bytes(40 * GIB));
    cluster.nodes = vec![Node {
        id: NodeId(0),
        cpu_milli: u64::from(CPUS) * 1000,
        memory: Bytes(HOST),
        memory_bandwidth: None,
    }];
    let unknown = Activity::default();
    let model = Model { mps: Model::MPS.scaled(0.0), unknown, ..Model::default().plain() };
    let (source, knowledge) = (Source::Combined, Knowledge::Learned);
    let options =
        Options { settings: settings(), model, source, knowledge, steps: true, ..Options::default() };
    replay(trace, &cluster, &options, &mut ()).steps
}

/// With a daemon's numbers as indices of the trace.
fn renumbered(value: &mut Value, number: &impl Fn(u64) -> u64) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_u64().filter(|_| ["job", "ahead", "id"].contains(&key.as_str())) {
                    Some(job) => *value = number(job).into(),
                    None => renumbered(value, number),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| renumbered(value, number)),
        _ => {}
    }
}

/// By the time, ms.
type Timed = Vec<(u64, Value)>;

/// Known needs of jobs, and decisions, each with its time, both in order.
fn compared(log: &[Logged], number: impl Fn(u64) -> u64) -> (Timed, Timed) {
    let (mut needs, mut decided) = (Vec::new(), Vec::new());
    for entry in log {
        let Logged::Step { at, event, decisions } = entry else { continue };
        let known = match event {
            Event::Submitted { job } => serde_json::json!([job.id, job.need, job.activity, job.expected]),
            Event::NeedKnown { .. } | Event::ProfileKnown { .. } => serde_json::to_value(event).unwrap(),
            _ => Value::Null,
        };
        let first = |mut known: Value| {
            if let Some(list) = known.as_array_mut() {
                list[0] = number(list[0].as_u64().unwrap()).into();
            }
            renumbered(&mut known, &number);
            known
        };
        needs.extend((!known.is_null()).then(|| (at.0, first(known))));
        let is_compared = |decision: &&Decision| !matches!(decision.action, Action::WakeAt { .. });
        for decision in decisions.iter().filter(is_compared) {
            let mut value = serde_json::to_value(decision).unwrap();
            renumbered(&mut value, &number);
            decided.push((at.0, value));
        }
    }
    (needs, decided)
}

#[test]
fn daemon_and_replay_resolve_and_decide_alike() {
    let own = rustix::process::geteuid();
    let trace = submissions(own.as_raw(), if own.is_root() { 3 } else { 1 });
    let (log, numbers, rejected) = by_daemon(&trace);
    let (needs, decided) = compared(&log, |job| numbers[&job]);
    let (mut needs_there, mut decided_there) = compared(&by_replay(&trace), |job| job);
    // What the replay ends at its submission the daemon rejects.
    let is_end = |decision: &Value| decision["action"]["action"] == "end";
    let ends: BTreeMap<u64, String> = decided_there
        .iter()
        .filter(|(_, decision)| is_end(decision))
        .map(|(_, decision)| (decision["action"]["job"].as_u64().unwrap(), decision.to_string()))
        .collect();
    for (job, why) in &rejected {
        let (words, verdict) = match why.contains("did not succeed") {
            true => ("would never start", "dependency_failed"),
            false => ("the job can never run here", "impossible"),
        };
        assert!(why.contains(words), "{why}");
        assert!(ends[job].contains(verdict), "job {job} is rejected by the daemon alone: {why}");
    }
    let is_rejected = |job: &Value| job.as_u64().is_some_and(|job| rejected.contains_key(&job));
    needs_there.retain(|(_, known)| !is_rejected(&known[0]));
    decided_there.retain(|(_, decision)| !is_rejected(&decision["action"]["job"]));
    // The first difference in time is the cause of all others.
    let pairs = needs.iter().zip(&needs_there).chain(decided.iter().zip(&decided_there));
    let first = pairs.filter(|(here, there)| here != there).min_by_key(|(here, there)| here.0.min(there.0));
    assert_eq!(first, None, "daemon, replay");
    assert_eq!((needs.len(), decided.len()), (needs_there.len(), decided_there.len()));
    // The test is about something.
    let count =
        |word: &str| decided.iter().filter(|(_, decision)| decision.to_string().contains(word)).count();
    let mut found = vec![("rejected", rejected.len()), ("learned", needs.len() - numbers.len())];
    let common = ["requeue", "backfilled", "ran_out", "set_budget"];
    found.extend(common.map(|word| (word, count(word))));
    assert!(found.iter().all(|(_, count)| *count >= 20), "{found:?}");
    let rare = [
        "more_important",
        "checkpoint",
        "terminate",
        "kill",
        "grace_over",
        "timed_out",
        "dependency_failed",
        "ready",
        "\"suspend\"",
        "\"resume\"",
    ]
    .map(|word| (word, count(word)));
    assert!(rare.iter().all(|(_, count)| *count > 0), "{rare:?}");
    assert_eq!(count("\"end\""), numbers.len(), "all jobs end");
}
