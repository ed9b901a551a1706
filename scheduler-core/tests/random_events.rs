//! Random events by the ten thousand, and what must hold after each of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use radrm_need::Source;
use radrm_scheduler_core::{
    Action, Activity, Allowance, ArrayLimit, Bytes, Condition, Decision, Dependency, DeviceId, Event,
    HostNeed, Job, JobId, Memory, Millis, Need, Node, NodeId, Observation, Outcome, Permille, Phase, Policy,
    Preemption, Program, Reason, Settings, State, SuspendRefusal, UserId,
};

use crate::common::random::{
    self, Kind, Rng, cases, device, first_steps, kinds, late_answer, observation, outcome, policies, settings,
};

const STEPS: u32 = 10_000;

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
    /// Jobs that ended and did not succeed.
    failed: BTreeSet<JobId>,
    started: u64,
    ended: u64,
    /// Devices fall out and unmanaged processes take memory.
    faults: bool,
    largest: u64,
    /// Jobs that were started after devices had been kept for them.
    heads: u64,
    /// The job that devices are kept for, and who may be in its way.
    watch: Option<Watch>,
    /// Suspended jobs that are not tried again before.
    retry: BTreeMap<JobId, Millis>,
    /// Starts before jobs that waited longer in the order, and starts before a first one by jobs whose
    /// place in the order is before it.
    passed: u64,
    overtaken: u64,
    /// Answers of helpers that an attempt left when it ended.
    late: Vec<Event>,
    /// Memory in use as it was told.
    used: BTreeMap<JobId, Bytes>,
    /// Jobs have programs, and what the jobs of a device do together is seen.
    sums: bool,
}

/// Jobs that may be in the way of the first job that is blocked.
struct Watch {
    head: JobId,
    /// Jobs that were in its way when it became the first, and some that came since.
    /// Of the latter, those that are before it in the order, or gone in time.
    may: BTreeSet<JobId>,
}

impl World {
    fn new(settings: Settings, seed: u64, faults: bool) -> Self {
        let mut world = Self {
            rng: Rng::seeded(seed),
            state: State::new(settings),
            now: Millis(0),
            next: 1,
            alive: BTreeSet::new(),
            running: BTreeMap::new(),
            suspending: BTreeSet::new(),
            suspended: BTreeSet::new(),
            resuming: BTreeSet::new(),
            held: BTreeSet::new(),
            failed: BTreeSet::new(),
            started: 0,
            ended: 0,
            faults,
            largest: 40,
            heads: 0,
            watch: None,
            retry: BTreeMap::new(),
            passed: 0,
            overtaken: 0,
            late: Vec::new(),
            used: BTreeMap::new(),
            sums: true,
        };
        world.step(Event::NodeAdded {
            node: Node {
                id: NodeId(1),
                cpu_milli: 32_000,
                memory: Bytes::from_gib(256),
                memory_bandwidth: None,
            },
        });
        for id in 0..8u32 {
            let device = device(id);
            world.step(Event::DeviceAdded { device });
        }
        world
    }

    fn step(&mut self, event: Event) -> Vec<Decision> {
        let head = self.state.reserved_for().map(|(head, _)| head);
        // What makes the first job look for another place.
        let anew = match &event {
            Event::NeedKnown { job, .. } => Some(*job) == head,
            Event::DeviceLost { .. } | Event::DeviceDrained { .. } | Event::DeviceAdded { .. } => true,
            Event::AllowanceSet { .. } => true,
            _ => false,
        };
        if let Event::ResumeFailed { job, attempt } = event
            && self.running.get(&job).is_some_and(|(present, _)| *present == attempt)
        {
            self.retry.insert(job, self.now.plus(Millis(30_000)));
        }
        let before: BTreeSet<JobId> = self.state.blockers().collect();
        let decisions = self.state.step(self.now, event);
        let anew = anew || decisions.iter().any(|made| matches!(made.reason, Reason::StepsExceeded { .. }));
        let served =
            |decision: &Decision| matches!(decision.action, Action::Start { job, .. } if Some(job) == head);
        self.heads += decisions.iter().filter(|decision| served(decision)).count() as u64;
        for decision in &decisions {
            self.carry_out(&decision.action);
            assert!(!decision.reason.to_string().is_empty());
        }
        self.check();
        self.check_evictions(&decisions);
        self.check_order(&decisions);
        self.check_head(&decisions, &before, anew);
        decisions
    }

