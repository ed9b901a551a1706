//! Messages on the socket: frames of a length (4 bytes, little endian) and JSON.
//!
//! Each side sends [`HELLO`] first, so that programs of different versions part with a sentence.

use std::fmt;
use std::io::{self, Read, Write};

use radrm_base::SeenActivity;
use radrm_scheduler_core::JobState;
pub use radrm_scheduler_core::{Outcome, Verdict};
use radrm_text::Untrusted;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use radrm_base::{MemoryOrigin, Permille, reason};

use crate::ProtocolError;
pub use crate::asked::Asked;
use crate::job_ref::JobRef;
use crate::limits::{DrainRow, LimitsRow, ReservationRow, ReserveRow, SetLimitRow};
use crate::spec::Spec;
pub use crate::stats::{
    CurvePoint, CurvesRow, EstimateRow, GpuCurve, GpuStats, PastJob, PastRow, StatsRow, UsageRow,
};
use crate::together::Member;

/// The first bytes in both directions; the last is the version.
pub const HELLO: [u8; 8] = *b"RADRMD\0\x03";

/// The longest frame that is read: a command line and an environment are a few MiB at most.
const MAX_FRAME: u32 = 16 << 20;
/// Longest request of any kind, bytes. Longer ones carry a job, or name many.
pub const MAX_SHORT_REQUEST: usize = 64 << 10;
/// Beginnings of requests that may be longer.
const LONG_REQUESTS: [&[u8]; 5] =
    [br#"{"submit":"#, br#"{"submit_together":"#, br#"{"estimate":"#, br#"{"cancel":"#, br#"{"hold":"#];
/// Most values of a request. Each takes some tens of bytes of memory, and as few as two in the frame.
const MAX_VALUES: usize = 1 << 19;
/// Longest text of an error, bytes.
const MAX_REASON: usize = 200;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A new job.
    Submit(Box<Spec>),
    /// New jobs that start together: if one of them is rejected none is taken. Numbers are consecutive.
    SubmitTogether(Vec<Member>),
    /// Estimate of a job's need, without submitting the job.
    Estimate(Box<Spec>),
    /// Jobs; of all users for an administrator that asks so.
    Queue {
        /// Of all users.
        all: bool,
        /// With so many that are over, the newest first.
        ended: u32,
        /// One row for all jobs of an array that wait, with their indices in [`JobRow::tasks`].
        #[serde(default)]
        merge: bool,
        /// At most so many rows of waiting jobs, then [`Response::LeftOut`]; 0: all.
        #[serde(default)]
        first: u32,
    },
    /// One job with its history.
    Show {
        /// The job.
        job: JobRef,
    },
    /// The file with a job's output, opened as the job's user.
    Output {
        /// The job.
        job: JobRef,
        /// Its standard error, where that is a file of its own.
        error: bool,
    },
    /// The user does not want these any more.
    Cancel {
        /// Jobs, and arrays as a whole.
        jobs: Vec<JobRef>,
    },
    /// These must not start, or may start again.
    Hold {
        /// Jobs, and arrays as a whole.
        jobs: Vec<JobRef>,
        /// True if they must not start.
        held: bool,
    },
    /// GPUs and the host.
    Nodes,
    /// Figures over jobs that are over.
    Stats {
        /// Of all users.
        all: bool,
        /// Only jobs submitted at or after this, ms since 1970.
        since_ms: u64,
    },
    /// GPU time by user; of other users for administrators only.
    Usage {
        /// Only of this user.
        user: Option<String>,
        /// From here on, ms since 1970.
        from_ms: u64,
        /// Up to here.
        to_ms: u64,
    },
    /// GPUs and jobs at an earlier time.
    Past {
        /// Time, ms since 1970.
        at_ms: u64,
    },
    /// Figures of GPUs over time.
    Curves {
        /// From here on, ms since 1970.
        from_ms: u64,
        /// Up to here.
        to_ms: u64,
    },
    /// A GPU takes no new jobs, or takes them again.
    Drain {
        /// Its number or UUID.
        gpu: String,
        /// True if it takes no new jobs.
        drained: bool,
        /// Reason, for those who see it drained.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Limits of a user in the queue; of others for administrators only.
    Limits {
        /// Of this user; `None`: of the one who asks.
        user: Option<String>,
    },
    /// Limits that administrators have set.
    SetLimits,
    /// An administrator sets a limit of the queue.
    SetLimit {
        /// `default`, `user:NAME` or `group:NAME`.
        scope: String,
        /// The limit's name.
        name: String,
        /// Its value; `None` takes back what was set.
        value: Option<String>,
    },
    /// An administrator reserves GPUs for people.
    Reserve(Box<ReserveRow>),
    /// Reservations that are not over.
    Reservations,
    /// An administrator takes a reservation back.
    Unreserve {
        /// Its number.
        number: u64,
    },
}

impl Request {
    /// Returns true if it is done piece by piece, for as long as that takes: [`Response::Working`] comes meanwhile.
    #[must_use]
    pub fn may_take_long(&self) -> bool {
        matches!(self, Self::Cancel { .. } | Self::Hold { .. })
    }
}

/// Answer of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// The new job's number, or that of the first of several.
    Submitted {
        /// Its number.
        job: u64,
        /// Remarks for its user, a sentence each.
        #[serde(default)]
        remarks: Vec<String>,
    },
    /// Estimate of a job's need.
    Estimate(Box<EstimateRow>),
    /// Jobs, and more to come: as many as there are, each frame is of bounded length.
    Part(Vec<JobRow>),
    /// Number of waiting jobs that the list leaves out, before the last of its rows.
    LeftOut(u64),
    /// The last of them.
    Jobs(Vec<JobRow>),
    /// One job and its history.
    Job(Box<JobRow>, Vec<Line>),
    /// The file with a job's output.
    Output {
        /// True if a byte follows that carries its descriptor ([`crate::descriptor`]); else there is no file yet.
        is_there: bool,
    },
    /// GPUs and the host.
    Nodes(Box<NodeRow>),
    /// Figures over jobs that are over.
    Stats(Box<StatsRow>),
    /// GPU time, a row for each user.
    Usage(Vec<UsageRow>),
    /// GPUs and jobs at an earlier time.
    Past(Box<PastRow>),
    /// Figures of GPUs over time.
    Curves(Box<CurvesRow>),
    /// Limits of a user.
    Limits(Box<LimitsRow>),
    /// Limits that administrators have set.
    SetLimits(Vec<SetLimitRow>),
    /// The new reservation.
    Reserved {
        /// Its number.
        number: u64,
        /// The reservation as one sentence.
        text: String,
    },
    /// Reservations that are not over.
    Reservations(Vec<ReservationRow>),
    /// It is being done: the answer is still to come.
    Working,
    /// It is done.
    Done,
    /// One sentence.
    Refused(String),
    /// One sentence: what keeps the request from being accepted passes.
    Later(String),
}

