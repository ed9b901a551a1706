//! A daemon's events, fed again: the same decisions must come out.
//!
//! A node daemon may write down what it fed into its [`State`] and what that decided, one [`Entry`]
//! after the other. [`Again`] feeds the same events to a state of its own and holds its decisions
//! against those that were written down. A daemon that comes back begins with a new state, so its
//! recovery is part of its events.

use serde::{Deserialize, Serialize};

use crate::action::Decision;
use crate::event::Event;
use crate::settings::Settings;
use crate::state::State;
use crate::units::Millis;

/// A line of a daemon's log of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A daemon began, with nothing known.
    Start {
        /// Its version.
        version: String,
        /// The settings in force.
        settings: Box<Settings>,
    },
    /// Something happened.
    Step {
        /// Time of the event, ms since 1970.
        at: Millis,
        /// The event.
        event: Event,
        /// Decisions made then.
        decisions: Vec<Decision>,
    },
    /// Lines are missing here: there was no room for them.
    Gap {
        /// Number of missing lines.
        lines: u64,
    },
}

/// Decisions that differ from those that were written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Time of the event, ms since 1970.
    pub at: Millis,
    /// After which event.
    pub event: Event,
    /// Decisions that the daemon logged.
    pub logged: Vec<Decision>,
    /// Decisions that come out now.
    pub now: Vec<Decision>,
}

/// Result of feeding an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Fed {
    /// A new state.
    Started,
    /// The same decisions.
    Same(Vec<Decision>),
    /// Others.
    Different(Box<Difference>),
    /// The state is not known here: before the first start, or behind a gap.
    Passed,
}

/// Feeds entries to a state of its own.
#[derive(Clone, Debug, Default)]
pub struct Again {
    state: Option<State>,
}

impl Again {
    /// Takes the next entry.
    pub fn feed(&mut self, entry: Entry) -> Fed {
        let Entry::Step { at, event, decisions: logged } = entry else {
            self.state = match entry {
                Entry::Start { settings, .. } => Some(State::new(*settings)),
                _ => None,
            };
            return if self.state.is_some() { Fed::Started } else { Fed::Passed };
        };
        let Some(state) = &mut self.state else { return Fed::Passed };
        let now = state.step(at, event.clone());
        if now == logged {
            return Fed::Same(now);
        }
        // From here on everything would differ.
        self.state = None;
        Fed::Different(Box::new(Difference { at, event, logged, now }))
    }

    /// The state as it is now, where it is known.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use radrm_base::{HostUse, ProgramKind};
    use radrm_need::{DryRun, Source};

    use super::*;
    use crate::{Action, Bytes, Job, JobId, Need, Reason, replay::Cluster};

    fn logged() -> Vec<Entry> {
        let settings = Settings::default();
        let mut state = State::new(settings.clone());
        let mut entries = vec![Entry::Start { version: "1".into(), settings: Box::new(settings) }];
        let devices = Cluster::uniform(2, "A", Bytes::from_gib(40)).devices;
        let events = devices.into_iter().map(|device| Event::DeviceAdded { device });
        let jobs = (1..9).map(|id| {
            let need = Some(Need::measured(Bytes::from_gib(3 * id)));
            Event::Submitted { job: Box::new(Job { need, ..Job::new(JobId(id)) }) }
        });
        for (at, event) in events.chain(jobs).chain([Event::Cancelled { job: JobId(1) }]).enumerate() {
            let at = Millis(1_700_000_000_000 + 7 * at as u64);
            let decisions = state.step(at, event.clone());
            entries.push(Entry::Step { at, event, decisions });
        }
        entries
    }

