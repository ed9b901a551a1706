//! Requests that cancel, hold or release many jobs, done piece by piece.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use radrm_protocol::job_ref::JobRef;
use radrm_scheduler_core::Event;
use radrm_scheduler_core::replay::events::Entry;

use super::*;
use crate::events::Log;

/// A node on which a round has time for one job.
struct Node {
    dir: tempfile::TempDir,
    world: Recorder,
    engine: Engine,
}

fn spec() -> Spec {
    let command = vec!["program".to_owned()];
    Spec { command, cwd: "/".into(), gpus: 1, mem: Some(30 * GIB), ..Spec::default() }
}

fn submitted(engine: &mut Engine, spec: Spec) -> u64 {
    match ask(engine, Request::Submit(Box::new(spec))) {
        Response::Submitted { job, .. } => job,
        other => panic!("{other:?}"),
    }
}

impl Node {
    fn new() -> Self {
        let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
        let engine = open(dir.path(), &world);
        world.0.borrow_mut().stint = Some(Duration::ZERO);
        Self { dir, world, engine }
    }

    /// A node with an array of so many jobs, and the array's number.
    fn with_array(jobs: u64, held: bool) -> (Self, u64) {
        let mut node = Self::new();
        let first = node.array(jobs, held);
        (node, first)
    }

    fn array(&mut self, jobs: u64, held: bool) -> u64 {
        let array = Some(format!("0-{}", jobs - 1).parse().unwrap());
        submitted(&mut self.engine, Spec { held, array, ..spec() })
    }

    /// A job takes most of the GPU, so that others wait.
    fn occupy(&mut self) -> u64 {
        let job = submitted(&mut self.engine, spec());
        self.begin();
        job
    }

    /// Programs of jobs that were started are there.
    fn begin(&mut self) {
        self.round(Vec::new());
        self.world.0.borrow_mut().advance(|_| None);
        self.round(Vec::new());
    }

    /// Programs that are there end.
    fn end(&mut self) {
        self.world.0.borrow_mut().advance(|_| Some(0));
        self.round(Vec::new());
    }

    fn started(&self) -> Vec<u64> {
        self.world.0.borrow().started.iter().map(|(job, _)| *job).collect()
    }

    /// A round with these requests, and with what has ended since the last one; gives the answers' ends.
    fn round(&mut self, requests: Vec<(Peer, Request)>) -> Vec<Receiver<Response>> {
        let (to, from) = channel();
        let mut inbox = Inbox::new(&from);
        let answers = requests.into_iter().map(|(peer, request)| {
            let (reply, answer) = channel();
            to.send(Message::Asked(peer, request, reply)).unwrap();
            answer
        });
        let answers = answers.collect();
        let ended = std::mem::take(&mut self.world.0.borrow_mut().ended);
        let mut first: Vec<Message> = ended.into_iter().map(Message::SupervisorEnded).collect();
        first.extend(inbox.wait(Duration::ZERO).unwrap());
        self.engine.batch(first, &mut inbox);
        while inbox.has_questions() {
            self.engine.batch(Vec::new(), &mut inbox);
        }
        answers
    }

    /// Asks, and does nothing but the first piece.
    fn ask(&mut self, request: Request) -> Receiver<Response> {
        self.round(vec![(peer(), request)]).remove(0)
    }

    /// The daemon is killed, and another one comes.
    fn kill(self) -> Self {
        let Self { dir, world, engine } = self;
        drop(engine);
        world.0.borrow_mut().ended.clear();
        let engine = open(dir.path(), &world);
        Self { dir, world, engine }
    }

    /// Rounds until no request is under way; returns how many there were.
    fn finish(&mut self) -> usize {
        let mut rounds = 0;
        while !self.engine.changes.is_empty() {
            assert!(self.engine.patience().is_zero(), "the next round begins at once");
            self.round(Vec::new());
            rounds += 1;
            assert!(rounds < 1000);
        }
        rounds
    }

    fn open_jobs(&self) -> usize {
        self.engine.jobs.entries().len()
    }

    fn held(&self) -> Vec<u64> {
        let entries = self.engine.jobs.entries().iter();
        entries.filter(|(_, entry)| entry.held).map(|(job, _)| *job).collect()
    }

    /// Verdicts of jobs on disk, and whether their history has who cancelled them.
    fn cancelled(&self, jobs: impl Iterator<Item = u64>) -> Vec<(Option<Verdict>, bool)> {
        let store = self.engine.outbox.store();
        let of = |job| {
            let lines = store.history(job).unwrap();
            let by = lines.iter().any(|line| line.text.raw() == "cancel requested by u");
            (store.job(job).unwrap().unwrap().verdict, by)
        };
        jobs.map(of).collect()
    }

