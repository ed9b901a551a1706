//! A node as tests of single behaviours use it.

pub mod random;

use radrm_need::Source;
use radrm_scheduler_core::{
    Action, Bytes, Decision, Device, DeviceId, Event, Evidence, Job, JobId, Leaving, Millis, Need, NodeId,
    Outcome, Phase, Policy, Preemption, Settings, Signal, State, SuspendRefusal, Verdict,
};

/// The model of its GPUs.
pub const MODEL: &str = "A100-40GB";

pub struct Node {
    pub state: State,
    pub now: Millis,
}

impl Node {
    pub fn new(gpus: u32, settings: Settings) -> Self {
        let mut node = Self { state: State::new(settings), now: Millis(0) };
        for id in 0..gpus {
            let device = Device {
                id: DeviceId(id),
                node: NodeId(0),
                model: MODEL.into(),
                capacity: Bytes::from_gib(40),
                parent: None,
                shared: true,
            };
            node.step(Event::DeviceAdded { device });
        }
        node
    }

    pub fn step(&mut self, event: Event) -> Vec<Decision> {
        self.state.step(self.now, event)
    }

    pub fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = Millis::from_secs(seconds);
        self
    }

    pub fn submit(&mut self, job: Job) -> Vec<Decision> {
        let job = Job { submitted: self.now, ..job };
        self.step(Event::Submitted { job: Box::new(job) })
    }

    /// Submits, and tells that it runs if it was started.
    pub fn run(&mut self, job: Job) -> Vec<Decision> {
        let id = job.id;
        let decisions = self.submit(job);
        let attempt = started(&decisions, id.0).map(|(attempt, _)| attempt);
        attempt.into_iter().for_each(|attempt| {
            self.step(Event::Started { job: id, attempt });
        });
        decisions
    }

    pub fn finish(&mut self, id: u64, outcome: Outcome) -> Vec<Decision> {
        let attempt = self.state.job(JobId(id)).unwrap().attempts;
        self.step(Event::Finished { job: JobId(id), attempt, outcome })
    }

    /// The job's present attempt is suspended, and held so much.
    pub fn suspended(&mut self, id: u64, gib: u64) -> Vec<Decision> {
        let attempt = self.state.job(JobId(id)).unwrap().attempts;
        self.step(Event::Suspended { job: JobId(id), attempt, bytes: Bytes::from_gib(gib) })
    }

    pub fn phase(&self, id: u64) -> Phase {
        self.state.job(JobId(id)).unwrap().phase
    }
}

pub fn gib(id: u64, gib: u64) -> Job {
    Job { need: Some(Need::measured(Bytes::from_gib(gib))), ..Job::new(JobId(id)) }
}

/// By runs at other batch sizes.
pub fn estimated(gib: u64, upper: u64) -> Need {
    Need::new(Bytes::from_gib(gib), Bytes::from_gib(upper), None, Source::OtherBatchSizes { sizes: 2 })
}

/// The attempt and the devices if the job was started.
pub fn started(decisions: &[Decision], id: u64) -> Option<(u32, Vec<u32>)> {
    decisions.iter().find_map(|decision| match &decision.action {
        Action::Start { job, attempt, devices, .. } if job.0 == id => {
            Some((*attempt, devices.iter().map(|device| device.0).collect()))
        }
        _ => None,
    })
}

pub fn verdict(decisions: &[Decision], id: u64) -> Option<Verdict> {
    decisions.iter().find_map(|decision| match decision.action {
        Action::End { job, verdict } if job.0 == id => Some(verdict),
        _ => None,
    })
}

pub fn signals(decisions: &[Decision]) -> Vec<(u64, Signal)> {
    let signal = |decision: &Decision| match decision.action {
        Action::Signal { job, signal } => Some((job.0, signal)),
        _ => None,
    };
    decisions.iter().filter_map(signal).collect()
}

pub const DONE: Outcome = Outcome::Exited { code: 0 };
/// Exit of a program that wrote a checkpoint (`EX_TEMPFAIL`).
pub const LATER: Outcome = Outcome::Exited { code: 75 };

pub fn oom(gib: u64) -> Outcome {
    Outcome::OutOfMemory { seen: Some(Bytes::from_gib(gib)), evidence: Evidence::Shim, code: 1 }
}

pub fn with(policy: Policy) -> Settings {
    Settings { policy, ..Settings::default() }
}

pub fn preemptible(suspend: Result<(), SuspendRefusal>) -> Preemption {
    Preemption { allowed: true, checkpoint_signal: Some(10), grace: Millis::from_secs(60), suspend }
}

pub fn adopted(job: Job, devices: &[u32], leaving: Option<Leaving>) -> Event {
    Event::Adopted {
        job: Box::new(Job { attempts: 1, ..job }),
        devices: devices.iter().copied().map(DeviceId).collect(),
        since: Millis(0),
        reserved: Some(Bytes::from_gib(30)),
        leaving: leaving.map(Box::new),
    }
}
