//! A user's processes before an administrator's commands: whatever a process shows, they answer, in bounded memory,
//! and name it. And what a user's segment states of other users' processes is not believed.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{TryRecvError, channel},
    time::Duration,
};

use radrm_os::Process;
use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use serde_json::Value;

/// Bytes of private memory that a command may take: 50 MB, and the stacks and tables of the command itself.
const MAX_DATA: u64 = 150 << 20;
/// Larger than any memory that it could be read into.
const HUGE_MIB: u64 = 100 << 10;

struct Node {
    rig: Rig,
}

impl Node {
    fn new() -> Self {
        Self { rig: Rig::emulated("1xA100-40GB") }
    }

    /// A program that no `radrm-run` has started.
    fn unmanaged(&self, arguments: &[&str]) -> (Running, u32) {
        let mut command = self.rig.bare_command(programs::compile("odd_objects.c", &[]));
        command.args(arguments);
        started(command)
    }

    fn job(&self, limit: &str) -> (Running, u32) {
        let mut command = self.rig.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.args(["--no-dataset", "--no-profile", "--quiet", "--mem-limit", limit, "--machine"]);
        command.arg(self.rig.machine_path()).arg("--").arg(programs::compile("steps.c", &[]));
        command.args(["use:0", "alloc:a:50m", "pause"]);
        started(command)
    }

    fn radrm(&self, words: &[&str]) -> Command {
        let mut command = self.rig.bare_command("prlimit");
        command.arg(format!("--data={MAX_DATA}")).arg(artifacts::file("radrm"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).args(words);
        command
    }

    /// Row of the audit on a process.
    #[track_caller]
    fn finding(&self, pid: u32) -> Value {
        let mut command = self.radrm(&["audit", "--json", "--machine"]);
        command.arg(self.rig.machine_path());
        let ended = child::run(command, PATIENCE);
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        let page: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let rows = page["processes"].as_array().expect("processes").clone();
        let is_it = |row: &Value| row["pid"].as_u64() == Some(pid.into());
        rows.into_iter().find(is_it).unwrap_or_else(|| panic!("{pid}: {page}"))
    }

    fn quota_show(&self) -> child::Ended {
        let mut command = self.radrm(&["quota", "show", "--machine"]);
        command.arg(self.rig.machine_path());
        child::run(command, PATIENCE)
    }
}

#[track_caller]
fn started(command: Command) -> (Running, u32) {
    let mut running = Running::start(command, PATIENCE);
    let pid = running.until_ready();
    (running, pid)
}

fn finish(mut running: Running) {
    running.go_on();
    running.end().ok();
}

#[test]
fn a_pipe_in_the_place_of_a_mapped_file_holds_up_no_audit() {
    let node = Node::new();
    let (running, pid) = node.unmanaged(&["pipe", &node.rig.path().join("lib.so").display().to_string()]);
    assert_eq!(node.finding(pid)["reason"], "no-shim");
    finish(running);
}

/// A library whose symbol and relocation tables say that they have a gibibyte, of which nothing is on the disk.
fn library_of_large_tables(place: &Path) -> PathBuf {
    const TABLES: [u32; 2] = [4, 11];
    let library = programs::compile("deepbind_library.c", &["-fPIC", "-shared", "-lcuda"]);
    let mut bytes = fs::read(library).expect("a library");
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let half = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (sections, size, count) = (number(&bytes, 0x28) as usize, half(&bytes, 0x3a), half(&bytes, 0x3c));
    let behind = (bytes.len() as u64).next_multiple_of(4096);
    for at in (0..count).map(|section| sections + section * size) {
        if TABLES.contains(&u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("4 bytes"))) {
            bytes[at + 24..at + 32].copy_from_slice(&behind.to_le_bytes());
            bytes[at + 32..at + 40].copy_from_slice(&((1_u64 << 30) / 24 * 24).to_le_bytes());
        }
    }
    let path = place.join("large.so");
    fs::write(&path, &bytes).expect("a file");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("a file");
    file.set_len(behind + (1 << 30)).expect("a sparse file");
    path
}

