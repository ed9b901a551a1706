//! What goes over the socket: frames of a length (4 bytes, little endian) and JSON.
//!
//! Each side sends [`HELLO`] first, so that programs of different versions part with a sentence.

use std::io::{self, Read, Write};

use radrm_scheduler_core::Activity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::spec::Spec;

/// The first bytes in both directions; the last is the version.
pub(crate) const HELLO: [u8; 8] = *b"RADRMD\0\x02";

/// The longest frame that is read: a command line and an environment are a few MiB at most.
const LONGEST: u32 = 16 << 20;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// A new job.
    Submit(Box<Spec>),
    /// Jobs; of all users for an administrator that asks so.
    Queue {
        all: bool,
        /// With so many that are over, the newest first.
        ended: u32,
    },
    /// One job with its history.
    Show { job: u64 },
    /// The user does not want these any more.
    Cancel { jobs: Vec<u64> },
    /// These must not start, or may start again.
    Hold { jobs: Vec<u64>, held: bool },
    /// GPUs and the host.
    Nodes,
    /// Figures over jobs that are over.
    Stats {
        all: bool,
        /// Only jobs submitted at or after this, ms since 1970.
        since_ms: u64,
    },
    /// A GPU takes no new jobs, or takes them again.
    Drain { gpu: String, drained: bool },
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The new job's number.
    Submitted {
        job: u64,
        /// What its user had better know of it, a sentence each.
        #[serde(default)]
        remarks: Vec<String>,
    },
    /// Jobs, and more to come: as many as there are, each frame is of bounded length.
    Part(Vec<JobRow>),
    /// The last of them.
    Jobs(Vec<JobRow>),
    Job(Box<JobRow>, Vec<Line>),
    Nodes(Box<NodeRow>),
    Stats(Box<StatsRow>),
    Done,
    /// One sentence.
    Refused(String),
}

/// A line of a job's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) at_ms: u64,
    pub(crate) text: String,
}

/// What was asked for with a job, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    /// Memory on each GPU, and its upper bound, bytes.
    pub(crate) gpu_mem: Option<u64>,
    pub(crate) gpu_mem_upper: Option<u64>,
    /// An estimate of it, bytes.
    pub(crate) gpu_mem_estimate: Option<u64>,
    /// Part of each GPU's SMs, thousandths.
    pub(crate) gpu_share: Option<u32>,
    pub(crate) exclusive: bool,
    pub(crate) gpu_model: Option<String>,
    pub(crate) preemptible: bool,
    pub(crate) slot_ms: Option<u64>,
    pub(crate) expected_ms: Option<u64>,
    pub(crate) checkpoint_signal: Option<i32>,
    pub(crate) grace_ms: Option<u64>,
    pub(crate) batch_size: Option<u32>,
}

impl Asked {
    pub(crate) fn of(spec: &Spec) -> Self {
        let guess = spec.estimate.as_ref();
        Self {
            gpu_mem: spec.mem,
            gpu_mem_upper: spec.mem_upper.or(guess.filter(|_| spec.mem.is_none()).map(|guess| guess.upper)),
            gpu_mem_estimate: guess.map(|guess| guess.bytes),
            gpu_share: spec.share,
            exclusive: spec.exclusive,
            gpu_model: spec.model.clone(),
            preemptible: spec.preemptible,
            slot_ms: spec.slot_ms,
            expected_ms: spec.expected_ms,
            checkpoint_signal: spec.checkpoint_signal,
            grace_ms: spec.grace_ms,
            batch_size: spec.batch,
        }
    }

    /// What is to be set aside on each GPU by what was asked for, bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.gpu_mem_upper.max(self.gpu_mem).or(self.gpu_mem_estimate)
    }
}

/// A job as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRow {
    pub(crate) job: u64,
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) uid: u32,
    /// `waiting`, `held`, `starting`, `running`, `suspending`, `suspended`, `resuming`, `stopping` or `ended`.
    pub(crate) state: String,
    pub(crate) priority: i32,
    pub(crate) gpus: u16,
    /// Devices it is on or was on last.
    pub(crate) devices: Vec<String>,
    /// Memory set aside on each, bytes; `None`: the devices as a whole.
    pub(crate) reserved: Option<u64>,
    /// Memory it holds now over all devices, bytes.
    pub(crate) used: u64,
    /// The highest it held on one device, bytes.
    pub(crate) peak: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) ooms: u32,
    pub(crate) submitted_ms: u64,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    /// Time of all attempts, ms.
    pub(crate) ran_ms: u64,
    pub(crate) time_limit_ms: Option<u64>,
    pub(crate) exit_code: Option<i32>,
    /// How it ended, in words.
    pub(crate) end: Option<String>,
    /// Why it is where it is.
    pub(crate) why: String,
    /// In a list only the beginning of a long one.
    pub(crate) command: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) output: String,
    pub(crate) error: Option<String>,
    pub(crate) profile: Option<String>,
    /// The launcher's process.
    pub(crate) pid: Option<u32>,
    /// What it does to a GPU alone: SM activity, SM occupancy and DRAM activity, thousandths.
    #[serde(default)]
    pub(crate) activity: Option<Activity>,
    /// Resident memory of its processes, bytes, pages that they share in each of them.
    #[serde(default)]
    pub(crate) host_memory: u64,
    /// CPU time of its processes, thousandths of a core since the look before the last.
    #[serde(default)]
    pub(crate) cpu_milli: Option<u64>,
    /// What it booked of both; 0 is nothing.
    #[serde(default)]
    pub(crate) booked_host_memory: u64,
    #[serde(default)]
    pub(crate) booked_cpu_milli: u64,
    /// Device memory of a suspended job, which is in host memory, bytes.
    #[serde(default)]
    pub(crate) suspended: Option<u64>,
    /// The processes that are checkpointed: NVML shows none of them.
    #[serde(default)]
    pub(crate) suspended_pids: Vec<u32>,
    /// The daemon's older versions do not tell it.
    #[serde(default)]
    pub(crate) asked: Asked,
    /// Where its need of GPU memory comes from, of one job that is not over.
    #[serde(default)]
    pub(crate) need_from: Option<String>,
}

