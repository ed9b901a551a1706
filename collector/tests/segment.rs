//! Real processes write a real segment; the watch makes their profile.

use radrm_collector::{JobWatch, NvmlSource, ProfileFile, WatchOptions, describe_job};
use radrm_profile::model::*;
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry as seg;
use radrm_telemetry::SegmentFile;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SEGMENT: &str = "RADRM_TEST_SEGMENT";

/// In the child: joins the segment and does what its input says, a line at a
/// time: `alloc BYTES`, `free BYTES`, `launch`, `fail BYTES`, `context` (under the quota), `leave`.
fn child_if_asked() -> bool {
    let Some(path) = std::env::var_os(SEGMENT) else { return false };
    let path = CString::new(path.as_bytes()).unwrap();
    let writer = seg::Writer::join(&path).unwrap();
    writer.driver_version(12080);
    let gpu = writer.gpu(&[7; 16], b"NVIDIA Test", 1 << 40, b"0000:01:00.0").unwrap();
    writer.context(gpu, true);
    writer.event(&seg::Event::new(seg::EventKind::ContextCreated, writer.now()));
    let attributes = seg::KernelAttributes { registers: 32, ..seg::KernelAttributes::default() };
    let kernel = writer.kernel(b"_Z6squarePf", &attributes);
    let lane = writer.lane(std::process::id());
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (word, bytes) = line.split_once(' ').unwrap_or((&line, "0"));
        let bytes: u64 = bytes.parse().unwrap();
        match word {
            "alloc" => writer.charge(gpu, Kind::Device, bytes, writer.now()),
            "free" => writer.discharge(gpu, Kind::Device, bytes, writer.now()),
            "launch" => lane.launch(&writer, kernel, 10, 640, 100),
            "fail" => writer.failed(&seg::FailedRequest {
                ns: writer.now(),
                gpu,
                kind: Kind::Vmm,
                entry: 3,
                bytes,
                free: 5,
                total: u64::MAX,
                result: 2,
                quota: None,
            }),
            "context" => {
                let ledger = seg::ledger::Ledger::join_segment(&path).unwrap().unwrap();
                ledger.context_came(ledger.gpu(&[7; 16], 1 << 40).unwrap());
            }
            "leave" => writer.leave(seg::EndReason::Exited),
            _ => panic!("{line}"),
        }
        println!("done");
    }
    true
}

