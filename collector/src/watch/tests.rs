//! A watch over a job whose every move the test decides.

use super::*;
use radrm_profile::Bytes;
use radrm_profile::model::postmortem::Scope;
use radrm_profile::model::{
    Account, Copies, Event, EventKind, FailedRequest, GpuIndex, Identity, Kernel, KernelActivity, KernelTime,
    RESULT_OUT_OF_MEMORY, Reason, TimedLaunch, TimedSpan, Timeline, TimelinePoint,
};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// A job whose every move the test decides.
#[derive(Default)]
struct Job0 {
    now: Nanos,
    gpus: Vec<Gpu>,
    /// Slots; `None` in the second place once it is released.
    processes: BTreeMap<u32, (bool, Process)>,
    released: Vec<ProcessKey>,
    events: Vec<Event>,
    launches: Vec<TimedLaunch>,
    limits: Vec<(GpuIndex, Scope, Option<Bytes>)>,
    details: usize,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Job0>>);

impl Source for Fake {
    fn now(&self) -> Nanos {
        self.0.borrow().now
    }
    fn origin_mono_ns(&self) -> u64 {
        0
    }
    fn gpus(&mut self) -> Vec<Gpu> {
        self.0.borrow().gpus.clone()
    }
    fn processes(&mut self, _: bool) -> Vec<Brief> {
        let job = self.0.borrow();
        let brief = |(alive, process): &(bool, Process)| Brief {
            key: process.key,
            pid: Some(process.identity.pid),
            alive: *alive,
            held: process.state.accounts.iter().map(|a| (a.gpu.0, a.now)).collect(),
            changes: 0,
        };
        job.processes.values().map(brief).collect()
    }
    fn details(&mut self, key: ProcessKey) -> Option<Process> {
        self.0.borrow_mut().details += 1;
        let job = self.0.borrow();
        job.processes.values().find(|(_, process)| process.key == key).map(|(_, process)| process.clone())
    }
    fn events(&mut self, key: ProcessKey, _: bool) -> Vec<Event> {
        let mut job = self.0.borrow_mut();
        job.events.extract_if(.., |event| event.process == key).collect()
    }
    fn launches(&mut self, key: ProcessKey, _: bool) -> Vec<TimedLaunch> {
        let mut job = self.0.borrow_mut();
        job.launches.extract_if(.., |launch| launch.process == key).collect()
    }
    fn limits(&mut self) -> Vec<(GpuIndex, Scope, Option<Bytes>)> {
        self.0.borrow().limits.clone()
    }
    fn release(&mut self, key: ProcessKey) {
        let mut job = self.0.borrow_mut();
        job.processes.retain(|_, (_, process)| process.key != key);
        job.released.push(key);
    }
}

impl Fake {
    fn add(&self, slot: u32, generation: u64, pid: u32, held: u64) {
        let now = self.0.borrow().now;
        let mut process = Process {
            key: ProcessKey { slot, generation },
            identity: Identity { pid, joined: now, ..Identity::default() },
            ..Process::default()
        };
        process.state.accounts.push(Account::default());
        self.0.borrow_mut().processes.insert(slot, (true, process));
        self.hold(slot, held);
    }

    fn hold(&self, slot: u32, bytes: u64) {
        let mut job = self.0.borrow_mut();
        let t = Nanos(job.now.0 >> 20 << 20);
        let (_, process) = job.processes.get_mut(&slot).unwrap();
        let account = &mut process.state.accounts[0];
        account.now = Bytes(bytes);
        account.peak = account.peak.max(account.now);
        let point =
            TimelinePoint { t, span: Nanos(1 << 20), max_total: Bytes(bytes), ..TimelinePoint::default() };
        if process.timelines.is_empty() {
            process.timelines.push(Timeline { gpu: GpuIndex(0), points: Vec::new() });
        }
        process.timelines[0].extend(vec![point]);
    }

    fn kill(&self, slot: u32) {
        let mut job = self.0.borrow_mut();
        let (alive, process) = job.processes.get_mut(&slot).unwrap();
        *alive = false;
        process.state.end = End::Vanished;
    }

    fn at(&self, ms: u64) {
        self.0.borrow_mut().now = Nanos::from_millis(ms);
    }
}

