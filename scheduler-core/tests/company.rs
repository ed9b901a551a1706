//! Jobs that were never alone on their device: what all of them do together shows what each may do.

use crate::common::{self, DONE, Node, gib, started, with};
use radrm_base::SeenActivity;
use radrm_need::{Known, Source};
use radrm_scheduler_core::{
    Activity, Basis, Bytes, Device, DeviceId, Event, Forecast, Job, JobId, JobObservation, Millis, Needs,
    NodeId, Permille, Phase, Policy, Program, Settings, SharingMode, UserId, Wait,
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
    assert!(
        matches!(wait, Some(Wait::Slowdown { by: Forecast::Gpu { activity: Basis::Assumed, .. }, .. })),
        "{wait:?}"
    );
    // As many again as were seen, as those that came first may still load their data, and one that is assumed to be busy.
    assert_eq!(together(&mut node, &[1, 2], 16), 3);
    assert_eq!(together(&mut node, &[1, 2, 3, 4, 5], 40), 5);
    let all: Vec<u64> = (1..=10).collect();
    assert_eq!(together(&mut node, &all, 80), 2);
    assert_eq!(running(&node, 12).len(), 12);
}

#[test]
fn light_jobs_by_their_dry_runs_share_before_any_of_them_ran() {
    let all_running = |predicted| {
        let mut node = Node::new(1, Settings::default());
        (1..=12).for_each(|id| drop(node.run(Job { predicted, ..gib(id, 2) })));
        running(&node, 12).len()
    };
    assert_eq!((all_running(None), all_running(Some(activity(16)))), (2, 12));
}

#[test]
fn what_a_gpu_shows_of_a_job_comes_before_its_prediction() {
    let wait = |shown: Option<u32>| {
        let mut node = Node::new(1, Settings::default());
        node.run(Job { predicted: Some(activity(16)), ..gib(1, 2) });
        if let Some(smact) = shown {
            let seen = JobObservation { activity: Some(activity(smact)), ..JobObservation::default() };
            node.step(Event::JobObserved { job: JobId(1), device: DeviceId(0), seen });
        }
        node.run(Job { activity: Some(activity(950)), ..gib(2, 2) });
        node.state.job(JobId(2)).unwrap().wait
    };
    assert_eq!(wait(None), None, "it starts beside a job that is predicted to be light");
    let shown = wait(Some(950));
    assert!(
        matches!(shown, Some(Wait::Slowdown { by: Forecast::Gpu { activity: Basis::Measured, .. }, .. })),
        "{shown:?}"
    );
}

#[test]
fn a_busy_job_by_its_dry_run_waits_and_names_the_prediction() {
    let mut node = Node::new(1, Settings::default());
    node.run(Job { activity: Some(activity(950)), ..gib(1, 2) });
    node.run(Job { predicted: Some(activity(950)), ..gib(2, 2) });
    let wait = node.state.job(JobId(2)).unwrap().wait;
    assert!(
        matches!(wait, Some(Wait::Slowdown { by: Forecast::Gpu { activity: Basis::Predicted, .. }, .. })),
        "{wait:?}"
    );
    // What is known of its program since takes the prediction's place.
    let needs = Needs { activity: Some(measured(16)), ..Needs::default() };
    let job = node.state.job(JobId(2)).unwrap().job.clone();
    for event in Event::needs_known(&job, &needs, Settings::default().assumed) {
        node.step(event);
    }
    assert_eq!(node.state.job(JobId(2)).unwrap().job.activity, Some(activity(16)));
    assert_eq!(node.state.job(JobId(2)).unwrap().wait, None, "it starts");
}

/// An activity that an equal run has shown.
fn measured(smact: u32) -> Known<SeenActivity> {
    Known { value: activity(smact).into(), bound: None, source: Source::EqualRuns { runs: 1 } }
}

