//! Random events by the ten thousand, and what must hold after each of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use radrm_scheduler_core::{
    Action, Activity, Bytes, Decision, Device, DeviceId, Event, Evidence, HostNeed, Job, JobId,
    JobObservation, Memory, Millis, Need, Node, NodeId, Observation, Outcome, Permille, Phase, Policy,
    Preemption, Settings, State, SuspendRefusal, UserId,
};

const STEPS: u32 = 10_000;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A node as it could be: it carries out actions in its own time.
struct World {
    rng: Rng,
    state: State,
    now: Millis,
    next: u64,
    /// Not over.
    alive: BTreeSet<JobId>,
    /// Processes: attempt, and whether they were seen.
    running: BTreeMap<JobId, (u32, bool)>,
    suspending: BTreeSet<JobId>,
    suspended: BTreeSet<JobId>,
    resuming: BTreeSet<JobId>,
    held: BTreeSet<JobId>,
    started: u64,
    ended: u64,
    /// Devices fall out and strangers take memory.
    faults: bool,
    largest: u64,
    /// Jobs that were started after devices had been kept for them.
    heads: u64,
}

impl World {
    fn new(settings: Settings, seed: u64, faults: bool) -> Self {
        let mut world = Self {
            rng: Rng(seed),
            state: State::new(settings),
            now: Millis(0),
            next: 1,
            alive: BTreeSet::new(),
            running: BTreeMap::new(),
            suspending: BTreeSet::new(),
            suspended: BTreeSet::new(),
            resuming: BTreeSet::new(),
            held: BTreeSet::new(),
            started: 0,
            ended: 0,
            faults,
            largest: 40,
            heads: 0,
        };
        world.step(Event::NodeAdded {
            node: Node { id: NodeId(1), cpu_milli: 32_000, memory: Bytes::from_gib(256) },
        });
        for id in 0..8u32 {
            // Two nodes of three GPUs, one of them divided in two.
            let (node, parent) = match id {
                0..=2 => (0, None),
                3..=5 => (1, None),
                _ => (1, Some(DeviceId(5))),
            };
            let capacity = Bytes::from_gib(if parent.is_some() { 20 } else { 40 });
            let model = if parent.is_some() { "A100-40GB.3g.20gb" } else { "A100-40GB" };
            let device = Device {
                id: DeviceId(id),
                node: NodeId(node),
                model: model.into(),
                capacity,
                parent,
                shared: parent.is_none(),
            };
            world.step(Event::DeviceAdded { device });
        }
        world
    }

