//! Jobs that were never alone on their device: what all of them do together shows what each may do.

use crate::common::{Node, gib, started};
use radrm_scheduler_core::{
    Activity, DeviceId, Event, Job, JobId, JobObservation, Permille, Phase, Program, Settings, SharingMode,
    Wait,
};

fn activity(smact: u32) -> Activity {
    Activity { smact: Permille(smact), smocc: Permille(smact / 4), drama: Permille(smact / 2) }
}

/// The jobs that run.
fn running(node: &Node, last: u64) -> Vec<u64> {
    (1..=last).filter(|id| node.phase(*id) == Phase::Running).collect()
}

/// All jobs of the device were seen to do so much together, and those that start then run.
fn together(node: &mut Node, jobs: &[u64], smact: u32) -> usize {
    let jobs = jobs.iter().copied().map(JobId).collect();
    let decisions = node.step(Event::CompanyObserved {
        device: DeviceId(0),
        jobs,
        together: activity(smact),
        each: Vec::new(),
    });
    let all: Vec<u64> = node.state.jobs().map(|job| job.0).collect();
    let begun: Vec<(u64, u32)> =
        all.iter().filter_map(|id| Some((*id, started(&decisions, *id)?.0))).collect();
    for (id, attempt) in &begun {
        node.step(Event::Started { job: JobId(*id), attempt: *attempt });
    }
    begun.len()
}

#[test]
fn light_jobs_that_start_beside_each_other_make_room_for_others_of_their_program() {
    let mut node = Node::new(1, Settings::default());
    let program = Some(Program(7));
    (1..=12).for_each(|id| drop(node.run(Job { program, ..gib(id, 2) })));
    assert_eq!(running(&node, 12), [1, 2]);
    let wait = node.state.job(JobId(12)).unwrap().wait;
    assert!(matches!(wait, Some(Wait::Slowdown { assumed: true, .. })), "{wait:?}");
    assert_eq!(together(&mut node, &[1, 2], 16), 10);
    assert_eq!(running(&node, 12).len(), 12);
}

#[test]
fn light_jobs_of_other_programs_follow_as_the_device_turns_out_to_be_idle() {
    let mut node = Node::new(1, Settings::default());
    (1..=12).for_each(|id| drop(node.run(Job { program: Some(Program(id)), ..gib(id, 2) })));
    assert_eq!(running(&node, 12), [1, 2]);
    let wait = node.state.job(JobId(12)).unwrap().wait;
    assert!(matches!(wait, Some(Wait::Slowdown { assumed: true, .. })), "{wait:?}");
    for _ in 0..12 {
        let jobs = running(&node, 12);
        together(&mut node, &jobs, 8 * jobs.len() as u32);
    }
    // Each that is to come is assumed to be busy, and ten light ones have something to lose.
    assert_eq!(running(&node, 12).len(), 10);
    let wait = node.state.job(JobId(12)).unwrap().wait;
    assert!(matches!(wait, Some(Wait::Slowdown { assumed: true, .. })), "{wait:?}");
}

#[test]
fn equal_parts_of_two_programs_say_nothing_of_a_third_job_of_either() {
    let starts = |each: Vec<Permille>| {
        let mut node = Node::new(2, Settings::default());
        node.run(Job { activity: Some(activity(950)), ..gib(1, 2) });
        [(2, 2), (3, 3)].into_iter().for_each(|(id, program)| {
            drop(node.run(Job { program: Some(Program(program)), ..gib(id, 2) }));
        });
        let jobs = vec![JobId(2), JobId(3)];
        node.step(Event::CompanyObserved { device: DeviceId(1), jobs, together: activity(900), each });
        started(&node.run(Job { program: Some(Program(2)), ..gib(4, 2) }), 4).is_some()
    };
    assert!(!starts(Vec::new()), "it is assumed to be busy");
    assert!(starts(vec![Permille(8), Permille(892)]), "its own launches show that it is light");
}

#[test]
fn busy_jobs_that_start_beside_each_other_make_none() {
    let mut node = Node::new(1, Settings::default());
    (1..=3).for_each(|id| drop(node.run(gib(id, 2))));
    assert_eq!(together(&mut node, &[1, 2], 950), 0);
    // By what was seen, and not by what is assumed, where the newcomer is known.
    node.step(Event::ProfileKnown {
        job: JobId(3),
        activity: Some(activity(600)),
        expected: None,
        host_use: None,
    });
    let wait = node.state.job(JobId(3)).unwrap().wait;
    assert!(matches!(wait, Some(Wait::Slowdown { assumed: false, .. })), "{wait:?}");
}

#[test]
fn what_is_known_of_a_job_is_no_neighbours_doing() {
    let next_starts = |smact| {
        let mut node = Node::new(1, Settings::default());
        node.run(Job { activity: Some(activity(600)), ..gib(1, 2) });
        node.run(gib(2, 2));
        assert_eq!(running(&node, 2), [1, 2]);
        node.run(Job { activity: Some(activity(600)), ..gib(3, 2) });
        assert_eq!(node.phase(3), Phase::Waiting);
        together(&mut node, &[1, 2], smact) == 1
    };
    assert!(next_starts(600), "the second does next to nothing");
    assert!(!next_starts(950), "it does what is assumed of it");
}

#[test]
fn sums_of_other_jobs_say_nothing() {
    let mut node = Node::new(1, Settings::default());
    (1..=3).for_each(|id| drop(node.run(gib(id, 2))));
    assert_eq!(together(&mut node, &[1], 8), 0);
    assert_eq!(together(&mut node, &[1, 4], 8), 0);
    assert_eq!(together(&mut node, &[1, 2, 4], 8), 0);
    assert_eq!(together(&mut node, &[2, 1], 16), 1);
}

#[test]
fn what_a_job_does_alone_counts_more_than_what_it_did_beside_others() {
    let mut node = Node::new(1, Settings::default());
    (1..=3).for_each(|id| drop(node.run(gib(id, 2))));
    let alone = JobObservation { activity: Some(activity(900)), ..JobObservation::default() };
    for job in [1, 2] {
        node.step(Event::JobObserved { job: JobId(job), device: DeviceId(0), seen: alone });
    }
    assert_eq!(together(&mut node, &[1, 2], 16), 0);
}

#[test]
fn by_time_slices_a_third_light_job_adds_nothing_and_that_is_no_assumption() {
    let settings = Settings { sharing: Some(SharingMode::TimeSlices), ..Settings::default() };
    let mut node = Node::new(1, settings);
    (1..=3).for_each(|id| drop(node.run(Job { activity: Some(activity(8)), ..gib(id, 2) })));
    assert_eq!(running(&node, 3), [1, 2]);
    let wait = node.state.job(JobId(3)).unwrap().wait;
    assert!(matches!(wait, Some(Wait::Slowdown { slices: true, assumed: false, .. })), "{wait:?}");
}

#[test]
fn a_device_with_as_many_jobs_as_it_may_have_says_so() {
    let mut settings = Settings::default();
    settings.preconditions.most_jobs = 2;
    let mut node = Node::new(1, settings);
    (1..=3).for_each(|id| drop(node.run(Job { activity: Some(activity(8)), ..gib(id, 2) })));
    assert_eq!(node.state.job(JobId(3)).unwrap().wait, Some(Wait::Full { most: 2 }));
}
