//! The same submissions through the daemon's code and through the replay: every need and every decision is equal.
//!
//! Both have a node of their own that runs jobs alike: a job is there when it is started, runs as long as it runs alone,
//! and ends at once where its peak is over its limit or over what is free.

use std::cell::Cell;
use std::time::Duration;

use radrm_scheduler_core::need::DryRun;
use radrm_scheduler_core::replay::events::Entry as Logged;
use radrm_scheduler_core::replay::{Cluster, Model, Options, Source, TraceJob, replay};
use radrm_scheduler_core::{Action, Activity, Bytes, Constants, HostNeed, Node, NodeId, Permille, UserId};
use serde_json::Value;

use super::*;

const JOBS: u64 = 1000;
const GPUS: u32 = 4;
const CPUS: u32 = 16;
const HOST: u64 = 256 * GIB;
/// When the first job may come, ms since 1970.
const BEGIN: u64 = 1_700_000_000_000;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Runs of 40 programs of three users: declared, estimated, learned and unknown needs, dry runs, gangs, shares,
/// priorities, GPU models that are not there, more GPUs and more host memory than there is.
fn submissions(first_user: u32, users: u32) -> Vec<TraceJob> {
    let mut rng = Rng(12);
    let mut arrival = BEGIN;
    let job = |_| {
        arrival += 1 + rng.below(40_000);
        let program = rng.below(40);
        let peak = Bytes((1 + program) * GIB - rng.below(GIB / 4));
        let about = |rng: &mut Rng| Bytes(peak.0 / 100 * (70 + rng.below(80)));
        let duration = Millis(1000 + rng.below(200_000));
        let gpus = [1, 1, 1, 1, 1, 2, 3, 5, 0][usize::try_from(rng.below(9)).unwrap()];
        TraceJob {
            gpus,
            peak,
            declared: (rng.one_in(4) && gpus > 0).then(|| about(&mut rng)),
            dry_run: rng.one_in(3).then(|| DryRun { held: about(&mut rng), steps: 3, gpu: "G".into() }),
            estimates: rng.one_in(5).then(|| ("horus".to_owned(), about(&mut rng))).into_iter().collect(),
            model: rng.one_in(8).then(|| if rng.one_in(3) { "H" } else { "G" }.to_owned()),
            share: (rng.one_in(10) && gpus > 0).then(|| Permille(100 + 100 * rng.below(4) as u32)),
            host: HostNeed { cpu_milli: 1000 * rng.below(5), memory: Bytes(rng.below(12).pow(2) * 3 * GIB) },
            user: UserId(first_user + rng.below(users.into()) as u32),
            priority: i32::try_from(rng.below(5)).unwrap() - 2,
            time_limit: rng.one_in(3).then(|| Millis(duration.0 * 3)),
            ..TraceJob::new(format!("p{program}"), Millis(arrival), duration)
        }
    };
    (0..JOBS).map(job).collect()
}

/// What a job is to the daemon.
fn spec(index: usize, job: &TraceJob) -> Spec {
    Spec {
        command: vec![job.name.clone()],
        environment: vec![format!("INDEX={index}")],
        cwd: "/".into(),
        gpus: job.gpus,
        mem: job.declared.map(|bytes| bytes.0),
        dry_run: job.dry_run.clone(),
        file_estimates: job.estimates.clone(),
        model: job.model.clone(),
        share: job.share.map(|share| share.0),
        cpu_milli: job.host.cpu_milli,
        host_memory: job.host.memory.0,
        priority: job.priority,
        time_limit_ms: job.time_limit.map(|time| time.0),
        ..Spec::default()
    }
}

/// An attempt that runs.
struct Run {
    devices: Vec<String>,
    bytes: u64,
    /// The how-manieth start it is: of those that end at once the first ends first.
    number: u64,
    end: End,
    until: u64,
}

/// A node on which time passes when the test says so.
struct Machine {
    trace: Vec<TraceJob>,
    begun: Instant,
    now: Cell<u64>,
    attempts: BTreeMap<Attempt, status::Look>,
    starts: u64,
    runs: BTreeMap<Attempt, Run>,
}

#[derive(Clone)]
struct Shared(Rc<RefCell<Machine>>);