    /// The place in the order as it is documented.
    fn key(&self, id: JobId) -> (u8, i64, UserId) {
        let order = &self.state.settings().order;
        let view = self.state.job(id).unwrap();
        let span = |time: Millis| i64::try_from(time.0).unwrap();
        let most = order.most_priority;
        let worth = i64::from(view.job.priority.clamp(-most, most)) * span(order.aging);
        let length = match view.job.expected {
            _ if order.shortest == 0 => 0,
            Some(time) => (span(time) * i64::from(order.shortest) / 1000).min(span(order.shortest_most)),
            None => span(order.shortest_most) / 8,
        };
        let all: u64 = self.state.usage().map(|(_, used)| used).sum();
        let used = self.state.usage().find(|(user, _)| *user == view.job.user).map_or(0, |(_, used)| used);
        let penalty = order.fair.map_or(0.0, |fair| fair.most.0 as f64 * used as f64 / all.max(1) as f64);
        // Without backfilling a retry goes before all others.
        let class = u8::from(order.backfill || view.ooms == 0);
        let is_behind = class > 0 && self.state.allowance(view.job.user).behind;
        let class = if is_behind { 2 } else { class };
        (class, span(view.lined_up) - worth + length + penalty as i64, view.job.user)
    }

    /// Returns true if the first is before the second in the order by more than roundings.
    /// What users used decays in steps, and in other steps than the sum.
    fn is_before(&self, first: JobId, second: JobId) -> bool {
        let ((class, first, user), (other, second, of)) = (self.key(first), self.key(second));
        let most = self.state.settings().order.fair.map_or(0, |fair| fair.most.0);
        let rounding = if user == of { 0 } else { i64::try_from(most / 100).unwrap() };
        class < other || (class == other && first + rounding < second)
    }

    /// Checks that no job gives way to one that it would stand before again: they would take turns for ever.
    fn check_evictions(&self, decisions: &[Decision]) {
        for made in decisions {
            if let Reason::MoreImportant { job: head } = made.reason
                && let Action::Suspend { job } | Action::Signal { job, .. } = made.action
            {
                assert!(!self.is_before(job, head), "job {job} left for {head} and stands before it");
            }
        }
    }

    fn started_by(decisions: &[Decision]) -> impl Iterator<Item = (JobId, &Reason)> {
        decisions.iter().filter_map(|decision| match decision.action {
            Action::Start { job, .. } | Action::Resume { job, .. } => Some((job, &decision.reason)),
            _ => None,
        })
    }

    /// Checks that jobs start in the order of the queue.
    fn check_order(&mut self, decisions: &[Decision]) {
        let mut waiting = self.state.queue();
        for pair in waiting.windows(2) {
            assert!(!self.is_before(pair[1], pair[0]), "{pair:?} stand the wrong way round");
        }
        waiting.retain(|job| self.retry.get(job).is_none_or(|until| *until <= self.now));
        for (job, reason) in Self::started_by(decisions) {
            self.retry.remove(&job);
            if !waiting.first().is_some_and(|first| self.is_before(*first, job)) {
                continue;
            }
            // Only the first that waits is blocked, and only where it is not delayed does another pass.
            assert!(self.state.settings().order.backfill, "job {job} passed {}", waiting[0]);
            let told = match reason {
                Reason::Backfilled { ahead, .. } | Reason::Borrowed { ahead, .. } => *ahead == waiting[0],
                Reason::HostOnly | Reason::Retried { .. } => true,
                _ => false,
            };
            assert!(told, "job {job} passed {} by {reason:?}", waiting[0]);
            self.passed += 1;
        }
    }