#[test]
fn tables_that_say_they_are_huge_are_named_and_not_read() {
    let node = Node::new();
    let library = library_of_large_tables(node.rig.path()).display().to_string();
    let (running, pid) = node.unmanaged(&["library", &library]);
    let row = node.finding(pid);
    assert_eq!(row["reason"], "unreadable", "{row}");
    assert!(row["explanation"].as_str().is_some_and(|text| text.contains(&library)), "{row}");
    finish(running);
}

#[test]
fn a_command_line_of_any_length_is_cut() {
    let node = Node::new();
    let (running, pid) = node.unmanaged(&["command", &HUGE_MIB.to_string()]);
    let row = node.finding(pid);
    assert!(row["command"].as_str().is_some_and(|text| text.len() <= 64 << 10), "{}", row["reason"]);
    finish(running);
}

#[test]
fn an_environment_of_any_length_is_cut() {
    let node = Node::new();
    let (running, pid) = node.unmanaged(&["variables", &HUGE_MIB.to_string()]);
    assert_eq!(node.finding(pid)["reason"], "no-shim");
    finish(running);
}

/// The segment of a job.
fn segment_of(pid: u32) -> PathBuf {
    Process(pid).variable("RADRM_SEGMENT").expect("a segment").into()
}

/// A copy of a job's segment beside it, whose name says that this process has made it.
fn copy_of(segment: &Path, maker: u32) -> (PathBuf, fs::File) {
    let start = Process(maker).start().expect("a process");
    let copy = segment.with_file_name(format!("segment-{maker}-{start}-copy-0"));
    let copied = Command::new("cp").args(["--sparse=always"]).args([segment, &copy]).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let file = fs::OpenOptions::new().read(true).write(true).open(&copy).expect("the copy");
    (copy, file)
}

#[test]
fn a_segment_that_names_another_jobs_launcher_takes_over_none_of_its_commands() {
    let node = Node::new();
    let (honest, pid) = node.job("30GiB");
    let (forger, forgers) = node.job("20GiB");
    let (copy, file) = copy_of(&segment_of(forgers), honest.pid());
    // The launcher's process id stands at this place of the header.
    file.write_all_at(&u64::from(honest.pid()).to_ne_bytes(), 24).expect("written");
    let set = child::run(node.radrm(&["quota", "set", &honest.pid().to_string(), "4GiB"]), PATIENCE).ok();
    assert!(set.stdout.contains(&honest.pid().to_string()), "{set:?}");
    let shown = node.quota_show().ok();
    let line = |launcher: u32| {
        let begin = launcher.to_string();
        let lines = shown.stdout.lines().filter(|line| line.trim_start().starts_with(&begin));
        lines.collect::<String>()
    };
    assert!(line(honest.pid()).contains("4.00 GiB"), "{shown:?}");
    assert!(!line(forger.pid()).contains("4.00 GiB"), "{shown:?}");
    let said = format!("names process {}, which is not its launcher", honest.pid());
    assert!(shown.stderr.contains(&said), "{shown:?}");
    fs::remove_file(copy).expect("the copy");
    assert!(Process(pid).exists());
    finish(honest);
    finish(forger);
}

#[test]
fn forged_counts_explain_no_process() {
    let node = Node::new();
    let (forger, forgers) = node.job("20GiB");
    let (unmanaged, pid) = node.unmanaged(&["variables", "1"]);
    let (copy, file) = copy_of(&segment_of(forgers), forger.pid());
    // The directory's entries: process id in the lower half of the first word, then the start time.
    let entries = (0..1024_u64).map(|slot| 8192 + slot * 32);
    let mut forged = 0;
    for at in entries {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at).expect("an entry");
        let state = u64::from_ne_bytes(word);
        if state as u32 == forgers {
            let state = state & !u64::from(u32::MAX) | u64::from(pid);
            file.write_all_at(&state.to_ne_bytes(), at).expect("written");
            let start = Process(pid).start().expect("its start");
            file.write_all_at(&start.to_ne_bytes(), at + 8).expect("written");
            forged += 1;
        }
    }
    assert_eq!(forged, 1, "the layout has changed");
    let row = node.finding(pid);
    assert_eq!((row["reason"].as_str(), row["counted_bytes"].as_u64()), (Some("no-shim"), None), "{row}");
    fs::remove_file(copy).expect("the copy");
    finish(unmanaged);
    finish(forger);
}