fn options(profile: ProfileFile) -> WatchOptions {
    WatchOptions { profile, nvml: NvmlSource::Off, digest: false, ..WatchOptions::default() }
}

fn watch(fake: &Fake, file: &Path) -> Watch<Fake> {
    let job = Job { pid: 7, command: vec!["train".into()], ..Job::default() };
    Watch::start(fake.clone(), job, &options(ProfileFile::At(file.into())))
}

#[test]
fn a_process_too_short_to_be_measured_has_the_known_context() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    fake.0.borrow_mut().gpus = vec![Gpu { name: "H100".into(), ..Gpu::default() }];
    let context = |contexts: &[(&str, u64)]| {
        let file = dir.path().join("p.radrm");
        let contexts = contexts.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        let options = WatchOptions { contexts, ..options(ProfileFile::At(file)) };
        let job = Job { pid: 7, command: vec!["train".into()], ..Job::default() };
        fake.add(0, 1, 7, 2816);
        let mut watch = Watch::start(fake.clone(), job, &options);
        watch.poll();
        let profile = watch.finish(Exit::Code(0)).profile;
        profile.processes[0].state.accounts[0].context_overhead
    };
    assert_eq!(context(&[("H100", 420), ("T4", 300)]), Some(Bytes(420)));
    assert_eq!(context(&[("T4", 300)]), None);
}

#[test]
fn limits_are_written_when_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.radrm");
    let fake = Fake::default();
    let mut watch = watch(&fake, &file);
    let set = |ms, limits: &[(Scope, Option<u64>)]| {
        fake.at(ms);
        let limit = |(scope, limit): &(Scope, Option<u64>)| (GpuIndex(1), *scope, limit.map(Bytes));
        fake.0.borrow_mut().limits = limits.iter().map(limit).collect();
    };
    for (ms, limits) in [
        (50, &[][..]),
        (100, &[(Scope::Job, Some(9)), (Scope::User, None)]),
        (150, &[(Scope::Job, Some(9)), (Scope::User, None)]),
        (200, &[(Scope::Job, Some(7)), (Scope::User, Some(5))]),
        (250, &[(Scope::Job, None), (Scope::User, Some(5))]),
    ] {
        set(ms, limits);
        watch.poll();
    }
    let finished = watch.finish(Exit::Code(0));
    let profile = Profile::open(&file).unwrap();
    assert_eq!(profile, finished.profile);
    let limits: Vec<_> = profile
        .memory_limits
        .iter()
        .map(|limit| (limit.t.0 / 1_000_000, limit.scope, limit.limit.map(|bytes| bytes.0)))
        .collect();
    let expected = [
        // In force before its GPU was met.
        (0, Scope::Job, Some(9)),
        (200, Scope::Job, Some(7)),
        (200, Scope::User, Some(5)),
        (250, Scope::Job, None),
    ];
    assert_eq!(limits, expected);
}

#[test]
fn the_file_and_the_memory_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.radrm");
    let fake = Fake::default();
    fake.0.borrow_mut().gpus.push(Gpu { name: "X".into(), ..Gpu::default() });
    let mut watch = watch(&fake, &file);
    fake.add(0, 1, 7, 100);
    for ms in (0..5_000).step_by(50) {
        fake.at(ms);
        fake.hold(0, 100 + ms);
        assert!(watch.poll() >= Duration::from_millis(10));
    }
    assert!(watch.take_warnings().is_empty());
    let before = Profile::open(&file).unwrap();
    assert!(before.outcome.is_none() && before.processes[0].state.accounts[0].now.0 > 3_000);

    fake.at(5_100);
    fake.hold(0, 1);
    let finished = watch.finish(Exit::Code(3));
    assert!(finished.warnings.is_empty());
    assert_eq!(Profile::open(&file).unwrap(), finished.profile);
    let process = &finished.profile.processes[0];
    assert_eq!((process.state.accounts[0].now, process.state.accounts[0].peak), (Bytes(1), Bytes(5_050)));
    assert_eq!(process.state.end, End::Exited(Some(3)));
    assert_eq!(process.timelines, fake.0.borrow().processes[&0].1.timelines);
    let outcome = finished.profile.outcome.unwrap();
    assert_eq!(
        (outcome.exit, outcome.duration, outcome.reason),
        (Exit::Code(3), Nanos::from_millis(5_100), None)
    );
}

