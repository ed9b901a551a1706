//! Profiles whose reports are known.
#![allow(dead_code)]

use radrm_profile::model::*;
use radrm_profile::*;

pub fn job() -> Job {
    Job {
        radrm_version: "0.1.0".into(),
        command: vec!["python".into(), "train.py".into(), "--name".into(), "a run".into()],
        program: Some("/usr/bin/python3.11".into()),
        program_sha256: Some([0xab; 32]),
        cwd: "/home/ada/gpt".into(),
        uid: 1000,
        user: Some("ada".into()),
        host: "node7".into(),
        pid: 4711,
        start_unix_ns: 1_795_235_536_000_000_000,
        emulated: None,
        environment: vec![
            ("CUDA_VISIBLE_DEVICES".into(), "0,1".into()),
            ("PYTORCH_CUDA_ALLOC_CONF".into(), "expandable_segments:True".into()),
        ],
    }
}

pub fn gpu(index: u8) -> Gpu {
    Gpu {
        index: GpuIndex(index),
        uuid: format!("GPU-0000000{index}-1111-2222-3333-444444444444"),
        name: "NVIDIA H200".into(),
        total: Bytes::from_mib(143_771),
        pci_bus_id: format!("0000:{index}b:00.0"),
        driver_version: Some("570.86.15".into()),
        cuda_version: Some(12080),
    }
}

type Kinds = [Bytes; KIND_COUNT];

/// Sizes in MiB by kind.
pub fn kinds(sizes: &[(Kind, u64)]) -> Kinds {
    let mut kinds = [Bytes::ZERO; KIND_COUNT];
    for &(kind, mib) in sizes {
        kinds[kind.index()] = Bytes::from_mib(mib);
    }
    kinds
}

pub fn point(ms: u64, span_ms: u64, at_max: Kinds, last: Kinds) -> TimelinePoint {
    TimelinePoint {
        t: Nanos::from_millis(ms),
        span: Nanos::from_millis(span_ms),
        max_total: device_total(&at_max),
        at_max,
        last,
    }
}

/// An account whose figures follow from a timeline.
pub fn account(timeline: &Timeline) -> Account {
    let mut account = Account { gpu: timeline.gpu, contexts: 1, ..Account::default() };
    for point in &timeline.points {
        if point.max_total > account.peak {
            account.peak = point.max_total;
            account.peak_at = point.t;
            for kind in Kind::ALL {
                account.kinds[kind.index()].at_peak = point.at_max[kind.index()];
            }
        }
        for kind in Kind::ALL {
            let k = &mut account.kinds[kind.index()];
            let bytes = point.at_max[kind.index()].max(point.last[kind.index()]);
            if bytes > k.peak {
                k.peak = bytes;
                k.allocations += 1000;
            }
            k.frees = k.allocations / 2;
            k.now = point.last[kind.index()];
            k.blocks = u64::from(!k.now.is_zero()) * 3;
        }
    }
    account.now = timeline.points.last().map_or(Bytes::ZERO, |point| device_total(&point.last));
    account
}

fn process(slot: u32, pid: u32, timelines: Vec<Timeline>) -> Process {
    Process {
        key: ProcessKey { slot, generation: 1 },
        identity: Identity {
            pid,
            ppid: if pid == 4711 { 4700 } else { 4711 },
            uid: 1000,
            exe: "/usr/bin/python3.11".into(),
            command: "python train.py --name a run".into(),
            joined: Nanos::from_millis(20),
        },
        state: ProcessState {
            accounts: timelines.iter().map(account).collect(),
            end: End::Exited(None),
            ended: Some(Nanos::from_secs(187)),
            ..ProcessState::default()
        },
        kernels_mode: Some(KernelsMode::Count),
        kernels: Vec::new(),
        timings: Timings::default(),
        throttling: Throttling::default(),
        stacks: None,
        tensors: None,
        stack_moments: Vec::new(),
        stack_refusals: Vec::new(),
        ranges: None,
        kernel_activity: KernelActivity::default(),
        timelines,
        seen_alive: Nanos::from_secs(187),
    }
}

fn kernel(id: u32, name: &str, launches: u64, grid: u64, block: u64) -> Kernel {
    Kernel {
        id,
        name: name.into(),
        registers: 32 + id,
        static_shared: Bytes(1024 * u64::from(id)),
        launches,
        blocks: launches * grid,
        threads: launches * grid * block,
        dynamic_shared: Bytes(launches * 512),
        max_threads: 1024,
        ..Kernel::default()
    }
}