    /// One event of each kind, in an order in which each of them finds what it is about.
    fn of_each_kind() -> Vec<Event> {
        use crate::outcome::{Evidence, Outcome};
        use crate::{
            Activity, AdvanceReservation, After, Allowance, AllowedDevices, Bound, HostNeed, JobObservation,
            Leaving, Node, NodeId, Observation, Permille, Preemption, ReservedFor, Signal, SuspendRefusal,
            UserId, UserLimits,
        };
        let devices = Cluster::uniform(3, "A", Bytes::from_gib(40)).devices;
        let preemption = Preemption {
            allowed: true,
            checkpoint_signal: Some(10),
            grace: Millis(100),
            suspend: Err(SuspendRefusal::NoShim),
        };
        let job = |id: u64, gib: u64| Job {
            need: Some(Need::measured(Bytes::from_gib(gib))),
            host: HostNeed { cpu_milli: 1000, memory: Bytes::from_gib(1) },
            submitted: Millis(id),
            preemption,
            ..Job::new(JobId(id))
        };
        let submitted = |job: Job| Event::Submitted { job: Box::new(job) };
        let (id, device) = (JobId, devices[0].id);
        let node =
            Node { id: NodeId(0), cpu_milli: 64_000, memory: Bytes::from_gib(256), memory_bandwidth: None };
        let leaving = Leaving {
            after: After::Requeue,
            signal: Signal::Checkpoint(10),
            reason: Reason::MoreImportant { job: id(9) },
            slot_over: true,
        };
        let seen =
            Observation { used: Bytes::from_gib(7), smact: Some(Permille(500)), ..Observation::default() };
        let of_sharer = Activity { smact: Permille(700), smocc: Permille(300), drama: Permille(200) };
        let activity = Some(of_sharer);
        let host_use =
            Some(HostUse { cpu_milli: 1500, threads: 2, resident: Bytes::from_gib(1), ..HostUse::default() });
        let of_job = JobObservation {
            used: Bytes::from_gib(2),
            peak: Bytes::from_gib(3),
            speed: Some(Permille(900)),
            activity,
            host_use,
        };
        let estimate = Need::new(
            Bytes::from_gib(5),
            Bytes::from_gib(6),
            Some(Permille(950)),
            Source::DryRun {
                run: DryRun {
                    held: Bytes(7),
                    kind: Some(ProgramKind::Other),
                    steps: 3,
                    gpu: "A".into(),
                    background: true,
                    ..DryRun::default()
                },
                runs: 2,
                left_out: None,
            },
        );
        let out_of_memory =
            Outcome::OutOfMemory { seen: Some(Bytes::from_gib(9)), evidence: Evidence::Shim, code: 1 };
        let added = devices.iter().cloned().map(|device| Event::DeviceAdded { device });
        [Event::Paused { paused: true }, Event::NodeAdded { node }]
            .into_iter()
            .chain(added)
            .chain([
                Event::UserLimitsSet { limits: UserLimits { jobs: Some(3), priority: Some(8) } },
                Event::AllowanceSet {
                    user: UserId(7),
                    allowance: Box::new(Allowance {
                        gpus: Some(Bound { most: 2, from: "default".into() }),
                        devices: Some(AllowedDevices { devices: vec![device], from: "group lab".into() }),
                        behind: true,
                        ..Allowance::default()
                    }),
                },
                Event::AdvanceReservationsSet {
                    reservations: vec![AdvanceReservation {
                        devices: vec![device],
                        users: vec![UserId(7)],
                        begins: Millis(5_000_000),
                        ends: Millis(6_000_000),
                        lead: Millis(1000),
                        evicts: true,
                        spared: vec![UserId(8)],
                        text: ReservedFor { whose: "alice".into(), ..ReservedFor::default() },
                    }],
                },
                Event::UsageRestored { user: UserId(0), gpu_ms: 5000 },
                Event::Adopted {
                    job: Box::new(job(1, 10)),
                    devices: vec![device],
                    since: Millis(1),
                    reserved: Some(Bytes::from_gib(10)),
                    leaving: Some(Box::new(leaving)),
                },
                Event::AdoptedSuspended {
                    job: Box::new(job(2, 10)),
                    model: "A".into(),
                    bytes: Bytes::from_gib(10),
                    gpus: 1,
                    devices: vec![devices[1].id],
                    whole: false,
                    ran: Millis(7),
                },
                submitted(job(3, 20)),
                submitted(Job { need: None, awaits_dry_run: true, ..job(4, 1) }),
                Event::Held { job: id(4) },
                Event::NeedKnown { job: id(4), need: estimate },
                Event::DryRunOver { job: id(4) },
                Event::ProfileKnown {
                    job: id(4),
                    activity,
                    predicted: activity,
                    expected: Some(Millis(900)),
                    at_least: Some(Millis(700)),
                    host_use,
                },
                Event::Paused { paused: false },
                Event::Started { job: id(3), attempt: 1 },
                Event::StartOverdue { job: id(3), attempt: 9, limit: Millis(1) },
                Event::ResumeFailed { job: id(2), attempt: 1 },
                Event::Resumed { job: id(2), attempt: 1 },
                Event::SignalHeld { job: id(1), held: true },
                Event::SignalHeld { job: id(1), held: false },
                Event::DeviceObserved { device, seen },
                Event::SharingObserved {
                    model: "A".into(),
                    jobs: [1, 2]
                        .map(|program| crate::Sharer {
                            program: crate::Program(u64::MAX - program),
                            activity: of_sharer,
                            speed: Permille(600),
                        })
                        .to_vec(),
                },
                Event::JobObserved { job: id(3), device, seen: of_job },
                Event::CompanyObserved {
                    device,
                    jobs: vec![id(3)],
                    together: of_sharer,
                    each: vec![Permille(170)],
                },
                Event::TargetObserved {
                    job: id(3),
                    seen: crate::TargetObservation {
                        latency_ns: Some(17),
                        speed: Some(Permille(900)),
                        under_way: Some(Permille(250)),
                        unseen: Some(crate::Unseen::NeverAlone),
                    },
                },
                Event::StepsObserved {
                    job: id(4),
                    attempt: 1,
                    first: crate::early::FirstSteps {
                        steps: 3,
                        held: Bytes::from_gib(2),
                        fixed: Some(crate::early::FixedBy::EarlierRuns { runs: 2 }),
                    },
                },
                Event::SuspendKnown { job: id(3), suspend: Ok(()) },
                Event::Released { job: id(4) },
                Event::Started { job: id(4), attempt: 1 },
                submitted(Job {
                    exclusive: true,
                    gpus: 3,
                    priority: 9,
                    by_admin: true,
                    admitted: true,
                    ..job(5, 30)
                }),
                submitted(job(6, 30)),
                submitted(Job { held: true, user: UserId(7), priority: 9, ..job(7, 30) }),
                submitted(Job { held: true, user: UserId(7), ..job(8, 50) }),
                Event::Suspended { job: id(3), attempt: 1, bytes: Bytes::from_gib(8) },
                Event::SuspendFailed { job: id(4), attempt: 1, refusal: SuspendRefusal::Failed },
                Event::Finished { job: id(1), attempt: 1, outcome: out_of_memory },
                Event::DeviceDrained { device, drained: true },
                Event::DeviceLost { device: devices[1].id },
                Event::DeviceAdded { device: devices[1].clone() },
                Event::Cancelled { job: id(5) },
                Event::Tick,
            ])
            .collect()
    }