    /// In the way of the first job are only those who were when it became the first, those before it
    /// in the order, and those that are gone in time; so it waits for finitely many.
    fn check_head(&mut self, decisions: &[Decision], before: &BTreeSet<JobId>, anew: bool) {
        let Some((head, _)) = self.state.reserved_for() else {
            self.watch = None;
            return;
        };
        let blockers: BTreeSet<JobId> = self.state.blockers().collect();
        let view = |job: JobId| self.state.job(job);
        let gone = |phase: Phase| matches!(phase, Phase::Waiting | Phase::Held | Phase::Suspended);
        let there = |job: &JobId| view(*job).is_some_and(|view| !gone(view.phase));
        let come: BTreeSet<JobId> = Self::started_by(decisions).map(|(job, _)| job).collect();
        // When all have left and it still cannot start, it looks for another place, too.
        let anew = anew || !before.difference(&come).any(there);
        let Some(mut watch) = self.watch.take().filter(|watch| watch.head == head && !anew) else {
            self.watch = Some(Watch { head, may: blockers });
            return;
        };
        watch.may.retain(there);
        let end = |job: JobId| {
            let view = view(job)?;
            Some(self.now.plus(view.job.time_limit?.minus(view.ran)))
        };
        let behind: BTreeSet<JobId> = come.into_iter().filter(|job| self.is_before(head, *job)).collect();
        let by = blockers.difference(&behind).map(|job| end(*job)).collect::<Option<Vec<_>>>();
        let by = by.and_then(|by| by.into_iter().max());
        for (job, reason) in Self::started_by(decisions) {
            let gone = end(job).map(|end| end.plus(self.state.settings().eviction.kill_after));
            watch.may.remove(&job);
            if !behind.contains(&job) {
                self.overtaken += 1;
                // All that can put the one back and the other before: so none can come for ever.
                let order = &self.state.settings().order;
                let most = 2 * u64::try_from(order.most_priority).unwrap() * order.aging.0
                    + order.shortest_most.0
                    + order.fair.map_or(0, |fair| fair.most.0);
                if self.key(job).0 < self.key(head).0 {
                    // Jobs of users whose budget is not spent come before, for as long as there are any.
                    watch.may.insert(job);
                    continue;
                }
                let (first, other) = (view(head).unwrap().lined_up, view(job).unwrap().lined_up);
                assert!(other <= first.plus(Millis(most)), "job {job} came too late to be before {head}");
                watch.may.insert(job);
            } else if let Reason::Borrowed { limit, .. } = reason {
                // The head waits for it, and for none that borrows after those have left whose ends are not known.
                assert_eq!(view(job).and_then(|view| view.job.time_limit), Some(*limit));
                watch.may.insert(job);
            } else if gone.is_some_and(|gone| by.is_some_and(|by| gone <= by)) {
                watch.may.insert(job);
            }
        }
        let leaves = |job: &JobId| {
            view(*job).is_some_and(|view| matches!(view.phase, Phase::Stopping | Phase::Suspending))
        };
        let wrong: Vec<_> = blockers.iter().filter(|job| !watch.may.contains(job) && !leaves(job)).collect();
        assert!(
            wrong.is_empty(),
            "{wrong:?} came into the way of {head} at {:?}: {decisions:?} {:?} {:?}",
            self.now,
            self.state.history(*wrong[0]),
            self.state.history(head)
        );
        watch.may.extend(blockers);
        self.watch = Some(watch);
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Start { job, attempt, .. } => {
                assert!(self.alive.contains(job), "a job that is over was started");
                assert!(!self.suspended.contains(job) && !self.held.contains(job));
                let after = self.state.job(*job).map(|view| view.job.after).unwrap_or_default();
                let open =
                    after.iter().any(|after| self.alive.range(after.first..=after.last).next().is_some());
                assert!(!open, "job {job} was started before those that it waits for");
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
            Action::End { job, verdict } => {
                if !verdict.is_success() {
                    self.failed.insert(*job);
                }
                assert!(self.alive.remove(job), "job {job} ended twice");
                assert!(!self.running.contains_key(job), "job {job} ended while it runs");
                self.held.remove(job);
                self.ended += 1;
            }
            Action::Requeue { job, .. } => {
                assert!(self.alive.contains(job));
                assert!(!self.running.contains_key(job));
            }
            Action::Ready { job } => assert!(self.alive.contains(job) && !self.running.contains_key(job)),
            Action::SetAside { .. } | Action::SetBudget { .. } | Action::WakeAt { .. } => {}
        }
    }

