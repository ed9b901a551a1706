//! Jobs of unknown need that join others.

use crate::common::random::Rng;
use crate::common::{Node, gib, preemptible, started};
use radrm_scheduler_core::replay::{Cluster, Knowledge, Options, Source, TraceJob, replay};
use radrm_scheduler_core::{
    Action, Activity, Bytes, Decision, DeviceId, Event, Job, JobId, JobObservation, Memory, MemoryRule,
    Millis, Permille, Reason, Settings, Together, Unknown, Wait,
};

const LIGHT: Activity = Activity { smact: Permille(100), smocc: Permille(50), drama: Permille(50) };

fn settings() -> Settings {
    let mut settings = Settings { unknown: Unknown::MinFree, slack: Permille::ZERO, ..Settings::default() };
    settings.preconditions.min_free = Bytes::from_gib(14);
    settings
}

fn unknown(id: u64) -> Job {
    Job { activity: Some(LIGHT), ..Job::new(JobId(id)) }
}

/// Limit and reservation of a job that was started, GiB.
fn granted(decisions: &[Decision], id: u64) -> Option<(Option<u64>, Option<u64>)> {
    let gib = |bytes: Bytes| bytes.0 >> 30;
    decisions.iter().find_map(|decision| match decision.action {
        Action::Start { job, limit, reserved, .. } if job.0 == id => {
            Some((limit.map(gib), reserved.map(gib)))
        }
        _ => None,
    })
}

/// The device lacks memory.
fn lacks(rule: MemoryRule, need: u64, free: u64) -> Wait {
    let (need, free) = (Bytes::from_gib(need), Bytes::from_gib(free));
    Wait::Memory { need, rule, free, accounting: Memory::Reserved, device: DeviceId(0) }
}

/// A job is seen to hold so much.
fn holds(node: &mut Node, id: u64, gib: u64) {
    let held = Bytes::from_gib(gib);
    let seen = JobObservation { used: held, peak: held, ..JobObservation::default() };
    node.step(Event::JobObserved { job: JobId(id), device: DeviceId(0), seen });
}

fn set_aside(decisions: &[Decision]) -> Vec<(u64, u64)> {
    let aside = |decision: &Decision| match (&decision.action, &decision.reason) {
        (Action::SetAside { job, reserved }, Reason::NeedFollows { .. }) => Some((job.0, reserved.0 >> 30)),
        _ => None,
    };
    decisions.iter().filter_map(aside).collect()
}

#[test]
fn beside_others_it_is_limited_to_what_these_did_not_reserve() {
    let mut node = Node::new(1, settings());
    node.run(Job { activity: Some(LIGHT), ..gib(1, 10) });
    assert_eq!(granted(&node.run(unknown(2)), 2), Some((Some(30), Some(30))));
    // It may grow to all of that, so no other job is promised a part of it.
    node.run(Job { activity: Some(LIGHT), ..gib(3, 5) });
    let wait = node.state.job(JobId(3)).unwrap().wait;
    assert_eq!(wait, Some(lacks(MemoryRule::Need, 5, 0)));
    holds(&mut node, 2, 8);
    let decisions = node.at(120).step(Event::Tick);
    assert_eq!(set_aside(&decisions), [(2, 10)]);
    assert!(started(&decisions, 3).is_some());
}

#[test]
fn alone_it_has_no_limit_and_shares_once_it_has_shown_what_it_holds() {
    let mut node = Node::new(1, settings());
    assert_eq!(granted(&node.run(unknown(1)), 1), Some((None, Some(40))));
    assert_eq!(granted(&node.run(unknown(2)), 2), None);
    assert!(set_aside(&node.at(120).step(Event::Tick)).is_empty(), "nothing was seen of it");
    holds(&mut node, 1, 8);
    let decisions = node.at(240).step(Event::Tick);
    assert_eq!(set_aside(&decisions), [(1, 10)]);
    assert_eq!(granted(&decisions, 2), Some((Some(30), Some(30))));
    // What is left is less than a third one is to find.
    node.step(Event::Started { job: JobId(2), attempt: 1 });
    holds(&mut node, 2, 16);
    node.run(unknown(3));
    assert_eq!(set_aside(&node.at(360).step(Event::Tick)), [(2, 20)]);
    assert_eq!(node.state.job(JobId(3)).unwrap().wait, Some(lacks(MemoryRule::MinFree, 14, 10)));
}

