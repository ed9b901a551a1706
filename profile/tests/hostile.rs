//! Memory for files that another user has made: small frames that hold much.

mod common;

use common::*;
use radrm_profile::frame;
use radrm_profile::model::*;
use radrm_profile::*;
use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Most memory that reading a file of one frame, or a long one of another user's, may take, kB.
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

/// Long files: of a frame that is refused, of a frame that is taken, of frames that no version knows, of small ones, of
/// damaged ones.
fn long_files() -> Vec<(String, Vec<u8>)> {
    let note = |text: &[u8]| frame::frame(6, &[&number(text.len() as u32)[..], text].concat());
    [
        ("refused frames", frame::frame(3, &points(12_000_000)), 5),
        ("refused frames of a usual size", frame::frame(3, &points(4_000_000)), 5),
        ("taken frames", frame::frame(3, &points(20_000)), 400),
        ("unknown frames", frame::frame(u32::MAX, &[7; 1 << 20]), 100),
        ("short remarks", note(b"x"), 2_000_000),
        ("damaged frames", frame::frame(3, &[]), 2_000_000),
    ]
    .map(|(name, frame, times)| (name.to_owned(), frame.repeat(times)))
    .into()
}

#[test]
fn a_frame_takes_no_more_memory_than_an_honest_one_may() {
    const CHILD: &str = "RADRM_TEST_HOSTILE_PROFILE";
    if let Some(path) = std::env::var_os(CHILD) {
        // The name says whose file it is.
        let file = File::open(&path).unwrap();
        let is_others = Path::new(&path).ends_with("others");
        let read =
            if is_others { Profile::of_others_file(file, || Duration::ZERO) } else { Profile::of_file(file) };
        println!("peak {} of {} notes", peak(), read.unwrap().notes.len());
        return;
    }
    let (head, _) = file(&[]);
    let dir = tempfile::tempdir().unwrap();
    let files = frames().into_iter().map(|(name, bytes)| (name, bytes, "own"));
    let files = files.chain(long_files().into_iter().map(|(name, bytes)| (name, bytes, "others")));
    for (name, bytes, whose) in files {
        let path = dir.path().join(whose);
        std::fs::write(&path, [&head[..], &bytes].concat()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--nocapture", "a_frame_takes_no_more_memory_than_an_honest_one_may"]);
        let output = child.env(CHILD, &path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {output:?}");
        let taken = text.split("peak ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(taken.parse::<u64>().unwrap() <= MAX_KB, "{name}: {taken} kB");
    }
}

/// The beginning of a file: its head and its job.
fn file_head() -> Vec<u8> {
    file(&[]).0
}

/// A file of these frames, whose it is, and what was read of it.
fn read_as(frames: &[u8], read: fn(File) -> Result<Profile, ReadError>) -> Profile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [&file_head()[..], frames].concat()).unwrap();
    read(File::open(file.path()).unwrap()).unwrap()
}

/// Reads another user's file without a look at the time.
fn of_others_file(file: File) -> Result<Profile, ReadError> {
    Profile::of_others_file(file, || Duration::ZERO)
}

fn remarks(profile: &Profile) -> Vec<String> {
    profile.notes.iter().map(ToString::to_string).collect()
}

#[test]
fn of_another_users_long_profile_the_beginning_is_read_and_its_end_named() {
    let head = file_head().len();
    let unknown = frame::frame(u32::MAX, &[7; 1 << 20]);
    let state = frame::frame(3, &points(20_000));
    for (frames, whole) in [(unknown.repeat(40), 40 * unknown.len()), (state.repeat(40), 40 * state.len())] {
        let own = read_as(&frames, Profile::of_file);
        assert!(!remarks(&own).iter().any(|note| note.contains("are read")), "{:?}", own.notes);
        let others = remarks(&read_as(&frames, of_others_file));
        let said = others.iter().find(|note| note.starts_with("of another user's profile 32.0 MiB are read"));
        let said = said.unwrap_or_else(|| panic!("{others:?}"));
        let at = said.split("before byte ").nth(1).and_then(|rest| rest.split(' ').next());
        let at: usize = at.unwrap().parse().unwrap();
        assert!(at > head && at < head + whole, "{said}");
        assert!(said.ends_with("is shown; its owner reads all of it"), "{said}");
    }
    let short = read_as(&state, of_others_file);
    assert_eq!((short.notes.len(), short.processes[0].timelines[0].points.len()), (0, 20_000));
}

#[test]
fn another_users_profile_is_read_for_a_time_and_its_end_named() {
    let state = frame::frame(3, &points(10));
    // A millisecond later at each look: one is for the beginning.
    let looks = Cell::new(0);
    let clock = || Duration::from_millis(looks.replace(looks.get() + 1));
    let read = |clock: &dyn Fn() -> Duration| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [file_head(), state.repeat(1000)].concat()).unwrap();
        Profile::of_others_file(File::open(file.path()).unwrap(), clock).unwrap()
    };
    let most = u64::try_from(MAX_TIME_OF_OTHERS.as_millis()).unwrap();
    let frames = usize::try_from(most).unwrap() - 1;
    let at = file_head().len() + frames * state.len();
    let found = remarks(&read(&clock));
    let expected = format!(
        "another user's profile is read for 0.4 s: what stands before byte {at} is shown; its owner reads all of it"
    );
    assert_eq!(found, [expected]);
    assert_eq!(remarks(&read(&|| Duration::ZERO)), [] as [&str; 0]);
}

#[test]
fn of_another_user_no_frame_is_read_that_is_larger_than_usual_ones() {
    let large = frame::frame(u32::MAX, &vec![7; (4 << 20) + 1]);
    assert_eq!(remarks(&read_as(&large, Profile::of_file)).len(), 1, "a type that no version knows");
    let found = remarks(&read_as(&large, of_others_file));
    assert!(found[0].contains(&format!("before byte {} is shown", file_head().len())), "{found:?}");
    let usual = frame::frame(u32::MAX, &vec![7; 4 << 20]);
    assert_eq!(read_as(&usual, of_others_file).notes, [Note::UnknownFrames { count: 1 }]);
}

#[test]
fn after_many_damaged_frames_the_rest_is_not_read() {
    let profile = read_as(&frame::frame(3, &[]).repeat(1000), Profile::of_file);
    let notes = remarks(&profile);
    assert_eq!(notes.len(), 101, "{notes:?}");
    assert!(notes[100].starts_with("the profile is damaged in 100 places"), "{}", notes[100]);
}

#[test]
fn a_text_that_says_it_is_longer_than_any_file_is_damaged_and_gets_no_room() {
    for length in [u64::MAX, 1 << 63, 1 << 40, 1 << 31] {
        let payload = [&[253][..], &length.to_le_bytes(), b"x"].concat();
        let profile = read_as(&frame::frame(6, &payload), Profile::of_file);
        assert!(matches!(profile.notes[..], [Note::Damaged { .. }]), "{length}: {:?}", profile.notes);
    }
}

#[test]
fn of_many_remarks_the_first_are_read_and_the_others_counted() {
    let profile = read_as(&frame::frame(6, b"\x01x").repeat(2500), Profile::of_file);
    let notes = remarks(&profile);
    assert_eq!((notes.len(), notes[999].as_str()), (1001, "x"));
    assert_eq!(notes[1000], "1500 more remarks of the profile are left out");
}

#[test]
fn a_pipe_in_the_place_of_a_profile_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.radrm");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(!is_being_written(&pipe));
    assert!(matches!(Profile::open(&pipe), Err(ReadError::Empty)));
    assert!(matches!(peek_job(&pipe), Err(ReadError::Empty)));
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