impl Machine {
    fn start(&mut self, attempt: Attempt, order: &Order) -> ProcessIdentity {
        let value = |name: &str| {
            let mut lines = order.environment.iter();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap().to_owned()
        };
        let job = &self.trace[value("INDEX").parse::<usize>().unwrap()];
        let visible = value("CUDA_VISIBLE_DEVICES");
        let devices: Vec<String> =
            visible.split(',').filter(|uuid| !uuid.is_empty()).map(String::from).collect();
        let limit = order.argv.iter().position(|word| word == "--mem-limit");
        let limit = limit.map_or(u64::MAX, |at| order.argv[at + 1].trim_end_matches('B').parse().unwrap());
        let used = |uuid: &String| -> u64 {
            self.runs.values().filter(|run| run.devices.contains(uuid)).map(|run| run.bytes).sum()
        };
        let room = devices.iter().map(|uuid| (40 * GIB).saturating_sub(used(uuid))).min().unwrap_or(u64::MAX);
        let (peak, now) = (job.peak.0, self.now.get());
        self.starts += 1;
        let number = self.starts;
        let run = match peak > room.min(limit) {
            true => {
                let end = End { code: Some(1), oom: Some(peak), at_ms: now, ..End::default() };
                Run { devices, bytes: 0, number, end, until: now }
            }
            false => {
                let until = now + job.duration.0;
                let seen = (!devices.is_empty()).then_some(peak);
                let end = End { code: Some(0), peak: seen, at_ms: until, ..End::default() };
                Run { devices, bytes: peak, number, end, until }
            }
        };
        self.runs.insert(attempt, run);
        let who = |of| World::who(attempt, of);
        let (supervisor, program) = (Some(who(0)), Some(who(1)));
        let status = Status { supervisor, program, began_ms: now, end: None };
        self.attempts.insert(attempt, status::Look { kept: true, status });
        who(0)
    }

    /// Attempts that end now.
    fn ended(&mut self) -> Vec<Message> {
        let due = self.runs.iter().filter(|(_, run)| run.until <= self.now.get());
        let mut due: Vec<(u64, Attempt)> = due.map(|(attempt, run)| (run.number, *attempt)).collect();
        due.sort_unstable();
        let end = |attempt| {
            let run = self.runs.remove(&attempt)?;
            let look = self.attempts.get_mut(&attempt)?;
            (look.kept, look.status.end) = (false, Some(run.end));
            Some(Message::SupervisorEnded(attempt))
        };
        due.into_iter().map(|(_, attempt)| attempt).filter_map(end).collect()
    }
}

impl Effects for Shared {
    fn now(&self) -> Now {
        let machine = self.0.borrow();
        let at = machine.now.get();
        Now { at: Millis(at), mono: machine.begun + Duration::from_millis(at - BEGIN) }
    }
    fn start(
        &mut self,
        attempt: Attempt,
        _: Owner,
        order: &Order,
    ) -> Result<Option<ProcessIdentity>, DaemonError> {
        Ok(Some(self.0.borrow_mut().start(attempt, order)))
    }
    fn launcher(&self) -> Result<String, DaemonError> {
        Ok("radrm-run".to_owned())
    }
    fn watch(&mut self, _: Attempt, _: ProcessIdentity) {}
    fn reap(&mut self, _: Attempt) {}
    fn status(&mut self, attempt: Attempt) -> std::io::Result<Option<status::Look>> {
        Ok(self.0.borrow().attempts.get(&attempt).cloned())
    }
    fn lives(&self, _: ProcessIdentity) -> bool {
        true
    }
    fn signal_group(&mut self, _: ProcessIdentity, _: i32) {}
    fn kill_below(&mut self, _: ProcessIdentity, _: Option<ProcessIdentity>) {}
    fn kill_again(&mut self, _: ProcessIdentity, _: bool) {}
    fn sweep(&mut self, _: Attempt, _: Option<u32>, _: &Status) -> BTreeSet<u32> {
        BTreeSet::new()
    }
    fn start_helper(&mut self, _: Attempt, _: suspend::Order) -> Result<(), DaemonError> {
        Err(DaemonError::JobGone)
    }
    fn start_epilog(&mut self, _: Attempt, _: &Call) -> Result<(), DaemonError> {
        Err(DaemonError::JobGone)
    }
    fn limit_host(&mut self, _: Attempt, _: HostNeed) -> Result<Option<Group>, DaemonError> {
        Ok(None)
    }
    fn host_limits(&self) -> HostLimits {
        HostLimits::default()
    }
    fn clear(&mut self, attempt: Attempt) {
        self.0.borrow_mut().attempts.remove(&attempt);
    }
    fn clean(&mut self, _: Vec<u64>, _: u64) -> bool {
        false
    }
    fn segment(&self, _: ProcessIdentity) -> Option<Segment> {
        None
    }
    fn processes(&self) -> host::Look {
        host::Look::now()
    }
}

fn settings() -> radrm_scheduler_core::Settings {
    // Jobs of which nothing is known slow no other, in the prediction and in the replay's node.
    let mut settings = radrm_scheduler_core::Settings { assumed: Activity::default(), ..Default::default() };
    settings.eviction.migrate = false;
    settings
}

