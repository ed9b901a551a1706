//! The file in which an attempt's supervisor says what became of it.
//!
//! It is locked from before the supervisor is started until the supervisor is gone: the process that gets the lock
//! knows that no other one writes any more. Its room on the disk is taken before the job starts, so a
//! full disk later loses no exit code.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use radrm_analyzer::RefusedRequests;
use radrm_attempt::lock;
use radrm_collector::dataset::GpuPeak;
use radrm_os::ProcessIdentity;
use radrm_scheduler_core::{Bytes, Evidence, Outcome};
use serde::{Deserialize, Serialize};

use super::fence::Missing;
use super::outcome::RunRecord;

/// Room for all records.
const SIZE: usize = 16 << 10;
/// Offset of each record, bytes.
const SUPERVISOR_AT: u64 = 0;
const PROGRAM_AT: u64 = 256;
const STOP_AT: u64 = 448;
const OUTPUT_AT: u64 = 464;
const END_AT: u64 = 512;
const MISSING_AT: u64 = (SIZE - 1024) as u64;
/// Behind the room that is taken beforehand: a full disk loses the dataset's row, and no exit code.
const RUN_AT: u64 = SIZE as u64;
/// Longest record of a run, bytes.
const MAX_RUN: u64 = 256 << 10;
/// Bytes of each text of an end that is too long; JSON may take six times as many for them.
const MAX_TEXT: usize = 500;
/// Tries to write one.
const TRIES: u32 = 3;

/// End of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    /// Exit code, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that killed it.
    pub(crate) signal: Option<i32>,
    /// It did not start, and why. With `lost` that was the node's fault.
    pub(crate) not_started: Option<String>,
    /// It failed after a request for GPU memory was refused: what it held and asked for, bytes.
    pub(crate) oom: Option<u64>,
    /// The part of that which was requested, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oom_request: Option<u64>,
    /// That is concluded from its output; no shim was in it.
    pub(crate) from_log: bool,
    /// Limit of its user or group that refused the request, as a sentence's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limited: Option<String>,
    /// It requested memory of a GPU that is not its own: which, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elsewhere: Option<String>,
    /// Requests for GPU memory that were refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<RefusedRequests>,
    /// The kernel ended a process of it because its control group reached this limit on host memory, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_oom: Option<u64>,
    /// Its GPU was gone when it failed.
    #[serde(default)]
    pub(crate) lost: bool,
    /// Highest device memory on one GPU, contexts included, bytes.
    pub(crate) peak: Option<u64>,
    /// Peaks of what calls asked for on each GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peaks: Vec<GpuPeak>,
    /// Time of the end, ms since 1970.
    pub(crate) at_ms: u64,
    /// Record of its profile, for the dataset. Written behind the rest, where there is room on the disk.
    #[serde(skip)]
    pub(crate) record: Option<Box<RunRecord>>,
}

impl End {
    /// The same with the beginnings of its texts. The job's profile states most of them, and its user may write any there.
    fn with_short_texts(self) -> Self {
        let short = |text: String| text[..text.floor_char_boundary(MAX_TEXT)].to_owned();
        let refused = |of: RefusedRequests| RefusedRequests { last: short(of.last), ..of };
        Self {
            not_started: self.not_started.map(short),
            limited: self.limited.map(short),
            elsewhere: self.elsewhere.map(short),
            refused: self.refused.map(refused),
            ..self
        }
    }

    /// Outcome for the scheduler.
    pub(crate) fn outcome(&self) -> Outcome {
        if self.lost {
            return Outcome::Lost;
        }
        if self.not_started.is_some() {
            return Outcome::NotStarted;
        }
        let code = self.code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0));
        // A request for GPU memory that was refused before did not end it.
        if let Some(limit) = self.host_oom.filter(|_| code != 0) {
            return Outcome::HostOutOfMemory { limit: Bytes(limit), code };
        }
        match (self.oom, self.signal) {
            (Some(seen), _) if code != 0 => {
                let evidence = match (self.from_log, &self.limited) {
                    (true, _) => Evidence::Log,
                    (false, Some(_)) => Evidence::Limit,
                    (false, None) => Evidence::Shim,
                };
                Outcome::OutOfMemory { seen: (seen > 0).then_some(Bytes(seen)), evidence, code }
            }
            (_, Some(signal)) => Outcome::Signalled { signal },
            _ => Outcome::Exited { code },
        }
    }
}

/// Reason that a job's output ended before the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutputEnd {
    /// Its limit, bytes.
    Limit(u64),
    /// The disk.
    Disk,
}

