//! A week of fifteen users on eight GPUs, while each of their limits changes, GPUs are reserved and the scheduler is begun anew.

use std::collections::BTreeMap;

use crate::common::random::Rng;
use crate::common::{DONE, Node, with};
use radrm_scheduler_core::{
    Action, AdvanceReservation, Allowance, AllowedDevices, Bound, Bytes, Decision, DeviceId, Event, Job,
    JobId, Millis, Need, Phase, Policy, Preemption, Quiet, ReservedFor, SmallJobs, UserId,
};

const USERS: u32 = 15;
const GPUS: u32 = 8;
const STEP_MS: u64 = 300_000;
const HOUR_MS: u64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
/// Time that a job has to end after its limit: `eviction.kill_after` as it is by default.
const KILL_AFTER_MS: u64 = 30_000;

/// An attempt that runs.
struct Run {
    job: Job,
    attempt: u32,
    devices: Vec<DeviceId>,
    reserved: Option<Bytes>,
    since: Millis,
}

struct Lab {
    node: Node,
    rng: Rng,
    limits: BTreeMap<u32, Allowance>,
    reservations: Vec<AdvanceReservation>,
    /// Jobs that were asked to leave for a reservation's people.
    evicted: u64,
    /// Jobs that wait, and how long each will run, ms.
    waiting: BTreeMap<u64, Job>,
    lengths: BTreeMap<u64, u64>,
    running: BTreeMap<u64, Run>,
    /// Jobs of each user that were started.
    starts: BTreeMap<u32, u64>,
    refused: u64,
    /// Waits of each kind that were seen.
    seen: BTreeMap<&'static str, u64>,
}

fn bound(most: u64) -> Option<Bound> {
    Some(Bound { most, from: "default".to_owned() })
}

/// Jobs and GPUs of a user's jobs that run.
fn held(running: &BTreeMap<u64, Run>, user: u32) -> (u64, u64) {
    let own = running.values().filter(|run| run.job.user.0 == user);
    own.fold((0, 0), |(jobs, gpus), run| (jobs + 1, gpus + run.devices.len() as u64))
}

impl Lab {
    fn new(seed: u64) -> Self {
        Self {
            node: Node::new(GPUS, with(Policy::FirstFit)),
            rng: Rng::seeded(seed),
            limits: BTreeMap::new(),
            reservations: Vec::new(),
            evicted: 0,
            waiting: BTreeMap::new(),
            lengths: BTreeMap::new(),
            running: BTreeMap::new(),
            starts: BTreeMap::new(),
            refused: 0,
            seen: BTreeMap::new(),
        }
    }

    fn limits_of(&self, user: u32) -> Allowance {
        self.limits.get(&user).cloned().unwrap_or_default()
    }

    /// Returns true if the limits let the job never start.
    fn is_never(&self, job: &Job) -> bool {
        let of = self.limits_of(job.user.0);
        let (gpus, on_gpus) = (u64::from(job.gpus), job.gpus > 0);
        let need = job.need.as_ref().map_or(0, |need| need.upper.0);
        of.gpus.is_some_and(|bound| gpus > bound.most)
            || of.running.is_some_and(|bound| bound.most == 0)
            || of.time.is_some_and(|bound| job.time_limit.is_none_or(|limit| limit.0 > bound.most))
            || (on_gpus && of.memory.is_some_and(|bound| need > bound.most))
            || (on_gpus && of.devices.is_some_and(|allowed| (allowed.devices.len() as u64) < gpus))
    }