#[test]
fn a_copy_of_a_segment_that_names_living_processes_is_no_job() {
    let node = Node::new();
    let (honest, pid) = node.job("20GiB");
    let (other, others) = node.unmanaged(&["variables", "1"]);
    // No launcher has made it; its slots name a process that has joined the original.
    let (copy, file) = copy_of(&segment_of(pid), others);
    file.write_all_at(&u64::from(others).to_ne_bytes(), 24).expect("written");
    let shown = node.quota_show().ok();
    let is_row = |job: u32| shown.stdout.lines().any(|line| line.starts_with(&format!("{job} ")));
    assert!(is_row(honest.pid()), "{shown:?}");
    assert!(!is_row(others), "{shown:?}");
    fs::remove_file(copy).expect("the copy");
    finish(other);
    finish(honest);
}

#[test]
fn a_job_that_counts_in_another_one_is_named() {
    let node = Node::new();
    let (other, others) = node.job("30GiB");
    let mut command = node.rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--no-dataset", "--no-profile", "--quiet", "--mem-limit", "100MiB", "--machine"]);
    command.arg(node.rig.machine_path()).arg("--").arg("env");
    command
        .arg(format!("RADRM_SEGMENT={}", segment_of(others).display()))
        .arg(programs::compile("steps.c", &[]));
    command.args(["use:0", "alloc:a:50m", "pause"]);
    let (running, pid) = started(command);
    let row = node.finding(pid);
    assert_eq!(row["reason"], "other-job", "{row}");
    assert!(
        row["explanation"].as_str().is_some_and(|text| text.contains(&running.pid().to_string())),
        "{row}"
    );
    finish(running);
    finish(other);
}

/// Fills a segment with as many living processes as it has places for, all of them this one.
fn fill(file: &fs::File) {
    let own = std::process::id();
    let start = Process(own).start().expect("its start");
    // State 2 lives; the generation is 1.
    let state = 2_u64 << 56 | 1 << 32 | u64::from(own);
    let entry = [state, start, 0, 0].map(u64::to_ne_bytes).concat();
    file.write_all_at(&entry.repeat(1024), 8192).expect("written");
}

#[test]
fn forged_segments_cost_no_process_more_than_one_look() {
    const SEGMENTS: u32 = 100;
    let node = Node::new();
    let (job, pid) = node.job("20GiB");
    let (copy, file) = copy_of(&segment_of(pid), job.pid());
    fill(&file);
    let copies: Vec<PathBuf> = (0..SEGMENTS)
        .map(|number| {
            let place = copy.with_file_name(format!("segment-{}-{number}-copy-0", job.pid()));
            let copied = Command::new("cp").args(["--sparse=always"]).args([&copy, &place]).status();
            assert!(copied.is_ok_and(|status| status.success()));
            place
        })
        .collect();
    let mut traced = Command::new("strace");
    if traced.arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
    } else {
        let log = node.rig.path().join("trace");
        let mut command = node.rig.bare_command("strace");
        command.args(["-f", "-qq", "-e", "trace=openat,open", "-o"]).arg(&log).arg(artifacts::file("radrm"));
        command.env("RADRM_LIB_DIR", artifacts::directory());
        command.args(["quota", "show", "--machine"]).arg(node.rig.machine_path());
        let ended = child::run(command, PATIENCE).ok();
        assert!(ended.stdout.contains(&job.pid().to_string()), "{ended:?}");
        let own = format!("/proc/{}/stat\"", std::process::id());
        let looks = fs::read_to_string(log).expect("a trace").matches(&own).count();
        // 102,400 slots name this process.
        assert!(looks < 1000, "{looks} looks at one process");
    }
    copies.iter().chain([&copy]).for_each(|copy| fs::remove_file(copy).expect("the copy"));
    finish(job);
}