#[test]
fn the_dead_are_saved_before_their_slot_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.radrm");
    let fake = Fake::default();
    let mut watch = watch(&fake, &file);
    fake.at(2_000);
    fake.add(0, 1, 7, 11);
    fake.add(1, 1, 8, 22);
    watch.poll();
    fake.at(2_010);
    fake.hold(1, 33);
    fake.kill(1);
    watch.poll();
    assert_eq!(fake.0.borrow().released, [ProcessKey { slot: 1, generation: 1 }]);
    let saved = Profile::open(&file).unwrap();
    let dead = saved.processes.iter().find(|process| process.identity.pid == 8).unwrap();
    assert_eq!((dead.state.accounts[0].now, dead.state.end), (Bytes(33), End::Vanished));
    assert_eq!(dead.state.ended, Some(Nanos::from_millis(2_010)));

    // The slot is used again.
    fake.at(2_020);
    fake.add(1, 2, 9, 44);
    watch.poll();
    watch.process_ended(8, Exit::Code(4));
    let profile = watch.finish(Exit::Signal(9)).profile;
    assert_eq!(profile.processes[1].state.end, End::Exited(Some(4)));
    let pids: Vec<u32> = profile.processes.iter().map(|process| process.identity.pid).collect();
    assert_eq!(pids, [7, 8, 9]);
    assert_eq!(profile.processes[0].state.end, End::Signal(9));
    assert_eq!(profile.processes[2].state.end, End::Running);
}

#[test]
fn the_program_s_end_is_known_even_if_it_was_saved_before() {
    let fake = Fake::default();
    let mut watch = Watch::start(fake.clone(), Job { pid: 7, ..Job::default() }, &options(ProfileFile::None));
    fake.add(0, 1, 7, 5);
    fake.at(10);
    watch.poll();
    fake.kill(0);
    watch.poll();
    assert!(fake.0.borrow().processes.is_empty());
    let profile = watch.finish(Exit::Code(1)).profile;
    assert_eq!(profile.processes[0].state.end, End::Exited(Some(1)));
    assert_eq!(profile.processes[0].state.accounts[0].now, Bytes(5));
}

#[test]
fn a_refusal_before_a_bad_end_is_the_reason_unless_more_was_granted_after_it() {
    let run = |exit, result, granted| {
        let fake = Fake::default();
        let watch = Watch::start(fake.clone(), Job { pid: 7, ..Job::default() }, &options(ProfileFile::None));
        fake.add(0, 1, 7, 5);
        let failure = FailedRequest { result, ..FailedRequest::default() };
        {
            let processes = &mut fake.0.borrow_mut().processes;
            let state = &mut processes.get_mut(&0).unwrap().1.state;
            state.failures.push(failure);
            state.accounts[0].granted_since_refusal = Some(granted);
        }
        watch.finish(exit).profile.outcome.unwrap().reason
    };
    assert_eq!(run(Exit::Code(1), RESULT_OUT_OF_MEMORY, 0), Some(Reason::OutOfGpuMemory));
    assert_eq!(run(Exit::Signal(6), RESULT_OUT_OF_MEMORY, 0), Some(Reason::OutOfGpuMemory));
    assert_eq!(run(Exit::Code(0), RESULT_OUT_OF_MEMORY, 0), None);
    assert_eq!(run(Exit::Code(1), 1, 0), None);
    assert_eq!(run(Exit::Code(1), RESULT_OUT_OF_MEMORY, 1), None);
}

#[test]
fn processes_beyond_the_limit_are_counted_and_released() {
    let fake = Fake::default();
    let mut watch = Watch::start(fake.clone(), Job::default(), &options(ProfileFile::None));
    for i in 0..PROCESSES as u64 + 50 {
        fake.at(i);
        fake.add(0, i, 1_000_000 + i as u32, 5);
        watch.poll();
        fake.kill(0);
        watch.poll();
    }
    let profile = watch.finish(Exit::Code(0)).profile;
    assert_eq!(profile.processes.len(), PROCESSES);
    assert_eq!(profile.processes_not_kept, 50);
    assert!(fake.0.borrow().processes.is_empty());
}

