//! A small profile with something of everything.
#![allow(dead_code, reason = "each test program uses a part")]

use radrm_profile::model::*;
use radrm_profile::*;

pub fn job() -> Job {
    Job {
        radrm_version: "0.1.0".into(),
        command: vec!["python".into(), "train.py".into()],
        program: Some("/usr/bin/python3".into()),
        cwd: "/home/ada".into(),
        uid: 1000,
        user: Some("ada".into()),
        host: "node7".into(),
        pid: 4711,
        start_unix_ns: 1_790_000_000_000_000_000,
        environment: vec![("CUDA_VISIBLE_DEVICES".into(), "0".into())],
        ..Job::default()
    }
}

pub fn key() -> ProcessKey {
    ProcessKey { slot: 0, generation: 1 }
}

pub fn point(i: u64, bytes: u64) -> TimelinePoint {
    let mut kinds = [Bytes::ZERO; KIND_COUNT];
    kinds[Kind::Device.index()] = Bytes(bytes);
    TimelinePoint {
        t: Nanos(i << 20),
        span: Nanos(1 << 20),
        max_total: Bytes(bytes),
        at_max: kinds,
        last: kinds,
    }
}

/// A state at second `t`, at which the program holds `bytes`.
pub fn state(t: u64, bytes: u64) -> Record {
    let mut account = Account { now: Bytes(bytes), peak: Bytes(bytes), failed: t, ..Account::default() };
    account.kinds[0].now = Bytes(bytes);
    Record::State(State {
        t: Nanos::from_secs(t),
        processes: vec![ProcessDelta {
            key: key(),
            identity: (t == 1).then(|| Identity {
                pid: 4711,
                exe: "/usr/bin/python3".into(),
                ..Identity::default()
            }),
            state: ProcessState {
                accounts: vec![account],
                failures: vec![FailedRequest {
                    call: "cuMemAlloc".into(),
                    result: 2,
                    ..FailedRequest::default()
                }],
                launches: 10 * t,
                ..ProcessState::default()
            },
            definitions: vec![KernelDefinition {
                id: t as u32,
                name: format!("kernel_{t}"),
                ..Default::default()
            }],
            counters: vec![KernelCounters { id: t as u32, launches: t, ..Default::default() }],
            timelines: vec![TimelineChunk {
                gpu: GpuIndex(0),
                points: vec![point(t, bytes), point(t + 1, bytes)],
            }],
        }],
        events: vec![Event { t: Nanos(1), process: key(), gpu: None, kind: EventKind::Joined }],
        ..State::default()
    })
}

/// A refusal with a limit, a block, another process and a neighbour.
pub fn postmortem() -> Postmortem {
    use postmortem::*;
    let quota = QuotaUse { scope: Scope::User, limit: Bytes(9), used: Bytes(7) };
    Postmortem {
        process: key(),
        cause: Cause::Quota(quota),
        quotas: vec![quota],
        blocks: vec![Block { size: Bytes(5), ..Block::default() }],
        others: Some(vec![JobProcess { pid: 8, ..JobProcess::default() }]),
        nvml: Some(Neighbours { processes: vec![Neighbour::default()], ..Neighbours::default() }),
        ..Postmortem::default()
    }
}

/// The records after the job's.
pub fn records() -> Vec<Record> {
    vec![
        Record::Gpus(vec![Gpu { name: "NVIDIA H200".into(), total: Bytes::from_gib(141), ..Gpu::default() }]),
        state(1, 100),
        Record::Samples(vec![NvmlSample {
            used: Bytes(7),
            processes: vec![ProcessUse { pid: 1, used: None }],
            ..NvmlSample::default()
        }]),
        state(2, 200),
        Record::ProgramDigest([7; 32]),
        Record::Activity(vec![GpuSpan {
            t: Nanos(5),
            sm_active: Share::new(0.75),
            energy_mj: Some(1 << 40),
            meter: Meter::Gpm,
            ..GpuSpan::default()
        }]),
        Record::Host(HostNews {
            counters: vec![HostCounter { kind: 3, value: 9, ..HostCounter::default() }],
            spans: vec![HostSpan { busy: Nanos(4), resident: Bytes(7), ..HostSpan::default() }],
            ..HostNews::default()
        }),
        Record::Timings(Timings {
            key: ProcessKey { slot: 0, generation: 1 },
            kernels: vec![KernelTime { id: 2, total: Nanos(1 << 40), half_width: Nanos(9), samples: 3 }],
            gpu_time: GpuTime { kernels: Nanos(1 << 41), active: Nanos(3), resident: Nanos(2) },
            copies: vec![Copies { way: "peer".into(), count: 2, bytes: Bytes(1 << 33) }],
            spans: vec![TimedSpan { gpu: GpuIndex(1), span: Nanos(1 << 41), timed: Nanos(1 << 40) }],
            lost: 1,
            cost: Nanos(5),
        }),
        Record::KernelActivity(vec![KernelSpan {
            process: ProcessKey { slot: 0, generation: 1 },
            t: Nanos(5),
            span: Nanos(1 << 40),
            kernel_activity: KernelActivity {
                launches: 1 << 33,
                copied: Bytes(9),
                active: Nanos(7),
                ways: [Bytes(1), Bytes(2), Bytes(0), Bytes(4), Bytes(5), Bytes(6), Bytes(1 << 41)],
                shapes: Shapes { launches: 3, threads: 1 << 50, ..Shapes::default() },
                ..KernelActivity::default()
            },
        }]),
        Record::Throttling(Throttling {
            key: ProcessKey { slot: 0, generation: 1 },
            launches: 4511,
            waited: Nanos(1 << 34),
            share_permille: 300,
        }),
        Record::GpuClock(GpuClock::Absent),
        Record::Launches(vec![
            TimedLaunch {
                process: ProcessKey { slot: 0, generation: 1 },
                kernel: Some(2),
                stream: 3,
                launched: Nanos(1 << 40),
                seen_after: Nanos(5),
                duration: Nanos(4),
                end: Some(Nanos(1 << 39)),
                context: u16::MAX,
                blocks: 1 << 33,
                ..TimedLaunch::default()
            },
            TimedLaunch::default(),
        ]),
        Record::Recording(Recording {
            key: ProcessKey { slot: 0, generation: 1 },
            kernels: KernelsMode::Off,
        }),
        Record::KernelMetrics(Box::new(KernelMetrics {
            tool: "Nsight Compute".into(),
            file: "step.csv".into(),
            kernels: vec![ProfiledKernel {
                name: "k<1>(int)".into(),
                launches: 3,
                metrics: [("l2_throughput".to_owned(), 12.5)].into(),
            }],
        })),
        Record::Note("a note".into()),
        Record::Unmeasured("cycles: no counters".into()),
        Record::Postmortem(Box::new(postmortem())),
        state(3, 300),
        Record::Outcome(Outcome {
            exit: Exit::Code(1),
            duration: Nanos::from_secs(3),
            reason: Some(Reason::OutOfGpuMemory),
        }),
    ]
}

/// The file of these records, and the offsets at which its frames end.
pub fn file(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.radrm");
    let mut writer = Writer::create_new(&path, &job()).unwrap();
    let mut ends = vec![writer.written() as usize];
    for record in records {
        writer.append(record).unwrap();
        ends.push(writer.written() as usize);
    }
    (std::fs::read(path).unwrap(), ends)
}

/// The profile that the first `n` of these records make.
pub fn profile(records: &[Record]) -> Profile {
    let mut profile = Profile::new(job());
    for record in records {
        profile.apply(record.clone());
    }
    profile
}
