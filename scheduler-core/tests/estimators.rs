//! Replays with estimates in place of peaks: what each source gives a job, and who pays for a wrong one.

use radrm_need::{DryRun, Source as From};
use radrm_scheduler_core::replay::events::Entry;
use radrm_scheduler_core::replay::{Cluster, Model, Options, Report, Source, TraceJob, replay};
use radrm_scheduler_core::{Action, Activity, Bytes, Event, JobId, Millis, Permille};

const GIB: u64 = 1 << 30;

fn job(at: u64, batch: u32, peak: u64) -> TraceJob {
    TraceJob {
        program: "p".to_owned(),
        batch: Some(batch),
        peak: Bytes(peak),
        activity: Some(Activity { smact: Permille(100), smocc: Permille(50), drama: Permille(50) }),
        ..TraceJob::new(format!("p{batch}"), Millis::from_mins(at), Millis::from_mins(5))
    }
}

fn run(jobs: &[TraceJob], source: Source) -> Report {
    let cluster = Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40));
    let options = Options { source, model: Model::default(), steps: true, ..Options::default() };
    replay(jobs, &cluster, &options, &mut ())
}

/// Memory reserved for the first attempt of a job; `None`: a device as a whole.
fn reserved(report: &Report, of: u64) -> Option<Bytes> {
    let steps = report.steps.iter();
    let mut starts = steps.filter_map(|entry| match entry {
        Entry::Step { decisions, .. } => decisions.iter().find_map(|decision| match decision.action {
            Action::Start { job, reserved, .. } if job == JobId(of) => Some(reserved),
            _ => None,
        }),
        _ => None,
    });
    starts.next().expect("it was started")
}

/// Source of a job's need at its submission.
fn source(report: &Report, of: u64) -> Option<From> {
    report.steps.iter().find_map(|entry| match entry {
        Entry::Step { event: Event::Submitted { job }, .. } if job.id == JobId(of) => {
            Some(job.need.as_ref()?.source.clone())
        }
        _ => None,
    })
}

#[test]
fn a_trace_teaches_a_program_at_other_batch_sizes() {
    let line = |batch: u64| (1 + batch / 8) * GIB;
    let jobs = [job(0, 8, line(8)), job(10, 16, line(16)), job(20, 32, line(32))];
    for from in [Source::Combined, Source::History] {
        let report = run(&jobs, from.clone());
        assert_eq!(reserved(&report, 0), None, "{from:?}: nothing is known of the first run");
        let last = reserved(&report, 2).expect("a need");
        assert!((line(32)..line(32) * 5 / 4).contains(&last.0), "{from:?}: {last}");
        assert!(matches!(source(&report, 2), Some(From::Combined { .. })), "{from:?}");
    }
}

#[test]
fn a_recorded_dry_run_is_a_need_before_the_first_run() {
    let mut first = job(0, 8, 6 * GIB);
    first.dry_run =
        Some(DryRun { held: Bytes(5 * GIB), steps: 3, gpu: "GPU".to_owned(), ..DryRun::default() });
    first.estimates.insert("faketensor".to_owned(), Bytes(3 * GIB));
    // What the thesis's traces have where an estimator gave no number.
    first.estimates.insert("gpumemnet".to_owned(), Bytes::from_mib(40_000));
    for (from, is_right) in [
        (Source::DryRun, matches as fn(&From) -> bool),
        (Source::Combined, matches),
        (Source::Learned, |source| *source == From::File { estimator: "FakeTensor".to_owned() }),
    ] {
        let report = run(std::slice::from_ref(&first), from.clone());
        let found = source(&report, 0).expect("a need");
        assert!(is_right(&found), "{from:?}: {found:?}");
        assert!(reserved(&report, 0).is_some_and(|bytes| bytes < Bytes(12 * GIB)), "{from:?}");
    }
    let unknown = run(&[job(0, 8, 6 * GIB)], Source::Combined);
    assert_eq!((source(&unknown, 0), reserved(&unknown, 0)), (None, None));
}

fn matches(source: &From) -> bool {
    matches!(source, From::Combined { said, .. } if matches!(said[0].source, From::DryRun { .. }))
}

#[test]
fn a_job_that_lacks_what_was_reserved_for_it_was_harmed() {
    let estimated = |gib: u64, peak: u64| {
        let mut job = job(0, peak as u32, peak * GIB);
        job.estimates.insert("e".to_owned(), Bytes(gib * GIB));
        job
    };
    // The first takes 27 of the 10 that were estimated: the second finds less than its 20.
    let report = run(&[estimated(10, 27), estimated(20, 20)], Source::Column("e".to_owned()));
    let figures: Vec<(u32, u32)> = report.jobs.iter().map(|job| (job.ooms, job.harmed)).collect();
    assert_eq!(figures, [(0, 0), (1, 1)]);
    // With 36 it fails itself: no other job pays for it.
    let report = run(&[estimated(10, 36), estimated(20, 20)], Source::Column("e".to_owned()));
    assert_eq!(report.metrics().harmed, 0.0);
    assert_eq!(report.jobs[0].ooms, 1);
}