    fn undone(&self) -> i64 {
        let count = "SELECT count(*) FROM changes";
        self.engine.outbox.store().connection.query_row(count, [], |row| row.get(0)).unwrap()
    }
}

fn cancel(jobs: impl IntoIterator<Item = u64>) -> Request {
    Request::Cancel { jobs: jobs.into_iter().map(JobRef::from).collect() }
}

fn hold(jobs: impl IntoIterator<Item = u64>, held: bool) -> Request {
    Request::Hold { jobs: jobs.into_iter().map(JobRef::from).collect(), held }
}

const CANCELLED: (Option<Verdict>, bool) = (Some(Verdict::Cancelled), true);

#[test]
fn a_cancel_of_an_array_is_done_between_others_answers() {
    let (mut node, first) = Node::with_array(30, true);
    let answer = node.ask(cancel([first]));
    let mut open = node.open_jobs();
    assert!(open >= 29, "{open} of 30 are left after the first piece");
    let mut rounds = 0;
    while answer.try_recv().is_err() {
        let nodes = node.round(vec![(peer(), Request::Nodes)]).remove(0);
        assert!(matches!(nodes.try_recv(), Ok(Response::Nodes(_))));
        let left = node.open_jobs();
        assert!(open - left <= 1, "{} jobs in one piece", open - left);
        open = left;
        rounds += 1;
        assert!(rounds < 200);
    }
    assert_eq!(node.open_jobs(), 0, "the answer says that all are cancelled");
    assert_eq!(node.cancelled(first..first + 30), [CANCELLED; 30]);
    assert_eq!((node.undone(), node.engine.changes.is_empty()), (0, true));
}

#[test]
fn a_piece_has_a_number_of_jobs_that_are_written_at_once() {
    let (mut node, first) = Node::with_array(500, true);
    node.world.0.borrow_mut().stint = None;
    let answer = node.ask(cancel([first]));
    assert_eq!(node.open_jobs(), 300);
    assert!(answer.try_recv().is_err());
    assert_eq!(node.finish(), 2);
    assert_eq!((node.open_jobs(), answer.try_recv()), (0, Ok(Response::Done)));
}

#[test]
fn a_daemon_killed_amid_a_cancel_or_hold_or_release_goes_on_with_it() {
    // Up to the round in which it is answered: five names, five jobs that are kept out of the queue, five that are changed.
    for (request, rounds) in [("cancel", 12), ("hold", 12), ("release", 8)] {
        let mut seen = Vec::new();
        for killed_after in 0..=rounds {
            let mut node = Node::new();
            node.occupy();
            let first = node.array(6, request == "release");
            let jobs = first + 1..first + 6;
            let answer = node.ask(match request {
                "cancel" => cancel(jobs.clone()),
                other => hold(jobs.clone(), other == "hold"),
            });
            for _ in 0..killed_after {
                node.round(Vec::new());
            }
            let (is_answered, is_kept) = (answer.try_recv().is_ok(), node.undone() > 0);
            seen.push((is_answered, is_kept));
            let mut node = node.kill();
            node.finish();
            let held = node.held().len();
            let open = jobs.clone().filter(|job| node.engine.jobs.entry(*job).is_some()).count();
            let is_done = is_answered || is_kept;
            let expected = match (request, is_done) {
                ("cancel", true) => (0, 0),
                ("hold", true) => (5, 5),
                ("release", true) => (1, 5),
                // Nothing of it was done.
                ("release", false) => (6, 5),
                _ => (0, 5),
            };
            assert_eq!((held, open), expected, "{request}, killed after {killed_after} rounds");
            if request == "cancel" && is_done {
                assert_eq!(node.cancelled(jobs), [CANCELLED; 5]);
            }
            assert_eq!(node.undone(), 0);
        }
        assert!(seen.contains(&(false, true)), "{request}: a part of it was done: {seen:?}");
        assert_eq!(seen.last(), Some(&(true, false)), "{request}: {seen:?}");
    }
}

