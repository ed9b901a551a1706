//! The records of a profile file, and how a timeline is packed.

use crate::budget;
use crate::model::{
    BlockMap, DryRunFigures, DryRunRanks, Event, Expected, Fit, Gpu, GpuClock, GpuIndex, GpuSpan, HostNews,
    Identity, InitFailure, Job, KIND_COUNT, KernelMetrics, KernelSpan, MemoryLimit, NvmlSample, Outcome,
    Postmortem, PredictedStep, ProcessKey, ProcessState, RangeEvent, Ranges, Recording, StackMoment,
    StackRefusals, Stacks, Tensors, Throttling, TimedLaunch, TimelinePoint, Timings, UncountedProcess,
    device_total,
};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Version of the file format that this crate writes. Readers refuse
/// others. A record whose layout changes gets a new frame type instead, so that
/// this number rises only when old files could not be read any more.
pub const FORMAT_VERSION: u32 = 1;

/// Content of one frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The job; the first frame of every profile.
    Job(Job),
    /// The GPUs known so far; replaces what was known before.
    Gpus(Vec<Gpu>),
    /// Changes since the last state.
    State(State),
    /// NVML samples since the last such record.
    Samples(Vec<NvmlSample>),
    /// SHA-256 of the program.
    ProgramDigest([u8; 32]),
    /// A sentence from the collector.
    Note(String),
    /// The end of the job.
    Outcome(Outcome),
    /// A part of the job that could not be read, as a clause about it.
    Unseen(String),
    /// A refused request with what stood around it; replaces what was known
    /// of the same one.
    Postmortem(Box<Postmortem>),
    /// Activity of GPUs since the last such record.
    Activity(Vec<GpuSpan>),
    /// The host's side since the last such record.
    Host(HostNews),
    /// Figures that could not be taken, as a clause with its reason.
    Unmeasured(String),
    /// Times of a process's launches, and its copies; replaces what was known of the process.
    Timings(Timings),
    /// Launches and copies of processes since the last such record.
    KernelActivity(Vec<KernelSpan>),
    /// Waits of a process's launches for the job's time slices; replaces what was known of the process.
    Throttling(Throttling),
    /// Relation of the time of the job's GPUs to the host's time.
    GpuClock(GpuClock),
    /// Launches that were timed, some of those since the last such record.
    Launches(Vec<TimedLaunch>),
    /// Recording mode of a process.
    Recording(Recording),
    /// Figures of a dry run.
    DryRun(Box<DryRunFigures>),
    /// Cards, and whether the program fits on them; replaces what was known.
    Fits(Vec<Fit>),
    /// Need on a real GPU that a dry run's figures stand for; replaces what was known.
    Expected(Expected),
    /// Work of one step of a dry run and its predicted time; replaces what was known.
    Step(Box<PredictedStep>),
    /// The ranks of a large job that a dry run ran; replaces what was known.
    Ranks(DryRunRanks),
    /// Call stacks of a process's memory; replaces what was known of the process.
    Stacks(Box<Stacks>),
    /// Memory that was held from each call site of a process at one moment.
    StackMoment(Box<StackMoment>),
    /// Refused requests of a process and what was held then; replaces what was known of the process.
    StackRefusals(Box<StackRefusals>),
    /// Holders of the memory of a framework's allocator in a process; replaces what was known of the process.
    Tensors(Box<Tensors>),
    /// Figures of a process's ranges and marks; replaces what was known of the process.
    Ranges(Box<Ranges>),
    /// Ranges that have ended and marks, some of those since the last such record.
    RangeEvents(Vec<RangeEvent>),
    /// Metrics of kernels that a profiler measured; replaces what was known.
    KernelMetrics(Box<KernelMetrics>),
    /// Limits on the GPUs' memory that changed since the last such record.
    MemoryLimits(Vec<MemoryLimit>),
    /// Addresses of a process's blocks of memory at one moment.
    BlockMap(Box<BlockMap>),
    /// Processes of the job that no figure contains; replaces what was known.
    Uncounted(Vec<UncountedProcess>),
    /// Processes in which `cuInit` failed; replaces what was known.
    InitFailures(Vec<InitFailure>),
}

/// Everything that changed up to one moment. One frame, so that a reader sees
/// all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The moment.
    pub t: Nanos,
    /// Processes with changes.
    pub processes: Vec<ProcessDelta>,
    /// Events since the last state.
    pub events: Vec<Event>,
    /// Events left out since the job's start.
    pub events_thinned: u64,
    /// Processes left out since the job's start.
    pub processes_not_kept: u64,
}

/// Changes of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessDelta {
    /// Key of the process.
    pub key: ProcessKey,
    /// Identity of the process; sent with its first delta.
    pub identity: Option<Identity>,
    /// Its figures, whole.
    pub state: ProcessState,
    /// Kernels seen for the first time.
    pub definitions: Vec<KernelDefinition>,
    /// Counters that changed, with their new values.
    pub counters: Vec<KernelCounters>,
    /// New points of its timelines. A chunk replaces the known points from its
    /// first time on: the newest span may have been unfinished.
    pub timelines: Vec<TimelineChunk>,
}

