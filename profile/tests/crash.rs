//! A profile is readable whatever happened to its file.

mod common;

use common::*;
use radrm_profile::frame::{self, HEAD_BYTES};
use radrm_profile::model::*;
use radrm_profile::*;

#[test]
fn what_was_written_is_read() {
    let records = records();
    let (bytes, _) = file(&records);
    let read = read_bytes(&bytes).unwrap();
    assert_eq!(read, profile(&records));
    assert_eq!(read.processes[0].timelines[0].points.len(), 4);
    assert_eq!(read.processes[0].kernels.len(), 3);
    assert_eq!(read.processes[0].identity.pid, 4711);
    assert_eq!(read.job.program_sha256, Some([7; 32]));
}

#[test]
fn a_crash_at_any_byte_leaves_the_last_whole_state() {
    let records = records();
    let (bytes, ends) = file(&records);
    for length in 0..=bytes.len() {
        let read = read_bytes(&bytes[..length]);
        let whole = ends.iter().filter(|&&end| end <= length).count();
        if whole == 0 {
            match (length, read) {
                (0, Err(ReadError::Empty)) => {}
                (n, Err(ReadError::CutOff { bytes })) => assert_eq!(n as u64, bytes),
                (n, other) => panic!("cut at {n}: {other:?}"),
            }
            continue;
        }
        let mut read = read.unwrap();
        let on_a_border = ends.contains(&length);
        let notes: Vec<_> = read.notes.extract_if(.., |note| !matches!(note, Note::Collector(_))).collect();
        match notes.as_slice() {
            [] => assert!(on_a_border, "cut at {length}: nothing said"),
            [Note::Truncated { at, bytes }] => {
                assert_eq!((*at + *bytes) as usize, length);
                assert_eq!(*at as usize, ends[whole - 1]);
            }
            other => panic!("cut at {length}: {other:?}"),
        }
        assert_eq!(read, profile(&records[..whole - 1]), "cut at {length}");
    }
}

#[test]
fn a_flipped_bit_never_passes_for_data() {
    let records = records();
    let (bytes, ends) = file(&records);
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            let read = read_bytes(&bytes);
            if at < ends[0] {
                assert!(read.is_err(), "byte {at} of the header, bit {bit}: accepted");
                continue;
            }
            let read = read.unwrap();
            assert!(
                read.notes.iter().any(|n| matches!(n, Note::Damaged { .. } | Note::Truncated { .. })),
                "byte {at}, bit {bit}: nothing said"
            );
            // Only the record that was hit is gone, unless its length was.
            let hit = ends.iter().filter(|&&end| end <= at).count() - 1;
            let length_was_hit = at - ends[hit] < 4;
            if !length_was_hit {
                let mut rest = records.clone();
                rest.remove(hit);
                let mut read = read;
                read.notes.retain(|note| matches!(note, Note::Collector(_)));
                assert_eq!(read, profile(&rest), "byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn foreign_and_damaged_files_and_other_versions_have_sentences_of_their_own() {
    let (bytes, _) = file(&records());
    let mut other = frame::head_of_version(FORMAT_VERSION + 1).to_vec();
    other.extend_from_slice(&bytes[HEAD_BYTES..]);
    let mut bad_head = bytes.clone();
    bad_head[9] ^= 1;
    let mut no_job = frame::head().to_vec();
    no_job.extend_from_slice(&frame::frame(99, b"what is this"));
    for (file, sentence) in [
        (&b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..], "this is not a radrm profile"),
        (b"{}", "this is not a radrm profile"),
        (b"", "the file is empty: the job ended before its profile was begun"),
        (&other, "the profile has format version 2, this radrm reads version 1: use the radrm that wrote it"),
        (&bad_head, "the profile's header is damaged"),
        (&no_job, "the profile's header is damaged"),
        (&bytes[..5], "the profile is cut off inside its header, after 5 bytes"),
        (&bytes[..20], "the profile is cut off inside its header, after 20 bytes"),
    ] {
        assert_eq!(read_bytes(file).unwrap_err().to_string(), sentence);
    }
}

#[test]
fn records_of_the_future_are_passed_over() {
    let (mut bytes, _) = file(&records()[..2]);
    bytes.extend_from_slice(&frame::frame(4_000, b"from the future"));
    bytes.extend_from_slice(&frame::frame(4_001, b""));
    let read = read_bytes(&bytes).unwrap();
    assert_eq!(read.notes, [Note::UnknownFrames { count: 2 }]);
    assert_eq!(read.processes.len(), 1);
}

#[test]
fn a_device_that_is_full_from_the_start_is_an_error() {
    assert!(matches!(
        Writer::create(std::path::Path::new("/dev/full"), &job()),
        Err(WriteError::Io(error)) if error.raw_os_error() == Some(28)
    ));
}

#[test]
fn paths_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("none")] {
        assert!(matches!(Profile::open(&path), Err(ReadError::Io(_))));
    }
    let empty = dir.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    assert!(matches!(Profile::open(&empty), Err(ReadError::Empty)));
    assert!(matches!(Writer::create_new(&empty, &job()), Err(WriteError::Io(_))));
}

#[test]
fn what_is_learnt_of_a_refusal_later_replaces_what_was_known() {
    let more = |is_latest, bytes| {
        let request = FailedRequest { size: Bytes(bytes), ..FailedRequest::default() };
        Record::Postmortem(Box::new(Postmortem { is_latest, request, ..postmortem() }))
    };
    let (bytes, _) = file(&[more(false, 1), more(true, 2), more(false, 3)]);
    let read = read_bytes(&bytes).unwrap();
    let sizes: Vec<u64> = read.postmortems.iter().map(|it| it.request.size.0).collect();
    assert_eq!(sizes, [3, 2]);
}

#[test]
fn a_profile_is_being_written_while_its_writer_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.radrm");
    assert!(!is_being_written(&path), "there is none");
    let writer = Writer::create_new(&path, &job()).unwrap();
    assert!(is_being_written(&path));
    assert!(is_being_written(&path), "asking takes no lock away");
    drop(writer);
    assert!(!is_being_written(&path));
}

#[test]
fn the_job_can_be_read_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.radrm");
    std::fs::write(&path, file(&records()).0).unwrap();
    assert_eq!(peek_job(&path).unwrap(), job());
    assert_eq!(Profile::open(&path).unwrap(), profile(&records()));
}

#[test]
fn a_new_profile_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    // SAFETY: always works; the test is a process of its own.
    unsafe { libc::umask(0) };
    let folder = tempfile::tempdir().unwrap();
    for (name, create) in [("new", Writer::create_new as fn(&_, &_) -> _), ("named", Writer::create)] {
        let path = folder.path().join(name);
        let writer: Result<Writer, WriteError> = create(&path, &Job::default());
        writer.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}: it holds a command line");
    }
}
