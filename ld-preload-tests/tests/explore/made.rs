//! A dataset of many runs, some of them with profiles.

use std::path::{Path, PathBuf};

use radrm_collector::dataset::{Dataset, Row, SharedJob, Sharing};
use radrm_profile::model::*;
use radrm_profile::{Bytes, Nanos, ProcessDelta, Record, State, TimelineChunk, Writer};

/// Batch sizes of the runs, in turns.
pub const BATCHES: [u32; 4] = [8, 16, 32, 64];
/// A command that would be markup if it were not escaped.
pub const EVIL: &str = "<img src=x onerror=window.evil=1>";
/// Runs that fail: each of so many.
pub const FAILING: usize = 9;

/// A private folder with a dataset.
pub struct Place(tempfile::TempDir);

impl Place {
    /// Of `count` runs, the newest `profiles` of which have profiles; the profile of the run before these is missing.
    pub fn new(count: usize, profiles: usize) -> Self {
        let place = Self(tempfile::tempdir().expect("directory"));
        let mut dataset = Dataset::open(&place.dataset()).expect("made");
        let rows: Vec<Row> = (0..count).map(|at| place.row(at, count, profiles)).collect();
        dataset.add_all(&rows).expect("added");
        let job = |program: &str, beside_per_s| SharedJob {
            program: program.into(),
            alone_per_s: 100.0,
            beside_per_s,
            ..SharedJob::default()
        };
        let jobs = vec![job("resnet", 50.0), job("bert", 80.0)];
        let sharing = Sharing { gpu_model: "NVIDIA H200".into(), jobs, ..Sharing::default() };
        dataset.add_sharing(&sharing, 10).expect("added");
        for at in count - profiles..count {
            profile(&place.profile(at), at);
        }
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn dataset(&self) -> PathBuf {
        self.path().join("dataset.db")
    }

    pub fn profile(&self, at: usize) -> PathBuf {
        self.path().join(format!("{at}.radrm"))
    }

    fn row(&self, at: usize, count: usize, profiles: usize) -> Row {
        let batch = BATCHES[at % BATCHES.len()];
        let evil = if at == count - 2 { EVIL } else { "train.py" };
        let words = [
            evil,
            "--batch-size",
            &batch.to_string(),
            "--lr",
            if at.is_multiple_of(3) { "0.1" } else { "0.01" },
        ];
        let fails = at.is_multiple_of(FAILING);
        Row {
            start_unix_ns: 1_790_000_000_000_000_000 + at as u64 * 60_000_000_000,
            duration_ns: (60 + at as u64 % 977) * 1_000_000_000,
            run_time_ns: (60 + at as u64 % 977) * 1_000_000_000,
            command: "python3".into(),
            arguments: words.map(str::to_owned).to_vec(),
            batch: Some(batch),
            user: Some("ada".into()),
            host: format!("node{}", at % 7),
            gpus_requested: Some(1),
            gpu_model: Some("NVIDIA H200".into()),
            framework: Some("PyTorch 2.9.0".into()),
            complete: !fails,
            smact_permille: (!at.is_multiple_of(5)).then_some(100 + (at as u32 * 7919) % 800),
            peak_bytes: (u64::from(batch) << 27) + (at as u64 * 104_729 % 997) * 1_048_576,
            peak_exact: !at.is_multiple_of(50),
            launches: Some(1000 + at as u64),
            outcome: "exited".into(),
            exit_code: Some(i32::from(fails)),
            profile_path: (at + profiles + 1 >= count)
                .then(|| self.profile(at).to_string_lossy().into_owned()),
            radrm_version: "0.1.0".into(),
            ..Row::default()
        }
    }
}

/// A run of two minutes with a thousand points of memory, and each second activity, power and ten steps.
fn profile(path: &Path, at: usize) {
    let job = Job {
        command: vec!["python3".into(), "train.py".into()],
        host: "node7".into(),
        pid: 4711,
        start_unix_ns: 1_790_000_000_000_000_000,
        ..Job::default()
    };
    let held = |i: u64| {
        let mut kinds = [Bytes::ZERO; KIND_COUNT];
        kinds[Kind::Device.index()] = Bytes::from_mib(500 + at as u64 % 100 * 20 + i * 7919 % 401);
        kinds
    };
    let points: Vec<TimelinePoint> = (0..1000)
        .map(|i| TimelinePoint {
            t: Nanos(i * 120_000_000),
            span: Nanos(120_000_000),
            max_total: held(i)[Kind::Device.index()],
            at_max: held(i),
            last: held(i),
        })
        .collect();
    let peak = points.iter().map(|point| point.max_total).max().unwrap_or_default();
    let key = ProcessKey { slot: 0, generation: 1 };
    let account = Account { peak, contexts: 1, ..Account::default() };
    let state = State {
        t: Nanos::from_secs(120),
        processes: vec![ProcessDelta {
            key,
            identity: Some(Identity { pid: 4711, exe: "/usr/bin/python3".into(), ..Identity::default() }),
            state: ProcessState { accounts: vec![account], launches: 1000, ..ProcessState::default() },
            timelines: vec![TimelineChunk { gpu: GpuIndex(0), points }],
            ..ProcessDelta::default()
        }],
        ..State::default()
    };
    let activity = |t| GpuSpan {
        t: Nanos::from_secs(t),
        span: Nanos::from_secs(1),
        sm_active: Share::new(0.3 + (t * 31 % 50) as f64 / 100.0),
        power_mw: Some(250_000 + (t as u32 * 7919) % 100_000),
        meter: Meter::Gpm,
        ..GpuSpan::default()
    };
    let name = RangeName {
        id: 1,
        name: "step".into(),
        ranges: 1200,
        first: Nanos::ZERO,
        last: Nanos::from_secs(119),
        end: Nanos::from_secs(120),
        ..RangeName::default()
    };
    let event = |n: u64| RangeEvent {
        process: key,
        name: 1,
        start: Nanos(n * 100_000_000),
        length: Nanos(90_000_000),
        is_nested: true,
        step: Some(n),
        ..RangeEvent::default()
    };
    let gpu = Gpu { name: "NVIDIA H200".into(), total: Bytes::from_gib(141), ..Gpu::default() };
    let records = [
        Record::Gpus(vec![gpu]),
        Record::GpuClock(GpuClock::Real),
        Record::State(state),
        Record::Activity((0..120).map(activity).collect()),
        Record::Ranges(Box::new(Ranges { key, names: vec![name], ..Ranges::default() })),
        Record::RangeEvents((0..1200).map(event).collect()),
        Record::Outcome(Outcome { exit: Exit::Code(0), duration: Nanos::from_secs(120), reason: None }),
    ];
    let mut writer = Writer::create_new(path, &job).expect("made");
    records.iter().for_each(|record| writer.append(record).expect("written"));
}