/// A training run: a warm-up, waves of activations, a second process.
pub fn training() -> Profile {
    let mut points = vec![point(100, 50, kinds(&[(Kind::Device, 40)]), kinds(&[(Kind::Device, 40)]))];
    for step in 0..90u64 {
        let activations = 1800 + 37 * (step % 7) + if step > 40 { 2200 } else { 0 };
        let high = kinds(&[
            (Kind::Device, 640),
            (Kind::PoolReserved, activations + 1200),
            (Kind::PoolUsed, activations),
            (Kind::Vmm, if step > 20 { 2048 } else { 0 }),
            (Kind::Graph, if step > 60 { 300 } else { 0 }),
            (Kind::Managed, 64),
            (Kind::PinnedHost, 256),
        ]);
        let low = kinds(&[
            (Kind::Device, 640),
            (Kind::PoolReserved, 1200),
            (Kind::PoolUsed, 700),
            (Kind::Vmm, if step > 20 { 2048 } else { 0 }),
            (Kind::Graph, if step > 60 { 300 } else { 0 }),
            (Kind::Managed, 64),
            (Kind::PinnedHost, 256),
        ]);
        points.push(point(2_000 + step * 2_000, 900, high, low));
    }
    let mut main = process(0, 4711, vec![Timeline { gpu: GpuIndex(0), points }]);
    main.state.frameworks = vec![
        Framework { name: "PyTorch".into(), version: Some("2.15".into()) },
        Framework { name: "CUDA runtime".into(), version: Some("13".into()) },
    ];
    main.state.launches = 1_203_433 + 88_000 + 12;
    main.state.graph_launches = 500;
    main.state.remainders = vec![Remainder {
        gpu: GpuIndex(0),
        t: Nanos::from_secs(180),
        nvml: Bytes::from_mib(4700),
        accounted: Bytes::from_mib(4188),
        nvml_peak: Bytes::from_mib(8900),
    }];
    main.kernels = vec![
        kernel(
            1,
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_",
            1_203_433,
            1024,
            128,
        ),
        kernel(2, "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 88_000, 96, 256),
        kernel(3, "triton_poi_fused_<script>alert(1)</script>_0", 12, 7, 64),
    ];
    main.kernels[1].graph_launches = 44_000;
    main.kernels[1].blocks = 132_000 * 96;
    main.kernels[1].threads = 132_000 * 96 * 256;

    let held = kinds(&[(Kind::Device, 512), (Kind::PinnedHost, 32)]);
    let helper = Timeline { gpu: GpuIndex(1), points: vec![point(30_000, 1_000, held, held)] };
    let mut helper = process(1, 4720, vec![helper]);
    helper.identity.command = "python -m loader".into();
    helper.state.end = End::Signal(9);
    helper.state.ended = Some(Nanos::from_secs(120));
    helper.state.events_dropped = 17;
    helper.state.bypasses = vec![
        Bypass { reason: "nested".into(), count: 12, matters: false },
        Bypass { reason: "unknown_device".into(), count: 3, matters: true },
    ];

    let samples = (0..180)
        .map(|s| NvmlSample {
            t: Nanos::from_secs(s),
            gpu: GpuIndex(0),
            used: Bytes::from_mib(6000 + 20 * s),
            total: Bytes::from_mib(143_771),
            utilization: Some(if s < 90 { 50 } else { 90 }),
            memory_utilization: Some(30),
            power_mw: Some(400_000 + s as u32 * 1000),
            temperature: Some(61),
            processes: vec![ProcessUse {
                pid: 4711,
                used: Some(Bytes::from_mib(if s < 5 { 500 } else { 5000 + 20 * s })),
            }],
            others: Bytes::from_mib(520),
            others_count: 1,
        })
        .collect();

    let mut profile = Profile::new(job());
    profile.gpus = vec![gpu(0), gpu(1)];
    profile.processes = vec![main, helper];
    profile.samples = samples;
    profile.last_state = Nanos::from_secs(187);
    profile.outcome = Some(Outcome { exit: Exit::Code(0), duration: Nanos::from_secs(187), reason: None });
    profile
}

/// The same machine, emulated; the run dies of a refused request.
pub fn out_of_memory() -> Profile {
    let mut profile = training();
    profile.job.emulated = Some("2xH200".into());
    profile.samples.clear();
    profile.processes.truncate(1);
    let process = &mut profile.processes[0];
    process.state.remainders.clear();
    process.state.accounts[0].failed = 41;
    process.state.accounts[0].granted_since_refusal = Some(0);
    process.state.end = End::Exited(Some(1));
    process.state.failures = (0..2)
        .map(|i| FailedRequest {
            t: Nanos::from_millis(186_400 + i * 100),
            gpu: GpuIndex(0),
            kind: Kind::Device as u8,
            call: "cuMemAlloc".into(),
            size: Bytes::from_gib(140),
            free: Some(Bytes::from_mib(134_000)),
            total: Some(Bytes::from_mib(143_771)),
            result: 2,
        })
        .collect();
    process.state.largest_blocks = (1..9)
        .map(|i| Block {
            size: Bytes::from_mib(2048 / i),
            kind: if i == 1 { Kind::Vmm as u8 } else { Kind::Device as u8 },
            gpu: GpuIndex(0),
            since: Nanos::from_secs(i),
        })
        .collect();
    profile.outcome = Some(Outcome {
        exit: Exit::Code(1),
        duration: Nanos::from_secs(187),
        reason: Some(Reason::OutOfGpuMemory),
    });
    profile
}

/// Several processes on one GPU at once, that change what they hold at the
/// same time: only bounds are known.
pub fn several() -> Profile {
    let mut profile = Profile::new(job());
    profile.gpus = vec![gpu(0)];
    for i in 0..3u64 {
        let held = kinds(&[(Kind::Device, 1000 + 100 * i)]);
        let points = vec![point(1000 * i + 500, 1700, held, held)];
        let mut process = process(i as u32, 4711 + i as u32, vec![Timeline { gpu: GpuIndex(0), points }]);
        process.state.ended = Some(Nanos::from_millis(2_000 * (i + 1)));
        process.state.accounts[0].now = Bytes::ZERO;
        process.state.accounts[0].kinds[0].now = Bytes::ZERO;
        process.state.accounts[0].kinds[0].blocks = 0;
        profile.processes.push(process);
    }
    profile.outcome = Some(Outcome { exit: Exit::Signal(15), duration: Nanos::from_secs(7), reason: None });
    profile
}

/// A job without a GPU program.
pub fn nothing() -> Profile {
    let mut profile = Profile::new(job());
    profile.outcome = Some(Outcome { exit: Exit::Code(3), duration: Nanos::from_millis(12), reason: None });
    profile
}

/// A program that started and did nothing; the profile's end is missing.
pub fn idle() -> Profile {
    let mut profile = Profile::new(job());
    profile.gpus = vec![gpu(0)];
    let mut process = process(0, 4711, Vec::new());
    process.state.accounts = vec![Account { gpu: GpuIndex(0), contexts: 1, ..Account::default() }];
    process.state.end = End::Running;
    process.state.ended = None;
    profile.processes.push(process);
    profile.last_state = Nanos::from_secs(5);
    profile.notes.push(Note::Truncated { at: 1234, bytes: 7 });
    profile
}

/// Call stacks of a training run's first process: what its kinds hold at the peak and at the end, two refused requests,
/// and what was held at each tenth point of its timeline.
pub fn record_stacks(process: &mut Process) {
    let account = process.state.accounts[0].clone();
    let names = ["<module>", "load", "make_weights", "step", "forward", "backward"];
    let code = |name: &str| StackCode { file: "/home/ada/gpt/train.py".into(), name: name.into() };
    let frames = |functions: &[u32]| {
        let frame = |code: u32| StackFrame::Code { code, line: 10 * (code + 1), is_entry: true };
        functions.iter().rev().map(|code| frame(*code)).collect::<Vec<_>>()
    };
    let site = |kind: Kind, functions: &[u32], at_peak: Bytes, held: Bytes| Site {
        gpu: account.gpu,
        kind: kind as u8,
        frames: frames(functions),
        at_peak,
        held,
        allocations: 12,
        ..Site::default()
    };
    let (peak, now) =
        (|kind: Kind| account.kinds[kind.index()].at_peak, |kind: Kind| account.kinds[kind.index()].now);
    let gradients = Bytes::from_mib(100);
    let mut sites = vec![
        site(Kind::Vmm, &[0, 1], peak(Kind::Vmm), now(Kind::Vmm)),
        site(Kind::Device, &[0, 1, 2], peak(Kind::Device), now(Kind::Device)),
        site(Kind::PoolUsed, &[0, 3, 4], peak(Kind::PoolUsed).minus(gradients), now(Kind::PoolUsed)),
        site(Kind::PoolUsed, &[0, 3, 5], gradients, Bytes::ZERO),
    ];
    sites[2].refused = 2;
    sites[2].refused_size = Bytes::from_gib(140);
    let ids: Vec<(u64, Kind)> = sites
        .iter()
        .zip([Kind::Vmm, Kind::Device, Kind::PoolUsed])
        .map(|(site, kind)| (site.id(), kind))
        .collect();
    let moment = |point: &TimelinePoint| StackMoment {
        key: process.key,
        gpu: account.gpu,
        t: point.t,
        is_peak: false,
        total: point.max_total,
        kinds: point.at_max,
        changed: ids.iter().map(|(id, kind)| (*id, point.at_max[kind.index()])).collect(),
    };
    process.stack_moments = process.timelines[0].points.iter().step_by(10).map(moment).collect();
    let codes = names.map(code).to_vec();
    process.stacks = Some(Stacks { key: process.key, codes, sites, ..Stacks::default() });
}