    fn step(&mut self, event: Event) -> Vec<Decision> {
        let head = self.state.reserved_for().map(|(head, _)| head);
        let decisions = self.state.step(self.now, event);
        let served =
            |decision: &Decision| matches!(decision.action, Action::Start { job, .. } if Some(job) == head);
        self.heads += decisions.iter().filter(|decision| served(decision)).count() as u64;
        for decision in &decisions {
            self.carry_out(&decision.action);
            assert!(!decision.reason.to_string().is_empty());
        }
        self.check();
        decisions
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Start { job, attempt, .. } => {
                assert!(self.alive.contains(job), "a job that is over was started");
                assert!(!self.suspended.contains(job) && !self.held.contains(job));
                let before = self.running.insert(*job, (*attempt, false));
                assert_eq!(before, None, "job {job} was started twice");
                self.started += 1;
            }
            Action::Suspend { job } => {
                assert!(self.running.contains_key(job));
                assert!(self.suspending.insert(*job), "job {job} was suspended twice");
            }
            Action::Resume { job, .. } => {
                assert!(self.suspended.remove(job), "job {job} is not suspended");
                self.resuming.insert(*job);
            }
            Action::Signal { job, .. } => assert!(self.running.contains_key(job)),
            Action::End { job, .. } => {
                assert!(self.alive.remove(job), "job {job} ended twice");
                assert!(!self.running.contains_key(job), "job {job} ended while it runs");
                self.held.remove(job);
                self.ended += 1;
            }
            Action::Requeue { job, .. } => {
                assert!(self.alive.contains(job));
                assert!(!self.running.contains_key(job));
            }
            Action::SetLimit { .. } | Action::SetBudget { .. } | Action::WakeAt { .. } => {}
        }
    }

    fn check(&self) {
        let known: BTreeSet<JobId> = self.state.jobs().collect();
        assert_eq!(known, self.alive, "a job was lost or kept");
        if self.state.settings().memory == Memory::Reserved {
            for view in self.state.devices() {
                assert!(view.reserved <= view.device.capacity, "over-committed: {view:?}");
                assert!(view.share <= Permille::WHOLE, "shares over-committed: {view:?}");
                assert!(!view.whole || view.jobs.len() == 1, "a whole device is shared: {view:?}");
                assert!(view.device.shared || view.jobs.len() <= 1, "{view:?}");
                let parent = self.state.devices().any(|other| other.device.parent == Some(view.device.id));
                assert!(!parent || view.jobs.is_empty(), "a divided GPU has jobs of its own");
            }
        }
        // The head starts at the latest when those have left who are in its way.
        if !self.faults
            && self.state.settings().preconditions.smact.is_none()
            && let Some((head, _)) = self.state.reserved_for()
            && self.state.settings().memory == Memory::Reserved
        {
            assert!(
                self.state
                    .blockers()
                    .any(|job| self.running.contains_key(&job) || self.resuming.contains(&job)),
                "job {head} waits although nobody is in its way: {:?}",
                self.state.history(head).last()
            );
        }
    }

    fn a_job(&mut self) -> Job {
        let id = JobId(self.next);
        self.next += 1;
        let mut job = Job::new(id);
        let most = if self.rng.one_in(50) { 50 } else { self.largest };
        let gib = 1 + self.rng.below(most);
        job.user = UserId(self.rng.below(3) as u32);
        job.priority = self.rng.below(3) as i32;
        job.gpus = match self.rng.below(20) {
            0 => 0,
            1..=3 => 2,
            4 => 3,
            _ => 1,
        };
        job.need = match self.rng.below(4) {
            0 => Need::Unknown,
            1 => Need::Estimated { bytes: Bytes::from_gib(gib), upper: Bytes::from_gib(gib + gib / 4) },
            _ => Need::Measured(Bytes::from_gib(gib)),
        };
        job.share = self.rng.one_in(4).then(|| Permille(self.rng.below(11) as u32 * 100));
        job.exclusive = self.rng.one_in(20);
        job.model = self.rng.one_in(10).then(|| "A100-40GB".into());
        job.host =
            HostNeed { cpu_milli: self.rng.below(8) * 1000, memory: Bytes::from_gib(self.rng.below(32)) };
        job.activity = self.rng.one_in(2).then(|| Activity {
            smact: Permille(self.rng.below(1000) as u32),
            smocc: Permille(self.rng.below(500) as u32),
            drama: Permille(self.rng.below(700) as u32),
        });
        job.expected = self.rng.one_in(2).then(|| Millis(self.rng.below(100_000)));
        job.time_limit = self.rng.one_in(5).then(|| Millis(1000 + self.rng.below(100_000)));
        job.slot = self.rng.one_in(10).then(|| Millis(1000 + self.rng.below(50_000)));
        job.preemption = Preemption {
            allowed: self.rng.one_in(2),
            checkpoint_signal: self.rng.one_in(2).then_some(10),
            grace: Millis(self.rng.below(5000)),
            suspend: if self.rng.one_in(2) { Ok(()) } else { Err(SuspendRefusal::Mps) },
        };
        job.submitted = self.now;
        job
    }

    fn pick<T: Copy + Ord>(&mut self, from: &BTreeSet<T>) -> Option<T> {
        let n = from.len() as u64;
        (n > 0).then(|| self.rng.below(n)).and_then(|at| from.iter().nth(at as usize).copied())
    }

    fn pick_running(&mut self) -> Option<(JobId, u32, bool)> {
        let n = self.running.len() as u64;
        let at = (n > 0).then(|| self.rng.below(n))?;
        self.running.iter().nth(at as usize).map(|(job, (attempt, seen))| (*job, *attempt, *seen))
    }

    fn outcome(&mut self) -> Outcome {
        match self.rng.below(12) {
            0 => Outcome::Signalled { signal: 11 },
            1 => Outcome::Exited { code: 1 },
            2..=3 => Outcome::OutOfMemory {
                seen: Bytes::from_gib(self.rng.below(45)),
                evidence: if self.rng.one_in(2) { Evidence::Shim } else { Evidence::Log },
                code: 1,
            },
            4 => Outcome::Lost,
            5 => Outcome::NotStarted,
            _ => Outcome::Exited { code: 0 },
        }
    }

    fn finish(&mut self, job: JobId, outcome: Outcome) -> Vec<Decision> {
        let (attempt, _) = self.running.remove(&job).unwrap();
        self.suspending.remove(&job);
        self.suspended.remove(&job);
        self.resuming.remove(&job);
        self.step(Event::Finished { job, attempt, outcome })
    }

    /// One random thing happens.
    fn random(&mut self) -> Vec<Decision> {
        self.now = self.now.plus(Millis(self.rng.below(2000)));
        match self.rng.below(24) {
            0..=5 => {
                let job = self.a_job();
                if self.alive.len() > 60 {
                    return self.step(Event::Tick);
                }
                self.alive.insert(job.id);
                self.step(Event::Submitted { job: Box::new(job) })
            }
            6..=9 => match self.pick_running() {
                Some((job, attempt, false)) => {
                    self.running.insert(job, (attempt, true));
                    self.step(Event::Started { job, attempt })
                }
                // News of an attempt that is over, or of none.
                Some((job, attempt, true)) => self.step(Event::Started { job, attempt: attempt + 1 }),
                None => self.step(Event::Started { job: JobId(u64::MAX), attempt: 1 }),
            },
            10..=13 => match self.pick_running() {
                Some((job, ..)) => {
                    let outcome = self.outcome();
                    self.finish(job, outcome)
                }
                None => self.step(Event::Finished {
                    job: JobId(self.next),
                    attempt: 1,
                    outcome: Outcome::Exited { code: 0 },
                }),
            },
            14 => match self.pick(&self.suspending.clone()) {
                Some(job) => {
                    self.suspending.remove(&job);
                    if self.rng.one_in(3) {
                        return self.step(Event::SuspendFailed { job, refusal: SuspendRefusal::Failed });
                    }
                    if self.state.job(job).is_some_and(|view| view.phase == Phase::Suspending) {
                        self.suspended.insert(job);
                    }
                    let bytes = Bytes::from_gib(1 + self.rng.below(8));
                    self.step(Event::Suspended { job, bytes })
                }
                None => self.step(Event::Tick),
            },
            15 => match self.pick(&self.resuming.clone()) {
                Some(job) => {
                    self.resuming.remove(&job);
                    if self.rng.one_in(3) {
                        if self.state.job(job).is_some_and(|view| view.phase == Phase::Resuming) {
                            self.suspended.insert(job);
                        }
                        return self.step(Event::ResumeFailed { job });
                    }
                    self.step(Event::Resumed { job })
                }
                None => self.step(Event::Tick),
            },
            16 => match self.pick(&self.alive.clone()) {
                Some(job) if self.rng.one_in(4) => self.step(Event::Cancelled { job }),
                Some(job) if self.rng.one_in(4) => {
                    let suspend = if self.rng.one_in(2) { Ok(()) } else { Err(SuspendRefusal::Ipc) };
                    self.step(Event::SuspendKnown { job, suspend })
                }
                Some(job) => {
                    let need = Need::Measured(Bytes::from_gib(1 + self.rng.below(39)));
                    self.step(Event::NeedKnown { job, need })
                }
                None => self.step(Event::Tick),
            },
            17 => match self.pick(&self.alive.clone()) {
                Some(job) => {
                    let waiting = self.state.job(job).is_some_and(|view| view.phase == Phase::Waiting);
                    if waiting {
                        self.held.insert(job);
                    }
                    self.step(Event::Held { job })
                }
                None => self.step(Event::Tick),
            },
            18..=19 => match self.pick(&self.held.clone()) {
                Some(job) => {
                    self.held.remove(&job);
                    self.step(Event::Released { job })
                }
                None => self.step(Event::Tick),
            },
            20 => match self.pick_running() {
                Some((job, ..)) => {
                    let devices = self.state.job(job).map(|view| view.devices).unwrap_or_default();
                    let used = Bytes::from_gib(self.rng.below(if self.faults { 30 } else { 1 }));
                    let speed = Some(Permille(self.rng.below(1000) as u32));
                    let device = devices.first().copied().unwrap_or(DeviceId(99));
                    let smact = Permille(self.rng.below(1001) as u32);
                    let activity =
                        self.rng.one_in(2).then_some(Activity { smact, smocc: smact, drama: smact });
                    let seen = JobObservation { used, peak: used, speed, activity };
                    self.step(Event::JobObserved { job, device, seen })
                }
                None => self.step(Event::Tick),
            },
            21 => {
                let used = if self.faults { Bytes::from_gib(self.rng.below(41)) } else { Bytes::ZERO };
                let smact = Permille(self.rng.below(1000) as u32);
                let seen = Observation { used, smact, smocc: smact, drama: smact };
                let device = DeviceId(self.rng.below(9) as u32);
                self.step(Event::DeviceObserved { device, seen })
            }
            22 if self.faults => {
                // All but the divided GPU: it cannot be whole and divided in turn.
                let device = DeviceId([0, 1, 2, 3, 4, 6, 7][self.rng.below(7) as usize]);
                match self.rng.below(4) {
                    0 => self.step(Event::DeviceLost { device }),
                    1 => self.step(Event::DeviceDrained { device, drained: true }),
                    _ => {
                        self.restore(device);
                        self.step(Event::DeviceDrained { device, drained: false })
                    }
                }
            }
            _ => self.step(Event::Tick),
        }
    }

    fn restore(&mut self, device: DeviceId) {
        let (node, parent) = match device.0 {
            0..=2 => (0, None),
            3..=5 => (1, None),
            _ => (1, Some(DeviceId(5))),
        };
        let device = Device {
            id: device,
            node: NodeId(node),
            model: if parent.is_some() { "A100-40GB.3g.20gb" } else { "A100-40GB" }.into(),
            capacity: Bytes::from_gib(if parent.is_some() { 20 } else { 40 }),
            parent,
            shared: parent.is_none(),
        };
        self.step(Event::DeviceAdded { device });
    }

    /// No new jobs, all devices in order: everything must come to an end.
    fn drain(&mut self) {
        for device in 0..8 {
            self.restore(DeviceId(device));
            self.step(Event::DeviceDrained { device: DeviceId(device), drained: false });
            self.step(Event::DeviceObserved { device: DeviceId(device), seen: Observation::default() });
        }
        for job in std::mem::take(&mut self.held) {
            self.step(Event::Released { job });
        }
        for _ in 0..4000 {
            if self.alive.is_empty() {
                return;
            }
            self.now = self.now.plus(Millis(40_000));
            if let Some(job) = self.suspending.pop_first() {
                self.step(Event::SuspendFailed { job, refusal: SuspendRefusal::Failed });
            } else if let Some(job) = self.resuming.pop_first() {
                self.step(Event::Resumed { job });
            } else if let Some(job) = self.running.keys().copied().find(|job| !self.suspended.contains(job)) {
                self.finish(job, Outcome::Exited { code: 0 });
            } else {
                self.step(Event::Tick);
            }
        }
        let left: Vec<_> =
            self.alive.iter().map(|job| (self.state.job(*job), self.state.history(*job))).collect();
        panic!("{} jobs never end, the first: {:?}", left.len(), left.first());
    }
}