    /// Carries out decisions, and checks each start against the limits of its user.
    fn follow(&mut self, decisions: Vec<Decision>) {
        for Decision { action, reason } in decisions {
            if let Action::Signal { job, .. } = action {
                let (run, why) = (self.running.remove(&job.0).expect("a job that runs"), reason.to_string());
                assert!(why.contains("kept for") && run.job.preemption.allowed, "{why}");
                self.evicted += 1;
                self.waiting.insert(job.0, Job { attempts: run.attempt, ..run.job });
                let more = self.node.finish(job.0, DONE);
                self.follow(more);
                continue;
            }
            let Action::Start { job: id, attempt, devices, limit, reserved } = action else { continue };
            let job = self.waiting.remove(&id.0).expect("a job that waits");
            let (user, gpus) = (job.user.0, devices.len() as u64);
            assert_eq!(gpus, u64::from(job.gpus));
            let of = self.limits_of(user);
            let who = format!("user {user}'s job {id} at {:?}: {of:?}", self.node.now);
            assert!(!self.is_never(&job) && of.quiet.is_none(), "{who}");
            self.assert_reservations_allow(&job, &devices);
            if let Some(allowed) = &of.devices {
                assert!(devices.iter().all(|device| allowed.devices.contains(device)), "{who}: {devices:?}");
            }
            if let Some(most) = of.memory.as_ref().filter(|_| gpus > 0) {
                assert!(limit.is_some_and(|limit| limit.0 <= most.most), "{who}: {limit:?}");
            }
            let since = self.node.now;
            let run = Run { job: job.clone(), attempt, devices, reserved, since };
            self.running.insert(id.0, run);
            *self.starts.entry(user).or_default() += 1;
            let (jobs, all) = held(&self.running, user);
            let within = |bound: &Option<Bound>, value: u64| bound.as_ref().is_none_or(|b| value <= b.most);
            assert!(gpus == 0 || within(&of.gpus, all), "{who}: {all} GPUs");
            assert!(within(&of.running, jobs), "{who}: {jobs} jobs");
            // It leaves room for each job of the user that is before it.
            let before = |other: &&Job| {
                other.user.0 == user
                    && (other.submitted, other.id) < (job.submitted, job.id)
                    && self.node.state.phase(other.id) == Some(Phase::Waiting)
            };
            for other in self.waiting.values().filter(before) {
                let needs = u64::from(other.gpus);
                let leaves = (needs == 0 || within(&of.gpus, all + needs)) && within(&of.running, jobs + 1);
                assert!(leaves, "{who} passes job {}", other.id);
            }
            let more = self.node.step(Event::Started { job: id, attempt });
            self.follow(more);
        }
    }

    /// On GPUs that are kept for others only what is gone before starts, and nothing while they are kept.
    fn assert_reservations_allow(&self, job: &Job, devices: &[DeviceId]) {
        let now = self.node.now.0;
        let others = self.reservations.iter().filter(|of| {
            of.ends.0 > now
                && !of.users.contains(&job.user)
                && of.devices.iter().any(|at| devices.contains(at))
        });
        for of in others {
            let gone = match job.time_limit {
                Some(limit) => now + limit.0 + KILL_AFTER_MS <= of.begins.0,
                None => now + of.lead.0 <= of.begins.0,
            };
            assert!(gone, "job {} of {:?} on {devices:?} at {now}: {of:?}", job.id, job.user);
        }
    }

    /// Up to three reservations of some GPUs for some users, which begin within a day and end within two.
    fn change_reservations(&mut self) {
        let now = self.node.now.0;
        let count = self.rng.below(4);
        let mut list: Vec<AdvanceReservation> = self.reservations.clone();
        list.retain(|of| of.ends.0 > now);
        list.truncate(count as usize);
        let begins = now + HOUR_MS * self.rng.below(24);
        let devices: Vec<u32> = (0..GPUS).filter(|_| self.rng.one_in(2)).collect();
        list.push(AdvanceReservation {
            devices: devices.iter().copied().map(DeviceId).collect(),
            users: (0..USERS).filter(|_| self.rng.one_in(5)).map(UserId).collect(),
            begins: Millis(begins),
            ends: Millis(begins + HOUR_MS * (1 + self.rng.below(24))),
            lead: Millis(HOUR_MS * self.rng.below(8)),
            evicts: self.rng.one_in(2),
            spared: Vec::new(),
            text: ReservedFor {
                gpus: devices.iter().map(u32::to_string).collect(),
                whose: "some".to_owned(),
                from: begins.to_string(),
                ..ReservedFor::default()
            },
        });
        self.reservations = list;
        let reservations = self.reservations.clone();
        self.step(Event::AdvanceReservationsSet { reservations });
    }

    fn step(&mut self, event: Event) {
        let decisions = self.node.step(event);
        self.follow(decisions);
    }

