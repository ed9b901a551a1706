//! Choice of the jobs that share a device, by what they do to each other.

use crate::common::{self, Node, gib, started, with};
use radrm_scheduler_core::{Activity, Event, Job, JobId, Permille, Policy, Program, Settings, Sharer, Wait};

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
    let Some(Wait::Protected { low, least }) = wait else { panic!("{wait:?}") };
    assert!(!joined && low < least && least == Permille(700));
    // The speed to expect is above what is protected, the lower end of its interval is not.
    assert!(joins(1, low.0).0 && !joins(1, low.0 + 1).0);
    assert!(joins(1, 0).0);
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
}
