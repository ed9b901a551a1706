//! Jobs that share a GPU and were never alone on it, learned from what all of them do there.

use std::time::Duration;

use super::*;
use crate::gpus::Sample;
use crate::time::Now;

/// Two jobs that have just begun on one GPU, whose counters show a load.
struct Node {
    dir: tempfile::TempDir,
    engine: Engine,
    begun: Now,
    jobs: [u64; 2],
}

impl Node {
    fn new() -> Self {
        let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
        let config = Config { events: dir.path().join("events"), ..Config::default() };
        let mut engine = open_by(dir.path(), &world, config);
        let jobs = [10, 11].map(|gib| submit(&mut engine, gib));
        round(&mut engine, &world);
        let begun = Now::read();
        jobs.iter().for_each(|job| world.0.borrow_mut().begin((*job, 1), begun.at.0));
        round(&mut engine, &world);
        assert_eq!(engine.jobs.on_gpus().len(), 2, "both run on the one GPU");
        Self { dir, engine, begun, jobs }
    }

    /// Polls once a second from one second after the begin to another.
    fn poll(&mut self, seconds: std::ops::Range<u64>) {
        let activity = [Some(0.3), Some(0.2), Some(0.1)];
        let sample = Sample { uuid: "GPU-0".into(), activity, ..Sample::default() };
        for second in seconds {
            let Now { at, mono } = self.begun;
            self.engine.now =
                Now { at: Millis(at.0 + second * 1000), mono: mono + Duration::from_secs(second) };
            self.engine.report_companies(std::slice::from_ref(&sample));
        }
    }

    /// Number of reports to the scheduler on what the jobs do together.
    fn reports(&self) -> usize {
        let events = std::fs::read_to_string(self.dir.path().join("events")).unwrap();
        events.matches("\"company_observed\"").count()
    }

    fn window_s(&self) -> u64 {
        self.engine.config.scheduler.preconditions.window.0 / 1000
    }
}

#[test]
fn jobs_that_launch_nothing_keep_no_gpu_unlearned_for_longer_than_a_window() {
    let mut node = Node::new();
    let window = node.window_s();
    node.poll(0..window - 1);
    assert_eq!(node.reports(), 0, "they may be about to begin");
    node.poll(window - 1..window + 30);
    assert!(node.reports() > 0, "what the counters show is all that they do");
}

#[test]
fn jobs_that_have_launched_are_learned_before_a_window_is_over() {
    let mut node = Node::new();
    let [first, second] = node.jobs;
    node.engine.jobs.live_mut(first).unwrap().observed.has_launched = true;
    let half = node.window_s() / 2;
    node.poll(0..half);
    assert_eq!(node.reports(), 0, "one of them has not");
    node.engine.jobs.live_mut(second).unwrap().observed.has_launched = true;
    node.poll(half..node.window_s() - 1);
    assert!(node.reports() > 0);
}