/// A line of a job's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Time, ms since 1970.
    pub at_ms: u64,
    /// Event, one sentence.
    pub text: Untrusted,
}

/// A job as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// The job's number.
    pub job: u64,
    /// Name in lists.
    pub name: Untrusted,
    /// Its user's name.
    pub user: String,
    /// Its user's number.
    pub uid: u32,
    /// Its state.
    pub state: JobState,
    /// Higher goes first.
    pub priority: i32,
    /// GPUs at the same time.
    pub gpus: u16,
    /// Devices it is on or was on last.
    pub devices: Vec<String>,
    /// Description of the emulated GPUs, if GPUs are emulated: figures of the job are no real GPU's.
    pub emulated: Option<String>,
    /// Memory set aside on each, bytes; `None`: the devices as a whole.
    pub reserved: Option<u64>,
    /// Memory it holds now over all devices, bytes.
    pub used: u64,
    /// The highest it held on one device, bytes.
    pub peak: Option<u64>,
    /// Number of starts.
    pub attempts: u32,
    /// Attempts that ran out of GPU memory.
    pub ooms: u32,
    /// Requests for GPU memory that its last attempt was refused.
    pub refused: u64,
    /// Submission time, ms since 1970.
    pub submitted_ms: u64,
    /// Start of its first attempt, ms since 1970.
    pub started_ms: Option<u64>,
    /// End of the job, ms since 1970.
    pub ended_ms: Option<u64>,
    /// Time of all attempts, ms.
    pub ran_ms: u64,
    /// It is stopped after this time, ms.
    pub time_limit_ms: Option<u64>,
    /// Time until that of a running job, ms.
    #[serde(default)]
    pub left_ms: Option<u64>,
    /// Time until the expected start of a waiting job, ms, where that is known: of the first ones in the queue.
    #[serde(default)]
    pub starts_in_ms: Option<u64>,
    /// Reason that it is not known of one of these, as a part of a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_unknown: Option<String>,
    /// The exit code of its last attempt.
    pub exit_code: Option<i32>,
    /// Result, in words.
    pub end: Option<Untrusted>,
    /// Result, for programs.
    pub verdict: Option<Verdict>,
    /// Reason for its present state.
    pub why: Untrusted,
    /// In a list only the beginning of a long one.
    pub command: Vec<Untrusted>,
    /// Working directory.
    pub cwd: Untrusted,
    /// Its standard output.
    pub output: Untrusted,
    /// Its standard error, where that is a file of its own.
    pub error: Option<Untrusted>,
    /// The profile of its last attempt.
    pub profile: Option<Untrusted>,
    /// The launcher's process.
    pub pid: Option<u32>,
    /// Activity alone on a GPU: SM activity, SM occupancy and DRAM activity, thousandths; null where it was not measured.
    pub activity: Option<SeenActivity>,
    /// Resident memory of its processes, bytes, pages that they share in each of them.
    pub host_memory: u64,
    /// CPU time of its processes, thousandths of a core between the last two polls.
    pub cpu_milli: Option<u64>,
    /// Memory traffic of its processes, bytes in a second, where it is counted.
    pub memory_traffic: Option<u64>,
    /// Part of its CPU cycles in which a processor waited, where these are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_stalled: Option<Permille>,
    /// Source of these two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_origin: Option<MemoryOrigin>,
    /// Time for which its GPUs have done nothing, ms; `None`: one works, or that is not known.
    pub idle_ms: Option<u64>,
    /// Host memory that it requests, bytes; 0: none.
    pub booked_host_memory: u64,
    /// As `booked_host_memory`, thousandths of cores.
    pub booked_cpu_milli: u64,
    /// Device memory of a suspended job, which is in host memory, bytes.
    pub suspended: Option<u64>,
    /// The processes that are checkpointed: NVML shows none of them.
    pub suspended_pids: Vec<u32>,
    /// Progress of a running job against its latency target or lowest speed, one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<String>,
    /// Requests with which it was submitted.
    pub asked: Asked,
    /// Its place in an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRow>,
    /// Indices of all jobs of its array for which the row stands, such as `3-99`; empty: it stands for itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tasks: String,
    /// Memory on each GPU that it is expected to need at most, bytes; null where nothing is known of it.
    #[serde(default)]
    pub need_upper: Option<u64>,
    /// Source of its need of GPU memory; only of a single job (not in lists) that is not over.
    pub need_from: Option<String>,
}

