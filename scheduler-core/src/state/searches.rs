//! Searches among the devices that changed find what searches among all devices find.

use radrm_base::random::Rng;

use super::State;
use crate::action::{Action, Decision};
use crate::device::{Device, DeviceId, Node, NodeId};
use crate::event::Event;
use crate::interference::Activity;
use crate::job::{HostNeed, Job, JobId};
use crate::outcome::Outcome;
use crate::settings::Settings;
use crate::units::{Bytes, Millis, Permille};
use radrm_need::Need;

/// The same events for both; the second forgets before each what it searched.
struct Both {
    quick: State,
    full: State,
    now: Millis,
    running: Vec<(JobId, u32)>,
    started: usize,
}

impl Both {
    fn step(&mut self, event: &Event) {
        self.full.jobs.values_mut().for_each(|record| record.failed = None);
        let decisions = self.quick.step(self.now, event.clone());
        assert_eq!(decisions, self.full.step(self.now, event.clone()), "at {}: {event:?}", self.now);
        for Decision { action, .. } in decisions {
            if let Action::Start { job, attempt, .. } = action {
                self.started += 1;
                self.running.push((job, attempt));
                self.step(&Event::Started { job, attempt });
            }
        }
    }
}

fn job(id: u64, now: Millis, rng: &mut Rng, has_host: bool) -> Job {
    let part = |rng: &mut Rng, most: u64| Permille(u32::try_from(rng.bits() % most).unwrap_or(0));
    let activity = Activity { smact: part(rng, 900), smocc: part(rng, 400), drama: part(rng, 600) };
    let gpus = [1, 1, 1, 2, 3, 4][(rng.bits() % 6) as usize];
    let expected = Millis::from_mins(1 + rng.bits() % 90);
    Job {
        gpus,
        need: Some(Need::measured(Bytes::from_gib(2 + rng.bits() % 36))),
        activity: (!rng.bits().is_multiple_of(4)).then_some(activity),
        expected: Some(expected),
        time_limit: rng.bits().is_multiple_of(2).then_some(expected),
        exclusive: rng.bits().is_multiple_of(9),
        priority: (rng.bits() % 3) as i32 - 1,
        submitted: now,
        host: if has_host {
            HostNeed { cpu_milli: 1000 * (1 + rng.bits() % 6), ..HostNeed::default() }
        } else {
            HostNeed::default()
        },
        ..Job::new(JobId(id))
    }
}

fn walk(seed: u64, has_host: bool) -> usize {
    let mut rng = Rng::new(seed, 77);
    let settings = Settings::default();
    let (quick, full) = (State::new(settings.clone()), State::new(settings));
    let mut both = Both { quick, full, now: Millis::ZERO, running: Vec::new(), started: 0 };
    for node in 0..3 {
        if has_host {
            let node = Node {
                id: NodeId(node),
                cpu_milli: 12_000,
                memory: Bytes::from_gib(64),
                memory_bandwidth: None,
            };
            both.step(&Event::NodeAdded { node });
        }
        for at in 0..4 {
            let device = Device {
                id: DeviceId(node * 4 + at),
                node: NodeId(node),
                model: "G".into(),
                capacity: Bytes::from_gib(40),
                parent: None,
                shared: true,
            };
            both.step(&Event::DeviceAdded { device });
        }
    }
    for id in 1..=300 {
        both.now = both.now.plus(Millis(rng.bits() % 120_000));
        // More jobs come than there is room for, and in the end all of them run.
        if id <= 160 {
            let job = Box::new(job(id, both.now, &mut rng, has_host));
            both.step(&Event::Submitted { job });
        }
        if (id > 160 || rng.bits().is_multiple_of(3)) && !both.running.is_empty() {
            let at = (rng.bits() % both.running.len() as u64) as usize;
            let (job, attempt) = both.running.swap_remove(at);
            both.step(&Event::Finished { job, attempt, outcome: Outcome::Exited { code: 0 } });
        }
        if rng.bits().is_multiple_of(10) {
            both.step(&Event::Tick);
        }
    }
    both.started
}

#[test]
fn searches_among_changed_devices_decide_as_searches_among_all() {
    for seed in 0..16 {
        let started = walk(seed, false);
        assert!(started > 100, "seed {seed}: {started} jobs started");
        walk(seed, true);
    }
}