struct Program {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Program {
    fn start(segment: &SegmentFile, test: &str) -> Program {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(SEGMENT, segment.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Program { child, answers }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        while !answer.ends_with("done\n") {
            answer.clear();
            assert!(self.answers.read_line(&mut answer).unwrap() > 0, "the child is gone");
        }
    }
}

fn options(dir: &tempfile::TempDir) -> WatchOptions {
    WatchOptions {
        profile: ProfileFile::At(dir.path().join("a.radrm")),
        nvml: NvmlSource::Off,
        entry_name: |entry| (entry == 3).then_some("cuMemCreate_v9"),
        ..WatchOptions::default()
    }
}

#[test]
fn what_the_driver_takes_for_a_process_is_in_its_account() {
    if child_if_asked() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let segment = SegmentFile::create_in(&dir.path().join("run"), 1).unwrap();
    let amount = seg::ledger::Amount::Bytes(1 << 40);
    segment.arm(&[seg::ledger::Limit { gpu: None, amount }]).unwrap().set_context(None, 300);
    let mut program = Program::start(&segment, "what_the_driver_takes_for_a_process_is_in_its_account");
    program.tell("context");
    program.tell("alloc 1000");
    let job = describe_job(&["square".into()], None, program.child.id(), 1);
    let mut watch = JobWatch::start(segment.segment().unwrap(), job, options(&dir));
    watch.poll();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    watch.poll();
    let finished = watch.finish(Exit::Signal(9));
    let account = &finished.profile.processes[0].state.accounts[0];
    assert_eq!((account.now, account.context_overhead), (Bytes(1000), Some(Bytes(300))));
}

#[test]
fn a_killed_program_leaves_its_last_figures() {
    if child_if_asked() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let segment = SegmentFile::create_in(&dir.path().join("run"), 1).unwrap();
    let mut program = Program::start(&segment, "a_killed_program_leaves_its_last_figures");
    program.tell("alloc 1000");
    // Small, so that its digest is there in time.
    let file = dir.path().join("square");
    std::fs::write(&file, "abc").unwrap();
    let job = describe_job(&["square".into()], Some(&file), program.child.id(), 1);
    let mut watch = JobWatch::start(segment.segment().unwrap(), job, options(&dir));
    watch.poll();
    program.tell("alloc 5000");
    program.tell("free 1000");
    for _ in 0..7 {
        program.tell("launch");
    }
    program.tell("fail 900");
    watch.poll();
    program.child.kill().unwrap();
    let status = program.child.wait().unwrap();
    watch.poll();
    let finished = watch.finish(Exit::Signal(status.signal().unwrap()));
    assert!(finished.warnings.is_empty());
    let profile = Profile::open(&dir.path().join("a.radrm")).unwrap();
    assert_eq!(profile, finished.profile);

    let [process] = profile.processes.as_slice() else { panic!("{:?}", profile.processes) };
    assert_eq!(process.state.end, End::Signal(9));
    assert_eq!(process.identity.pid, profile.job.pid);
    assert!(process.identity.command.contains("--nocapture"), "{}", process.identity.command);
    let account = &process.state.accounts[0];
    assert_eq!((account.now, account.peak, account.failed), (Bytes(5000), Bytes(6000), 1));
    assert_eq!((account.kinds[0].allocations, account.kinds[0].frees), (2, 1));
    let points = &process.timelines[0].points;
    assert_eq!(points.iter().map(|point| point.max_total).max(), Some(Bytes(6000)));
    assert_eq!(points.last().unwrap().last[0], Bytes(5000));
    let kernel = process.kernels.iter().find(|kernel| kernel.name == "_Z6squarePf").unwrap();
    assert_eq!((kernel.launches, kernel.blocks, kernel.registers), (7, 70, 32));
    assert_eq!(process.state.launches, 7);
    let failure = &process.state.failures[0];
    assert_eq!(
        (failure.call.as_str(), failure.size, failure.free),
        ("cuMemCreate_v9", Bytes(900), Some(Bytes(5)))
    );
    assert_eq!(failure.total, None);
    assert!(profile.events.iter().any(|event| event.kind == EventKind::ContextCreated));
    let gpu = &profile.gpus[0];
    assert_eq!(
        (gpu.name.as_str(), gpu.total, gpu.cuda_version),
        ("NVIDIA Test", Bytes(1 << 40), Some(12080))
    );
    assert_eq!(gpu.uuid, "GPU-07070707-0707-0707-0707-070707070707");
    let outcome = profile.outcome.unwrap();
    assert_eq!(outcome.reason, Some(Reason::OutOfGpuMemory));
    assert!(outcome.duration > Nanos::ZERO && process.identity.joined < outcome.duration);
    assert!(profile.job.program_sha256.is_some());
}

#[test]
fn more_processes_than_slots_one_after_the_other() {
    if child_if_asked() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let segment = SegmentFile::create_unnamed(1).unwrap();
    let mut watch = JobWatch::start(segment.segment().unwrap(), Job::default(), options(&dir));
    for i in 0..5u64 {
        let mut program = Program::start(&segment, "more_processes_than_slots_one_after_the_other");
        program.tell(&format!("alloc {}", 100 + i));
        if i % 2 == 0 {
            program.tell("leave");
        }
        drop(program.child.stdin.take());
        assert!(program.child.wait().unwrap().success());
        watch.poll();
    }
    // A process that lives on when the program has ended.
    let mut survivor = Program::start(&segment, "more_processes_than_slots_one_after_the_other");
    survivor.tell("alloc 77");
    let profile = watch.finish(Exit::Code(0)).profile;
    let seen: Vec<(u64, End)> = profile
        .processes
        .iter()
        .map(|process| (process.state.accounts[0].peak.0, process.state.end))
        .collect();
    let (exited, vanished) = (End::Exited(None), End::Vanished);
    assert_eq!(
        seen,
        [(100, exited), (101, vanished), (102, exited), (103, vanished), (104, exited), (77, End::Running)]
    );
    drop(survivor.child.stdin.take());
    let give_up = Instant::now() + Duration::from_secs(60);
    while survivor.child.try_wait().unwrap().is_none() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(5));
    }
}