impl JobRow {
    /// Path of its standard error, where that is asked for and a file of its own, else of its standard output.
    #[must_use]
    pub fn stream(&self, error: bool) -> &Untrusted {
        self.error.as_ref().filter(|_| error).unwrap_or(&self.output)
    }
}

/// A job's place in an array, as it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// The number of the array: that of its first job.
    pub array: u64,
    /// Its index there.
    pub index: u32,
    /// Limit on how many of the array's jobs may be in the queue or run at once, if there is one.
    pub at_once: Option<u32>,
}

/// Source of a GPU's SM activity, SM occupancy and DRAM activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivitySource {
    /// NVML's performance counters of the GPU.
    Gpm,
    /// DCGM's counters of the GPU.
    Dcgm,
    /// Timed launches of its jobs: an estimate from the sum of what each does.
    Launches,
}

/// A GPU as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuRow {
    /// The GPU's number.
    pub index: u32,
    /// The GPU's UUID.
    pub uuid: String,
    /// The GPU's model.
    pub model: String,
    /// Its memory, bytes.
    pub total: u64,
    /// Memory in use, bytes; null where no poll has shown it.
    pub used: Option<u64>,
    /// Memory reserved for jobs, bytes.
    pub reserved: u64,
    /// Memory that others hold, bytes.
    pub foreign: u64,
    /// Source of SM activity, SM occupancy and DRAM activity.
    #[serde(default)]
    pub activity_source: Option<ActivitySource>,
    /// SM activity, thousandths.
    pub smact: Option<u32>,
    /// SM occupancy, thousandths.
    pub smocc: Option<u32>,
    /// DRAM activity, thousandths.
    pub drama: Option<u32>,
    /// Part of the time in which the graphics or compute engine was in use (GRACT), thousandths. It decides nothing.
    pub gract: Option<u32>,
    /// Per cent of the time in which a kernel ran.
    pub utilization: Option<u32>,
    /// Power draw, mW.
    pub power_mw: Option<u32>,
    /// Since the driver was loaded, mJ.
    pub energy_mj: Option<u64>,
    /// Bytes a second over PCIe to the GPU and from it, where GPM reports them.
    pub pcie: [Option<u64>; 2],
    /// It fell off the bus, or was taken away.
    pub lost: bool,
    /// It takes no new jobs.
    pub drained: bool,
    /// Reason of that, its administrator and its time.
    pub drain: Option<DrainRow>,
    /// A job, or a group of jobs, has all of it.
    pub whole: bool,
    /// Numbers of the jobs on it; those of other users for administrators, and for all with `privacy = false`.
    pub jobs: Vec<u64>,
    /// The same jobs with their users and times.
    #[serde(default)]
    pub who: Vec<GpuJobRow>,
    /// Jobs on it, those of other users included.
    pub job_count: u32,
    /// Time for which it has done nothing, ms; `None`: it works, or that is not known.
    pub idle_ms: Option<u64>,
    /// It is kept free for this job.
    pub kept_for: Option<u64>,
    /// Processes outside of jobs that hold its memory, those with most first.
    pub outside: Vec<OutsideProcess>,
}

