//! A job whose request for memory was refused by a limit that holds on every device.

use radrm_scheduler_core::{
    Action, Bytes, Device, DeviceId, Event, Evidence, Job, JobId, Millis, Need, NodeId, Outcome, Settings,
    State, Verdict,
};

/// How the first of a job's attempts on one of two GPUs is judged.
fn verdict_after(outcome: Outcome) -> Option<Verdict> {
    let mut state = State::new(Settings::default());
    for number in 0..2 {
        let device = Device {
            id: DeviceId(number),
            node: NodeId(0),
            model: "A100-40GB".into(),
            capacity: Bytes::from_gib(40),
            parent: None,
            shared: true,
        };
        state.step(Millis(0), Event::DeviceAdded { device });
    }
    let job = JobId(1);
    let need = Need::Measured(Bytes::from_gib(3));
    state.step(Millis(0), Event::Submitted { job: Box::new(Job { need, ..Job::new(job) }) });
    let attempt = state.job(job).unwrap().attempts;
    state.step(Millis(0), Event::Started { job, attempt });
    let decisions = state.step(Millis(1000), Event::Finished { job, attempt, outcome });
    decisions.into_iter().find_map(|decision| match decision.action {
        Action::End { verdict, .. } => Some(verdict),
        _ => None,
    })
}

#[test]
fn it_is_not_tried_elsewhere() {
    let oom = |evidence| Outcome::OutOfMemory { seen: Bytes::from_gib(4), evidence, code: 1 };
    let limit = oom(Evidence::Limit);
    assert_eq!(verdict_after(limit), Some(Verdict::Ended(limit)));
    assert_eq!(verdict_after(oom(Evidence::Shim)), None, "another device may have more");
}
