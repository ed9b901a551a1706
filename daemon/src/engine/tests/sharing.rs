//! Slowdown of jobs on one GPU by each other: observed once for each company, kept, and recalled.

use std::time::Duration;

use radrm_scheduler_core::{Activity, Permille};

use super::*;
use crate::pace::Company;

/// The job launches so many kernels in each of eight seconds.
fn launches(engine: &mut Engine, job: u64, company: Company, per_second: u64) {
    let pace = &mut engine.jobs.live_mut(job).unwrap().observed.pace;
    let now = Instant::now();
    for second in 0..8 {
        pace.observe(now + Duration::from_secs(second), second * per_second, company);
    }
}

#[test]
fn a_company_of_jobs_is_observed_once_and_recalled_by_the_next_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let jobs = [10, 11].map(|gib| submit(&mut engine, gib));
    for _ in 0..3 {
        round(&mut engine, &world);
        world.0.borrow_mut().advance(|_| None);
    }
    assert_eq!(engine.jobs.on_gpus().len(), 2, "both run on the one GPU");
    for job in jobs {
        let activity = Activity { smact: Permille(500), ..Activity::default() };
        engine.jobs.entry_mut(job).unwrap().activity = Some(activity.into());
        launches(&mut engine, job, Company::Alone, 1000);
    }
    engine.observe_sharing();
    launches(&mut engine, jobs[0], Company::Others, 500);
    engine.observe_sharing();
    engine.finish_batch(Vec::new());
    assert!(engine.outbox.sharing().is_empty(), "the rate of one is not known");
    launches(&mut engine, jobs[1], Company::Others, 800);
    for _ in 0..3 {
        engine.observe_sharing();
        engine.finish_batch(Vec::new());
    }
    let rows = engine.outbox.sharing();
    assert_eq!(rows.len(), 1, "once");
    let speeds: Vec<f64> = rows[0].jobs.iter().filter_map(|job| job.speed()).collect();
    assert!((speeds[0] - 0.5).abs() < 1e-6 && (speeds[1] - 0.8).abs() < 1e-6, "{speeds:?}");
    assert_eq!((rows[0].gpu_model.as_str(), rows[0].jobs[0].smact_permille), ("G", 500));
    drop(engine);
    let engine = open(dir.path(), &world);
    assert!(engine.companies.recalls(&rows[0].jobs[0].program, 1000.0));
}
