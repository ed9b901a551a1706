//! The jobs: those of the thesis's 60-task trace, or as many made ones of the same shape.

use std::{fs, path::Path, time::Duration};

use radrm_preload_tests::random::Random;
use radrm_scheduler_core::{
    Bytes, Millis,
    replay::{self, Filling, Profiles, TraceJob},
};

/// Memory that the emulator's driver takes for a context, and a little for the roundings of two allocations.
const BESIDE_MIB: u64 = 440;

/// A job as it is submitted.
#[derive(Clone, Debug)]
pub struct Planned {
    pub name: String,
    /// After the first.
    pub arrival: Duration,
    pub length: Duration,
    pub gpus: u16,
    /// Memory that it takes beside its context, on each GPU, MiB.
    pub mib: u64,
    /// Memory that it states that it needs, MiB; `None`: it states nothing.
    pub said_mib: Option<u64>,
    /// Launches in 10 ms.
    pub kernels: u64,
    pub code: i32,
    /// It says too little: it runs out of memory once.
    pub liar: bool,
    /// True if the second of two users has it.
    pub second: bool,
}

/// All of them in order of arrival, with times divided by `scale`.
pub fn planned(scale: u32) -> Vec<Planned> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let jobs = read(&data).unwrap_or_else(|| {
        eprintln!("{} is not there: jobs of the same shape are made", data.display());
        made()
    });
    assert_eq!(jobs.len(), 60);
    let scaled = |time: Millis| Duration::from_micros(time.0 * 1000 / u64::from(scale));
    // Twice what it says, and its retry gets enough.
    let fits = |job: &&TraceJob| job.gpus == 1 && (4000..12_000).contains(&job.peak.mib());
    let liar = jobs.iter().skip(4).position(|job| fits(&job)).map(|at| at + 4);
    let mut planned: Vec<Planned> = jobs
        .iter()
        .enumerate()
        .map(|(at, job)| {
            // Runs of one small program, of which nothing is said.
            let unsaid = job.name == "mnist_train";
            let peak = job.peak.mib();
            let activity = job.activity.map_or(600, |activity| activity.smact.0);
            Planned {
                name: job.name.clone(),
                arrival: scaled(job.arrival),
                length: scaled(job.duration),
                gpus: job.gpus,
                mib: peak - BESIDE_MIB,
                said_mib: (!unsaid).then_some(if Some(at) == liar { peak / 2 } else { peak }),
                kernels: u64::from(activity) / 10,
                code: if unsaid || Some(at) == liar { 0 } else { i32::try_from(at % 4).unwrap_or(0) },
                liar: Some(at) == liar,
                second: !unsaid && at % 3 == 1,
            }
        })
        .collect();
    planned.sort_by_key(|job| job.arrival);
    assert_eq!(planned.iter().filter(|job| job.liar).count(), 1);
    planned
}

fn read(data: &Path) -> Option<Vec<TraceJob>> {
    let profiles = fs::read_to_string(data.join("workloads_a100/workloads.csv")).ok();
    let profiles = profiles.and_then(|text| Profiles::read(&text).ok()).unwrap_or_default();
    let text = fs::read_to_string(data.join("traces/thesis_60.csv")).ok()?;
    Some(replay::read(&text, &Filling { profiles, ..Filling::default() }).expect("a trace").jobs)
}

/// 60 jobs within 2.5 hours, of 35 to 75 minutes and 5 to 30 GB, some on two GPUs, and seven short runs
/// of one small program.
fn made() -> Vec<TraceJob> {
    let mut random = Random(20_240_607);
    let mut jobs: Vec<TraceJob> = (0..60u64)
        .map(|at| {
            let arrival = Millis(random.below(9_000_000));
            if at < 7 {
                let small = TraceJob::new("mnist_train", arrival, Millis::from_mins(5));
                return TraceJob { peak: Bytes::from_mib(1776), ..small };
            }
            let minutes = Millis::from_mins(15 + random.below(60));
            let peak = Bytes::from_mib(4500 + random.below(25_000));
            let gpus = if at % 20 == 19 { 2 } else { 1 };
            TraceJob { gpus, peak, ..TraceJob::new(format!("made-{at}"), arrival, minutes) }
        })
        .collect();
    jobs.sort_by_key(|job| job.arrival);
    jobs
}