fn settings(policy: Policy) -> Settings {
    match policy {
        Policy::Aware => Settings::default(),
        other => Settings { policy: other, ..Settings::default() },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_lost_doubled_or_over_committed(
        seed in any::<u64>(), policy in 0..Policy::ALL.len(), faults in any::<bool>(),
    ) {
        let mut world = World::new(settings(Policy::ALL[policy]), seed, faults);
        for _ in 0..STEPS {
            world.random();
        }
        prop_assert!(world.started > 500, "only {} starts: the test is about nothing", world.started);
        prop_assert!(world.heads > 50, "only {} heads were served", world.heads);
        world.drain();
    }

    #[test]
    fn published_settings_lose_and_double_nothing(seed in any::<u64>(), policy in 0..Policy::ALL.len()) {
        let mut world = World::new(Settings::published(Policy::ALL[policy]), seed, false);
        for _ in 0..STEPS / 4 {
            world.random();
        }
        world.drain();
    }

    #[test]
    fn equal_events_give_equal_decisions(seed in any::<u64>(), policy in 0..Policy::ALL.len()) {
        let run = || {
            let mut world = World::new(settings(Policy::ALL[policy]), seed, true);
            (0..STEPS / 4).flat_map(|_| world.random()).collect::<Vec<_>>()
        };
        let first = run();
        prop_assert!(first.len() > 500);
        prop_assert_eq!(first, run());
    }
}