/// The part of a kernel that does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDefinition {
    /// Number within the process.
    pub id: u32,
    /// Name, possibly cut.
    pub name: String,
    /// True if it was cut.
    pub name_cut: bool,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block.
    pub static_shared: Bytes,
    /// Local memory per thread.
    pub local: Bytes,
    /// Most threads per block.
    pub max_threads: u32,
}

/// The counters of a kernel, since its process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Number within the process.
    pub id: u32,
    /// Launches by the program.
    pub launches: u64,
    /// Launches as a node of a graph.
    pub graph_launches: u64,
    /// Blocks over all launches.
    pub blocks: u64,
    /// Threads over all launches.
    pub threads: u64,
    /// Dynamic shared memory per block, summed over the launches.
    pub dynamic_shared: Bytes,
}

/// Points of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelineChunk {
    /// The GPU.
    pub gpu: GpuIndex,
    /// By time.
    #[serde(serialize_with = "pack", deserialize_with = "unpack")]
    pub points: Vec<TimelinePoint>,
}

// A packed point is a mask of the words that are not as predicted, and then
// these words as zigzag differences from the prediction:
//   bit 0      start    (predicted: the end of the span before)
//   bit 1      span     (the span before)
//   bit 2      max      (the sum of the device kinds at the maximum)
//   bit 3..12  at_max   (what was held at the end of the span before)
//   bit 12..21 last     (what was held at the maximum)
// A program in its steady state costs a few bytes per point.
const AT_MAX: usize = 3;
const LAST: usize = AT_MAX + KIND_COUNT;
const WORDS: usize = LAST + KIND_COUNT;

fn words(point: &TimelinePoint) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = point.t.0;
    words[1] = point.span.0;
    words[2] = point.max_total.0;
    for kind in 0..KIND_COUNT {
        words[AT_MAX + kind] = point.at_max[kind].0;
        words[LAST + kind] = point.last[kind].0;
    }
    words
}

/// Predicted value of a word, from the point before and the words of the point that come earlier in `ORDER`.
fn prediction(index: usize, before: &TimelinePoint, so_far: &[u64; WORDS]) -> u64 {
    match index {
        0 => before.t.0.wrapping_add(before.span.0),
        1 => before.span.0,
        2 => {
            let mut kinds = [Bytes::ZERO; KIND_COUNT];
            for (kind, bytes) in kinds.iter_mut().enumerate() {
                *bytes = Bytes(so_far[AT_MAX + kind]);
            }
            device_total(&kinds).0
        }
        i if i < LAST => before.last[i - AT_MAX].0,
        i => so_far[AT_MAX + i - LAST],
    }
}

/// The order in which words are written: the maximum is predicted from the
/// kinds at it, so it comes after them.
fn order() -> impl Iterator<Item = usize> {
    [0, 1].into_iter().chain(AT_MAX..LAST).chain([2]).chain(LAST..WORDS)
}

fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

fn unzigzag(word: u64) -> u64 {
    ((word >> 1) as i64 ^ -((word & 1) as i64)) as u64
}

fn pack<S: Serializer>(points: &[TimelinePoint], serializer: S) -> Result<S::Ok, S::Error> {
    let mut out: Vec<u64> = Vec::with_capacity(points.len() * 4);
    let mut before = TimelinePoint::default();
    for point in points {
        let words = words(point);
        let mask_at = out.len();
        out.push(0);
        let mut mask = 0;
        for index in order() {
            let difference = words[index].wrapping_sub(prediction(index, &before, &words));
            if difference != 0 {
                mask |= 1 << index;
                out.push(zigzag(difference));
            }
        }
        out[mask_at] = mask;
        before = *point;
    }
    out.serialize(serializer)
}

fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TimelinePoint>, D::Error> {
    let packed = Vec::<u64>::deserialize(deserializer)?;
    let mut packed = packed.into_iter();
    let mut points: Vec<TimelinePoint> = Vec::new();
    let mut before = TimelinePoint::default();
    while let Some(mask) = packed.next() {
        if mask >> WORDS != 0 {
            return Err(de::Error::custom("a timeline point with unknown words"));
        }
        // One word of the file can be a whole point.
        budget::claim(size_of::<TimelinePoint>())?;
        let mut words = [0; WORDS];
        for index in order() {
            let mut word = prediction(index, &before, &words);
            if mask & (1 << index) != 0 {
                let difference =
                    packed.next().ok_or_else(|| de::Error::custom("a timeline point is cut off"))?;
                word = word.wrapping_add(unzigzag(difference));
            }
            words[index] = word;
        }
        let kinds = |from: usize| std::array::from_fn(|kind| Bytes(words[from + kind]));
        before = TimelinePoint {
            t: Nanos(words[0]),
            span: Nanos(words[1]),
            max_total: Bytes(words[2]),
            at_max: kinds(AT_MAX),
            last: kinds(LAST),
        };
        points.push(before);
    }
    Ok(points)
}