/// The daemon's way: the log of its events, each job's number, and why a job was rejected.
fn by_daemon(trace: &[TraceJob]) -> (Vec<Logged>, BTreeMap<u64, u64>, BTreeMap<u64, String>) {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine {
        trace: trace.to_vec(),
        begun: Instant::now(),
        now: Cell::new(BEGIN),
        attempts: BTreeMap::new(),
        starts: 0,
        runs: BTreeMap::new(),
    };
    let shared = Shared(Rc::new(RefCell::new(machine)));
    let config = Config {
        state: dir.path().to_owned(),
        events: dir.path().join("events"),
        keep_days: 0,
        cpus: CPUS,
        host_memory: HOST,
        look_ms: 1 << 40,
        scheduler: settings(),
        ..Config::default()
    };
    let gpu = |at: u32| Gpu {
        index: Some(at),
        uuid: format!("GPU-{at}"),
        bytes: [at as u8; 16],
        name: "G".into(),
        total: 40 * GIB,
        divided: false,
    };
    let mut engine = open_with(dir.path(), config, (0..GPUS).map(gpu).collect(), Box::new(shared.clone()));
    let (mut numbers, mut rejected) = (BTreeMap::new(), BTreeMap::new());
    let mut next = 0;
    loop {
        let arrival = trace.get(next).map(|job| job.arrival.0);
        let end = shared.0.borrow().runs.values().map(|run| run.until).min();
        let Some(now) = arrival.into_iter().chain(end).min() else { break };
        shared.0.borrow().now.set(now);
        let mut messages = shared.0.borrow_mut().ended();
        if messages.is_empty()
            && let Some(job) = trace.get(next)
        {
            let (reply, answer) = channel();
            let peer = Peer { uid: job.user.0, gid: job.user.0, name: "u".into(), admin: true };
            messages.push(Message::Asked(peer, Request::Submit(Box::new(spec(next, job))), reply));
            batch(&mut engine, messages);
            match answer.recv().unwrap() {
                Response::Submitted { job, .. } => _ = numbers.insert(job, next as u64),
                Response::Refused(why) => _ = rejected.insert(next as u64, why),
                other => panic!("{other:?}"),
            }
            next += 1;
        } else {
            batch(&mut engine, messages);
        }
        // What was started is there, or has ended already.
        loop {
            let ended = shared.0.borrow_mut().ended();
            let done = ended.is_empty() && engine.jobs.live.values().all(|live| live.told);
            batch(&mut engine, ended);
            if done {
                break;
            }
        }
    }
    drop(engine);
    let text = std::fs::read_to_string(dir.path().join("events")).unwrap();
    let log = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (log, numbers, rejected)
}

fn batch(engine: &mut Engine, messages: Vec<Message>) {
    let (_to, from) = channel();
    engine.batch(messages, &mut Inbox::new(&from));
}

fn by_replay(trace: &[TraceJob]) -> Vec<Logged> {
    let mut cluster = Cluster::uniform(GPUS, "G", Bytes(40 * GIB));
    cluster.nodes = vec![Node { id: NodeId(0), cpu_milli: u64::from(CPUS) * 1000, memory: Bytes(HOST) }];
    let model = Model { mps: Constants::MPS.scaled(0.0), ..Model::default().plain() };
    let options =
        Options { settings: settings(), model, source: Source::Submitted, steps: true, ..Options::default() };
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

/// What was known of jobs when, and what was decided when, both in order.
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
    // What the replay rejects at submission the daemon answered with the same words.
    let ends: BTreeMap<u64, String> = decided_there
        .iter()
        .filter(|(_, decision)| decision["action"]["verdict"]["verdict"] == "impossible")
        .map(|(_, decision)| (decision["action"]["job"].as_u64().unwrap(), decision["reason"].to_string()))
        .collect();
    for (job, why) in &rejected {
        assert!(why.starts_with("the job can never run here"), "{why}");
        assert!(ends.contains_key(job), "job {job} is rejected by the daemon alone: {why}");
    }
    let is_rejected = |job: &Value| job.as_u64().is_some_and(|job| rejected.contains_key(&job));
    needs_there.retain(|(_, known)| !is_rejected(&known[0]));
    decided_there.retain(|(_, decision)| !is_rejected(&decision["action"]["job"]));
    for (here, there) in needs.iter().zip(&needs_there).chain(decided.iter().zip(&decided_there)) {
        assert_eq!(here, there, "daemon, replay");
    }
    assert_eq!((needs.len(), decided.len()), (needs_there.len(), decided_there.len()));
    // The test is about something.
    let count =
        |word: &str| decided.iter().filter(|(_, decision)| decision.to_string().contains(word)).count();
    let found = [
        rejected.len(),
        needs.len() - numbers.len(),
        count("requeue"),
        count("backfilled"),
        count("ran_out"),
    ];
    assert!(found.iter().all(|count| *count >= 20), "{found:?}");
    assert_eq!(count("\"end\""), numbers.len(), "all jobs end");
}