#[test]
fn no_job_that_waits_to_be_cancelled_starts() {
    let (mut node, first) = Node::with_array(8, false);
    node.begin();
    assert_eq!(node.started(), [first]);
    let answer = node.ask(cancel(first + 1..first + 8));
    // Seven names, seven jobs that are kept out of the queue, and the first that is cancelled.
    for _ in 0..12 {
        node.round(Vec::new());
    }
    assert_eq!((node.open_jobs(), answer.try_recv().is_err()), (7, true));
    node.end();
    node.finish();
    assert_eq!(answer.try_recv(), Ok(Response::Done));
    assert_eq!(node.cancelled(first + 1..first + 8), [CANCELLED; 7]);
    assert_eq!(node.started(), [first], "none of the others has run");
}

#[test]
fn jobs_of_a_cancel_that_run_come_last() {
    let (mut node, first) = Node::with_array(6, false);
    node.begin();
    let answer = node.ask(cancel([first]));
    node.finish();
    assert_eq!(answer.try_recv(), Ok(Response::Done));
    for _ in 0..3 {
        node.round(Vec::new());
    }
    assert_eq!(node.open_jobs(), 0);
    assert_eq!(node.cancelled(first..first + 6), [CANCELLED; 6]);
    assert_eq!(node.started(), [first]);
}

#[test]
fn a_hold_that_comes_too_late_for_one_job_holds_none() {
    let mut node = Node::new();
    let busy = node.occupy();
    let first = node.array(6, false);
    let answer = node.ask(hold([first], true));
    // The first one starts before it is its turn.
    node.end();
    node.finish();
    assert_eq!(node.started(), [busy, first]);
    let Ok(Response::Refused(why)) = answer.try_recv() else { panic!("it is held") };
    assert!(why.contains(&format!("job {first} runs already")), "{why}");
    assert_eq!((node.held(), node.undone()), (Vec::new(), 0));
    // The others are in the queue again.
    node.begin();
    node.end();
    for _ in 0..3 {
        node.round(Vec::new());
    }
    assert_eq!(node.started(), [busy, first, first + 1]);
}

fn another() -> Peer {
    Peer { uid: peer().uid + 1, name: "v".into(), ..peer() }
}

#[test]
fn a_hold_that_is_refused_lets_in_no_job_that_another_request_keeps_out() {
    let mut node = Node::new();
    let busy = node.occupy();
    let first = node.array(20, false);
    let requests = vec![(peer(), hold([first], true)), (another(), cancel(first + 1..first + 20))];
    let answers = node.round(requests);
    // The first one starts before it is its turn to be held.
    node.end();
    let mut refusal = None;
    for _ in 0..100 {
        node.round(Vec::new());
        refusal = refusal.or(answers[0].try_recv().ok());
        if refusal.is_some() {
            break;
        }
    }
    assert!(matches!(refusal, Some(Response::Refused(_))), "{refusal:?}");
    assert!(answers[1].try_recv().is_err(), "the cancel is under way");
    // What is in the queue starts when the first one has ended.
    node.begin();
    node.end();
    node.finish();
    assert_eq!(answers[1].try_recv(), Ok(Response::Done));
    assert_eq!(node.started(), [busy, first]);
    // By another user than the one whose name stands in `CANCELLED`.
    assert_eq!(node.cancelled(first + 1..first + 20), [(CANCELLED.0, false); 19]);
}

#[test]
fn a_hold_whose_job_another_user_lets_start_meanwhile_is_not_answered_as_done() {
    const JOBS: u64 = 40;
    let mut node = Node::new();
    let busy = node.occupy();
    let first = node.array(JOBS, false);
    let answer = node.ask(hold(first..first + JOBS, true));
    // A round for each name, and for each job that is kept out of the queue, with the one before and the one below.
    for _ in 2..2 * JOBS {
        node.round(Vec::new());
    }
    node.end();
    assert_eq!(node.started(), [busy], "all are kept out");
    for held in [true, false] {
        // The number of an array names all of it.
        let request = Request::Hold { jobs: vec![JobRef { job: first, index: Some(0) }], held };
        let answer = node.round(vec![(another(), request)]).remove(0);
        let mut done = answer.try_recv();
        for _ in 0..JOBS / 4 {
            if done.is_ok() {
                break;
            }
            node.round(Vec::new());
            done = answer.try_recv();
        }
        assert_eq!(done, Ok(Response::Done));
    }
    assert_eq!(node.started(), [busy, first]);
    node.finish();
    let Ok(Response::Refused(why)) = answer.try_recv() else { panic!("answered as done") };
    assert!(why.contains(&format!("job {first} runs already")), "{why}");
    assert_eq!(node.held(), (first + 1..first + JOBS).collect::<Vec<_>>());
}