    fn submit(&mut self, id: u64) {
        let user = self.rng.below(u64::from(USERS)) as u32;
        let gpus = [0, 1, 1, 1, 2, 3][self.rng.below(6) as usize];
        let length = HOUR_MS / 6 * (1 + self.rng.below(24));
        let limit = (!self.rng.one_in(4)).then(|| Millis(length + HOUR_MS));
        let need = Need::declared(Bytes::from_gib(1 + self.rng.below(30)));
        let job = Job {
            user: UserId(user),
            gpus,
            need: (gpus > 0).then_some(need),
            exclusive: gpus > 0 && self.rng.one_in(2),
            time_limit: limit,
            preemption: Preemption { allowed: self.rng.one_in(2), ..Preemption::default() },
            submitted: self.node.now,
            ..Job::new(JobId(id))
        };
        let admitted = self.node.state.admission(&job, 0);
        assert_eq!(admitted.is_err(), self.is_never(&job), "{job:?}: {admitted:?}");
        if admitted.is_err() {
            self.refused += 1;
            return;
        }
        self.waiting.insert(id, job.clone());
        self.lengths.insert(id, length);
        self.step(Event::Submitted { job: Box::new(job) });
    }

    fn change_a_limit(&mut self) {
        let user = self.rng.below(u64::from(USERS)) as u32;
        let mut of = self.limits_of(user);
        let lifted = !self.rng.one_in(3);
        let number = self.rng.below(4);
        match self.rng.below(7) {
            0 => of.gpus = bound(number).filter(|_| !lifted),
            1 => of.running = bound(number).filter(|_| !lifted),
            2 => of.time = bound(HOUR_MS * (1 + number)).filter(|_| !lifted),
            3 => of.memory = bound((8 * (number + 1)) << 30).filter(|_| !lifted),
            4 => {
                let devices = (0..GPUS).filter(|_| self.rng.one_in(2)).map(DeviceId).collect();
                let allowed = AllowedDevices { devices, from: "group lab".to_owned() };
                of.devices = Some(allowed).filter(|_| !lifted);
            }
            5 => {
                let (hours, from) = ("00:00-24:00".to_owned(), "default".to_owned());
                let quiet = Quiet { hours, from, small: SmallJobs::default() };
                of.quiet = Some(quiet).filter(|_| of.quiet.is_none());
            }
            _ => of.behind = !of.behind,
        }
        self.set(user, of);
    }

    fn set(&mut self, user: u32, of: Allowance) {
        self.limits.insert(user, of.clone());
        self.step(Event::AllowanceSet { user: UserId(user), allowance: Box::new(of) });
    }

    /// Programs end whose time is over.
    fn end_some(&mut self) {
        let now = self.node.now.0;
        let is_over = |(id, run): (&u64, &Run)| (now >= run.since.0 + self.lengths[id]).then_some(*id);
        for id in self.running.iter().filter_map(is_over).collect::<Vec<_>>() {
            self.running.remove(&id);
            let decisions = self.node.finish(id, DONE);
            self.follow(decisions);
        }
    }

    /// The scheduler is begun anew, and learns what there is as a daemon that was killed does.
    fn begin_anew(&mut self) {
        let before = (self.order_by_user(), self.holdings());
        let usage: Vec<(UserId, u64)> = self.node.state.usage().collect();
        let now = self.node.now;
        self.node = Node::new(GPUS, with(Policy::FirstFit));
        self.node.now = now;
        self.node.step(Event::Paused { paused: true });
        for (user, gpu_ms) in usage {
            self.node.step(Event::UsageRestored { user, gpu_ms });
        }
        for (user, of) in self.limits.clone() {
            self.node.step(Event::AllowanceSet { user: UserId(user), allowance: Box::new(of) });
        }
        let reservations = self.reservations.clone();
        self.node.step(Event::AdvanceReservationsSet { reservations });
        for run in self.running.values() {
            let job = Box::new(Job { attempts: run.attempt, admitted: true, ..run.job.clone() });
            let (devices, reserved) = (run.devices.clone(), run.reserved);
            self.node.step(Event::Adopted { job, devices, since: run.since, reserved, leaving: None });
        }
        for job in self.waiting.values() {
            let job = Box::new(Job { admitted: true, ..job.clone() });
            self.node.step(Event::Submitted { job });
        }
        assert_eq!((self.order_by_user(), self.holdings()), before, "after a restart");
        self.step(Event::Paused { paused: false });
    }

