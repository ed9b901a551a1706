//! Groups of jobs that start together: in one decision, on devices of their own, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::random::cases;
use crate::common::{self, DONE, Node, gib, started, verdict, with};
use proptest::prelude::*;
use radrm_scheduler_core::{
    Action, Bytes, Decision, Event, HostNeed, Impossible, Job, JobId, Millis, Need, NodeId, Outcome,
    Permille, Phase, Policy, Reason, Settings, Together, Verdict, Wait,
    replay::events::{Again, Entry, Fed},
};

/// A job of the group that begins with `first`.
fn member(id: u64, first: u64, members: u32, site: u32, memory: u64) -> Job {
    let together = Together { first: JobId(first), members, site, begun: false };
    Job { together: Some(together), ..gib(id, memory) }
}

fn devices(decisions: &[Decision], id: u64) -> Option<Vec<u32>> {
    started(decisions, id).map(|(_, devices)| devices)
}

fn wait(node: &Node, id: u64) -> Option<Wait> {
    node.state.job(JobId(id)).and_then(|view| view.wait)
}

#[test]
fn a_group_starts_in_one_decision_when_its_last_job_is_there() {
    let mut node = Node::new(3, Settings::default());
    assert_eq!(devices(&node.submit(member(1, 1, 3, 0, 10)), 1), None);
    assert_eq!(wait(&node, 1), Some(Wait::Together { job: JobId(2) }));
    assert_eq!(devices(&node.submit(member(2, 1, 3, 0, 10)), 1), None);
    let decisions = node.submit(member(3, 1, 3, 7, 10));
    let [one, two, three] = [1, 2, 3].map(|id| devices(&decisions, id).expect("all start"));
    assert!(one == two && one != three, "{one:?} {two:?} {three:?}");
}

#[test]
fn no_job_of_a_group_starts_before_all_wait() {
    let mut node = Node::new(2, Settings::default());
    node.submit(member(1, 1, 2, 0, 1));
    let decisions = node.submit(Job { held: true, ..member(2, 1, 2, 0, 1) });
    assert!(devices(&decisions, 1).is_none() && node.state.waiting() == 0, "{decisions:?}");
    assert_eq!((wait(&node, 1), wait(&node, 2)), (Some(Wait::Together { job: JobId(2) }), Some(Wait::Held)));
    // A group that is not complete is in the way of no job.
    assert!(devices(&node.submit(gib(3, 30)), 3).is_some());
    let decisions = node.step(Event::Released { job: JobId(2) });
    assert!(devices(&decisions, 1).is_some() && devices(&decisions, 2).is_some(), "{decisions:?}");
}

#[test]
fn a_job_that_is_held_again_takes_its_group_out_of_the_queue() {
    for held in [1, 2] {
        let mut node = Node::new(1, Settings::default());
        node.run(gib(9, 30));
        (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, 0, 1))));
        assert_eq!(node.state.queue(), [JobId(1)], "the first for all");
        assert_eq!(wait(&node, 2), Some(Wait::Together { job: JobId(1) }));
        node.step(Event::Held { job: JobId(held) });
        assert_eq!(node.state.waiting(), 0);
        assert!(devices(&node.finish(9, DONE), 1).is_none());
        let decisions = node.step(Event::Released { job: JobId(held) });
        assert!([1, 2].iter().all(|id| devices(&decisions, *id).is_some()), "{decisions:?}");
    }
}

#[test]
fn the_first_in_the_queue_is_not_overtaken_for_ever() {
    let mut node = Node::new(2, Settings::default());
    node.run(gib(1, 10));
    node.run(gib(2, 30));
    for id in [10, 11] {
        let decisions = node.submit(member(id, 10, 2, u32::try_from(id).unwrap(), 20));
        assert_eq!(started(&decisions, id), None);
    }
    // Small jobs would fit beside the two that run, and would keep the group out.
    for id in 20..30 {
        assert_eq!(devices(&node.submit(gib(id, 5)), id), None, "job {id}");
    }
    assert_eq!(node.state.reserved_for().map(|(job, devices)| (job, devices.len())), Some((JobId(10), 2)));
    node.finish(1, DONE);
    let decisions = node.finish(2, DONE);
    assert!(devices(&decisions, 10).is_some() && devices(&decisions, 11).is_some(), "{decisions:?}");
}