#[test]
fn jobs_that_are_named_many_times_are_changed_once_and_all_or_none() {
    let (mut node, first) = Node::with_array(4, true);
    node.world.0.borrow_mut().stint = None;
    let name = |index| JobRef { job: first, index };
    let mut named = vec![name(None); 5000];
    named.extend(std::iter::repeat_n(name(Some(2)), 4999));
    let unknown = [named.clone(), vec![JobRef { job: first + 99, index: None }]].concat();
    let answer = node.ask(Request::Hold { jobs: unknown, held: false });
    assert!(matches!(answer.try_recv(), Ok(Response::Refused(_))));
    assert_eq!(node.held().len(), 4, "none is released");
    let many = [named.clone(), named.clone()].concat();
    let answer = node.ask(Request::Cancel { jobs: many });
    let Ok(Response::Refused(why)) = answer.try_recv() else { panic!("it is done") };
    assert!(why.contains("19998 jobs are named; 10000 at once are the most"), "{why}");
    let answer = node.ask(Request::Cancel { jobs: named });
    assert_eq!((answer.try_recv(), node.open_jobs()), (Ok(Response::Done), 0));
    let lines = node.engine.outbox.store().history(first).unwrap();
    let cancels = lines.iter().filter(|line| line.text.raw().starts_with("cancel requested")).count();
    assert_eq!(cancels, 1);
}

#[test]
fn requests_of_a_user_are_done_in_order_and_those_of_another_beside_them() {
    let (mut node, first) = Node::with_array(20, true);
    let mut answers = node.round(vec![
        (peer(), cancel(first..first + 18)),
        (peer(), hold([first + 18], false)),
        (another(), hold([first + 19], false)),
    ]);
    let (of_other, second, cancelled) = (answers.pop().unwrap(), answers.pop().unwrap(), answers.remove(0));
    let mut order = Vec::new();
    for _ in 0..200 {
        node.round(Vec::new());
        let all = [("cancel", &cancelled), ("second", &second), ("other", &of_other)];
        order.extend(all.into_iter().filter(|(_, answer)| answer.try_recv().is_ok()).map(|(name, _)| name));
        if order.len() == 3 {
            break;
        }
    }
    assert_eq!(order, ["other", "cancel", "second"]);
}

#[test]
fn the_queue_is_looked_through_once_for_the_requests_of_all_users() {
    let mut node = Node::new();
    node.occupy();
    let first = node.array(40, false);
    let path = node.dir.path().join("events");
    node.engine.core.log = Some(Log::open(&path).unwrap());
    let of = |at: u32| Peer { uid: peer().uid + at, ..peer() };
    let jobs = |at: u32| first + 10 * u64::from(at)..first + 10 * u64::from(at + 1);
    node.round((0..4).map(|at| (of(at), cancel(jobs(at)))).collect());
    let passes = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let entries = text.lines().map(|line| serde_json::from_str::<Entry>(line).unwrap());
        let paused =
            |entry: &Entry| matches!(entry, Entry::Step { event: Event::Paused { paused: false }, .. });
        entries.filter(paused).count()
    };
    for _ in 0..5 {
        node.round(Vec::new());
    }
    assert_eq!(passes(), 0, "names are looked up, and nothing changes");
    for _ in 0..10 {
        let before = passes();
        node.round(Vec::new());
        assert!(passes() <= before + 1);
    }
    assert!(passes() > 5);
    node.finish();
    assert_eq!(node.open_jobs(), 1);
}

#[test]
fn a_daemon_that_ends_has_done_what_it_was_asked() {
    let (mut node, first) = Node::with_array(30, true);
    let answer = node.ask(cancel([first]));
    let (_to, from): (Sender<Message>, _) = channel();
    assert!(!node.engine.batch(vec![Message::Stop], &mut Inbox::new(&from)));
    assert_eq!((answer.try_recv(), node.open_jobs()), (Ok(Response::Done), 0));
}

#[test]
fn a_cancel_that_cannot_be_written_is_not_answered_as_done() {
    let (mut node, first) = Node::with_array(5, true);
    let answer = node.ask(cancel([first]));
    node.engine.outbox.store().fail_writes(true);
    node.finish();
    let Ok(Response::Later(why)) = answer.try_recv() else { panic!("acknowledged") };
    assert!(why.contains("lost if radrmd ends"), "{why}");
    node.engine.outbox.store().fail_writes(false);
    node.engine.timers.clear(Timer::Retry);
    node.round(Vec::new());
    assert_eq!((node.open_jobs(), node.undone()), (0, 0));
}
