//! Policies of other systems on traces whose course was computed by hand.

use radrm_scheduler_core::replay::{Cluster, Model, Options, TraceJob, replay};
use radrm_scheduler_core::{Activity, Bytes, Millis, Permille, Policy, Settings};

/// Seconds at which each job ends on one GPU.
fn ends(policy: Policy, jobs: &[TraceJob]) -> Vec<u64> {
    let options = Options {
        settings: Settings::published(policy),
        model: Model::default().plain(),
        ..Options::default()
    };
    let gpu = Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40));
    let report = replay(jobs, &gpu, &options, &mut ());
    assert!(report.jobs.iter().all(|job| job.success), "{:?}", report.jobs);
    report.jobs.iter().map(|job| (job.end.expect("an end").0 + 500) / 1000).collect()
}

/// A job that uses so much of the SMs.
fn job(at: u64, takes: u64, smact: u32) -> TraceJob {
    let activity = Some(Activity { smact: Permille(smact), ..Activity::default() });
    let (at, takes) = (Millis::from_secs(at), Millis::from_secs(takes));
    // Nothing is held, so it is suspended in no time.
    TraceJob { activity, ..TraceJob::new(format!("{at:?} {takes:?}"), at, takes) }
}

#[test]
fn tiresias_gives_the_gpu_to_the_first_queue_after_an_hour() {
    let ends = |jobs: &[(u64, u64)]| {
        let jobs: Vec<TraceJob> = jobs.iter().map(|(at, takes)| job(*at, *takes, 900)).collect();
        ends(Policy::Tiresias, &jobs)
    };
    // The first had its hour when the second comes: that runs at once, and the first goes on where it was.
    assert_eq!(ends(&[(0, 5000), (4000, 600)]), [5600, 4600]);
    // It comes before, and waits until the hour is over.
    assert_eq!(ends(&[(0, 5000), (3000, 600)]), [5600, 4200]);
    // One that ends within its hour is not interrupted.
    assert_eq!(ends(&[(0, 3500), (100, 60)]), [3500, 3560]);
    // Both had their hour (3600, 7200): then the order is that of submission, and none interrupts the other. A third comes
    // before both of them.
    assert_eq!(ends(&[(0, 5000), (1, 5000)]), [8600, 10_000]);
    assert_eq!(ends(&[(0, 5000), (1, 5000), (8000, 100)]), [8700, 10_100, 8100]);
    // First come, first served would be:
    assert_eq!(ends_of_exclusive(&[(0, 5000), (3000, 600)]), [5000, 5600]);
}

fn ends_of_exclusive(jobs: &[(u64, u64)]) -> Vec<u64> {
    let mut settings = Settings::published(Policy::Exclusive);
    settings.order.pace = Millis::ZERO;
    let jobs: Vec<TraceJob> = jobs.iter().map(|(at, takes)| job(*at, *takes, 900)).collect();
    let options = Options { settings, model: Model::default().plain(), ..Options::default() };
    let gpu = Cluster::uniform(1, "A100-40GB", Bytes::from_gib(40));
    let report = replay(&jobs, &gpu, &options, &mut ());
    report.jobs.iter().map(|job| (job.end.expect("an end").0 + 500) / 1000).collect()
}

#[test]
fn miso_divides_the_gpu_for_the_jobs_it_has() {
    let with = |job: TraceJob, gib| TraceJob { peak: Bytes::from_gib(gib), ..job };
    // Two that use all of a GPU get 4/7 and 3/7 of it. The second ends at 400 * 7/3 = 933; until then the first has done
    // 533 of its 700 seconds, and has the whole GPU for the other 167.
    let jobs = [with(job(0, 700, 1000), 4), with(job(0, 400, 1000), 4)];
    assert_eq!(ends(Policy::Miso, &jobs), [1100, 933]);
    // One of 25 GiB needs the whole GPU's memory: the other one waits.
    let jobs = [with(job(0, 700, 1000), 25), with(job(0, 400, 1000), 4)];
    assert_eq!(ends(Policy::Miso, &jobs), [700, 1100]);
    // The one that uses a fifth has 3/7 and runs at 15/19 of its speed: 150 * 19/15 = 190. The other one has done
    // 190 * 4/7 = 108.6 by then.
    let jobs = [with(job(0, 700, 1000), 4), with(job(0, 150, 200), 4)];
    assert_eq!(ends(Policy::Miso, &jobs), [781, 190]);
}
