//! The sampler against an NVML of our own making: figures, remainders, and a
//! call that hangs.

use radrm_collector::{DcgmSource, Finished, JobWatch, NvmlSource, ProfileFile, WatchOptions};
use radrm_profile::Bytes;
use radrm_profile::model::*;
use radrm_telemetry as seg;
use radrm_telemetry::SegmentFile;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Each case runs in a process of its own: a process joins one segment, and
/// environment and library are its own.
fn in_own_process(test: &str, environment: &[(&str, &str)]) -> bool {
    const OWN: &str = "RADRM_TEST_OWN";
    if std::env::var_os(OWN).is_some() {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nvml/nvml.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.unwrap().success());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(OWN, &library).envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

fn library() -> PathBuf {
    std::env::var_os("RADRM_TEST_OWN").unwrap().into()
}

/// Watches this process for a while; it holds 500 bytes on one GPU.
fn watched(uuid: u8, until: impl Fn(&mut JobWatch, Instant) -> bool) -> Finished {
    watched_with(uuid, DcgmSource::Off, GpuClock::Real, until)
}

fn watched_with(
    uuid: u8,
    dcgm: DcgmSource,
    gpu_clock: GpuClock,
    until: impl Fn(&mut JobWatch, Instant) -> bool,
) -> Finished {
    let segment = SegmentFile::create_unnamed(1).unwrap();
    let writer = seg::Writer::join(&CString::new(segment.path().as_os_str().as_bytes()).unwrap()).unwrap();
    let gpu = writer.gpu(&[uuid; 16], b"NVIDIA Test", 1 << 40, b"0000:01:00.0").unwrap();
    writer.charge(gpu, Kind::Device, 500, writer.now());
    let job = Job { pid: std::process::id(), ..Job::default() };
    let options = WatchOptions {
        profile: ProfileFile::None,
        nvml: NvmlSource::Library(library()),
        dcgm,
        gpu_clock,
        ..WatchOptions::default()
    };
    let mut watch = JobWatch::start(segment.segment().unwrap(), job, options);
    let started = Instant::now();
    while !until(&mut watch, started) && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(watch.poll());
    }
    watch.finish(Exit::Code(0))
}

#[test]
fn what_nvml_says_is_set_against_the_accounts() {
    if !in_own_process("what_nvml_says_is_set_against_the_accounts", &[("FAKE_NVML_USED", "800")]) {
        return;
    }
    let finished = watched(7, |_, started| started.elapsed() > Duration::from_millis(450));
    assert!(finished.warnings.is_empty(), "{:?}", finished.warnings);
    let profile = finished.profile;
    assert!(profile.samples.len() >= 2, "{}", profile.samples.len());
    let sample = &profile.samples[0];
    assert_eq!((sample.used, sample.total), (Bytes(1800), Bytes(1 << 40)));
    assert_eq!(
        (sample.utilization, sample.power_mw, sample.temperature),
        (Some(40), Some(300_000), Some(55))
    );
    assert_eq!(sample.processes, [ProcessUse { pid: profile.job.pid, used: Some(Bytes(800)) }]);
    assert_eq!((sample.others, sample.others_count), (Bytes(1000), 1));
    assert_eq!(profile.gpus[0].driver_version.as_deref(), Some("570.86.15"));
    assert_eq!(profile.gpus[0].cuda_version, Some(12080));
    let remainder = &profile.processes[0].state.remainders[0];
    assert_eq!((remainder.bytes(), remainder.nvml, remainder.accounted), (300, Bytes(800), Bytes(500)));
}

#[test]
fn a_gpu_that_nvml_does_not_know_is_said() {
    if !in_own_process("a_gpu_that_nvml_does_not_know_is_said", &[]) {
        return;
    }
    let finished = watched(8, |_, started| started.elapsed() > Duration::from_millis(300));
    assert_eq!(finished.warnings.len(), 1);
    assert!(finished.warnings[0].starts_with("NVML reports nothing of GPU 0"), "{:?}", finished.warnings);
    assert_eq!(finished.profile.notes.len(), 1);
    assert!(finished.profile.samples.is_empty());
}

#[test]
fn an_nvml_that_hangs_delays_no_job() {
    if !in_own_process("an_nvml_that_hangs_delays_no_job", &[("FAKE_NVML_HANG", "1")]) {
        return;
    }
    // That this returns at all is the test.
    let finished = watched(7, |_, started| started.elapsed() > Duration::from_millis(200));
    assert!(finished.profile.samples.is_empty());
    assert_eq!(finished.profile.processes[0].state.accounts[0].now, Bytes(500));
    // The thread is still in its call; the process must be able to end.
    std::process::exit(0);
}

