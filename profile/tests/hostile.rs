//! Memory for files that another user has made: small frames that hold much.

mod common;

use common::*;
use radrm_profile::frame;
use radrm_profile::model::*;
use radrm_profile::*;
use std::path::Path;
use std::process::Command;

/// Most memory that reading a file of one frame may take, kB.
const MAX_KB: u64 = 50_000;

/// Most memory that this process has had resident, kB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A number as the file has it: one byte for small ones, else a mark and four bytes.
fn number(value: u32) -> Vec<u8> {
    [&[252][..], &value.to_le_bytes()].concat()
}

/// Content of a state with one process, whose one timeline has this many points of one byte.
fn points(count: u32) -> Vec<u8> {
    // Time; one process: its key, identity, figures, definitions, counters; one timeline: its GPU.
    let before = [&[0, 1, 0, 0, 0][..], &[0; 11], &[0, 0, 1, 0]].concat();
    // No events, and none left out.
    [before, number(count), vec![0; count as usize], vec![0, 0, 0]].concat()
}

/// A list that says it is longer than the file, of elements of zeros.
fn list(bytes: usize) -> Vec<u8> {
    [number(u32::MAX), vec![0; bytes]].concat()
}

fn frames() -> Vec<(String, Vec<u8>)> {
    const STATE: u32 = 3;
    let mut frames = vec![
        ("points".to_owned(), frame::frame(STATE, &points(12_000_000))),
        ("processes".to_owned(), frame::frame(STATE, &[vec![0], list(12_000_000)].concat())),
    ];
    // Each type, as if its first word were the length of a list.
    for kind in (1..100).filter(|kind| *kind != STATE) {
        for zeros in 0..3 {
            let payload = [vec![0; zeros], list(8_000_000)].concat();
            frames.push((format!("type {kind} after {zeros} zeros"), frame::frame(kind, &payload)));
        }
    }
    frames
}

#[test]
fn a_frame_takes_no_more_memory_than_an_honest_one_may() {
    const CHILD: &str = "RADRM_TEST_HOSTILE_PROFILE";
    if let Some(path) = std::env::var_os(CHILD) {
        let profile = Profile::open(Path::new(&path)).unwrap();
        println!("peak {} of {} notes", peak(), profile.notes.len());
        return;
    }
    let (head, _) = file(&[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.radrm");
    for (name, frame) in frames() {
        std::fs::write(&path, [&head[..], &frame].concat()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", "a_frame_takes_no_more_memory_than_an_honest_one_may"]);
        let output = child.env(CHILD, &path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {output:?}");
        let taken = text.split("peak ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(taken.parse::<u64>().unwrap() <= MAX_KB, "{name}: {taken} kB");
    }
}

#[test]
fn points_made_by_hand_are_points() {
    let (head, _) = file(&[]);
    let read = read_bytes(&[head, frame::frame(3, &points(1000))].concat()).unwrap();
    assert_eq!((read.notes.len(), read.processes[0].timelines[0].points.len()), (0, 1000));
}

#[test]
fn the_largest_state_that_is_written_is_read() {
    let chunk = |gpu| TimelineChunk {
        gpu: GpuIndex(gpu),
        points: (0..8192).map(|i| point(i, ((i * 7919) % 1_000_003) << 20)).collect(),
    };
    let definition = |id| KernelDefinition { id, name: "k".repeat(1024), ..KernelDefinition::default() };
    let delta = ProcessDelta {
        key: key(),
        definitions: (0..4096).map(definition).collect(),
        timelines: (0..16).map(chunk).collect(),
        ..ProcessDelta::default()
    };
    let (bytes, _) = file(&[Record::State(State { processes: vec![delta], ..State::default() })]);
    let read = read_bytes(&bytes).unwrap();
    assert_eq!(read.notes, []);
    assert_eq!((read.processes[0].kernels.len(), read.processes[0].timelines.len()), (4096, 16));
}