    /// The number of an event's kind. A new kind does not compile until it is here, and then fails the test until
    /// [`of_each_kind`] has one.
    fn kind(event: &Event) -> usize {
        match event {
            Event::NodeAdded { .. } => 0,
            Event::DeviceAdded { .. } => 1,
            Event::DeviceLost { .. } => 2,
            Event::DeviceDrained { .. } => 3,
            Event::DeviceObserved { .. } => 4,
            Event::JobObserved { .. } => 5,
            Event::Submitted { .. } => 6,
            Event::Adopted { .. } => 7,
            Event::AdoptedSuspended { .. } => 8,
            Event::UsageRestored { .. } => 9,
            Event::NeedKnown { .. } => 10,
            Event::ProfileKnown { .. } => 11,
            Event::Cancelled { .. } => 12,
            Event::Held { .. } => 13,
            Event::Released { .. } => 14,
            Event::Started { .. } => 15,
            Event::Finished { .. } => 16,
            Event::SuspendKnown { .. } => 17,
            Event::Suspended { .. } => 18,
            Event::SuspendFailed { .. } => 19,
            Event::Resumed { .. } => 20,
            Event::ResumeFailed { .. } => 21,
            Event::SignalHeld { .. } => 22,
            Event::Paused { .. } => 23,
            Event::UserLimitsSet { .. } => 24,
            Event::SharingObserved { .. } => 25,
            Event::TargetObserved { .. } => 26,
            Event::StepsObserved { .. } => 27,
            Event::DryRunOver { .. } => 28,
            Event::AllowanceSet { .. } => 29,
            Event::CompanyObserved { .. } => 30,
            Event::AdvanceReservationsSet { .. } => 31,
            Event::StartOverdue { .. } => 32,
            Event::Tick => KINDS - 1,
        }
    }

