//! Random numbers, and the settings that random events are tried under.

use proptest::prelude::*;
use radrm_base::HostUse;
pub use radrm_base::random::Rng;
use radrm_scheduler_core::early::{FirstSteps, FixedBy};
use radrm_scheduler_core::{
    Activity, Bytes, Device, DeviceId, Event, Evidence, FairShare, JobId, JobObservation, Millis, NodeId,
    Outcome, Permille, Policy, Settings, SuspendRefusal,
};

/// Number of cases of a property: `cases`, times `RADRM_TEST_CASES` where that is set, for a run that takes longer.
pub fn cases(cases: u32) -> ProptestConfig {
    let times: u32 = std::env::var("RADRM_TEST_CASES")
        .map_or(1, |text| text.parse().expect("RADRM_TEST_CASES is a number"));
    ProptestConfig { cases: cases * times, ..ProptestConfig::default() }
}

/// A device of two nodes of three GPUs, the last of them divided in two.
pub fn device(id: u32) -> Device {
    let parent = (id > 5).then_some(DeviceId(5));
    Device {
        id: DeviceId(id),
        node: NodeId(u32::from(id > 2)),
        model: if parent.is_some() { "A100-40GB.3g.20gb" } else { "A100-40GB" }.into(),
        capacity: Bytes::from_gib(if parent.is_some() { 20 } else { 40 }),
        parent,
        shared: parent.is_none(),
    }
}

pub fn outcome(rng: &mut Rng) -> Outcome {
    match rng.below(12) {
        0 => Outcome::Signalled { signal: 11 },
        1 => Outcome::Exited { code: 1 },
        2..=3 => Outcome::OutOfMemory {
            seen: Some(Bytes::from_gib(rng.below(45))),
            evidence: if rng.one_in(2) { Evidence::Shim } else { Evidence::Log },
            code: 1,
        },
        4 => Outcome::Lost,
        5 => Outcome::NotStarted,
        _ => Outcome::Exited { code: 0 },
    }
}

/// Random host use of a job, if that is known.
pub fn host_use(rng: &mut Rng) -> Option<HostUse> {
    let threads = rng.below(24) as u32;
    let cpu_milli = threads * (1 + rng.below(1000) as u32);
    rng.one_in(2).then_some(HostUse {
        cpu_milli,
        threads,
        resident: Bytes::from_gib(1),
        ..HostUse::default()
    })
}

/// Random observation by a monitor of a job that uses `used`.
pub fn observation(rng: &mut Rng, used: Bytes) -> JobObservation {
    let speed = Some(Permille(rng.below(1000) as u32));
    let smact = Permille(rng.below(1001) as u32);
    let activity = rng.one_in(2).then_some(Activity { smact, smocc: smact, drama: smact });
    let host_use = host_use(rng).filter(|_| rng.one_in(2));
    JobObservation { used, peak: used, speed, activity, host_use }
}

/// Random evidence from the first optimizer steps of a job that uses `held`.
pub fn first_steps(rng: &mut Rng, held: Bytes) -> FirstSteps {
    FirstSteps { steps: rng.below(6) as u32, held, fixed: rng.one_in(2).then_some(FixedBy::User) }
}

/// Answer of a helper about an attempt that ended meanwhile.
pub fn late_answer(rng: &mut Rng, job: JobId, attempt: u32, is_suspending: bool) -> Event {
    match (is_suspending, rng.one_in(3)) {
        (true, true) => Event::SuspendFailed { job, attempt, refusal: SuspendRefusal::Failed },
        (true, false) => Event::Suspended { job, attempt, bytes: Bytes::from_gib(1) },
        (false, true) => Event::ResumeFailed { job, attempt },
        (false, false) => Event::Resumed { job, attempt },
    }
}

/// Settings under which all that is guaranteed holds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Default,
    /// With a precondition on SM activity.
    Monitored,
    /// All that puts a job back or forward is short against the run of the test.
    Short,
}

pub fn settings(policy: Policy, kind: Kind) -> Settings {
    let mut settings = Settings { policy, ..Settings::default() };
    match kind {
        Kind::Default => {}
        Kind::Monitored => settings.preconditions.smact = Some(Permille(800)),
        Kind::Short => {
            let most = Millis::from_mins(2);
            settings.order.aging = Millis::from_secs(30);
            settings.order.most_priority = 2;
            settings.order.shortest_most = most;
            settings.order.fair = Some(FairShare { most, ..FairShare::default() });
        }
    }
    settings
}

pub fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Default), Just(Kind::Monitored), Just(Kind::Short)]
}

pub fn policies() -> impl Strategy<Value = Policy> {
    (0..Policy::ALL.len()).prop_map(|at| Policy::ALL[at])
}