impl OutputEnd {
    /// One sentence.
    pub(crate) fn sentence(self) -> String {
        match self {
            Self::Limit(max) => {
                format!(
                    "the output ends here: {} is the limit of a job (max_output), and the job goes on",
                    Bytes(max)
                )
            }
            Self::Disk => {
                "the output ends here: the disk of radrmd has no more room for it, and the job goes on"
                    .to_owned()
            }
        }
    }
}

/// All that is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    pub(crate) supervisor: Option<ProcessIdentity>,
    pub(crate) program: Option<ProcessIdentity>,
    /// Start time of the program, ms since 1970; 0 without a program.
    pub(crate) began_ms: u64,
    /// Fences that could not be set for it, once that was tried.
    pub(crate) missing: Option<Missing>,
    /// Its output has ended before it.
    pub(crate) output_end: Option<OutputEnd>,
    pub(crate) end: Option<End>,
}

/// The record of a program.
#[derive(Serialize, Deserialize)]
struct Program {
    #[serde(flatten)]
    process: ProcessIdentity,
    #[serde(default)]
    at_ms: u64,
}

/// Makes the file with all its room, locked. One that a supervisor has locked is left as it is, and is an error.
pub(crate) fn make(path: &Path) -> io::Result<File> {
    let file = lock::make(path)?;
    file.write_all_at(&[0; SIZE], 0)?;
    Ok(file)
}

/// Writes a record where it begins.
pub(crate) fn put(file: &File, at: u64, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    file.write_all_at(&text, at)
}

/// The supervisor is there.
pub(crate) fn put_supervisor(file: &File, process: ProcessIdentity) -> io::Result<()> {
    put(file, SUPERVISOR_AT, &process)
}

/// The program is about to be executed.
pub(crate) fn put_program(file: &File, process: ProcessIdentity) -> io::Result<()> {
    put(file, PROGRAM_AT, &Program { process, at_ms: super::time::now().0 })
}

/// Fences were set for this attempt, but for these. Written before the program is there.
///
/// # Errors
/// The file's.
pub(crate) fn put_missing(file: &File, missing: &Missing) -> io::Result<()> {
    put(file, MISSING_AT, missing)
}

/// The output of the job ends before the job.
pub(crate) fn put_output_end(file: &File, why: OutputEnd) -> io::Result<()> {
    put(file, OUTPUT_AT, &why)
}

/// The daemon asks the job to stop: its processes have the time that this gives them, and the daemon ends it. Written to
/// the file of a supervisor, before the first process of the job gets the signal.
///
/// # Errors
/// The file's. Without the record the job ends with its first process.
pub(crate) fn put_stop(path: &Path, signal: i32) -> io::Result<()> {
    put(&File::options().write(true).open(path)?, STOP_AT, &signal)
}

/// Returns true if the daemon has asked the job to stop.
pub(crate) fn is_stopping(file: &File) -> bool {
    let mut word = [0; 1];
    matches!(file.read_at(&mut word, STOP_AT), Ok(1)) && word != [0]
}

/// It is over. An end with too many GPUs for its room is written without their peaks, and one with too long texts with the
/// beginnings of these.
pub(crate) fn put_end(file: &File, end: &End) -> io::Result<()> {
    if let Some(record) = &end.record {
        let fits = serde_json::to_vec(record)?.len() < MAX_RUN as usize;
        // A block that fails once is written by the next try.
        let is_written = fits && (0..TRIES).any(|_| put(file, RUN_AT, record).is_ok());
        if !is_written {
            // What is left of it is no record.
            let _ = file.set_len(SIZE as u64);
        }
    }
    let fits =
        |end: &End| serde_json::to_vec(end).is_ok_and(|text| text.len() < (MISSING_AT - END_AT) as usize);
    if fits(end) {
        return put(file, END_AT, end);
    }
    let without_peaks = End { peaks: Vec::new(), ..end.clone() };
    if fits(&without_peaks) {
        return put(file, END_AT, &without_peaks);
    }
    put(file, END_AT, &without_peaks.with_short_texts())
}

/// State in which an attempt is found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// A supervisor lives, or is just being started.
    pub(crate) kept: bool,
    /// Records that are written so far.
    pub(crate) status: Status,
}

/// Reads the file of an attempt; `None` if there is no file, so nothing of it was ever begun.
///
/// # Errors
/// Any other failure to read it, too many open files above all, shows nothing of the attempt.
pub(crate) fn read(path: &Path) -> io::Result<Option<Report>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    // First: what is written after it was seen to be free is all there will be.
    let kept = lock::is_locked(&file)?;
    Ok(Some(Report { kept, status: records(&file)? }))
}