#[test]
fn what_the_gpu_did_is_kept_over_time() {
    let environment = [("FAKE_NVML_GPM", "1")];
    if !in_own_process("what_the_gpu_did_is_kept_over_time", &environment) {
        return;
    }
    let profile = watched(7, |_, started| started.elapsed() > Duration::from_millis(700)).profile;
    let spans = &profile.activity;
    assert!(spans.len() >= 2, "{spans:?}");
    assert!(spans.windows(2).all(|pair| pair[0].t + pair[0].span == pair[1].t), "{spans:?}");
    let measured: Vec<_> = spans.iter().filter(|span| span.meter == Meter::Gpm).collect();
    assert!(!measured.is_empty(), "{spans:?}");
    for span in measured {
        let mib = |rate: u64| Some(Bytes::from_mib(rate));
        assert_eq!((span.sm_active, span.sm_occupancy), (Share::from_percent(2.0), Share::from_percent(3.0)));
        assert_eq!((span.dram_active, span.tensor_active), (Share::from_percent(10.0), None));
        assert_eq!((span.pcie_from_gpu, span.pcie_to_gpu), (mib(20), mib(21)));
        assert_eq!((span.sm_clock_mhz, span.memory_clock_mhz), (Some(1500), Some(2600)));
        assert_eq!((span.power_mw, span.utilization), (Some(300_000), Share::from_percent(40.0)));
    }
    // 30 mJ between one reading and the next, none lost between two spans.
    let readings: u32 = spans.iter().map(|span| span.samples).sum();
    let energy: u64 = spans.iter().filter_map(|span| span.energy_mj).sum();
    assert_eq!(energy, 30 * u64::from(readings - 1));
    assert!(profile.unmeasured.is_empty(), "{:?}", profile.unmeasured);
}

#[test]
fn gpus_that_take_none_of_the_hosts_time_have_memory_and_no_load() {
    if !in_own_process(
        "gpus_that_take_none_of_the_hosts_time_have_memory_and_no_load",
        &[("FAKE_NVML_GPM", "1")],
    ) {
        return;
    }
    // One for a process: a process joins one segment.
    let enough = |_: &mut JobWatch, started: Instant| started.elapsed() > Duration::from_millis(450);
    let profile = watched_with(7, DcgmSource::System, GpuClock::Modelled, enough).profile;
    assert_eq!(profile.gpu_clock, GpuClock::Modelled);
    assert!(profile.activity.is_empty(), "{:?}", profile.activity);
    assert!(profile.samples.iter().any(|sample| sample.used == Bytes(1000)), "{:?}", profile.samples);
    for sample in &profile.samples {
        let load = (sample.utilization, sample.memory_utilization, sample.power_mw, sample.temperature);
        assert_eq!(load, (None, None, None, None));
    }
    assert!(
        matches!(profile.unmeasured.as_slice(), [one] if one.contains("takes no time")),
        "{:?}",
        profile.unmeasured
    );
}

#[test]
fn where_nvml_does_not_measure_dcgm_does() {
    if !in_own_process("where_nvml_does_not_measure_dcgm_does", &[]) {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let tool = dir.path().join("dcgmi");
    // The number of the GPU is NVML's: 2.
    let script = "#!/bin/sh\nwhile :; do echo 'GPU 2 0.5 0.25 N/A 0.125'; sleep 0.1; done\n";
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let enough = |_: &mut JobWatch, started: Instant| started.elapsed() > Duration::from_millis(900);
    let profile = watched_with(7, DcgmSource::Tool(tool), GpuClock::Real, enough).profile;
    let span = profile.activity.iter().find(|span| span.meter == Meter::Dcgm).expect("nothing of DCGM");
    assert_eq!((span.sm_active, span.dram_active), (Share::new(0.5), Share::new(0.125)));
    assert_eq!(span.tensor_active, None);
    assert!(profile.unmeasured.is_empty(), "{:?}", profile.unmeasured);
}

#[test]
fn a_missing_meter_is_reported_once() {
    if !in_own_process("a_missing_meter_is_reported_once", &[]) {
        return;
    }
    let dcgm = DcgmSource::Tool("/none/dcgmi".into());
    let enough = |_: &mut JobWatch, started: Instant| started.elapsed() > Duration::from_millis(400);
    let finished = watched_with(7, dcgm, GpuClock::Real, enough);
    assert!(finished.warnings.is_empty(), "{:?}", finished.warnings);
    let profile = finished.profile;
    assert!(!profile.activity.is_empty() && profile.activity.iter().all(|span| span.sm_active.is_none()));
    let clause = "SM activity of GPU 0: NVML measures it on Hopper and later only, and there is no dcgmi";
    assert_eq!(profile.unmeasured, [clause]);
}

#[test]
fn processor_time_and_memory_of_the_job_are_kept_over_time() {
    if !in_own_process("processor_time_and_memory_of_the_job_are_kept_over_time", &[]) {
        return;
    }
    let profile = watched(7, |_, started| {
        // Busy, so that there is something to see.
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until {}
        started.elapsed() > Duration::from_millis(600)
    })
    .profile;
    let spans = &profile.host.spans;
    assert!(spans.len() >= 2, "{spans:?}");
    assert!(spans.windows(2).all(|pair| pair[0].t + pair[0].span == pair[1].t));
    assert!(spans[0].resident > Bytes::from_kib(100) && spans[0].processes >= 1 && spans[0].threads >= 1);
    let busy: u64 = spans.iter().map(|span| span.busy.0).sum();
    assert!(busy > 10_000_000, "{spans:?}");
    assert!(profile.host.counter(HostCount::TaskClock).is_some_and(|clock| clock.value >= busy));
}