#[test]
fn the_devices_of_a_group_are_its_own() {
    let mut node = Node::new(1, Settings::default());
    (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, 0, 5))));
    assert_eq!(devices(&node.submit(gib(3, 5)), 3), None);
    node.step(Event::Started { job: JobId(1), attempt: 1 });
    node.finish(1, DONE);
    assert!(wait(&node, 3).is_some(), "one of them is still there");
    assert!(devices(&node.finish(2, DONE), 3).is_some());
}

#[test]
fn the_end_of_a_waiting_job_ends_its_group() {
    for cancelled in 1..=3 {
        let mut node = Node::new(1, Settings::default());
        node.run(gib(9, 30));
        (1..=3).for_each(|id| drop(node.submit(member(id, 1, 3, 0, 1))));
        let decisions = node.step(Event::Cancelled { job: JobId(cancelled) });
        for id in 1..=3 {
            assert_eq!(verdict(&decisions, id), Some(Verdict::Cancelled), "job {id}");
        }
        let broken = Reason::NotTogether { job: JobId(cancelled) };
        assert_eq!(decisions.iter().filter(|decision| decision.reason == broken).count(), 2);
        assert_eq!(node.state.jobs().count(), 1);
        assert_eq!((node.state.waiting(), node.state.reserved_for()), (0, None));
    }
}

#[test]
fn a_job_that_ends_before_the_start_ends_those_that_were_to_start_with_it() {
    let mut node = Node::new(1, Settings::default());
    (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, 0, 1))));
    assert_eq!(verdict(&node.finish(2, Outcome::NotStarted), 1), None, "it has devices: it comes back first");
    let decisions = node.finish(1, Outcome::Lost);
    assert_eq!(verdict(&decisions, 1), Some(Verdict::Cancelled), "{decisions:?}");
    assert_eq!(node.state.jobs().count(), 0);
}

#[test]
fn a_start_that_failed_is_made_again_for_all() {
    let mut node = Node::new(1, Settings::default());
    (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, 0, 1))));
    let decisions = node.finish(1, Outcome::Lost);
    assert!(started(&decisions, 1).is_none(), "the other one has not come back: {decisions:?}");
    let decisions = node.finish(2, Outcome::Lost);
    assert_eq!([1, 2].map(|id| started(&decisions, id).map(|(attempt, _)| attempt)), [Some(2), Some(2)]);
}

#[test]
fn after_the_start_each_job_goes_its_own_way() {
    let mut node = Node::new(2, Settings::default());
    (1..=3).for_each(|id| drop(node.submit(member(id, 1, 3, 0, 5))));
    for id in 1..=2 {
        node.step(Event::Started { job: JobId(id), attempt: 1 });
    }
    // The attempt of one was over before its program was there, and one ran out of memory.
    let decisions = node.finish(3, Outcome::Lost);
    assert!(started(&decisions, 3).is_some_and(|(attempt, _)| attempt == 2), "{decisions:?}");
    assert_eq!(node.phase(1), Phase::Running);
    let decisions = node.finish(1, common::oom(6));
    assert!(verdict(&decisions, 1).is_none() && verdict(&decisions, 2).is_none(), "{decisions:?}");
    node.finish(2, DONE);
    assert_eq!(node.state.jobs().count(), 2);
}

#[test]
fn jobs_of_one_site_fit_on_their_device_together() {
    let together = |sites: &[(u32, u64)]| {
        let members = u32::try_from(sites.len()).unwrap();
        let job = |(id, (site, gib)): (u64, &(u32, u64))| member(id, 1, members, *site, *gib);
        (1..).zip(sites).map(job).collect::<Vec<_>>()
    };
    let node = Node::new(2, Settings::default());
    let answer = |sites: &[(u32, u64)]| node.state.admission_together(&together(sites));
    assert_eq!(answer(&[(0, 15), (0, 15)]), Ok(()));
    assert!(matches!(answer(&[(0, 25), (0, 25)]), Err(Impossible::Memory { .. })));
    assert_eq!(answer(&[(0, 25), (1, 25)]), Ok(()));
    assert_eq!(answer(&[(0, 1), (1, 1), (2, 1)]), Err(Impossible::Gpus { gpus: 3, most: 2 }));
    let shares = together(&[(0, 1), (0, 1)]);
    let shares: Vec<_> = shares.into_iter().map(|job| Job { share: Some(Permille(600)), ..job }).collect();
    assert_eq!(node.state.admission_together(&shares), Err(Impossible::Share));
    let alone = Node::new(2, with(Policy::Exclusive));
    assert_eq!(alone.state.admission_together(&together(&[(0, 1), (0, 1)])), Err(Impossible::Unshared));
    assert_eq!(alone.state.admission_together(&together(&[(0, 1), (1, 1)])), Ok(()));
}

