//! Jobs with targets, and what the jobs beside them get.

use crate::common::{DONE, Node, gib, with};
use radrm_scheduler_core::{
    Action, Decision, DeviceId, Event, Job, JobId, Millis, Objective, Observation, Permille, Policy,
    Settings, Target, TargetObservation, Unseen,
};

const LIMIT_NS: u64 = 20_000_000;

fn served(id: u64) -> Job {
    let target = Target { latency: Some("p99=20ms".parse().unwrap()), speed: None };
    Job { target, ..gib(id, 5) }
}

fn node() -> Node {
    Node::new(1, with(Policy::FirstFit))
}

/// Steps of this part of the limit, thousandths.
fn seen(job: u64, pressure: u64) -> Event {
    let latency_ns = Some(LIMIT_NS / 1000 * pressure);
    Event::TargetObserved {
        job: JobId(job),
        seen: TargetObservation { latency_ns, ..TargetObservation::default() },
    }
}

fn share(node: &Node, job: u64) -> Option<u32> {
    node.state.job(JobId(job)).unwrap().budget.map(|budget| budget.share.0)
}

fn decided(decisions: &[Decision], of: u64) -> Option<&Decision> {
    decisions.iter().find(|one| matches!(one.action, Action::SetBudget { job, .. } if job.0 == of))
}

#[test]
fn fillers_get_more_with_every_window_and_half_after_a_bad_miss() {
    let mut node = node();
    node.run(served(1));
    node.run(gib(2, 5));
    node.run(gib(3, 5));
    assert_eq!((share(&node, 2), share(&node, 3)), (None, None), "nothing was observed yet");
    let mut before = 0;
    for _ in 0..10 {
        let decisions = node.step(seen(1, 700));
        let now = share(&node, 2).unwrap();
        assert!(now > before && share(&node, 3) == Some(now), "{now} after {before}");
        assert!(decided(&decisions, 2).unwrap().reason.to_string().contains("job 1 is to keep its target"));
        before = now;
    }
    assert!(node.step(seen(1, 950)).is_empty(), "close to its limit nothing changes");
    node.step(seen(1, 2500));
    assert_eq!(share(&node, 2), Some(before / 2));
    for _ in 0..5 {
        node.step(seen(1, 2500));
    }
    assert_eq!(share(&node, 2), Some(25), "the least that fillers get together is a twentieth");
    assert_eq!(share(&node, 1), None, "the job itself is never held back for its target");
    let budget = node.state.job(JobId(2)).unwrap().budget.unwrap();
    assert_eq!(budget.period, Some(Millis(10)), "half of the limit");
}

#[test]
fn fillers_run_free_where_nothing_is_observed_or_nothing_to_keep_is_left() {
    let mut node = node();
    node.run(served(1));
    node.run(gib(2, 5));
    node.step(seen(1, 700));
    assert!(share(&node, 2).is_some());
    let unseen = TargetObservation { unseen: Some(Unseen::NoSteps), ..TargetObservation::default() };
    node.step(Event::TargetObserved { job: JobId(1), seen: unseen });
    assert_eq!(share(&node, 2), None);
    let standing = node.state.job(JobId(1)).unwrap().standing.unwrap().to_string();
    assert!(standing.contains("not kept") && standing.contains("marked no steps"), "{standing}");
    node.step(seen(1, 700));
    assert!(share(&node, 2).is_some());
    node.finish(1, DONE);
    let polled = Event::DeviceObserved { device: DeviceId(0), seen: Observation::default() };
    node.step(polled);
    assert_eq!(share(&node, 2), None);
    // With enough room a filler is not held back at all.
    node.run(served(4));
    for _ in 0..30 {
        node.step(seen(4, 100));
    }
    assert_eq!(share(&node, 2), None);
    node.step(seen(4, 1100));
    assert!(share(&node, 2).is_some_and(|share| share < 1000), "it still is a filler");
}

#[test]
fn a_filler_that_comes_begins_with_what_is_left_and_keeps_its_declared_share() {
    let mut node = node();
    node.run(served(1));
    node.run(gib(2, 5));
    for _ in 0..12 {
        node.step(seen(1, 700));
    }
    let alone = share(&node, 2).unwrap();
    let decisions = node.run(Job { share: Some(Permille(100)), ..gib(3, 5) });
    assert_eq!(share(&node, 2), Some(alone / 2), "it shares what there was");
    assert_eq!(share(&node, 3), Some(100), "no more than it declared: {decisions:?}");
    node.run(Job { priority: 5, ..gib(4, 5) });
    node.step(seen(1, 2000));
    assert_eq!(share(&node, 4), None, "a more important job fills nothing");
}

