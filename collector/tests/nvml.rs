//! The sampler against an NVML of our own making: figures, remainders, and a
//! call that hangs.

use radrm_collector::{Finished, JobWatch, NvmlSource, ProfileFile, WatchOptions};
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
    let segment = SegmentFile::create_unnamed(1).unwrap();
    let writer = seg::Writer::join(&CString::new(segment.path().as_os_str().as_bytes()).unwrap()).unwrap();
    let gpu = writer.gpu(&[uuid; 16], b"NVIDIA Test", 1 << 40, b"0000:01:00.0").unwrap();
    writer.charge(gpu, seg::Kind::Device, 500, writer.now());
    let job = Job { pid: std::process::id(), ..Job::default() };
    let options = WatchOptions {
        profile: ProfileFile::None,
        nvml: NvmlSource::Library(library()),
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
    assert!(finished.warnings[0].starts_with("NVML tells nothing of GPU 0"), "{:?}", finished.warnings);
    assert_eq!(finished.profile.notes.len(), 1);
    assert!(finished.profile.samples.is_empty());
}

#[test]
fn an_nvml_that_hangs_holds_nobody_up() {
    if !in_own_process("an_nvml_that_hangs_holds_nobody_up", &[("FAKE_NVML_HANG", "1")]) {
        return;
    }
    // That this returns at all is the test.
    let finished = watched(7, |_, started| started.elapsed() > Duration::from_millis(200));
    assert!(finished.profile.samples.is_empty());
    assert_eq!(finished.profile.processes[0].state.accounts[0].now, Bytes(500));
    // The thread is still in its call; the process must be able to end.
    std::process::exit(0);
}