/// A job on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuJobRow {
    /// Its number.
    pub job: u64,
    /// Its user's name.
    pub user: String,
    /// Start of its attempt, ms since 1970.
    pub started_ms: Option<u64>,
    /// Time until its time limit, ms, if it has one.
    pub left_ms: Option<u64>,
}

/// A process outside of jobs that holds memory of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideProcess {
    /// Process id.
    pub pid: u32,
    /// Name of its user, or the number.
    pub user: String,
    /// Name of its program.
    pub program: Untrusted,
    /// Memory, bytes.
    pub bytes: u64,
    /// It runs under a `radrm-run` that was started by hand, whose limits hold.
    pub is_limited: bool,
}

impl fmt::Display for OutsideProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, user, program, bytes, is_limited } = self;
        let under = if *is_limited { ", under its own radrm-run" } else { "" };
        write!(f, "process {pid} ({program}) of {user} holds {}{under}", radrm_scheduler_core::Bytes(*bytes))
    }
}

/// Enforcement of the CPUs and host memory that jobs request.
/// Where the node does not limit one of them, it only reserves it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLimits {
    /// CPU time is limited.
    pub cpu: bool,
    /// Host memory is limited.
    pub memory: bool,
    /// Reason that neither is limited.
    pub why: Option<String>,
}

/// Fence that keeps jobs from other GPUs than theirs, beside the shim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFence {
    /// The driver limits the control groups of jobs.
    pub driver: bool,
    /// Jobs cannot open the device files of other GPUs.
    pub files: bool,
}

/// The machine as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The node's name.
    pub host: String,
    /// Description of the emulated GPUs, if GPUs are emulated.
    pub emulated: Option<String>,
    /// Placement policy.
    pub policy: String,
    /// CPU cores for jobs.
    pub cpus: u32,
    /// Host memory for jobs, bytes.
    pub memory: u64,
    /// Jobs in the queue.
    pub waiting: u32,
    /// Jobs on GPUs.
    pub running: u32,
    /// Jobs whose device memory is in host memory, and how much that is, bytes.
    pub suspended: u32,
    /// Host memory that those hold, bytes.
    pub suspended_bytes: u64,
    /// GPUs at the same time.
    pub gpus: Vec<GpuRow>,
    /// Enforcement of `--cpus` and `--mem`.
    pub host_limits: HostLimits,
    /// Most memory traffic of the host, bytes in a second, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bandwidth: Option<u64>,
    /// Source of the figures on what memory does for jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_origin: Option<MemoryOrigin>,
    /// Why there is no better source, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_problem: Option<String>,
    /// Fence that keeps jobs from other GPUs than theirs, beside the shim.
    pub gpu_fence: GpuFence,
    /// State of MPS by the daemon's setting, in words.
    pub mps: Option<String>,
    /// Why DCGM does not measure GPUs that have no GPM.
    pub unmetered: Option<String>,
    /// Reservations of GPUs that are not over, the earliest first.
    #[serde(default)]
    pub reservations: Vec<ReservationRow>,
    /// Processes that take GPU memory past the shim.
    pub audit: Vec<Untrusted>,
    /// Health issues: what the daemon cannot do at the moment.
    pub issues: Vec<Untrusted>,
}

/// So many jobs as lists show them fit into one frame, however long their paths are.
pub const ROWS: usize = 100;