/// A GPU as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GpuRow {
    pub(crate) index: u32,
    pub(crate) uuid: String,
    pub(crate) model: String,
    pub(crate) total: u64,
    pub(crate) used: u64,
    pub(crate) reserved: u64,
    pub(crate) foreign: u64,
    /// SM activity, SM occupancy and DRAM activity, thousandths, where the driver tells.
    pub(crate) smact: Option<u32>,
    pub(crate) smocc: Option<u32>,
    pub(crate) drama: Option<u32>,
    pub(crate) utilization: Option<u32>,
    pub(crate) power_mw: Option<u32>,
    /// Since the driver was loaded, mJ.
    pub(crate) energy_mj: Option<u64>,
    /// It fell off the bus, or was taken away.
    pub(crate) lost: bool,
    pub(crate) drained: bool,
    pub(crate) whole: bool,
    /// Numbers of the jobs on it; those of other users only for administrators.
    pub(crate) jobs: Vec<u64>,
    pub(crate) job_count: u32,
    pub(crate) kept_for: Option<u64>,
}

/// The machine as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeRow {
    pub(crate) host: String,
    /// What is emulated, if it is.
    pub(crate) emulated: Option<String>,
    pub(crate) policy: String,
    pub(crate) cpus: u32,
    pub(crate) memory: u64,
    pub(crate) waiting: u32,
    pub(crate) running: u32,
    /// Jobs whose device memory is in host memory, and how much that is, bytes.
    #[serde(default)]
    pub(crate) suspended: u32,
    #[serde(default)]
    pub(crate) suspended_bytes: u64,
    pub(crate) gpus: Vec<GpuRow>,
    /// Processes that take GPU memory past the shim.
    pub(crate) audit: Vec<String>,
    /// What the daemon cannot do at the moment.
    pub(crate) troubles: Vec<String>,
}

/// Figures over jobs that are over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatsRow {
    pub(crate) jobs: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// Out-of-memory crashes, retried ones included.
    pub(crate) ooms: u64,
    /// From the first submission to the last end, ms.
    pub(crate) makespan_ms: u64,
    pub(crate) mean_wait_ms: f64,
    pub(crate) mean_execution_ms: f64,
    pub(crate) mean_completion_ms: f64,
    pub(crate) gpus: Vec<GpuStats>,
    /// What is emulated, if it is: such GPUs' activity, power and energy are not told.
    #[serde(default)]
    pub(crate) emulated: Option<String>,
}

/// Means over the time that the daemon watched a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GpuStats {
    pub(crate) gpu: String,
    pub(crate) samples: u64,
    pub(crate) mean_used: f64,
    pub(crate) mean_smact: Option<f64>,
    pub(crate) mean_power_w: Option<f64>,
    pub(crate) energy_mj: Option<f64>,
}

/// So many jobs as lists show them fit into one frame, however long their paths are.
const ROWS: usize = 100;

/// Writes an answer; jobs in as many frames as they take.
pub(crate) fn answer(stream: &mut impl Write, response: Response) -> io::Result<()> {
    let Response::Jobs(mut rows) = response else { return write(stream, &response) };
    while rows.len() > ROWS {
        let rest = rows.split_off(ROWS);
        write(stream, &Response::Part(rows))?;
        rows = rest;
    }
    write(stream, &Response::Jobs(rows))
}

/// Writes one frame.
pub(crate) fn write(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, value)?;
    let length = u32::try_from(frame.len() - 4).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)
}

/// Reads one frame; `None` where the other side has finished.
pub(crate) fn read<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    // Read as it comes: a length alone makes nobody set memory aside.
    let mut frame = Vec::new();
    stream.take(length.into()).read_to_end(&mut frame)?;
    if frame.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&frame)?))
}

/// Exchanges the first bytes.
pub(crate) fn greet(stream: &mut (impl Read + Write)) -> Result<(), String> {
    let failed = |error: io::Error| format!("the other side does not answer: {error}");
    stream.write_all(&HELLO).map_err(failed)?;
    let mut theirs = [0; 8];
    stream.read_exact(&mut theirs).map_err(failed)?;
    if theirs[..7] != HELLO[..7] {
        return Err("the other side is no radrmd".to_owned());
    }
    if theirs[7] != HELLO[7] {
        return Err(format!(
            "radrm and radrmd are of different versions (protocol {} and {})",
            HELLO[7], theirs[7]
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let mut bytes = Vec::new();
        let request = Request::Hold { jobs: vec![1, 2], held: true };
        write(&mut bytes, &request).unwrap();
        write(&mut bytes, &Request::Nodes).unwrap();
        let mut rest = &bytes[..];
        assert_eq!(read::<Request>(&mut rest).unwrap(), Some(request));
        assert_eq!(read::<Request>(&mut rest).unwrap(), Some(Request::Nodes));
        assert_eq!(read::<Request>(&mut rest).unwrap(), None);
    }

    #[test]
    fn a_full_queue_of_the_longest_jobs_is_answered_in_frames_that_are_read() {
        // What is escaped takes six times its room.
        let long = |bytes: usize| "\u{1}".repeat(bytes);
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
        assert!(read::<Request>(&mut &[255, 255, 255, 255][..]).is_err());
        assert!(read::<Request>(&mut &b"\x02\0\0\0{}"[..]).is_err());
    }
}