#[test]
fn a_predicted_activity_is_none_that_was_measured() {
    let source = Source::PredictedStep { gpu: "L4".into(), steps: 0, runs: 0 };
    let known = |source| Some(Known { source, ..measured(300) });
    let of =
        |activity| gib(1, 2).needing(&Needs { activity, ..Needs::default() }, Settings::default().assumed);
    let (predicted, measured) = (of(known(source)), of(known(Source::EqualRuns { runs: 1 })));
    assert_eq!((predicted.activity, predicted.predicted), (None, Some(activity(300))));
    assert_eq!((measured.activity, measured.predicted), (Some(activity(300)), None));
}

#[test]
fn what_was_not_measured_of_an_activity_follows_from_the_settings() {
    let value = SeenActivity { smact: Permille(300), smocc: None, drama: None };
    let needs = Needs { activity: Some(Known { value, ..measured(300) }), ..Needs::default() };
    let assumed = Activity { smact: Permille(600), smocc: Permille(200), drama: Permille(100) };
    let expected = Activity { smact: Permille(300), smocc: Permille(100), drama: Permille(50) };
    assert_eq!(gib(1, 2).needing(&needs, assumed).activity, Some(expected));
    let news = Event::needs_known(&gib(1, 2), &needs, assumed);
    assert!(
        matches!(news[..], [Event::ProfileKnown { activity: Some(activity), .. }] if activity == expected)
    );
}

#[test]
fn a_program_counts_as_its_busiest_job() {
    let mut node = Node::new(1, Settings::default());
    (1..=3).for_each(|id| drop(node.run(Job { program: Some(Program(7)), ..gib(id, 2) })));
    assert_eq!(running(&node, 3), [1, 2]);
    for (id, smact) in [(1, 900), (2, 8), (1, 900), (2, 8)] {
        let seen = JobObservation { activity: Some(activity(smact)), ..JobObservation::default() };
        node.step(Event::JobObserved { job: JobId(id), device: DeviceId(0), seen });
    }
    assert_eq!(node.phase(3), Phase::Waiting);
    node.run(Job { program: Some(Program(7)), ..gib(4, 3) });
    let wait = node.state.job(JobId(4)).unwrap().wait;
    assert!(
        matches!(wait, Some(Wait::Slowdown { by: Forecast::Gpu { activity: Basis::Program, .. }, .. })),
        "{wait:?}"
    );
}

/// The job runs on this device already.
fn adopt(node: &mut Node, device: u32, job: Job) {
    let (devices, reserved) = (vec![DeviceId(device)], Some(Bytes::from_gib(2)));
    node.step(Event::Adopted { job: Box::new(job), devices, since: Millis(0), reserved, leaving: None });
}

/// A device with two jobs of program 7 of user 1 that were seen to be light, and one beside which only light ones pay.
fn with_light_program() -> Node {
    let mut node = Node::new(1, Settings::default());
    for id in [1, 2] {
        adopt(&mut node, 0, Job { program: Some(Program(7)), user: UserId(1), ..gib(id, 2) });
    }
    together(&mut node, &[1, 2], 16);
    adopt(&mut node, 0, Job { activity: Some(activity(950)), ..gib(3, 2) });
    node
}

#[test]
fn a_light_job_that_ends_makes_room_for_another_of_its_program() {
    let mut node = with_light_program();
    for id in 4..=6 {
        node.run(Job { program: Some(Program(7)), user: UserId(1), ..gib(id, 2) });
    }
    assert_eq!(running(&node, 6), [1, 2, 3, 4, 5], "as many again as were seen");
    assert!(started(&node.finish(5, DONE), 6).is_some());
}

#[test]
fn what_a_users_program_does_is_not_taken_of_another_users() {
    let starts = |user| {
        let mut node = with_light_program();
        let job = Job { program: Some(Program(7)), user: UserId(user), ..gib(4, 2) };
        started(&node.run(job), 4).is_some()
    };
    assert!(starts(1));
    assert!(!starts(2));
}

