//! Cost of placing one job among 64 GPUs with four jobs each.
//! The figures are those of `docs/replay.md`: `cargo run -p radrm-scheduler-core --example placing`.

use std::time::Instant;

use radrm_scheduler_core::{
    Action, Activity, Bytes, Device, DeviceId, Event, Job, JobId, Millis, Need, NodeId, Outcome, Permille,
    Program, Settings, State,
};

const GPUS: u32 = 64;
const EACH: u64 = 4;
/// Jobs that are placed and end again, of which the median counts.
const TIMES: u64 = 2_000;

fn job(id: u64, gib: u64, program: u64) -> Job {
    let smact = Permille(60 + u32::try_from(program * 37 % 120).unwrap_or(0));
    let activity = Activity { smact, smocc: Permille(100), drama: Permille(smact.0 / 2) };
    Job {
        need: Some(Need::measured(Bytes::from_gib(gib))),
        activity: Some(activity),
        program: Some(Program::named(&format!("train {program} batch 32"))),
        ..Job::new(JobId(id))
    }
}

/// Submits a job. Returns true if the step started it.
fn submit(state: &mut State, job: Job) -> bool {
    let decisions = state.step(Millis(0), Event::Submitted { job: Box::new(job) });
    decisions.iter().any(|decision| matches!(decision.action, Action::Start { .. }))
}

fn main() {
    let mut state = State::new(Settings::default());
    for id in 0..GPUS {
        let device = Device {
            id: DeviceId(id),
            node: NodeId(id / 8),
            model: "A100-40GB".into(),
            capacity: Bytes::from_gib(40),
            parent: None,
            shared: true,
        };
        state.step(Millis(0), Event::DeviceAdded { device });
    }
    let residents = u64::from(GPUS) * EACH;
    for id in 1..=residents {
        assert!(submit(&mut state, job(id, 9, id % 20)), "job {id} waits");
        state.step(Millis(0), Event::Started { job: JobId(id), attempt: 1 });
    }
    let mut next = residents;
    for (name, programs) in [("one program", 1), ("20 programs in turn", 20), ("never seen", u64::MAX)] {
        let mut times = Vec::new();
        for n in 0..TIMES {
            next += 1;
            let newcomer = job(next, 2, if programs == u64::MAX { 1_000 + next } else { 100 + n % programs });
            let start = Instant::now();
            let placed = submit(&mut state, newcomer);
            times.push(start.elapsed());
            assert!(placed, "job {next} waits");
            let outcome = Outcome::Exited { code: 0 };
            state.step(Millis(0), Event::Finished { job: JobId(next), attempt: 1, outcome });
        }
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_nanos() as f64 / 1000.0;
        println!("{name:20} median {:.1} us, 10 % {:.1}, 90 % {:.1}", at(50), at(10), at(90));
    }
}