#[test]
fn it_shows_what_it_holds_after_a_restart_too() {
    let mut node = Node::new(1, settings());
    let reserved = Some(Bytes::from_gib(40));
    let job = Box::new(Job { attempts: 1, ..unknown(1) });
    let devices = vec![DeviceId(0)];
    node.step(Event::Adopted { job, devices, since: Millis::ZERO, reserved, leaving: None });
    holds(&mut node, 1, 8);
    assert_eq!(set_aside(&node.at(120).step(Event::Tick)), [(1, 10)]);
}

#[test]
fn no_job_lacks_what_was_reserved_for_it() {
    let (mut ooms, mut harmed) = (0, 0);
    for seed in 1..=20 {
        let mut rng = Rng::seeded(seed);
        let job = |at: u64| {
            let duration = Millis::from_mins(10 + rng.below(60));
            let peak = Bytes::from_gib([3, 6, 12, 20, 38][rng.below(5) as usize]);
            let smact = Permille(50 + rng.below(350) as u32);
            let activity = Some(Activity { smact, smocc: Permille(100), drama: Permille(smact.0 / 2) });
            TraceJob { peak, activity, ..TraceJob::new("a", Millis::from_secs(100 * at), duration) }
        };
        let trace: Vec<TraceJob> = (0..80).map(job).collect();
        let assumed = Activity { smact: Permille(400), smocc: Permille(185), drama: Permille(246) };
        let mut settings = Settings { assumed, ..settings() };
        settings.preconditions.min_free = Bytes::from_gib(5);
        let (source, knowledge) = (Source::Unknown, Knowledge::Nothing);
        let options = Options { settings, source, knowledge, seed: Some(seed), ..Options::default() };
        let cluster = Cluster::uniform(4, "A100-40GB", Bytes::from_gib(40));
        let report = replay(&trace, &cluster, &options, &mut ());
        assert!(report.jobs.iter().all(|job| job.success), "seed {seed}");
        ooms += report.jobs.iter().map(|job| job.ooms).sum::<u32>();
        harmed += report.jobs.iter().map(|job| job.harmed).sum::<u32>();
    }
    assert!(ooms > 20, "{ooms}: some needed more than was free");
    assert_eq!(harmed, 0);
}

#[test]
fn light_jobs_that_never_ran_start_earlier_with_predicted_activities() {
    let job = |at: u64| {
        let activity = Some(Activity { smact: Permille(60), smocc: Permille(20), drama: Permille(30) });
        let name = format!("program {at}");
        let from = TraceJob::new(&name, Millis::from_secs(at), Millis::from_mins(10));
        TraceJob { peak: Bytes::from_gib(2), activity, ..from }
    };
    let trace: Vec<TraceJob> = (0..16).map(job).collect();
    let cluster = Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40));
    let starts = |knowledge| -> u64 {
        let options = Options { knowledge, ..Options::default() };
        let report = replay(&trace, &cluster, &options, &mut ());
        report.jobs.iter().map(|job| job.start.expect("each starts").0).sum()
    };
    let [predicted, learned] = [Knowledge::Predicted, Knowledge::Learned].map(starts);
    assert!(predicted < learned, "{predicted} {learned}");
}

#[test]
fn members_of_a_group_on_one_device_have_no_limit_of_nothing() {
    let mut node = Node::new(1, settings());
    let group = Together { first: JobId(1), members: 2, site: 0, begun: false };
    let member = |id: u64| Job { together: Some(group), ..unknown(id) };
    node.submit(member(1));
    let decisions = node.submit(member(2));
    let limits = [1, 2].map(|id| granted(&decisions, id).map(|(limit, _)| limit));
    assert_eq!(limits, [Some(None), Some(None)]);
}

#[test]
fn a_suspended_one_comes_back_where_there_is_room_for_what_it_held() {
    let mut node = Node::new(1, settings());
    node.run(Job { preemption: preemptible(Ok(())), ..unknown(1) });
    holds(&mut node, 1, 8);
    let decisions = node.at(10).submit(Job { priority: 2, activity: Some(LIGHT), ..gib(2, 20) });
    assert_eq!(set_aside(&decisions), [(1, 10)]);
    assert!(
        matches!(decisions.last().map(|of| &of.action), Some(Action::Suspend { job: JobId(1) })),
        "{decisions:?}"
    );
}