/// Ten minutes of a program that allocates all the time.
#[test]
fn ten_busy_minutes_make_a_small_file() {
    let small = ten_minutes(1, 50);
    let large = ten_minutes(8, 500);
    println!("1 GPU, 50 kernels: {small} bytes; 8 GPUs, 500 kernels: {large} bytes");
    assert!(small < 1 << 20, "{small} bytes");
    assert!(large < 6 << 20, "{large} bytes");
}

/// Gives a process times of its kernels, which together fill a GPU; every hundredth launch is timed.
fn time(process: &mut Process, ms: u64) {
    let count = process.kernels.len() as u64;
    let kernel = |kernel: &Kernel| KernelTime {
        id: kernel.id,
        total: Nanos(Nanos::from_millis(ms).0 / count - u64::from(kernel.id)),
        half_width: Nanos(Nanos::from_millis(ms).0 / count / 20),
        samples: kernel.launches / 100,
    };
    process.timings.key = process.key;
    process.timings.kernels = process.kernels.iter().map(kernel).collect();
    process.timings.gpu_time.kernels = Nanos::from_millis(ms);
}

/// The size of the file after ten minutes.
fn ten_minutes(gpus: usize, kernels: usize) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.radrm");
    let fake = Fake::default();
    let mut watch = watch(&fake, &file);
    fake.add(0, 1, 7, 0);
    let mut held = 0;
    for tick in 0..60_000u64 {
        let ms = 10 * tick;
        fake.at(ms);
        held = u64::wrapping_mul(held, 6364136223846793005).wrapping_add(1442695040888963407) % (140 << 30);
        {
            let mut job = fake.0.borrow_mut();
            let (_, process) = job.processes.get_mut(&0).unwrap();
            if process.kernels.len() < kernels {
                let id = process.kernels.len() as u32;
                process.kernels.push(Kernel { id, name: format!("{id:0300}"), ..Kernel::default() });
            }
            for kernel in &mut process.kernels {
                kernel.launches += 1000;
                kernel.threads += 1_000_000_000;
            }
            time(process, ms);
            process.timelines.resize_with(gpus, Timeline::default);
            // The segment's spans: 1/256 to 1/512 of the time.
            let span = (1u64 << 20).max((Nanos::from_millis(ms).0 / 512 + 1).next_power_of_two());
            let t = Nanos(Nanos::from_millis(ms).0 / span * span);
            for (gpu, timeline) in process.timelines.iter_mut().enumerate() {
                let mut kinds = [Bytes::ZERO; radrm_profile::model::KIND_COUNT];
                (kinds[0], kinds[1], kinds[7]) = (Bytes(held), Bytes(held / 3), Bytes(held / 7));
                let point = TimelinePoint {
                    t,
                    span: Nanos(span),
                    max_total: Bytes(held / 3 * 4),
                    at_max: kinds,
                    last: kinds.map(|b| Bytes(b.0 / 2)),
                };
                timeline.gpu = GpuIndex(gpu as u8);
                timeline.extend(vec![point]);
            }
            let key = ProcessKey { slot: 0, generation: 1 };
            for size in [held, held / 2] {
                let kind = EventKind::Allocated { kind: 0, size: Bytes(size) };
                job.events.push(Event { t: Nanos::from_millis(ms), process: key, gpu: None, kind });
            }
        }
        if tick % 20 == 0 {
            watch.poll();
        }
    }
    let finished = watch.finish(Exit::Code(0));
    assert_eq!(Profile::open(&file).unwrap(), finished.profile);
    std::fs::metadata(&file).unwrap().len()
}