/// Reads the records of the file that can be understood.
fn records(file: &File) -> io::Result<Status> {
    let mut bytes = [0; SIZE];
    let mut have = 0;
    while have < SIZE {
        match file.read_at(&mut bytes[have..], have as u64) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let record = |at: u64| {
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        line.to_vec()
    };
    let program: Option<Program> = serde_json::from_slice(&record(PROGRAM_AT)).ok();
    let mut end: Option<End> = serde_json::from_slice(&record(END_AT)).ok();
    if let Some(end) = &mut end {
        end.record = run_record(file);
    }
    Ok(Status {
        supervisor: serde_json::from_slice(&record(SUPERVISOR_AT)).ok(),
        program: program.as_ref().map(|program| program.process),
        began_ms: program.map_or(0, |program| program.at_ms),
        missing: serde_json::from_slice(&record(MISSING_AT)).ok(),
        output_end: serde_json::from_slice(&record(OUTPUT_AT)).ok(),
        end,
    })
}

/// The record of a run, if it is there and whole.
fn run_record(file: &File) -> Option<Box<RunRecord>> {
    let length = file.metadata().ok()?.len().checked_sub(RUN_AT)?.min(MAX_RUN);
    let mut text = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut text, RUN_AT).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use radrm_collector::dataset::ProcessFeatures;

    use super::*;

    #[test]
    fn texts_of_a_hostile_profile_hide_no_exit_code_and_fill_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let file = make(&path).unwrap();
        let missing = Missing { driver: None, files: Some("not permitted".to_owned()) };
        put_missing(&file, &missing).unwrap();
        let long = || "\u{1}\u{e9}".repeat(1 << 20);
        let refused = RefusedRequests { count: 7, last: long(), ..RefusedRequests::default() };
        let end = End {
            code: Some(3),
            not_started: Some(long()),
            limited: Some(long()),
            elsewhere: Some(long()),
            refused: Some(refused),
            at_ms: 5,
            ..End::default()
        };
        put_end(&file, &end).unwrap();
        assert_eq!(file.metadata().unwrap().len(), SIZE as u64);
        let status = read(&path).unwrap().unwrap().status;
        assert_eq!(status.missing, Some(missing));
        let found = status.end.unwrap();
        assert_eq!((found.code, found.at_ms, found.refused.map(|of| of.count)), (Some(3), 5, Some(7)));
        assert!(long().starts_with(&found.elsewhere.unwrap()));
    }

    #[test]
    fn records_come_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(read(&path).unwrap(), None);
        let file = make(&path).unwrap();
        let status = || read(&path).unwrap().unwrap().status;
        let is_kept = || read(&path).unwrap().unwrap().kept;
        assert!(is_kept(), "locked from the beginning");
        assert_eq!(status(), Status::default());
        let who = ProcessIdentity::of(std::process::id()).unwrap();
        put_supervisor(&file, who).unwrap();
        put_program(&file, who).unwrap();
        let began_ms = status().began_ms;
        assert!(began_ms > 0);
        assert!(!is_stopping(&file));
        put_stop(&path, libc::SIGUSR1).unwrap();
        assert!(is_stopping(&file));
        assert_eq!(
            status(),
            Status { supervisor: Some(who), program: Some(who), began_ms, ..Status::default() }
        );
        let missing = Missing { driver: None, files: Some("not permitted".repeat(20)) };
        put_missing(&file, &missing).unwrap();
        assert_eq!(status().missing, Some(missing));
        let end = End { code: Some(3), oom: Some(77), at_ms: 5, ..End::default() };
        put_end(&file, &end).unwrap();
        assert_eq!(status().end, Some(end));
        drop(file);
        assert!(!is_kept());
    }

    #[test]
    fn records_of_an_earlier_version_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let file = make(&path).unwrap();
        file.write_all_at(b"{\"pid\":7,\"start\":8,\"at_ms\":9}\n", SUPERVISOR_AT).unwrap();
        file.write_all_at(b"{\"pid\":10,\"start\":11,\"at_ms\":12}\n", PROGRAM_AT).unwrap();
        let status = read(&path).unwrap().unwrap().status;
        assert_eq!(status.supervisor, Some(ProcessIdentity { pid: 7, start: 8 }));
        assert_eq!((status.program, status.began_ms), (Some(ProcessIdentity { pid: 10, start: 11 }), 12));
    }

    #[test]
    fn a_living_supervisors_records_survive_a_second_creation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let file = make(&path).unwrap();
        let who = ProcessIdentity::of(std::process::id()).unwrap();
        put_supervisor(&file, who).unwrap();
        assert_eq!(make(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(read(&path).unwrap().unwrap().status.supervisor, Some(who));
        drop(file);
        let file = make(&path).unwrap();
        assert_eq!(read(&path).unwrap(), Some(Report { kept: true, status: Status::default() }));
        drop(file);
    }

    #[test]
    fn only_a_file_that_is_not_there_means_that_nothing_was_begun() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(make(&path).unwrap());
        assert!(read(&path.join("below-a-file")).is_err());
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        assert!(read(&dir.path().join("loop")).is_err());
    }

    #[test]
    fn only_a_failure_with_a_refused_request_is_an_out_of_memory() {
        let end = End { code: Some(0), oom: Some(7), ..End::default() };
        assert_eq!(end.outcome(), Outcome::Exited { code: 0 });
        let end = End { code: Some(1), ..End::default() };
        assert_eq!(end.outcome(), Outcome::Exited { code: 1 });
        let end = End { signal: Some(6), oom: Some(7), ..End::default() };
        let seen = Outcome::OutOfMemory { seen: Some(Bytes(7)), evidence: Evidence::Shim, code: 134 };
        assert_eq!(end.outcome(), seen);
        let limited = End { limited: Some("a limit".into()), ..end };
        let seen = Outcome::OutOfMemory { seen: Some(Bytes(7)), evidence: Evidence::Limit, code: 134 };
        assert_eq!(limited.outcome(), seen);
        assert_eq!(End { signal: Some(9), ..End::default() }.outcome(), Outcome::Signalled { signal: 9 });
    }

    #[test]
    fn an_end_for_want_of_host_memory_is_no_gpu_out_of_memory() {
        let end = End { signal: Some(9), oom: Some(7), host_oom: Some(1 << 30), ..End::default() };
        assert_eq!(end.outcome(), Outcome::HostOutOfMemory { limit: Bytes(1 << 30), code: 137 });
        let end = End { signal: None, code: Some(1), ..end };
        assert_eq!(end.outcome(), Outcome::HostOutOfMemory { limit: Bytes(1 << 30), code: 1 });
        let survived = End { code: Some(0), ..end };
        assert_eq!(
            survived.outcome(),
            Outcome::Exited { code: 0 },
            "a process of it was killed, and it went on"
        );
    }

    #[test]
    fn the_record_of_a_run_comes_with_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let file = make(&path).unwrap();
        let end = || read(&path).unwrap().unwrap().status.end.unwrap();
        let mut record = RunRecord::default();
        (record.row.kernels, record.row.framework) = (Some(7), Some("PyTorch 2.15.0".into()));
        record.features.processes = vec![ProcessFeatures { pid: 9, ..ProcessFeatures::default() }; 300];
        let ended = End { code: Some(3), record: Some(Box::new(record)), ..End::default() };
        put_end(&file, &ended).unwrap();
        assert_eq!(end(), ended);
        // One that is cut off, or longer than any, is none.
        let whole = file.metadata().unwrap().len();
        for length in [SIZE as u64, SIZE as u64 + 5, whole - 2, whole + MAX_RUN] {
            file.set_len(length).unwrap();
            assert_eq!(end(), End { record: None, ..ended.clone() }, "{length} of {whole} bytes");
        }
    }

    #[test]
    fn an_end_is_written_where_the_record_of_its_run_cannot_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(make(&path).unwrap());
        // It stands for a disk that takes no more.
        let file = File::open(&path).unwrap();
        let sealed = sealed(&file);
        let ended = End { code: Some(3), record: Some(Box::default()), ..End::default() };
        put_end(&sealed, &ended).unwrap();
        let status = records(&sealed).unwrap();
        assert_eq!(status.end, Some(End { record: None, ..ended }));
    }

    /// A copy in memory, longer by what is left of an earlier record, that can neither grow nor shrink.
    fn sealed(file: &File) -> File {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let copy = File::from(memfd_create("status", MemfdFlags::ALLOW_SEALING).unwrap());
        let mut bytes = [0; SIZE];
        file.read_exact_at(&mut bytes, 0).unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
        copy.set_len(RUN_AT + 10).unwrap();
        fcntl_add_seals(&copy, SealFlags::GROW | SealFlags::SHRINK).unwrap();
        copy
    }

    #[test]
    fn an_end_with_too_many_gpus_for_its_room_is_whole_without_their_peaks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let file = make(&path).unwrap();
        for (gpus, kept) in [(64, 64), (1000, 0)] {
            let gpu = GpuPeak { uuid: "x".repeat(40), name: "y".repeat(40), ..GpuPeak::default() };
            put_end(&file, &End { code: Some(3), peaks: vec![gpu; gpus], ..End::default() }).unwrap();
            let end = read(&path).unwrap().unwrap().status.end.unwrap();
            assert_eq!((end.code, end.peaks.len()), (Some(3), kept));
        }
    }
}