#[test]
fn a_group_whose_needs_grew_beyond_the_node_is_in_the_way_of_no_job() {
    let mut node = Node::new(1, Settings::default());
    node.run(gib(9, 30));
    (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, 0, 10))));
    node.step(Event::NeedKnown { job: JobId(2), need: Need::measured(Bytes::from_gib(35)) });
    assert!(matches!(wait(&node, 1), Some(Wait::Missing { .. })), "{:?}", wait(&node, 1));
    assert!(devices(&node.submit(gib(3, 5)), 3).is_some());
    node.step(Event::NeedKnown { job: JobId(2), need: Need::measured(Bytes::from_gib(11)) });
    node.finish(3, DONE);
    assert!(devices(&node.finish(9, DONE), 2).is_some());
}

#[test]
fn a_group_on_a_lost_device_waits_for_it_out_of_the_queue() {
    let mut node = Node::new(2, Settings::default());
    let lost = radrm_scheduler_core::DeviceId(0);
    node.step(Event::DeviceLost { device: lost });
    (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, u32::try_from(id).unwrap(), 1))));
    assert_eq!(wait(&node, 1), Some(Wait::Lost));
    assert!(devices(&node.submit(gib(3, 5)), 3).is_some());
}

#[test]
fn a_group_fits_into_the_host_with_all_its_jobs() {
    let host = |cpu_milli, gib| HostNeed { cpu_milli, memory: Bytes::from_gib(gib) };
    let node = Node::new(2, Settings::default());
    let mut state = node.state;
    let bound = radrm_scheduler_core::Node {
        id: NodeId(0),
        cpu_milli: 4000,
        memory: Bytes::from_gib(16),
        memory_bandwidth: None,
    };
    state.step(Millis(0), Event::NodeAdded { node: bound });
    let answer = |needs: &[HostNeed]| {
        let members = u32::try_from(needs.len()).unwrap();
        let job = |(id, host): (u64, &HostNeed)| Job { host: *host, ..member(id, 1, members, 0, 1) };
        state.admission_together(&(1..).zip(needs).map(job).collect::<Vec<_>>())
    };
    assert_eq!(answer(&[host(2000, 8), host(2000, 8)]), Ok(()));
    assert_eq!(answer(&[host(3000, 1), host(2000, 1)]), Err(Impossible::Host), "processors are summed");
    assert_eq!(answer(&[host(1000, 9), host(1000, 8)]), Err(Impossible::Host), "memory is summed");
}

#[test]
fn a_site_that_asks_for_a_large_share_counts_wherever_it_stands() {
    let node = Node::new(2, Settings::default());
    let job = |id, site, share| Job { share: Some(Permille(share)), ..member(id, 1, 3, site, 1) };
    let jobs = [job(1, 0, 600), job(2, 0, 600), job(3, 1, 100)];
    assert_eq!(node.state.admission_together(&jobs), Err(Impossible::Share));
}

#[test]
fn a_job_that_comes_back_after_its_group_began_does_not_wait_for_the_others() {
    let mut node = Node::new(1, Settings::default());
    (1..=2).for_each(|id| drop(node.submit(member(id, 1, 2, 0, 1))));
    // Its attempt is over before the other one was there.
    node.finish(2, Outcome::Lost);
    assert_eq!(node.phase(2), Phase::Held);
    let decisions = node.step(Event::Started { job: JobId(1), attempt: 1 });
    assert!(node.phase(2) != Phase::Held, "{decisions:?}");
    node.finish(1, DONE);
    assert_eq!(node.phase(2), Phase::Launching);
}