#[test]
fn work_is_put_down_by_windows_and_rest_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let mut watch = watch(&fake, &dir.path().join("a.radrm"));
    fake.at(50);
    fake.add(0, 1, 7, 100);
    let launch = |launches: u64, kernels: u64| {
        let mut job = fake.0.borrow_mut();
        let (_, process) = job.processes.get_mut(&0).unwrap();
        process.kernel_activity =
            KernelActivity { launches, kernels: Nanos(kernels), ..KernelActivity::default() };
    };
    // Ten seconds of launches, ten of rest, then a few more. What kernels took is estimated, and once put lower.
    for ms in (100..30_000).step_by(50) {
        fake.at(ms);
        let (launched, estimate) =
            (ms.min(10_000) + ms.saturating_sub(20_000), if ms < 5_000 { 70 } else { 60 });
        launch(launched, launched * estimate);
        watch.poll();
    }
    fake.kill(0);
    let profile = watch.finish(Exit::Code(0)).profile;
    let sum = profile
        .kernel_activity
        .iter()
        .fold(KernelActivity::default(), |sum, span| sum.and(span.kernel_activity));
    assert_eq!((sum, sum.launches), (profile.processes[0].kernel_activity, 10_000 + 29_950 - 20_000));
    let ends: Vec<Nanos> = profile.kernel_activity.iter().map(|span| span.t + span.span).collect();
    assert!(profile.kernel_activity[0].t == Nanos::from_millis(50), "from the start of the process");
    for (end, next) in ends.iter().zip(&profile.kernel_activity[1..]) {
        let gap = next.t.minus(*end);
        let is_rest = *end >= Nanos::from_secs(10) && next.t <= Nanos::from_secs(21);
        assert!(gap == Nanos::ZERO || (is_rest && gap >= Nanos::from_secs(7)), "{gap} after {end}");
    }
    assert_eq!(Profile::open(&dir.path().join("a.radrm")).unwrap(), profile);
}

#[test]
fn a_dry_run_counts_launches_and_has_no_times() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let job = Job { pid: 7, emulated: Some("H200".into()), ..Job::default() };
    let options =
        WatchOptions { gpu_clock: GpuClock::Absent, ..options(ProfileFile::At(dir.path().join("a.radrm"))) };
    let mut watch = Watch::start(fake.clone(), job, &options);
    fake.add(0, 1, 7, 100);
    {
        let mut job = fake.0.borrow_mut();
        let (_, process) = job.processes.get_mut(&0).unwrap();
        process.kernel_activity =
            KernelActivity { launches: 5, kernels: Nanos(70), active: Nanos(7), ..KernelActivity::default() };
        process.timings.key = process.key;
        process.timings.kernels = vec![KernelTime { id: 1, total: Nanos(70), ..KernelTime::default() }];
        process.timings.spans = vec![TimedSpan { span: Nanos(90), ..TimedSpan::default() }];
        process.timings.copies = vec![Copies { way: "peer".into(), count: 2, bytes: Bytes(3) }];
    }
    fake.at(500);
    watch.poll();
    fake.kill(0);
    let profile = watch.finish(Exit::Code(0)).profile;
    let process = &profile.processes[0];
    assert_eq!(process.kernel_activity, KernelActivity { launches: 5, ..KernelActivity::default() });
    assert!(process.timings.kernels.is_empty() && process.timings.spans.is_empty(), "{:?}", process.timings);
    assert_eq!(process.timings.copies.len(), 1);
    assert!(profile.unmeasured.is_empty(), "a dry run has none to miss: {:?}", profile.unmeasured);
    assert_eq!(Profile::open(&dir.path().join("a.radrm")).unwrap().gpu_clock, GpuClock::Absent);
}

#[test]
fn timed_launches_of_the_first_processes_are_kept_and_none_of_a_dry_run() {
    for (time, expected) in [(GpuClock::Real, launches::PROCESSES), (GpuClock::Absent, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::default();
        let options =
            WatchOptions { gpu_clock: time, ..options(ProfileFile::At(dir.path().join("a.radrm"))) };
        let mut watch = Watch::start(fake.clone(), Job { pid: 7, ..Job::default() }, &options);
        for slot in 0..20 {
            fake.at(10);
            fake.add(slot, 1, 100 + slot, 1);
        }
        watch.poll();
        fake.at(500);
        fake.0.borrow_mut().launches = (0..20)
            .map(|slot| TimedLaunch {
                process: ProcessKey { slot, generation: 1 },
                launched: Nanos::from_millis(400),
                blocks: u64::from(slot),
                ..TimedLaunch::default()
            })
            .collect();
        watch.poll();
        // One ends at once: what is known of it is written with its end.
        fake.kill(3);
        fake.at(600);
        watch.poll();
        fake.at(700);
        let profile = watch.finish(Exit::Code(0)).profile;
        let read = Profile::open(&dir.path().join("a.radrm")).unwrap();
        assert_eq!(read.launches, profile.launches);
        assert_eq!(read.launches.len(), expected, "{:?}", read.launches);
        assert!(read.launches.iter().all(|launch| launch.blocks == u64::from(launch.process.slot)));
    }
}
