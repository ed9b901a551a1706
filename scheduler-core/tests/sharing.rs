//! Choice of the jobs that share a device, by what they do to each other.

use crate::common::{self, Node, gib, started, with};
use radrm_scheduler_core::{
    Action, Activity, Decision, Event, Job, JobId, Permille, Policy, Program, Settings, Sharer, SharingMode,
    Wait,
};

#[test]
fn a_more_important_job_is_protected_by_the_bound_and_not_by_the_mean() {
    let activity = Some(Activity { smact: Permille(600), smocc: Permille(300), drama: Permille(400) });
    let joins = |priority, protect| {
        let mut node = Node::new(1, Settings { protect: Permille(protect), ..Settings::default() });
        node.run(Job { priority, activity, ..gib(1, 10) });
        let joined = started(&node.run(Job { activity, ..gib(2, 10) }), 2).is_some();
        (joined, node.state.job(JobId(2)).unwrap().wait)
    };
    assert!(joins(0, 700).0, "jobs of one priority share");
    let (joined, wait) = joins(1, 700);
    let Some(Wait::Protected { low, least, .. }) = wait else { panic!("{wait:?}") };
    assert!(!joined && low < least && least == Permille(700));
    // The speed to expect is above what is protected, the lower end of its interval is not.
    assert!(joins(1, low.0).0 && !joins(1, low.0 + 1).0);
    assert!(joins(1, 0).0);
}

#[test]
fn what_is_assumed_of_a_job_is_within_its_share() {
    let joins = |share, sharing| {
        let mut node = Node::new(1, Settings { sharing, ..Settings::default() });
        let busy = Some(Activity { smact: Permille(950), smocc: Permille(200), drama: Permille(475) });
        node.run(Job { activity: busy, ..gib(1, 10) });
        // Nothing is known of it but its share.
        started(&node.run(Job { share, ..gib(2, 10) }), 2).is_some()
    };
    assert!(joins(Some(Permille(80)), None), "it has 8 % of the GPU at most");
    assert!(!joins(None, None), "65 % as is assumed");
    assert!(
        !joins(Some(Permille(80)), Some(SharingMode::TimeSlices)),
        "the first takes more than its share of the time"
    );
}

#[test]
fn on_a_divided_device_shares_and_one_job_without_a_share_have_partitions() {
    let starts = |mode, shares: &[u32]| {
        let settings = Settings { sharing: Some(mode), ..Settings::default() };
        let mut node = Node::new(1, settings);
        let activity = Some(Activity { smact: Permille(100), ..Activity::default() });
        let start = |(id, share): (u64, &u32)| {
            let share = (*share > 0).then_some(Permille(*share));
            started(&node.run(Job { share, activity, ..gib(id, 2) }), id).is_some()
        };
        let started: Vec<bool> = (1..).zip(shares).map(start).collect();
        (started, node.state.job(JobId(shares.len() as u64)).unwrap().wait)
    };
    let divided = |shares: &[u32]| starts(SharingMode::Partitions, shares);
    assert_eq!(divided(&[500, 500]).0, [true, true]);
    assert_eq!(divided(&[500, 0]).0, [true, true], "it has the rest");
    assert_eq!(divided(&[500, 0, 0]), (vec![true, true, false], Some(Wait::Partition)));
    assert_eq!(divided(&[0, 500]), (vec![true, false], Some(Wait::Partition)), "the device has a client");
    assert_eq!(divided(&[0, 0, 0]).0, [true; 3], "plain MPS");
    assert_eq!(starts(SharingMode::Mps, &[0, 500]).0, [true, true]);
    assert_eq!(divided(&[600, 500]).1, Some(Wait::Share { need: Permille(500), left: Permille(400) }));
}