/// Writes an answer; jobs in as many frames as they take.
///
/// # Errors
/// The other side takes nothing more.
pub fn answer(stream: &mut impl Write, response: Response) -> io::Result<()> {
    let Response::Jobs(mut rows) = response else { return write(stream, &response) };
    while rows.len() > ROWS {
        let rest = rows.split_off(ROWS);
        write(stream, &Response::Part(rows))?;
        rows = rest;
    }
    write(stream, &Response::Jobs(rows))
}

/// Writes one frame.
///
/// # Errors
/// The message is too long, or the other side takes nothing more.
pub fn write(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, value)?;
    let length = u32::try_from(frame.len() - 4).ok().filter(|length| *length <= MAX_FRAME);
    let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)
}

/// Reads one frame; `None` where the other side has finished.
///
/// # Errors
/// The frame is too long, cut off, or no message.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let Some(length) = read_length(stream)? else { return Ok(None) };
    let mut frame = Vec::new();
    read_body(stream, &mut frame, length)?;
    Ok(Some(serde_json::from_slice(&frame)?))
}

/// Reads the length of the next frame, bytes; `None` where the other side has finished.
///
/// # Errors
/// The frame is too long, or its length is cut off.
pub fn read_length(stream: &mut impl Read) -> io::Result<Option<usize>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME {
        return Err(invalid("the message is too long"));
    }
    Ok(Some(length as usize))
}

/// Reads a request of this length in bytes.
///
/// # Errors
/// It is cut off, is not a request, or is longer than requests of its kind may be.
pub fn read_request(stream: &mut impl Read, length: usize) -> io::Result<Request> {
    let mut frame = Vec::with_capacity(length.min(MAX_SHORT_REQUEST));
    read_body(stream, &mut frame, length.min(MAX_SHORT_REQUEST))?;
    if length > MAX_SHORT_REQUEST {
        if !LONG_REQUESTS.iter().any(|beginning| frame.starts_with(beginning)) {
            return Err(invalid("the request is too long for what it asks"));
        }
        // Pages that nothing was written to take no memory. A vector that grew would have copies beside it.
        frame.reserve_exact(length - MAX_SHORT_REQUEST);
        read_body(stream, &mut frame, length - MAX_SHORT_REQUEST)?;
    }
    // Also counts commas in texts: a request has fewer.
    if frame.iter().filter(|byte| **byte == b',').count() > MAX_VALUES {
        return Err(invalid("the request has too many values"));
    }
    serde_json::from_slice(&frame).map_err(|error| invalid(&beginning(&error)))
}

/// The beginning of an error's text, which may quote all of a request.
fn beginning(error: &serde_json::Error) -> String {
    struct Beginning(String);

    impl fmt::Write for Beginning {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MAX_REASON.saturating_sub(self.0.len());
            self.0.push_str(&text[..text.floor_char_boundary(room)]);
            if text.len() > room { Err(fmt::Error) } else { Ok(()) }
        }
    }

    let mut beginning = Beginning(String::new());
    if fmt::Write::write_fmt(&mut beginning, format_args!("{error}")).is_err() {
        beginning.0.push_str(&format!(" … (line {}, column {})", error.line(), error.column()));
    }
    beginning.0
}