/// Next step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Single(u64),
    /// A group of jobs by site and GiB; one of them may be held.
    Group(Vec<(u32, u64)>, Option<usize>),
    Release,
    /// Starts of so many decisions are reported.
    Report,
    Finish(usize),
    Fail(usize),
    Cancel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let group = (prop::collection::vec((0..3u32, 1..30u64), 2..5), prop::option::of(0..4usize));
    let step = prop_oneof![
        3 => (1..40u64).prop_map(Step::Single),
        3 => group.prop_map(|(sites, held)| Step::Group(sites, held)),
        1 => Just(Step::Release),
        3 => Just(Step::Report),
        4 => (0..64usize).prop_map(Step::Finish),
        1 => (0..64usize).prop_map(Step::Fail),
        1 => (0..64usize).prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 1..80)
}

/// A history, what must hold after each event, and its log.
struct World {
    node: Node,
    next: u64,
    log: Vec<Entry>,
    /// Jobs of groups, by group.
    groups: BTreeMap<u64, Vec<u64>>,
    held: BTreeSet<u64>,
    /// Attempts that were decided and not reported, and attempts under way.
    decided: BTreeMap<u64, u32>,
    running: BTreeMap<u64, u32>,
}

impl World {
    fn new(settings: Settings) -> Self {
        let start = Entry::Start { version: "1".into(), settings: Box::new(settings.clone()) };
        let mut world = Self {
            node: Node { state: radrm_scheduler_core::State::new(settings), now: Millis(0) },
            next: 1,
            log: vec![start],
            groups: BTreeMap::new(),
            held: BTreeSet::new(),
            decided: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        for device in radrm_scheduler_core::replay::Cluster::uniform(3, "A", Bytes::from_gib(40)).devices {
            world.step(Event::DeviceAdded { device });
        }
        world
    }

    fn step(&mut self, event: Event) {
        self.node.now = self.node.now.plus(Millis(7));
        let at = self.node.now;
        let decisions = self.node.state.step(at, event.clone());
        for decision in &decisions {
            match &decision.action {
                Action::Start { job, attempt, .. } => drop(self.decided.insert(job.0, *attempt)),
                // What has no process is off its devices at once.
                Action::End { job, .. } => {
                    self.decided.remove(&job.0);
                    self.running.remove(&job.0);
                    self.held.remove(&job.0);
                }
                _ => {}
            }
        }
        self.check(&decisions);
        self.log.push(Entry::Step { at, event, decisions });
    }

    fn check(&self, decisions: &[Decision]) {
        let started: BTreeSet<u64> = decisions
            .iter()
            .filter_map(|decision| match &decision.action {
                Action::Start { job, .. } => Some(job.0),
                _ => None,
            })
            .collect();
        let together = |id: u64| self.node.state.job(JobId(id)).and_then(|view| view.job.together);
        for jobs in self.groups.values() {
            let starts: Vec<bool> = jobs.iter().map(|job| started.contains(job)).collect();
            let gathers = jobs.iter().any(|job| together(*job).is_some_and(|group| !group.begun));
            if gathers && starts.contains(&true) {
                assert!(!starts.contains(&false), "only a part of {jobs:?} started: {decisions:?}");
                assert!(jobs.iter().all(|job| !self.held.contains(job)), "one of {jobs:?} is held");
                let place = |job: &u64| {
                    let view = self.node.state.job(JobId(*job)).unwrap();
                    (view.job.together.unwrap().site, view.devices)
                };
                let places: Vec<_> = jobs.iter().map(place).collect();
                for (site, devices) in &places {
                    for (other, theirs) in &places {
                        assert_eq!(site == other, devices == theirs, "{places:?}");
                    }
                }
            }
        }
        for view in self.node.state.devices() {
            assert!(view.jobs.len() < 2 || view.reserved <= view.device.capacity, "{view:?}");
            let groups: BTreeSet<Option<JobId>> =
                view.jobs.iter().map(|job| together(job.0).map(|group| group.first)).collect();
            let has_group = groups.iter().any(Option::is_some);
            let first_attempts =
                view.jobs.iter().all(|job| self.node.state.job(*job).is_some_and(|view| view.attempts == 1));
            assert!(!has_group || !first_attempts || groups.len() == 1, "a group is not alone on {view:?}");
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Single(memory) => {
                let job = Job { submitted: self.node.now, ..gib(self.next, *memory) };
                self.next += 1;
                self.step(Event::Submitted { job: Box::new(job) });
            }
            Step::Group(sites, held) => {
                let first = self.next;
                let members = u32::try_from(sites.len()).unwrap();
                let jobs: Vec<Job> = (first..)
                    .zip(sites)
                    .map(|(id, (site, memory))| Job {
                        held: held.is_some_and(|held| first + held as u64 == id),
                        submitted: self.node.now,
                        ..member(id, first, members, *site, *memory)
                    })
                    .collect();
                if self.node.state.admission_together(&jobs).is_err() {
                    return;
                }
                self.next += u64::from(members);
                self.groups.insert(first, jobs.iter().map(|job| job.id.0).collect());
                self.held.extend(jobs.iter().filter(|job| job.held).map(|job| job.id.0));
                jobs.into_iter().for_each(|job| self.step(Event::Submitted { job: Box::new(job) }));
            }
            Step::Release => {
                if let Some(job) = self.held.pop_first() {
                    self.step(Event::Released { job: JobId(job) });
                }
            }
            Step::Report => {
                for (job, attempt) in std::mem::take(&mut self.decided) {
                    self.running.insert(job, attempt);
                    self.step(Event::Started { job: JobId(job), attempt });
                }
            }
            Step::Finish(at) => {
                if let Some((job, attempt)) = nth(&self.running, *at) {
                    self.running.remove(&job);
                    self.step(Event::Finished { job: JobId(job), attempt, outcome: DONE });
                }
            }
            Step::Fail(at) => {
                // The barrier of a group that lost one is given up: all come back.
                let Some((job, _)) = nth(&self.decided, *at) else { return };
                let group = self.groups.values().find(|jobs| jobs.contains(&job)).cloned();
                for job in group.unwrap_or(vec![job]) {
                    if let Some(attempt) = self.decided.remove(&job) {
                        self.step(Event::Finished { job: JobId(job), attempt, outcome: Outcome::Lost });
                    }
                }
            }
            Step::Cancel(at) => {
                let jobs: Vec<_> = self.node.state.jobs().collect();
                let Some(job) = jobs.get(*at % jobs.len().max(1)) else { return };
                self.step(Event::Cancelled { job: *job });
                let attempt = self.decided.remove(&job.0).or_else(|| self.running.remove(&job.0));
                if let Some(attempt) = attempt {
                    self.step(Event::Finished {
                        job: *job,
                        attempt,
                        outcome: Outcome::Signalled { signal: 15 },
                    });
                }
            }
        }
    }

    /// Every job that can be over is, and none is left behind.
    fn wind_up(&mut self) {
        while let Some(job) = self.held.pop_first() {
            self.step(Event::Released { job: JobId(job) });
        }
        for _ in 0..10_000 {
            if self.decided.is_empty() && self.running.is_empty() {
                break;
            }
            self.take(&Step::Report);
            self.take(&Step::Finish(0));
        }
    }
}

fn nth(jobs: &BTreeMap<u64, u32>, at: usize) -> Option<(u64, u32)> {
    jobs.iter().nth(at % jobs.len().max(1)).map(|(job, attempt)| (*job, *attempt))
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn groups_start_as_a_whole_within_memory_and_none_waits_for_ever(
        steps in steps(),
        policy in prop::sample::select(vec![Policy::FirstFit, Policy::BestFit, Policy::Aware]),
    ) {
        let mut world = World::new(with(policy));
        steps.iter().for_each(|step| world.take(step));
        world.wind_up();
        let left: Vec<_> = world.node.state.jobs().filter(|job| {
            world.node.state.job(*job).is_some_and(|view| view.job.need.is_some_and(|need| need.bytes <= Bytes::from_gib(40)))
        }).collect();
        prop_assert_eq!(left, vec![]);
        // The log of all this gives the same decisions again, as it was written.
        let mut again = Again::default();
        for entry in world.log {
            let text = serde_json::to_string(&entry).unwrap();
            let fed = again.feed(serde_json::from_str(&text).unwrap());
            prop_assert!(matches!(fed, Fed::Started | Fed::Same(_)), "{:?}", fed);
        }
    }
}