#[test]
fn busy_jobs_share_where_their_sms_do_not_overlap() {
    let joins = |mode| {
        let mut node = Node::new(1, Settings { sharing: Some(mode), ..Settings::default() });
        let activity = Some(Activity { smact: Permille(900), smocc: Permille(300), drama: Permille(50) });
        let half = |id| Job { activity, share: Some(Permille(500)), ..gib(id, 5) };
        let first = node.run(half(1));
        let decisions = node.run(half(2));
        let is_budget = |decision: &Decision| matches!(decision.action, Action::SetBudget { .. });
        (started(&decisions, 2).is_some(), first.iter().any(is_budget))
    };
    // The first one has its half of the SMs whether a second one comes or not, and no launch waits for a slot.
    assert_eq!(joins(SharingMode::Partitions), (true, false));
    assert_eq!(joins(SharingMode::Mps), (false, true));
}

#[test]
fn what_jobs_were_seen_to_do_to_each_other_decides_later() {
    let activity = Activity { smact: Permille(500), smocc: Permille(300), drama: Permille(300) };
    let job = |id| Job { activity: Some(activity), program: Some(Program(id)), ..gib(id, 10) };
    let joins = |observed: u32, model: &str| {
        let mut node = Node::new(1, Settings::default());
        let sharer = |program| Sharer { program: Program(program), activity, speed: Permille(300) };
        for _ in 0..observed {
            node.step(Event::SharingObserved { model: model.to_owned(), jobs: vec![sharer(1), sharer(2)] });
        }
        node.run(job(1));
        started(&node.run(job(2)), 2).is_some()
    };
    let model = common::MODEL;
    assert!(joins(0, model));
    assert!(!joins(8, model));
    assert!(joins(8, "another model"), "what was seen there says nothing of this one");
}

#[test]
fn policies_of_other_systems_share_by_their_own_rules() {
    let places = |policy: Policy, jobs: &[u32]| -> Vec<bool> {
        let mut node = Node::new(1, with(policy));
        let start = |(id, smact): (u64, &u32)| {
            let activity = Some(Activity { smact: Permille(*smact), ..Activity::default() });
            started(&node.run(Job { activity, ..gib(id, 2) }), id).is_some()
        };
        (1..).zip(jobs).map(start).collect()
    };
    assert_eq!(
        places(Policy::Horus, &[500, 300, 200, 100]),
        [true, true, true, false],
        "up to a whole device"
    );
    assert_eq!(places(Policy::Lucid, &[500, 600, 100]), [true, true, false], "two at most");
    assert_eq!(places(Policy::Lucid, &[500, 700]), [true, false], "medium and jumbo are 3");
    assert_eq!(places(Policy::Muri, &[800, 200, 100]), [true, true, false], "stages that fit, two at most");
    assert_eq!(places(Policy::Muri, &[1000, 1000]), [true, false]);
    assert_eq!(places(Policy::Xu, &[300, 400, 900]), [true, true, false]);
    assert_eq!(places(Policy::Kace, &[300, 400, 100]), [true, true, false], "two at most");
}

#[test]
fn kace_gives_a_job_the_partner_with_the_most_throughput_and_learns_from_pairs() {
    let job = |id, smact| {
        let activity = Some(Activity { smact: Permille(smact), ..Activity::default() });
        Job { activity, program: Some(Program(id)), ..gib(id, 2) }
    };
    let mut node = Node::new(2, with(Policy::Kace));
    node.run(job(1, 900));
    let light = started(&node.run(job(2, 300)), 2).expect("an idle device").1;
    assert_eq!(started(&node.run(job(3, 500)), 3).expect("beside one").1, light);
    // Pairs of its activities turn out to get less done than one job alone.
    let shares = |observed: u32| {
        let mut node = Node::new(1, with(Policy::Kace));
        let activity = Activity { smact: Permille(500), ..Activity::default() };
        let sharer = |program| Sharer { program: Program(program), activity, speed: Permille(300) };
        for _ in 0..observed {
            let jobs = vec![sharer(8), sharer(9)];
            node.step(Event::SharingObserved { model: common::MODEL.to_owned(), jobs });
        }
        node.run(job(1, 500));
        started(&node.run(job(2, 500)), 2).is_some()
    };
    assert_eq!((shares(0), shares(60)), (true, false));
}
