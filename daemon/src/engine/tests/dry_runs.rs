//! Dry runs in the background, decided by an engine whose helpers are the test.

use std::time::Duration;

use radrm_need::{DryRun, StepPrediction};
use radrm_protocol::after::After;
use radrm_scheduler_core::{Bytes, Condition, Need, Needs, Permille};

use super::world::{Idle, Programs};
use super::*;
use crate::attempt::Attempt;
use crate::dry_run::settings::DryRuns;
use crate::dry_run::{Answer, Bounds, NodeLoad, Order, Outcome as Came};
use crate::store::Entry;
use crate::time::Now;

/// Time that stands unless a test moves it.
struct Clock(Now);

impl Programs for Clock {
    fn now(&self) -> Now {
        self.0
    }

    fn signal(&mut self, attempt: Attempt, number: i32) -> bool {
        Idle.signal(attempt, number)
    }
}

/// A dry run that held so much.
fn held(bytes: u64) -> Came {
    Came::Held { bytes, kind: None, step: None }
}

struct Node {
    _dir: tempfile::TempDir,
    world: Recorder<Clock>,
    engine: Engine,
}

impl Node {
    fn new(settings: DryRuns) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Recorder(std::rc::Rc::new(std::cell::RefCell::new(world::World::of(Clock(Now::read())))));
        let engine = Self::open(&world, dir.path(), settings);
        Self { _dir: dir, world, engine }
    }

    fn open(world: &Recorder<Clock>, dir: &Path, settings: DryRuns) -> Engine {
        let mut config =
            Config { state: dir.to_owned(), keep_days: 0, cpus: 8, dry_run: settings, ..Config::default() };
        (config.scheduler.order.pace, config.scheduler.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
        let gpu = Gpu { name: "NVIDIA H200".into(), ..gpu(0) };
        open_with(dir, config, vec![gpu], Box::new(world.clone()))
    }

    fn submit(&mut self, change: impl FnOnce(&mut Spec)) -> u64 {
        let command = ["python3", "train.py"].map(str::to_owned).to_vec();
        let mut spec = Spec { command, cwd: "/".into(), gpus: 1, ..Spec::default() };
        change(&mut spec);
        match ask(&mut self.engine, Request::Submit(Box::new(spec))) {
            Response::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    }

    fn batch(&mut self, message: Message) {
        let (_to, from) = channel();
        self.engine.batch(vec![message], &mut Inbox::new(&from));
    }

    fn after(&mut self, seconds: u64) {
        let mut world = self.world.0.borrow_mut();
        let Now { at, mono } = world.programs.0;
        world.programs.0 =
            Now { at: Millis(at.0 + seconds * 1000), mono: mono + Duration::from_secs(seconds) };
        drop(world);
        self.batch(Message::Polled(Poll::begin()));
    }

    fn answer(&mut self, job: u64, outcome: Option<Came>) {
        let digest = Some("d".to_owned());
        self.batch(Message::DryRunEnded(job, Answer { digest, outcome, ..Answer::default() }));
    }

    fn set_load(&self, percent: u32) {
        self.world.0.borrow_mut().load = NodeLoad { percent, free: u64::MAX };
    }

    fn order(&self, at: usize) -> Order {
        self.world.0.borrow().dry_runs[at].1.clone()
    }

    /// A job that takes the whole GPU, so that others wait.
    fn occupy(&mut self) -> u64 {
        let job = self.submit(|spec| spec.mem = Some(40 * GIB));
        assert_eq!(self.started().last(), Some(&job));
        job
    }

    fn begun(&self) -> Vec<u64> {
        self.world.0.borrow().dry_runs.iter().map(|(job, _)| *job).collect()
    }

    fn started(&self) -> Vec<u64> {
        self.world.0.borrow().started.iter().map(|(job, _)| *job).collect()
    }

    fn why(&mut self, job: u64) -> String {
        match ask(&mut self.engine, Request::Show { job: job.into() }) {
            Response::Job(row, lines) => format!("{} | {:?} | {lines:?}", row.why, row.need_from),
            other => panic!("{other:?}"),
        }
    }
}

fn on() -> DryRuns {
    DryRuns { on: true, ..DryRuns::default() }
}

#[test]
fn a_job_without_a_need_is_dry_run_and_placed_by_that() {
    let mut node = Node::new(on());
    let job = node.submit(|_| {});
    assert_eq!((node.begun(), node.started()), (vec![job], vec![]));
    let why = node.why(job);
    assert!(why.starts_with("its need is not known; a dry run in the background comes first"), "{why}");
    let order = node.world.0.borrow().dry_runs[0].1.clone();
    let words = ["--dry-run", "--no-dataset", "--no-profile", "1xH200"];
    assert!(words.iter().all(|word| order.launcher.contains(&(*word).to_owned())), "{order:?}");
    assert!(order.environment.contains(&"RADRM_ATTEMPT=0".to_owned()), "{order:?}");
    node.answer(job, Some(held(3 * GIB)));
    assert_eq!(node.started(), [job]);
    let why = node.why(job);
    assert!(why.contains("dry run of 3 steps in the background on an emulated NVIDIA H200"), "{why}");
    let reserved = node.engine.core.state.job(JobId(job)).unwrap().reserved.unwrap();
    assert!((3 * GIB..8 * GIB).contains(&reserved.0), "{reserved}");
}

/// A step of 100 ms (80 to 125) that fills half of the multiprocessors.
fn step() -> StepPrediction {
    let time = [80_000_000, 100_000_000, 125_000_000];
    StepPrediction {
        gpu: time,
        host: Some(1_000_000),
        low: time[0],
        time: Some(time),
        confidence: Some(Permille(900)),
        smact: Permille(500),
        drama: Permille(200),
        runs: 0,
    }
}

#[test]
fn a_job_that_never_ran_has_the_time_and_activity_of_its_dry_run() {
    let mut node = Node::new(on());
    let job = node.submit(|spec| spec.total_steps = Some(36_000));
    node.answer(job, Some(Came::Held { bytes: 3 * GIB, kind: None, step: Some(step()) }));
    let known = node.engine.core.state.job(JobId(job)).unwrap().job;
    assert_eq!(known.activity, None, "no GPU has shown it");
    assert_eq!(known.predicted.map(|activity| activity.smact), Some(Permille(500)));
    let times = (known.expected, known.at_least);
    assert_eq!(times, (Some(Millis::from_secs(3600)), Some(Millis::from_secs(2880))));
}

#[test]
fn a_step_that_was_predicted_for_another_gpu_says_nothing() {
    let mut node = Node::new(on());
    let job = node.submit(|spec| {
        spec.dry_run = Some(DryRun {
            held: Bytes(GIB),
            gpu: "NVIDIA L4".into(),
            step: Some(Box::new(step())),
            ..DryRun::default()
        });
    });
    assert_eq!(node.engine.core.state.job(JobId(job)).unwrap().job.predicted, None);
}

#[test]
fn a_stated_step_makes_no_job_lighter_than_one_of_which_nothing_is_known() {
    let mut node = Node::new(on());
    let mut stated = |smact: u32, drama: u32| {
        let step = StepPrediction { smact: Permille(smact), drama: Permille(drama), ..step() };
        let job = node.submit(|spec| {
            spec.total_steps = Some(36_000);
            spec.dry_run = Some(DryRun {
                held: Bytes(GIB),
                gpu: "NVIDIA H200".into(),
                step: Some(Box::new(step)),
                // A client may write this, and did not make it so.
                background: true,
                ..DryRun::default()
            });
        });
        let entry = node.engine.jobs.entry(job).unwrap();
        assert!(!entry.spec.dry_run.as_ref().unwrap().background);
        let known = node.engine.core.state.job(JobId(job)).unwrap().job;
        assert!(known.expected.is_some(), "its time is stated like one by --time");
        known.predicted.map(|activity| (activity.smact.0, activity.drama.0))
    };
    assert_eq!(stated(0, 0), None);
    assert_eq!(stated(1000, 0), None, "no part of it is less");
    assert_eq!(stated(1000, 900), Some((1000, 900)));
}

#[test]
fn jobs_that_are_known_or_refused_or_no_python_are_not_dry_run() {
    let mut node = Node::new(on());
    let jobs = [
        node.submit(|spec| spec.mem = Some(GIB)),
        node.submit(|spec| spec.no_dry_run = true),
        node.submit(|spec| spec.command = vec!["./train".into()]),
        node.submit(|spec| spec.gpus = 0),
        node.submit(|spec| spec.held = true),
    ];
    assert_eq!(node.begun(), [0_u64; 0], "{jobs:?}");
    let mut off = Node::new(DryRuns::default());
    let job = off.submit(|_| {});
    assert_eq!((off.begun(), off.started()), (vec![], vec![job]), "the administrator does not allow it");
}

#[test]
fn each_reason_not_to_dry_run_a_job_counts_by_itself() {
    let mut node = Node::new(on());
    let entry = Entry {
        spec: Spec { command: ["python3", "a.py"].map(str::to_owned).to_vec(), gpus: 1, ..Spec::default() },
        ..Entry::default()
    };
    assert!(node.engine.is_for_dry_run(&entry));
    type Change = fn(&mut Entry);
    let changes: [(&str, Change); 7] = [
        ("it needs no GPU", |entry| entry.spec.gpus = 0),
        ("its need is known", |entry| {
            entry.needs = Some(Needs { memory: Some(Need::declared(Bytes(GIB))), ..Needs::default() });
        }),
        ("its user refuses", |entry| entry.spec.no_dry_run = true),
        ("it was dry-run", |entry| entry.spec.dry_run = Some(DryRun::default())),
        ("it is cancelled", |entry| entry.cancelled = true),
        ("it has run", |entry| entry.attempt = 1),
        ("it is no Python program", |entry| entry.spec.command = vec!["./a".into()]),
    ];
    for (why, change) in changes {
        let mut other = entry.clone();
        change(&mut other);
        assert!(!node.engine.is_for_dry_run(&other), "{why}");
    }
    node.engine.config.dry_run.on = false;
    assert!(!node.engine.is_for_dry_run(&entry), "the administrator does not allow it");
}

#[test]
fn bounds_are_the_settings_and_the_environment_is_not_that_of_a_job() {
    let settings = DryRuns { limit_s: 7, memory_mib: 300, cpus: 3, processes: 99, steps: 5, ..on() };
    let mut node = Node::new(settings);
    let lines = "A=1 CUDA_VISIBLE_DEVICES=3 RADRM_SEGMENT=/x RADRM_QUOTA=1 RADRM_ATTEMPT=4 RADRM_JOB=77";
    node.submit(|spec| {
        spec.environment = lines.split(' ').map(str::to_owned).collect();
        spec.umask = 0o27;
    });
    let order = node.order(0);
    let bounds = Bounds { limit_s: 7, memory: 300 << 20, cpus: 3, processes: 99 };
    assert_eq!((order.bounds, order.umask), (bounds, 0o27));
    let of = |name: &str| order.environment.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!(["A=", "CUDA_", "RADRM_SEGMENT", "RADRM_QUOTA", "RADRM_ATTEMPT="].map(of), [1, 0, 0, 0, 1]);
    for mark in ["RADRM_ATTEMPT=0", "RADRM_JOB=1"] {
        assert!(order.environment.contains(&mark.to_owned()), "{order:?}");
    }
    assert_eq!(of("RADRM_JOB="), 1, "that of the submitting job is gone: {order:?}");
    let steps = order.launcher.iter().position(|word| word == "--steps").unwrap();
    assert_eq!(order.launcher[steps + 1], "5");
    let of_host = node.world.0.borrow().limited.iter().find(|(attempt, _)| *attempt == (1, 0)).unwrap().1;
    assert_eq!(
        (of_host.cpu_milli, of_host.memory),
        (3000, Bytes(300 << 20)),
        "a control group, where there is one"
    );
    assert_eq!(order.user.is_some(), rustix::process::geteuid().is_root(), "as the user, where it can");
}

#[test]
fn what_was_made_for_a_dry_run_goes_with_it_also_where_it_cannot_begin() {
    let mut node = Node::new(on());
    let cleared = |node: &Node, job: u64| node.world.0.borrow().cleared.contains(&(job, 0));
    let first = node.submit(|_| {});
    assert!(!cleared(&node, first));
    node.answer(first, Some(held(GIB)));
    assert!(cleared(&node, first));
    node.world.0.borrow_mut().refuses_dry_runs = true;
    let second = node.submit(|spec| spec.command.push("2".into()));
    assert!(cleared(&node, second));
    assert!(node.why(second).contains("shows no need: "), "{}", node.why(second));
}

#[test]
fn what_keeps_a_dry_run_from_beginning_is_no_reason_of_one_under_way() {
    let mut node = Node::new(DryRuns { wait_s: 10, ..on() });
    node.occupy();
    let jobs = [node.submit(|_| {}), node.submit(|spec| spec.command.push("2".into()))];
    node.after(10);
    let why = jobs.map(|job| node.why(job));
    assert!(why[0].contains("has not come to an end within 10 s: it is placed without"), "{}", why[0]);
    assert!(why[1].contains("has not begun within 10 s (others are before it): it is placed"), "{}", why[1]);
}

#[test]
fn dry_runs_end_when_the_administrator_forbids_them() {
    let mut node = Node::new(on());
    let jobs = [node.submit(|_| {}), node.submit(|spec| spec.command.push("2".into()))];
    assert_eq!(node.begun(), jobs[..1]);
    node.engine.config.dry_run.on = false;
    node.after(1);
    assert!(node.world.0.borrow().ended_dry_runs.contains(&jobs[0]));
    node.answer(jobs[0], None);
    node.after(1);
    assert_eq!((node.begun(), node.started()), (jobs[..1].to_vec(), jobs[..1].to_vec()));
    assert!(!node.why(jobs[1]).contains("a dry run in the background comes first"));
}

#[test]
fn a_job_whose_need_becomes_known_waits_for_no_dry_run() {
    let mut node = Node::new(on());
    let first = node.submit(|_| {});
    let second = node.submit(|spec| spec.command.push("2".into()));
    let needs = Needs { memory: Some(Need::declared(Bytes(GIB))), ..Needs::default() };
    node.engine.learn(second, needs);
    node.after(1);
    assert_eq!(node.started(), [second]);
    node.answer(first, Some(held(GIB)));
    node.after(1);
    assert_eq!((node.begun(), node.started()), (vec![first], vec![second, first]));
}

#[test]
fn a_job_that_waits_for_another_is_dry_run_when_that_has_ended() {
    let mut node = Node::new(on());
    let first = node.occupy();
    let after = node.submit(|spec| {
        spec.after = vec![After { condition: Condition::Any, job: first.into(), jobs: None }];
    });
    node.after(300);
    assert_eq!(node.begun(), [0_u64; 0], "what it reads may not be there");
    assert!(!node.why(after).contains("it is placed without"), "its patience begins later");
}

#[test]
fn so_many_jobs_in_the_queue_wait_for_room_and_new_ones_come_before_them() {
    let mut node = Node::new(DryRuns { wait_s: 10, at_once: 1000, ..on() });
    node.occupy();
    node.set_load(81);
    let submit = |node: &mut Node, at: u64| node.submit(|spec| spec.command.push(at.to_string()));
    let late: Vec<u64> = (0..70).map(|at| submit(&mut node, at)).collect();
    node.after(10);
    assert!(late.iter().all(|job| node.why(*job).contains("has not begun within 10 s")));
    let new = submit(&mut node, 100);
    node.set_load(0);
    node.after(1);
    let begun = node.begun();
    assert_eq!(begun[0], new, "a new one comes first");
    assert_eq!(begun[1..], late[..64], "the rest may have its GPU before");
    // Their patience is over once, and said once.
    node.after(60);
    assert_eq!(node.why(late[0]).matches("it is placed without").count(), 1);
}

#[test]
fn a_result_counts_for_jobs_of_the_same_batch_model_and_program_only() {
    let mut node = Node::new(on());
    node.occupy();
    let jobs = [
        node.submit(|_| {}),
        node.submit(|spec| spec.batch = Some(8)),
        node.submit(|spec| spec.model = Some("NVIDIA H200".into())),
        node.submit(|spec| spec.command.push("--other".into())),
        node.submit(|_| {}),
    ];
    let of_another = {
        let Entry { mut spec, .. } = node.engine.jobs.entry(jobs[0]).unwrap().clone();
        spec.environment = Vec::new();
        let peer =
            Peer { uid: peer().uid + 1, gid: 1, name: "v".into(), groups: Groups::default(), admin: false };
        let (reply, answer) = channel();
        node.batch(Message::Asked(peer, Request::Submit(Box::new(spec)), reply));
        match answer.recv().unwrap() {
            Response::Submitted { job, .. } => job,
            other => panic!("{other:?}"),
        }
    };
    for at in 0..4 {
        assert_eq!(node.begun(), jobs[..=at]);
        node.answer(jobs[at], Some(held(GIB)));
    }
    assert_eq!(node.begun(), [&jobs[..4], &[of_another]].concat(), "the last is as the first");
    assert!(node.why(jobs[4]).contains("in the background"));
}

#[test]
fn a_known_failure_counts_for_a_day_however_often_it_is_found() {
    let mut node = Node::new(on());
    let failed = Some(Came::Failed("it ended with exit code 3".into()));
    let first = node.submit(|_| {});
    node.answer(first, failed.clone());
    node.after(23 * 3600);
    let second = node.submit(|_| {});
    assert_eq!(node.order(1).known.len(), 1);
    let again = Answer { digest: Some("d".into()), outcome: failed, again: true, ..Answer::default() };
    node.batch(Message::DryRunEnded(second, again));
    assert!(node.why(second).contains("as the last time, it ended with exit code 3"));
    node.after(2 * 3600);
    node.submit(|_| {});
    assert_eq!(node.order(2).known, [], "what it lacked may be there");
}

#[test]
fn a_program_that_dry_runs_are_not_for_says_so_and_is_placed() {
    let mut node = Node::new(on());
    let job = node.submit(|_| {});
    let why = Some(Came::Failed("neither PyTorch nor JAX is imported by it".into()));
    node.batch(Message::DryRunEnded(job, Answer { outcome: why, unfit: true, ..Answer::default() }));
    assert_eq!(node.started(), [job]);
    let said = node.why(job);
    assert!(said.contains("no dry run in the background: neither PyTorch"), "{said}");
    assert!(!said.contains("shows no need"), "nothing ran: {said}");
}

#[test]
fn a_failure_is_said_once_and_holds_no_job() {
    let mut node = Node::new(on());
    let job = node.submit(|_| {});
    node.answer(job, Some(Came::Failed("it ended with exit code 3".into())));
    assert_eq!(node.started(), [job], "it has a GPU of its own");
    let why = node.why(job);
    assert_eq!(why.matches("shows no need: it ended with exit code 3").count(), 1, "{why}");
    node.after(3600);
    assert_eq!(node.begun(), [job], "it is not made again");
    let again = node.submit(|_| {});
    let order = node.world.0.borrow().dry_runs[1].1.clone();
    assert_eq!(order.known, [("d".to_owned(), Came::Failed("it ended with exit code 3".into()))], "{again}");
}

#[test]
fn a_job_waits_no_longer_than_the_setting_and_its_program_never_runs_twice() {
    let mut node = Node::new(DryRuns { wait_s: 10, ..on() });
    let job = node.submit(|_| {});
    node.after(9);
    assert_eq!(node.started(), [0_u64; 0]);
    node.after(1);
    assert_eq!(node.started(), [0_u64; 0], "its dry run has to be gone first");
    assert!(node.world.0.borrow().ended_dry_runs.contains(&job));
    node.answer(job, None);
    assert_eq!(node.started(), [job]);
    let why = node.why(job);
    assert!(why.contains("has not come to an end within 10 s: it is placed without"), "{why}");
}

#[test]
fn a_result_that_comes_when_its_job_starts_changes_nothing_of_the_job() {
    for came in [held(GIB), Came::Failed("it ended with exit code 3".into())] {
        let mut node = Node::new(DryRuns { wait_s: 10, ..on() });
        let job = node.submit(|_| {});
        node.after(10);
        assert_eq!((node.begun(), node.started()), (vec![job], vec![]), "it starts behind its dry run");
        node.answer(job, Some(came.clone()));
        assert_eq!(node.started(), [job]);
        let spec = &node.engine.jobs.entry(job).unwrap().spec;
        assert_eq!(spec.dry_run, None, "it was placed by another need");
        let need = &node.engine.core.state.job(JobId(job)).unwrap().job.need;
        assert_eq!(*need, None, "it has the whole GPU");
        let why = node.why(job);
        assert!(!why.contains("in the background, in") && !why.contains("shows no need"), "{why}");
        // The next one profits.
        node.submit(|_| {});
        assert_eq!(node.order(1).known, [("d".to_owned(), came)]);
    }
}

#[test]
fn a_job_that_started_without_its_dry_run_gets_none_beside_it() {
    let mut node = Node::new(DryRuns { wait_s: 10, ..on() });
    node.set_load(81);
    let job = node.submit(|_| {});
    node.after(10);
    assert_eq!((node.begun(), node.started()), (vec![], vec![job]));
    node.set_load(0);
    node.after(1);
    assert_eq!(node.begun(), [0_u64; 0], "its program would run twice at the same time");
}

#[test]
fn no_dry_run_begins_on_a_loaded_node_and_the_reason_is_said() {
    let mut node = Node::new(on());
    node.world.0.borrow_mut().load = NodeLoad { percent: 81, free: u64::MAX };
    let job = node.submit(|_| {});
    node.after(1);
    assert_eq!(node.begun(), [0_u64; 0]);
    node.world.0.borrow_mut().load = NodeLoad { percent: 0, free: 1 };
    node.after(1);
    assert_eq!(node.begun(), [0_u64; 0], "no host memory");
    node.after(120);
    let why = node.why(job);
    assert!(
        why.contains("has not begun within 120 s (") && why.contains("are needed): it is placed"),
        "{why}"
    );
    assert_eq!(node.started(), [job]);
}

#[test]
fn as_many_as_allowed_run_at_once_and_equal_jobs_share_one() {
    let mut node = Node::new(DryRuns { at_once: 2, ..on() });
    let jobs: Vec<u64> = (0..4)
        .map(|at| {
            node.submit(|spec| spec.command.push(if at == 3 { "0" } else { ["0", "1", "2"][at] }.to_owned()))
        })
        .collect();
    assert_eq!(node.begun(), jobs[..2]);
    node.answer(jobs[0], Some(held(GIB)));
    assert_eq!(node.begun(), jobs[..3], "the last is the same program as the first");
    let why = node.why(jobs[3]);
    assert!(why.contains("in the background"), "{why}");
}

#[test]
fn a_cancelled_or_held_job_has_its_dry_run_ended_and_one_that_is_released_gets_another() {
    let mut node = Node::new(on());
    let job = node.submit(|_| {});
    ask(&mut node.engine, Request::Hold { jobs: vec![job.into()], held: true });
    node.after(1);
    assert_eq!(node.world.0.borrow().ended_dry_runs, [job]);
    node.answer(job, None);
    node.after(1);
    assert_eq!((node.begun(), node.started()), (vec![job], vec![]));
    ask(&mut node.engine, Request::Hold { jobs: vec![job.into()], held: false });
    node.after(1);
    assert_eq!(node.begun(), [job, job]);
    ask(&mut node.engine, Request::Cancel { jobs: vec![job.into()] });
    node.after(1);
    assert_eq!(node.world.0.borrow().ended_dry_runs.len(), 2);
    node.answer(job, None);
    assert_eq!(node.started(), [0_u64; 0]);
}

#[test]
fn a_daemon_that_comes_back_knows_the_result_and_begins_what_was_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder(std::rc::Rc::new(std::cell::RefCell::new(world::World::of(Clock(Now::read())))));
    let engine = Node::open(&world, dir.path(), on());
    let mut node = Node { _dir: tempfile::tempdir().unwrap(), world, engine };
    let first = node.submit(|spec| spec.exclusive = true);
    node.answer(first, Some(held(GIB)));
    assert_eq!(node.started(), [first]);
    let second = node.submit(|spec| spec.command.push("2".into()));
    node.answer(second, Some(held(2 * GIB)));
    let third = node.submit(|spec| spec.command.push("3".into()));
    assert_eq!(node.begun(), [first, second, third]);
    let Node { world, engine, .. } = node;
    drop(engine);
    let engine = Node::open(&world, dir.path(), on());
    let mut node = Node { _dir: dir, world, engine };
    node.after(1);
    assert_eq!(node.begun(), [first, second, third, third], "the result of the second is on disk");
    assert!(node.why(second).contains("in the background"));
}