    /// The queued jobs of each user, in order. How users' jobs come after each other depends on shares that are rounded.
    fn order_by_user(&self) -> BTreeMap<u32, Vec<JobId>> {
        let mut order = BTreeMap::<u32, Vec<JobId>>::new();
        for job in self.node.state.queue() {
            order.entry(self.waiting[&job.0].user.0).or_default().push(job);
        }
        order
    }

    fn holdings(&self) -> Vec<(u64, u64)> {
        let of = |user| self.node.state.holding(UserId(user));
        (0..USERS).map(of).map(|held| (held.jobs, held.gpus)).collect()
    }

    fn check(&mut self) {
        for (user, state) in (0..USERS).zip(self.holdings()) {
            assert_eq!(state, held(&self.running, user), "user {user}");
        }
        let order = self.node.state.queue();
        let is_behind = |id: &JobId| self.limits_of(self.waiting[&id.0].user.0).behind;
        let first_behind = order.iter().position(is_behind).unwrap_or(order.len());
        assert!(order[first_behind..].iter().all(is_behind), "a job comes behind one that is set back");
        let never = self.waiting.values().filter(|job| self.is_never(job)).count();
        assert_eq!(order.len() + never, self.waiting.len(), "jobs out of the queue without a reason");
        let texts = [
            "at once (gpus",
            "(running_jobs",
            "(max_time",
            "(memory",
            "(allowed_gpus",
            "(quiet_hours",
            "kept for some",
        ];
        for id in self.waiting.keys() {
            let why = self.node.state.history(JobId(*id)).pop().map(|line| line.1.to_string());
            let why = why.unwrap_or_default();
            let found = texts.iter().filter(|text| why.contains(**text));
            found.for_each(|text| *self.seen.entry(text).or_default() += 1);
        }
    }
}

#[test]
fn in_a_week_of_changing_limits_no_user_exceeds_one_and_no_job_starves() {
    let mut seen = BTreeMap::<&str, u64>::new();
    let mut evicted = 0;
    for seed in 1..=6 {
        let mut lab = Lab::new(seed);
        let mut next = 0;
        while lab.node.now.0 < WEEK_MS {
            lab.node.now = Millis(lab.node.now.0 + STEP_MS);
            lab.end_some();
            for _ in 0..USERS {
                if lab.rng.one_in(60) {
                    next += 1;
                    lab.submit(next);
                }
            }
            if lab.rng.one_in(2) {
                lab.change_a_limit();
            }
            if lab.rng.one_in(20) {
                lab.change_reservations();
            }
            if lab.rng.one_in(150) {
                lab.begin_anew();
            }
            lab.step(Event::Tick);
            lab.check();
        }
        assert_eq!(lab.starts.len(), USERS as usize, "each user had a job that ran: {:?}", lab.starts);
        assert!(lab.refused > 20, "{}", lab.refused);
        evicted += lab.evicted;
        for (text, count) in &lab.seen {
            *seen.entry(text).or_default() += count;
        }
        // Limits that let each job start some time: all of them do, also those of users who are set back.
        for user in 0..USERS {
            let behind = lab.limits_of(user).behind;
            lab.set(user, Allowance { gpus: bound(3), running: bound(2), behind, ..Allowance::default() });
        }
        for _ in 0..60 * WEEK_MS / STEP_MS / 7 {
            lab.node.now = Millis(lab.node.now.0 + STEP_MS);
            lab.end_some();
            lab.step(Event::Tick);
            lab.check();
            if lab.waiting.is_empty() && lab.running.is_empty() {
                break;
            }
        }
        assert!(lab.waiting.is_empty(), "they wait though their limits let them start: {:?}", lab.waiting);
    }
    assert!(evicted > 10, "{evicted} jobs made room for a reservation's people");
    assert!(seen.len() == 7 && seen.values().all(|count| *count > 20), "each limit was in the way: {seen:?}");
}