#[test]
fn what_a_program_does_on_one_gpu_model_is_not_taken_on_another() {
    let starts = |model: Option<&str>| {
        let mut node = with_light_program();
        let device = Device {
            id: DeviceId(9),
            node: NodeId(0),
            model: "B".into(),
            capacity: Bytes::from_gib(40),
            parent: None,
            shared: true,
        };
        node.step(Event::DeviceAdded { device });
        adopt(&mut node, 9, Job { activity: Some(activity(950)), ..gib(4, 2) });
        let model = model.map(str::to_owned);
        let job = Job { program: Some(Program(7)), user: UserId(1), model, ..gib(5, 2) };
        started(&node.run(job), 5).is_some()
    };
    assert!(starts(Some(common::MODEL)));
    assert!(!starts(Some("B")) && !starts(None));
}

#[test]
fn no_users_launches_decide_what_another_users_program_does() {
    let starts = |of_second: u32| {
        let mut node = Node::new(2, Settings::default());
        node.run(Job { activity: Some(activity(950)), ..gib(1, 2) });
        for (id, user) in [(2, 1), (3, of_second)] {
            node.run(Job { program: Some(Program(id)), user: UserId(user), ..gib(id, 2) });
        }
        let jobs = vec![JobId(2), JobId(3)];
        // The second claims to do nearly all of it.
        let each = vec![Permille(8), Permille(892)];
        node.step(Event::CompanyObserved { device: DeviceId(1), jobs, together: activity(900), each });
        let job = Job { program: Some(Program(2)), user: UserId(1), ..gib(4, 2) };
        started(&node.run(job), 4).is_some()
    };
    assert!(starts(1), "both are of one user");
    assert!(!starts(2));
}

#[test]
fn a_program_whose_job_was_measured_is_known_after_a_restart() {
    let starts = |program| {
        let mut node = Node::new(1, Settings::default());
        for (id, smact) in [(7, 8), (8, 950)] {
            adopt(
                &mut node,
                0,
                Job { activity: Some(activity(smact)), program: Some(Program(id)), ..gib(id, 2) },
            );
        }
        started(&node.run(Job { program: Some(Program(program)), ..gib(9, 2) }), 9).is_some()
    };
    assert!(starts(7), "as light as the other of its program");
    assert!(!starts(9), "it is assumed to be busy");
}

#[test]
fn busy_jobs_that_start_beside_each_other_make_none() {
    let mut node = Node::new(1, Settings::default());
    (1..=3).for_each(|id| drop(node.run(gib(id, 2))));
    assert_eq!(together(&mut node, &[1, 2], 950), 0);
    // By what was seen of both, and not by what is assumed, where the newcomer is known.
    node.step(Event::ProfileKnown {
        job: JobId(3),
        activity: Some(activity(600)),
        predicted: None,
        expected: None,
        at_least: None,
        host_use: None,
    });
    let wait = node.state.job(JobId(3)).unwrap().wait;
    assert!(
        matches!(wait, Some(Wait::Slowdown { by: Forecast::Gpu { activity: Basis::Together, .. }, .. })),
        "{wait:?}"
    );
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
    let Some(Wait::Slowdown { by: Forecast::Gpu { sharing, activity, .. }, .. }) = wait else {
        panic!("{wait:?}")
    };
    assert_eq!((sharing, activity), (SharingMode::TimeSlices, Basis::Measured));
}

#[test]
fn eight_jobs_share_a_device_where_nothing_is_predicted_of_them_and_48_where_it_is() {
    let jobs = |policy| {
        let mut node = Node::new(1, with(policy));
        let tiny = |id| Job { activity: Some(Activity::default()), ..gib(id, 0) };
        (1..=50).for_each(|id| drop(node.run(tiny(id))));
        running(&node, 50).len()
    };
    for policy in [Policy::BestFit, Policy::RoundRobin, Policy::Lug] {
        assert_eq!(jobs(policy), 8, "{policy:?}");
    }
    assert_eq!(jobs(Policy::Aware), 48);
}

#[test]
fn a_device_with_as_many_jobs_as_it_may_have_says_so() {
    let mut settings = Settings::default();
    settings.preconditions.most_jobs = Some(2);
    let mut node = Node::new(1, settings);
    (1..=3).for_each(|id| drop(node.run(Job { activity: Some(activity(8)), ..gib(id, 2) })));
    assert_eq!(node.state.job(JobId(3)).unwrap().wait, Some(Wait::Full { most: 2 }));
}