#[test]
fn of_two_targets_the_one_in_need_decides() {
    let mut node = node();
    node.run(served(1));
    node.run(served(2));
    node.run(gib(3, 5));
    for _ in 0..10 {
        node.step(seen(1, 100));
        node.step(seen(2, 1500));
    }
    assert_eq!(share(&node, 3), Some(50));
    assert_eq!((share(&node, 1), share(&node, 2)), (None, None));
    assert_eq!(node.state.job(JobId(3)).unwrap().held_for, Some(JobId(2)));
}

#[test]
fn with_max_min_the_fastest_gives_to_the_slowest() {
    let mut settings = with(Policy::FirstFit);
    settings.throttle.objective = Objective::MaxMin;
    let mut node = Node::new(1, settings);
    (1..=3).for_each(|id| _ = node.run(gib(id, 5)));
    let speeds = |node: &mut Node, all: [u32; 3]| {
        for (id, speed) in (1..).zip(all) {
            let seen = TargetObservation { speed: Some(Permille(speed)), ..TargetObservation::default() };
            node.step(Event::TargetObserved { job: JobId(id), seen });
        }
    };
    speeds(&mut node, [300, 900, 600]);
    assert_eq!([1, 2, 3].map(|job| share(&node, job)), [None, Some(500), None]);
    speeds(&mut node, [500, 500, 510]);
    assert_eq!(share(&node, 2), Some(550), "they are equal: all may have more");
    let polled = Event::DeviceObserved { device: DeviceId(0), seen: Observation::default() };
    node.step(polled);
    assert_eq!(share(&node, 2), Some(550));
}

#[test]
fn a_lowest_speed_is_kept_as_a_latency_is() {
    let mut node = Node::new(1, Settings { policy: Policy::FirstFit, ..Settings::default() });
    node.run(Job { target: Target { latency: None, speed: Some(Permille(800)) }, ..gib(1, 5) });
    node.run(gib(2, 5));
    let seen = |speed| TargetObservation { speed: Some(Permille(speed)), ..TargetObservation::default() };
    for speed in [1000, 1000, 400] {
        node.step(Event::TargetObserved { job: JobId(1), seen: seen(speed) });
    }
    assert_eq!(share(&node, 2), Some(150), "300 and then half");
    let standing = node.state.job(JobId(1)).unwrap().standing.unwrap().to_string();
    assert_eq!(standing, "speed 40 % of at least 80 %; the job beside it launches in 15 % of the time");
}

#[test]
fn fillers_launch_between_requests_where_these_are_seen() {
    let mut node = node();
    node.run(served(1));
    node.run(gib(2, 5));
    node.run(gib(3, 5));
    let budget = |node: &Node, job| node.state.job(JobId(job)).unwrap().budget;
    let window = |pressure, under_way| Event::TargetObserved {
        job: JobId(1),
        seen: TargetObservation {
            latency_ns: Some(LIMIT_NS / 1000 * pressure),
            under_way: Some(Permille(under_way)),
            ..TargetObservation::default()
        },
    };
    let decisions = node.step(window(700, 300));
    for job in [2, 3] {
        let given = budget(&node, job).unwrap();
        assert_eq!((given.share, given.in_flight, given.between), (Permille(1000), 1, Some(JobId(1))));
    }
    assert!(decided(&decisions, 2).is_some());
    let standing = node.state.job(JobId(1)).unwrap().standing.unwrap().to_string();
    assert!(
        standing.ends_with("the jobs beside it launch between its requests, 12.5 % of the most at a time"),
        "{standing}"
    );
    (0..20).for_each(|_| _ = node.step(window(700, 300)));
    assert_eq!(budget(&node, 2).unwrap().in_flight, 6);
    node.step(window(1400, 300));
    assert!(budget(&node, 2).unwrap().in_flight < 6);
    // Requests that leave no time between them: slots again.
    node.step(window(700, 800));
    let given = budget(&node, 2).unwrap();
    assert_eq!((given.between, given.share), (None, Permille(100)));
    // The job is gone, and with it what held the others back.
    node.step(window(700, 300));
    assert!(budget(&node, 2).unwrap().between.is_some());
    node.finish(1, DONE);
    node.step(Event::DeviceObserved { device: DeviceId(0), seen: Observation::default() });
    assert_eq!([2, 3].map(|job| budget(&node, job)), [None, None]);
}