#[test]
fn a_segment_that_is_shortened_ends_no_command() {
    let node = Node::new();
    let (job, pid) = node.job("20GiB");
    let segment = segment_of(pid);
    let whole = fs::metadata(&segment).expect("a segment").len();
    let file = fs::OpenOptions::new().write(true).open(&segment).expect("a segment");
    let (stop, stopped) = channel::<()>();
    let toggling = std::thread::spawn(move || {
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            file.set_len(8192).expect("shortened");
            file.set_len(whole).expect("lengthened");
            std::thread::sleep(Duration::from_micros(500));
        }
        file.set_len(4096).expect("shortened");
    });
    for _ in 0..10 {
        let shown = node.quota_show();
        assert!(shown.status.code().is_some(), "{shown:?}");
        let set = child::run(node.radrm(&["quota", "set", &job.pid().to_string(), "4GiB"]), PATIENCE);
        assert!(set.status.code().is_some(), "{set:?}");
    }
    drop(stop);
    toggling.join().expect("the end");
    // Its own program has it mapped and may not survive that.
    let mut job = job;
    job.go_on();
    let _ = job.end();
}

#[test]
fn a_program_that_shortens_its_segment_leaves_its_launcher_alive() {
    let node = Node::new();
    for how in [": > \"$RADRM_SEGMENT\"", "truncate -s 4096 \"$RADRM_SEGMENT\""] {
        let profile = node.rig.path().join("cut.radrm");
        let mut command = node.rig.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.args(["--no-dataset", "--mem-limit", "1GiB", "-o"]).arg(&profile).arg("--machine");
        // The recording begins beside the program.
        let script = format!("sleep 1; {how}; sleep 0.3; exit 7");
        command.arg(node.rig.machine_path()).args(["--", "sh", "-c", &script]);
        let ended = child::run(command, PATIENCE);
        assert_eq!(ended.status.code(), Some(7), "{how}: {ended:?}");
        assert!(ended.stderr.contains("has shortened its segment"), "{how}: {ended:?}");
        let read = radrm_profile::Profile::open(&profile).expect("a profile");
        assert!(read.outcome.is_some(), "{how}: the profile has its end");
    }
}

#[test]
fn a_link_in_the_place_of_a_new_profile_leads_no_write_elsewhere() {
    let node = Node::new();
    let folder = node.rig.path().join("shared");
    fs::create_dir(&folder).expect("a directory");
    let precious = node.rig.path().join("precious");
    fs::write(&precious, "precious").expect("a file");
    let (place, target) = (folder.clone(), precious.clone());
    let (stop, stopped) = channel::<()>();
    let race = std::thread::spawn(move || {
        let mut replaced = 0;
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            for entry in fs::read_dir(&place).expect("a directory").flatten() {
                let path = entry.path();
                let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
                if is_file && fs::remove_file(&path).is_ok() {
                    std::os::unix::fs::symlink(&target, &path).expect("a link");
                    replaced += 1;
                }
            }
        }
        replaced
    });
    for _ in 0..5 {
        let mut command = node.rig.bare_command(artifacts::file("radrm-run"));
        command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
        command.current_dir(&folder).args(["--no-dataset", "--quiet", "--mem-limit", "1GiB", "--machine"]);
        command.arg(node.rig.machine_path()).args(["--", "sleep", "0.1"]);
        child::run(command, PATIENCE).ok();
    }
    drop(stop);
    assert!(race.join().expect("the race") >= 5);
    assert_eq!(fs::read(&precious).expect("a file"), b"precious");
}