    fn check(&self) {
        let known: BTreeSet<JobId> = self.state.jobs().collect();
        assert_eq!(known, self.alive, "a job was lost or kept");
        self.check_gate();
        for (job, (attempt, _)) in self.running.iter().filter(|(job, _)| !self.suspended.contains(job)) {
            let view = self.state.job(*job).unwrap();
            assert_eq!(view.attempts, *attempt);
            assert!(view.job.gpus == 0 || !view.devices.is_empty(), "job {job} runs where it has no place");
        }
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
        // The head starts at the latest when those have left who are in its way. Only unmanaged processes'
        // memory, and more in use than was set aside, can keep it longer.
        let Some((head, kept)) = self.state.reserved_for() else { return };
        let strange = self.state.devices().any(|view| {
            let over = |job: &JobId| {
                let set_aside = self.state.job(*job).and_then(|view| view.reserved);
                self.used.get(job).is_some_and(|used| set_aside.is_some_and(|bytes| *used > bytes))
            };
            kept.contains(&view.device.id) && (view.foreign > Bytes::ZERO || view.jobs.iter().any(over))
        });
        if self.state.settings().memory == Memory::Reserved && !(self.faults && strange) {
            assert!(
                self.state
                    .blockers()
                    .any(|job| self.running.contains_key(&job) || self.resuming.contains(&job)),
                "job {head} waits although no job is in its way: {:?}",
                self.state.history(head).last()
            );
        }
    }

    /// No job waits for one that failed, and no array has more jobs at once than it may.
    fn check_gate(&self) {
        let mut at_once: BTreeMap<JobId, u32> = BTreeMap::new();
        for id in &self.alive {
            let view = self.state.job(*id).unwrap();
            for after in view.job.after.iter().filter(|after| after.condition == Condition::Ok) {
                let failed = self.failed.range(after.first..=after.last).next();
                assert_eq!(failed, None, "job {id} waits for one that failed");
            }
            if let Some(limit) = view.job.array.filter(|_| view.phase != Phase::Held) {
                let count = at_once.entry(limit.array).or_default();
                *count += 1;
                assert!(*count <= limit.at_once, "{count} jobs of array {} at once", limit.array);
            }
        }
    }

    fn dependency(&mut self, id: u64) -> Dependency {
        let first = JobId(id.saturating_sub(1 + self.rng.below(6)));
        let last = JobId((first.0 + self.rng.below(3)).min(id - 1)).max(first);
        let condition = if self.rng.one_in(2) { Condition::Ok } else { Condition::Any };
        Dependency { condition, first, last, failed: self.failed.range(first..=last).next().copied() }
    }