/// Appends so many bytes as they come: a length alone allocates no memory.
fn read_body(stream: &mut impl Read, frame: &mut Vec<u8>, length: usize) -> io::Result<()> {
    let count = stream.take(length as u64).read_to_end(frame)?;
    if count < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn invalid(sentence: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// Exchanges the first bytes.
///
/// # Errors
/// The other side is of another version, or does not answer.
pub fn greet(stream: &mut (impl Read + Write)) -> Result<(), ProtocolError> {
    let failed = |error: io::Error| ProtocolError::NoGreeting(reason(&error));
    let sent = stream.write_all(&HELLO);
    let mut theirs = [0; 8];
    // A daemon without room for the connection greets, says so and closes it, before or after this side's greeting.
    stream.read_exact(&mut theirs).map_err(|error| failed(sent.err().unwrap_or(error)))?;
    if theirs[..7] != HELLO[..7] {
        return Err(ProtocolError::NotRadrmd);
    }
    match theirs[7] == HELLO[7] {
        true => Ok(()),
        false => Err(ProtocolError::Version { own: HELLO[7], other: theirs[7] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let mut bytes = Vec::new();
        let request = Request::Hold { jobs: vec![1.into(), JobRef { job: 2, index: Some(3) }], held: true };
        write(&mut bytes, &request).unwrap();
        write(&mut bytes, &Request::Nodes).unwrap();
        let mut rest = &*bytes;
        assert_eq!(read::<Request>(&mut rest).unwrap(), Some(request));
        assert_eq!(read::<Request>(&mut rest).unwrap(), Some(Request::Nodes));
        assert_eq!(read::<Request>(&mut rest).unwrap(), None);
    }

    #[test]
    fn the_error_of_a_long_request_quotes_its_beginning() {
        let text = format!("{{\"submit\":\"{}\"}}", "ü".repeat(1 << 20));
        let error = read_request(&mut text.as_bytes(), text.len()).unwrap_err().to_string();
        assert!(error.starts_with("invalid type: string \"üü"), "{error}");
        assert!(error.ends_with("ü … (line 1, column 2097164)") && error.len() < 250, "{error}");
    }

    #[test]
    fn a_full_queue_of_the_longest_jobs_is_answered_in_frames_that_are_read() {
        // What is escaped takes six times its room.
        let long = |bytes: usize| Untrusted::from("\u{1}".repeat(bytes));
        let row = JobRow {
            name: long(256),
            cwd: long(4095),
            output: long(4095),
            error: Some(long(4095)),
            command: vec![long(200)],
            ..JobRow::default()
        };
        let mut bytes = Vec::new();
        answer(&mut bytes, Response::Jobs(vec![row; 250])).unwrap();
        let (mut rest, mut counts) = (&bytes[..], Vec::new());
        while let Some(response) = read::<Response>(&mut rest).unwrap() {
            counts.push(match response {
                Response::Part(rows) => (rows.len(), false),
                Response::Jobs(rows) => (rows.len(), true),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(counts, [(100, false), (100, false), (50, true)]);
    }

    #[test]
    fn cut_off_wrong_and_endless_frames_are_errors() {
        let mut whole = Vec::new();
        write(&mut whole, &Request::Nodes).unwrap();
        for cut in 1..whole.len() {
            let got = read::<Request>(&mut &whole[..cut]);
            assert!(matches!(got, Ok(None) | Err(_)) && (cut < 4 || got.is_err()), "{cut}");
        }
        for length in [MAX_FRAME + 1, u32::MAX] {
            let mut endless = io::Cursor::new(length.to_le_bytes()).chain(io::repeat(b' '));
            assert_eq!(read::<Request>(&mut endless).unwrap_err().to_string(), "the message is too long");
        }
        assert!(read::<Request>(&mut &b"\x02\0\0\0{}"[..]).is_err());
    }

    #[test]
    fn only_requests_that_carry_or_name_jobs_may_be_long() {
        let read = |text: &str| read_request(&mut text.as_bytes(), text.len()).map_err(|why| why.to_string());
        let spaces = " ".repeat(MAX_SHORT_REQUEST);
        assert_eq!(read(&format!("{}\"nodes\"", &spaces[7..])), Ok(Request::Nodes));
        let why = "the request is too long for what it asks";
        assert_eq!(read(&format!("{spaces}\"nodes\"")).unwrap_err(), why);
        // What follows the beginning is not waited for.
        let endless = &mut io::repeat(b'x');
        assert_eq!(read_request(endless, 16 << 20).unwrap_err().to_string(), why);
        let many = Request::Cancel { jobs: vec![JobRef { job: 1_000_000, index: Some(1000) }; 10_000] };
        let text = serde_json::to_string(&many).unwrap();
        assert!(text.len() > MAX_SHORT_REQUEST);
        assert_eq!(read(&text), Ok(many));
        for long in [
            Request::Submit(Box::default()),
            Request::SubmitTogether(Vec::new()),
            Request::Estimate(Box::default()),
            Request::Hold { jobs: Vec::new(), held: true },
        ] {
            let text = serde_json::to_string(&long).unwrap();
            assert!(LONG_REQUESTS.iter().any(|beginning| text.as_bytes().starts_with(beginning)), "{text}");
        }
    }

    #[test]
    fn a_request_of_many_small_values_is_rejected_before_they_take_memory() {
        let words = "\"\",".repeat(MAX_VALUES + 1);
        let text = format!("{{\"cancel\":{{\"jobs\":[{words}\"\"]}}}}");
        let why = read_request(&mut text.as_bytes(), text.len()).unwrap_err();
        assert_eq!(why.to_string(), "the request has too many values");
    }
}
