//! What can never start here is told when it is submitted.
//!
//! The scheduler itself is asked: one that has this machine with all its GPUs, also those that are lost for now,
//! and no jobs on them. What it does not start waits for ever.

use radrm_scheduler_core::{
    Action, Bytes, Event, Job, JobId, Millis, Policy, Reason, Settings, State, Verdict,
};

use super::Engine;

/// The node without jobs.
pub(super) fn empty(settings: &Settings) -> State {
    let mut settings = settings.clone();
    // One that takes its time over decisions would decide the same.
    (settings.order.pace, settings.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    State::new(settings)
}

/// What becomes of a job.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It starts, perhaps on devices of its own because it asks for more than any has.
    Starts { beyond: bool },
    /// It never does, and why.
    Never(String),
}

fn fate(mut empty: State, at: Millis, job: &Job) -> Fate {
    let guess = job.gpus > 0 && !job.exclusive && job.need.is_some();
    let guess = guess && empty.settings().policy != Policy::Exclusive;
    for decision in empty.step(at, Event::Submitted { job: Box::new(job.clone()) }) {
        match decision.action {
            Action::Start { reserved, .. } => return Fate::Starts { beyond: guess && reserved.is_none() },
            Action::End { verdict: Verdict::Impossible, .. } => {
                return Fate::Never(match decision.reason {
                    Reason::Impossible { why } => why.to_string(),
                    other => other.to_string(),
                });
            }
            _ => {}
        }
    }
    let wait = empty.job(JobId(job.id.0)).and_then(|view| view.wait);
    Fate::Never(wait.map_or_else(|| "no device would ever do".to_owned(), |wait| wait.to_string()))
}

/// `a`, `a and b`, `a, b and c`.
fn list(mut names: Vec<String>) -> String {
    names.sort_unstable();
    names.dedup();
    match (names.pop(), names.join(", ")) {
        (last, before) if before.is_empty() => last.unwrap_or_default(),
        (last, before) => format!("{before} and {}", last.unwrap_or_default()),
    }
}

impl Engine {
    /// What the user had better know of a job that can start here some time.
    ///
    /// # Errors
    /// Why it never can.
    pub(super) fn can_ever_start(&self, job: &Job) -> Result<Vec<String>, String> {
        let usable = || self.node.gpus.list.iter().filter(|gpu| !gpu.divided);
        if job.gpus > 0 && usable().next().is_none() {
            let why = self.node.gpus.trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            return Err(format!("this machine has no GPU for jobs{why}"));
        }
        if let Some(model) = job.model.as_ref().filter(|_| job.gpus > 0)
            && usable().all(|gpu| gpu.name != *model)
        {
            let names = list(usable().map(|gpu| gpu.name.clone()).collect());
            return Err(format!("no GPU of this machine is called {model}; their models: {names}"));
        }
        match fate(self.core.empty.clone(), self.now.at, job) {
            Fate::Never(why) => Err(format!("the job can never run here: {why}")),
            Fate::Starts { beyond: false } => Ok(Vec::new()),
            Fate::Starts { beyond: true } => {
                let model = |device: &radrm_scheduler_core::Device| {
                    job.model.as_ref().is_none_or(|model| *model == device.model)
                };
                let devices = self.core.empty.devices().map(|view| view.device).filter(model);
                let largest = devices.map(|device| device.capacity).max().unwrap_or(Bytes::ZERO);
                let claim = job.need.as_ref().map_or(Bytes::ZERO, |need| need.upper);
                let own = if job.gpus == 1 { "a GPU" } else { "GPUs" };
                Ok(vec![format!(
                    "{claim} of GPU memory is more than any GPU here has ({largest}): it is taken for a guess, and the \
                     job gets {own} of its own"
                )])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_scheduler_core::{Device, DeviceId, HostNeed, Need, Node, NodeId};

    const GIB: u64 = 1 << 30;

    /// One GPU of 40 GiB and one of 80, 8 cores.
    fn machine(settings: &Settings) -> State {
        let mut state = empty(settings);
        let node = Node { id: NodeId(0), cpu_milli: 8000, memory: Bytes(100 * GIB) };
        state.step(Millis(0), Event::NodeAdded { node });
        for (id, gib) in [(0, 40), (1, 80)] {
            let device = Device {
                id: DeviceId(id),
                node: NodeId(0),
                model: format!("G{gib}"),
                capacity: Bytes(gib * GIB),
                parent: None,
                shared: true,
            };
            state.step(Millis(0), Event::DeviceAdded { device });
        }
        state
    }

    #[test]
    fn what_an_empty_machine_does_not_start_never_starts() {
        let settings = Settings::default();
        let need = |gib: u64| Some(Need::declared(Bytes(gib * GIB)));
        let job = || Job::new(JobId(0));
        let host = |cpu_milli, gib: u64| HostNeed { cpu_milli, memory: Bytes(gib * GIB) };
        let starts = Fate::Starts { beyond: false };
        let found = |job: Job| fate(machine(&settings), Millis(5), &job);
        assert_eq!(found(job()), starts);
        assert_eq!(found(Job { gpus: 0, ..job() }), starts);
        assert_eq!(found(Job { gpus: 2, need: need(30), ..job() }), starts);
        assert_eq!(found(Job { need: need(80), ..job() }), starts);
        assert_eq!(found(Job { need: need(81), ..job() }), Fate::Starts { beyond: true });
        assert_eq!(found(Job { need: need(81), exclusive: true, ..job() }), starts, "it asked for that");
        assert_eq!(
            found(Job { model: Some("G40".into()), need: need(41), ..job() }),
            Fate::Starts { beyond: true }
        );
        for (never, part) in [
            (Job { gpus: 3, ..job() }, "3 devices at once"),
            (Job { gpus: 2, need: need(60), ..job() }, "2 devices at once"),
            (Job { gpus: 2, model: Some("G80".into()), ..job() }, "2 devices at once"),
            (Job { need: Some(Need::measured(Bytes(90 * GIB))), ..job() }, "90.0 GiB"),
            (Job { host: host(9000, 0), ..job() }, "CPUs"),
            (Job { gpus: 0, host: host(0, 101), ..job() }, "memory"),
        ] {
            let Fate::Never(why) = found(never.clone()) else { panic!("{never:?}") };
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_gpu_that_is_divided_takes_no_jobs_and_its_instances_do() {
        let settings = Settings::default();
        let mut state = machine(&settings);
        let instance = Device {
            id: DeviceId(2),
            node: NodeId(0),
            model: "G80 MIG 1g.10gb".into(),
            capacity: Bytes(10 * GIB),
            parent: Some(DeviceId(1)),
            shared: false,
        };
        state.step(Millis(0), Event::DeviceAdded { device: instance });
        let job = |model: &str| Job { model: Some(model.to_owned()), ..Job::new(JobId(0)) };
        let found = |model| fate(state.clone(), Millis(5), &job(model));
        assert_eq!(found("G80 MIG 1g.10gb"), Fate::Starts { beyond: false });
        for model in ["G80", "G80 MIG 2g.20gb"] {
            assert!(matches!(found(model), Fate::Never(why) if why.contains("no device")));
        }
    }

    #[test]
    fn names_are_listed_once() {
        let names = |all: &[&str]| list(all.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!((names(&["b", "b"]), names(&["b", "a", "b"])), ("b".into(), "a and b".into()));
        assert_eq!((names(&["c", "b", "a"]), names(&[])), ("a, b and c".into(), String::new()));
    }
}