    const KINDS: usize = 34;

    #[test]
    fn events_of_every_kind_are_read_back_and_decided_alike() {
        let settings = Settings::default();
        let mut state = State::new(settings.clone());
        let mut again = Again::default();
        let start = Entry::Start { version: "1".into(), settings: Box::new(settings) };
        assert_eq!(again.feed(through_text(&start)), Fed::Started);
        let mut kinds = [0; KINDS];
        let mut decided = 0;
        for (at, event) in of_each_kind().into_iter().enumerate() {
            kinds[kind(&event)] += 1;
            let at = Millis(1_700_000_000_000 + 40 * at as u64);
            let decisions = state.step(at, event.clone());
            decided += decisions.len();
            let entry = Entry::Step { at, event, decisions: decisions.clone() };
            let read = through_text(&entry);
            assert_eq!(read, entry);
            assert_eq!(again.feed(read), Fed::Same(decisions), "{entry:?}");
        }
        assert!(kinds.iter().all(|count| *count > 0), "a kind is missing: {kinds:?}");
        assert!(decided > 10, "{decided} decisions: the test is about nothing");
    }

    /// As a file would have it.
    fn through_text(entry: &Entry) -> Entry {
        let text = serde_json::to_string(entry).unwrap();
        assert!(!text.contains('\n'));
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_same_events_give_the_same_decisions_also_through_a_file() {
        let entries = logged();
        let mut again = Again::default();
        let mut starts = 0;
        // A daemon that came back is a new state.
        for entry in entries.iter().chain(&entries) {
            match again.feed(through_text(entry)) {
                Fed::Same(decisions) => {
                    let started = |decision: &&Decision| matches!(decision.action, Action::Start { .. });
                    starts += decisions.iter().filter(started).count();
                }
                Fed::Started => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(starts > 4, "{starts}");
    }

    #[test]
    fn another_decision_is_found_and_nothing_is_claimed_behind_it() {
        let mut entries = logged();
        let Some(Entry::Step { decisions, .. }) = entries.get_mut(4) else { panic!() };
        decisions.push(Decision { action: Action::WakeAt { at: Millis(1) }, reason: Reason::Timer });
        let mut again = Again::default();
        let fed: Vec<Fed> = entries.into_iter().map(|entry| again.feed(entry)).collect();
        let Fed::Different(difference) = &fed[4] else { panic!("{:?}", fed[4]) };
        assert_eq!(difference.logged.len(), difference.now.len() + 1);
        assert!(matches!(fed[3], Fed::Same(_)) && fed[5..].iter().all(|fed| *fed == Fed::Passed));
    }

    #[test]
    fn behind_a_gap_nothing_is_claimed_until_the_next_start() {
        let entries = logged();
        let mut again = Again::default();
        assert_eq!(again.feed(entries[1].clone()), Fed::Passed);
        assert_eq!(again.feed(entries[0].clone()), Fed::Started);
        assert_eq!(again.feed(Entry::Gap { lines: 3 }), Fed::Passed);
        assert_eq!(again.feed(entries[2].clone()), Fed::Passed);
        assert_eq!(again.feed(entries[0].clone()), Fed::Started);
        assert!(matches!(again.feed(entries[1].clone()), Fed::Same(_)));
    }
}