    fn a_job(&mut self) -> Job {
        let id = JobId(self.next);
        self.next += 1;
        let mut job = Job::new(id);
        let most = if self.rng.one_in(50) { 50 } else { self.largest };
        let gib = 1 + self.rng.below(most);
        job.program = self.sums.then_some(Program(id.0 % 5));
        job.user = UserId(self.rng.below(3) as u32);
        job.priority = self.rng.below(3) as i32;
        job.gpus = match self.rng.below(20) {
            0 => 0,
            1..=3 => 2,
            4 => 3,
            _ => 1,
        };
        job.need = match self.rng.below(4) {
            0 => None,
            1 => {
                let source = match gib % 2 {
                    0 => Source::UserEstimate,
                    _ => Source::OtherBatchSizes { sizes: 2 },
                };
                Some(Need::new(Bytes::from_gib(gib), Bytes::from_gib(gib + gib / 4), None, source))
            }
            _ => Some(Need::measured(Bytes::from_gib(gib))),
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
        if self.rng.one_in(6) && id.0 > 1 {
            job.after.push(self.dependency(id.0));
        }
        job.array = self.rng.one_in(6).then_some(ArrayLimit { array: JobId(id.0 / 16 * 16), at_once: 2 });
        (job.held, job.host_use) = (self.rng.one_in(30), random::host_use(&mut self.rng));
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

    fn finish(&mut self, job: JobId, outcome: Outcome) -> Vec<Decision> {
        let (attempt, _) = self.running.remove(&job).unwrap();
        if self.suspending.contains(&job) || self.resuming.contains(&job) {
            let late = late_answer(&mut self.rng, job, attempt, self.suspending.contains(&job));
            self.late.push(late);
        }
        self.used.remove(&job);
        self.retry.remove(&job);
        self.suspending.remove(&job);
        self.suspended.remove(&job);
        self.resuming.remove(&job);
        self.step(Event::Finished { job, attempt, outcome })
    }

    /// One random thing happens.
    fn random(&mut self) -> Vec<Decision> {
        self.now = self.now.plus(Millis(self.rng.below(2000)));
        // The kinds of events of runs that are kept by their seeds stay the same.
        let kinds = if self.sums { 26 } else { 25 };
        match self.rng.below(kinds) {
            0..=5 => {
                let job = self.a_job();
                if self.alive.len() > 60 {
                    return self.step(Event::Tick);
                }
                self.alive.insert(job.id);
                if job.held {
                    self.held.insert(job.id);
                }
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
                    let outcome = outcome(&mut self.rng);
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
                    let attempt = self.running[&job].0;
                    if self.rng.one_in(3) {
                        return self.step(Event::SuspendFailed {
                            job,
                            attempt,
                            refusal: SuspendRefusal::Failed,
                        });
                    }
                    if self.state.job(job).is_some_and(|view| view.phase == Phase::Suspending) {
                        self.suspended.insert(job);
                    }
                    let bytes = Bytes::from_gib(1 + self.rng.below(8));
                    self.step(Event::Suspended { job, attempt, bytes })
                }
                None => self.step(Event::Tick),
            },
            15 => match self.pick(&self.resuming.clone()) {
                Some(job) => {
                    self.resuming.remove(&job);
                    let attempt = self.running[&job].0;
                    if self.rng.one_in(3) {
                        if self.state.job(job).is_some_and(|view| view.phase == Phase::Resuming) {
                            self.suspended.insert(job);
                        }
                        return self.step(Event::ResumeFailed { job, attempt });
                    }
                    self.step(Event::Resumed { job, attempt })
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
                    let need = Need::measured(Bytes::from_gib(1 + self.rng.below(39)));
                    self.step(Event::NeedKnown { job, need })
                }
                None => self.step(Event::Tick),
            },
            17 => match self.pick(&self.alive.clone()) {
                Some(job) => {
                    let phase = self.state.job(job).map(|view| view.phase);
                    if matches!(phase, Some(Phase::Waiting | Phase::Held)) {
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
                Some((job, attempt, _)) => {
                    let devices = self.state.job(job).map(|view| view.devices).unwrap_or_default();
                    let used = Bytes::from_gib(self.rng.below(if self.faults { 30 } else { 1 }));
                    let device = devices.first().copied().unwrap_or(DeviceId(99));
                    let seen = observation(&mut self.rng, used);
                    self.used.insert(job, used);
                    let observed = self.step(Event::JobObserved { job, device, seen });
                    let first = first_steps(&mut self.rng, used);
                    let news = self.step(Event::StepsObserved { job, attempt, first });
                    observed.into_iter().chain(news).collect()
                }
                None => self.step(Event::Tick),
            },
            21 => {
                let used = if self.faults { Bytes::from_gib(self.rng.below(41)) } else { Bytes::ZERO };
                let part = Permille(self.rng.below(1000) as u32);
                let smact = Some(part);
                let seen = Observation { used, smact, smocc: smact, drama: smact, ..Observation::default() };
                let device = DeviceId(self.rng.below(9) as u32);
                let observed = self.step(Event::DeviceObserved { device, seen });
                let together = Activity { smact: part, smocc: part, drama: part };
                let there = self.state.devices().find(|of| of.device.id == device);
                let jobs = there.map(|of| of.jobs).unwrap_or_default();
                // Every other time the launches of each are known, too.
                let own = |job: &JobId| Permille(part.0 / (1 + job.0 as u32 % 3));
                let each = jobs.iter().filter(|_| part.0.is_multiple_of(2)).map(own).collect();
                let company = match self.sums {
                    true => self.step(Event::CompanyObserved { device, jobs, together, each }),
                    false => Vec::new(),
                };
                observed.into_iter().chain(company).collect()
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
            22..=23 if !self.late.is_empty() => {
                let asked = self.late.iter().position(|late| match late {
                    Event::Suspended { job, .. } => self.suspending.contains(job),
                    Event::Resumed { job, .. } => self.resuming.contains(job),
                    _ => false,
                });
                let at = asked.unwrap_or_else(|| self.rng.below(self.late.len() as u64) as usize);
                // Some come very late: when another attempt is asked the same.
                match asked.is_some() || self.rng.one_in(10) {
                    true => {
                        let late = self.late.swap_remove(at);
                        self.step(late)
                    }
                    false => self.step(Event::Tick),
                }
            }
            24 => match self.pick_running() {
                Some((job, ..)) => {
                    let held = self.rng.one_in(2);
                    self.step(Event::SignalHeld { job, held })
                }
                None => self.step(Event::Tick),
            },
            25 => {
                let (user, behind) = (self.rng.below(3) as u32, self.rng.one_in(2));
                self.set_behind(user, behind)
            }
            _ => self.step(Event::Tick),
        }
    }

    fn set_behind(&mut self, user: u32, behind: bool) -> Vec<Decision> {
        let allowance = Box::new(Allowance { behind, ..Allowance::default() });
        self.step(Event::AllowanceSet { user: UserId(user), allowance })
    }

    fn restore(&mut self, id: DeviceId) {
        self.step(Event::DeviceAdded { device: device(id.0) });
    }

    /// Its processes run, or are to be killed where they are suspended.
    fn may_end(&self, job: JobId) -> bool {
        let stops = || self.state.job(job).is_some_and(|view| view.phase == Phase::Stopping);
        !self.suspended.contains(&job) || stops()
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
                let attempt = self.running[&job].0;
                self.step(Event::SuspendFailed { job, attempt, refusal: SuspendRefusal::Failed });
            } else if let Some(job) = self.resuming.pop_first() {
                let attempt = self.running[&job].0;
                self.step(Event::Resumed { job, attempt });
            } else if let Some(job) = self.running.keys().copied().find(|job| self.may_end(*job)) {
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

/// A gang was lost here once: its machines were searched only as far as they had changed.
#[test]
fn the_gang_that_an_earlier_search_lost_is_served() {
    let mut world = World::new(settings(Policy::Horus, Kind::Monitored), 838_933_629_825_503_808, true);
    world.sums = false;
    for _ in 0..STEPS {
        world.random();
    }
    world.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..cases(12) })]

    #[test]
    fn random_events_lose_double_over_commit_and_starve_no_job(
        seed in any::<u64>(), policy in policies(), kind in kinds(), faults in any::<bool>(),
    ) {
        let mut world = World::new(settings(policy, kind), seed, faults);
        for _ in 0..STEPS {
            world.random();
        }
        prop_assert!(world.started > 500, "only {} starts: the test is about nothing", world.started);
        // Of 155 runs the one with the fewest served 25 heads, and let 858 pass. None means nothing was blocked.
        prop_assert!(world.heads > 0 && world.passed > 0, "no head was served, or none was passed");
        world.drain();
    }

    #[test]
    fn published_settings_lose_and_double_nothing_and_pass_no_job(seed in any::<u64>(), policy in policies()) {
        let mut world = World::new(Settings::published(policy), seed, false);
        for _ in 0..STEPS {
            world.random();
        }
        world.drain();
    }

    #[test]
    fn who_starts_after_a_pause_does_not_depend_on_the_order_in_which_jobs_were_told(
        seed in any::<u64>(), policy in policies(), kind in kinds(),
    ) {
        let run = |turn: usize| {
            let mut world = World::new(settings(policy, kind), seed, false);
            world.step(Event::Paused { paused: true });
            // Those that wait for others, and arrays, come in the order of their numbers.
            let apart = |job: Job| Job { after: Vec::new(), array: None, ..job };
            let mut jobs: Vec<Job> = (0..40).map(|_| apart(world.a_job())).collect();
            jobs.rotate_left(turn);
            for job in jobs {
                world.alive.insert(job.id);
                let decisions = world.step(Event::Submitted { job: Box::new(job) });
                assert_eq!(World::started_by(&decisions).next(), None);
            }
            world.step(Event::Paused { paused: false })
        };
        let first = run(0);
        prop_assert!(World::started_by(&first).next().is_some());
        for turn in [1, 7, 20, 39] {
            prop_assert_eq!(&first, &run(turn));
        }
    }

    #[test]
    fn equal_events_give_equal_decisions(seed in any::<u64>(), policy in policies()) {
        let run = || {
            let mut world = World::new(settings(policy, Kind::Default), seed, true);
            (0..STEPS).flat_map(|_| world.random()).collect::<Vec<_>>()
        };
        let first = run();
        prop_assert!(first.len() > 2000);
        prop_assert_eq!(first, run());
    }
}
