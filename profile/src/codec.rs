//! Records to bytes and back: the only module that knows the serialisation
//! library.
//!
//! bincode 2 is small, fast and was named for this project, but it has had no
//! maintainer since late 2025 (RUSTSEC-2025-0141; nothing unsound is known).
//! That is why it stands behind these two functions: to replace it, give the
//! new encoding new frame types and keep the old ones readable here. Nothing
//! reaches the decoder unless its checksum was right, and the decoder has a
//! limit on what it may allocate ([`budget`]).

use crate::budget::{self, Charged};
use crate::error::DecodeError;
use crate::record::Record;
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

const TYPE_JOB: u32 = 1;
const TYPE_GPUS: u32 = 2;
const TYPE_STATE: u32 = 3;
const TYPE_SAMPLES: u32 = 4;
const TYPE_PROGRAM_DIGEST: u32 = 5;
const TYPE_NOTE: u32 = 6;
const TYPE_OUTCOME: u32 = 7;
const TYPE_UNSEEN: u32 = 8;
const TYPE_POSTMORTEM: u32 = 9;
const TYPE_ACTIVITY: u32 = 20;
const TYPE_HOST: u32 = 21;
const TYPE_UNMEASURED: u32 = 22;
const TYPE_THROTTLING: u32 = 32;
const TYPE_GPU_CLOCK: u32 = 33;
const TYPE_MEMORY_LIMITS: u32 = 34;
const TYPE_UNCOUNTED: u32 = 35;
const TYPE_INIT_FAILURES: u32 = 36;
const TYPE_RECORDING: u32 = 40;
const TYPE_KERNEL_ACTIVITY: u32 = 41;
const TYPE_LAUNCHES: u32 = 42;
const TYPE_TIMINGS: u32 = 43;
const TYPE_FITS: u32 = 51;
const TYPE_RANKS: u32 = 52;
const TYPE_DRY_RUN: u32 = 54;
const TYPE_EXPECTED: u32 = 55;
const TYPE_STEP: u32 = 57;
const TYPE_STACKS: u32 = 70;
const TYPE_STACK_MOMENT: u32 = 71;
const TYPE_STACK_REFUSALS: u32 = 74;
const TYPE_BLOCK_MAP: u32 = 76;
const TYPE_TENSORS: u32 = 77;
const TYPE_RANGES: u32 = 80;
const TYPE_RANGE_EVENTS: u32 = 81;
const TYPE_KERNEL_METRICS: u32 = 90;

/// Bytes that bincode makes room for before it reads them: a text that says that it is longer is refused. What is in memory
/// is charged by [`budget`]; a number counts here as wide as its type.
const MAX_CLAIM: usize = 4 * budget::MAX_RECORD;

fn config() -> Configuration<LittleEndian, Varint, Limit<MAX_CLAIM>> {
    bincode::config::standard().with_limit::<MAX_CLAIM>()
}

fn bytes<T: Serialize>(kind: u32, value: &T) -> Result<(u32, Vec<u8>), DecodeError> {
    match bincode::serde::encode_to_vec(value, config()) {
        Ok(bytes) => Ok((kind, bytes)),
        Err(error) => Err(DecodeError(error.to_string())),
    }
}

fn value<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    let seed = Charged(PhantomData::<T>);
    match bincode::serde::seed_decode_from_slice(seed, payload, config()) {
        Ok((value, read)) if read == payload.len() => Ok(value),
        Ok(_) => Err(DecodeError("bytes are left over".into())),
        Err(error) => Err(DecodeError(error.to_string())),
    }
}

/// Frame type and payload of a record.
pub(crate) fn encode(record: &Record) -> Result<(u32, Vec<u8>), DecodeError> {
    match record {
        Record::Job(job) => bytes(TYPE_JOB, job),
        Record::Gpus(gpus) => bytes(TYPE_GPUS, gpus),
        Record::State(state) => bytes(TYPE_STATE, state),
        Record::Samples(samples) => bytes(TYPE_SAMPLES, samples),
        Record::ProgramDigest(digest) => bytes(TYPE_PROGRAM_DIGEST, digest),
        Record::Note(text) => bytes(TYPE_NOTE, text),
        Record::Outcome(outcome) => bytes(TYPE_OUTCOME, outcome),
        Record::Unseen(text) => bytes(TYPE_UNSEEN, text),
        Record::Postmortem(postmortem) => bytes(TYPE_POSTMORTEM, postmortem),
        Record::Activity(spans) => bytes(TYPE_ACTIVITY, spans),
        Record::Host(news) => bytes(TYPE_HOST, news),
        Record::Unmeasured(text) => bytes(TYPE_UNMEASURED, text),
        Record::Timings(timings) => bytes(TYPE_TIMINGS, timings),
        Record::KernelActivity(spans) => bytes(TYPE_KERNEL_ACTIVITY, spans),
        Record::Throttling(throttling) => bytes(TYPE_THROTTLING, throttling),
        Record::GpuClock(time) => bytes(TYPE_GPU_CLOCK, time),
        Record::Launches(launches) => bytes(TYPE_LAUNCHES, launches),
        Record::Recording(recording) => bytes(TYPE_RECORDING, recording),
        Record::DryRun(figures) => bytes(TYPE_DRY_RUN, figures),
        Record::Fits(fits) => bytes(TYPE_FITS, fits),
        Record::Ranks(ranks) => bytes(TYPE_RANKS, ranks),
        Record::Expected(expected) => bytes(TYPE_EXPECTED, expected),
        Record::Step(step) => bytes(TYPE_STEP, step),
        Record::Stacks(stacks) => bytes(TYPE_STACKS, stacks),
        Record::StackMoment(moment) => bytes(TYPE_STACK_MOMENT, moment),
        Record::StackRefusals(refusals) => bytes(TYPE_STACK_REFUSALS, refusals),
        Record::Tensors(tensors) => bytes(TYPE_TENSORS, tensors),
        Record::Ranges(ranges) => bytes(TYPE_RANGES, ranges),
        Record::RangeEvents(events) => bytes(TYPE_RANGE_EVENTS, events),
        Record::KernelMetrics(metrics) => bytes(TYPE_KERNEL_METRICS, metrics),
        Record::MemoryLimits(limits) => bytes(TYPE_MEMORY_LIMITS, limits),
        Record::BlockMap(map) => bytes(TYPE_BLOCK_MAP, map),
        Record::Uncounted(processes) => bytes(TYPE_UNCOUNTED, processes),
        Record::InitFailures(failures) => bytes(TYPE_INIT_FAILURES, failures),
    }
}

/// The record in a frame, `None` if this version does not know the type; and what it leaves of the room in memory, bytes,
/// `None` if there is not enough of it. `most`: memory that one record may take, bytes.
pub(crate) fn decode(
    kind: u32,
    payload: &[u8],
    room: usize,
    most: usize,
) -> (Result<Option<Record>, DecodeError>, Option<usize>) {
    budget::within(room, most, || record(kind, payload))
}

fn record(kind: u32, payload: &[u8]) -> Result<Option<Record>, DecodeError> {
    let record = match kind {
        TYPE_JOB => Record::Job(value(payload)?),
        TYPE_GPUS => Record::Gpus(value(payload)?),
        TYPE_STATE => Record::State(value(payload)?),
        TYPE_SAMPLES => Record::Samples(value(payload)?),
        TYPE_PROGRAM_DIGEST => Record::ProgramDigest(value(payload)?),
        TYPE_NOTE => Record::Note(value(payload)?),
        TYPE_OUTCOME => Record::Outcome(value(payload)?),
        TYPE_UNSEEN => Record::Unseen(value(payload)?),
        TYPE_POSTMORTEM => Record::Postmortem(Box::new(value(payload)?)),
        TYPE_ACTIVITY => Record::Activity(value(payload)?),
        TYPE_HOST => Record::Host(value(payload)?),
        TYPE_UNMEASURED => Record::Unmeasured(value(payload)?),
        TYPE_TIMINGS => Record::Timings(value(payload)?),
        TYPE_KERNEL_ACTIVITY => Record::KernelActivity(value(payload)?),
        TYPE_THROTTLING => Record::Throttling(value(payload)?),
        TYPE_GPU_CLOCK => Record::GpuClock(value(payload)?),
        TYPE_LAUNCHES => Record::Launches(value(payload)?),
        TYPE_RECORDING => Record::Recording(value(payload)?),
        TYPE_DRY_RUN => Record::DryRun(Box::new(value(payload)?)),
        TYPE_FITS => Record::Fits(value(payload)?),
        TYPE_RANKS => Record::Ranks(value(payload)?),
        TYPE_EXPECTED => Record::Expected(value(payload)?),
        TYPE_STEP => Record::Step(Box::new(value(payload)?)),
        TYPE_STACKS => Record::Stacks(Box::new(value(payload)?)),
        TYPE_STACK_MOMENT => Record::StackMoment(Box::new(value(payload)?)),
        TYPE_STACK_REFUSALS => Record::StackRefusals(Box::new(value(payload)?)),
        TYPE_TENSORS => Record::Tensors(Box::new(value(payload)?)),
        TYPE_RANGES => Record::Ranges(Box::new(value(payload)?)),
        TYPE_RANGE_EVENTS => Record::RangeEvents(value(payload)?),
        TYPE_KERNEL_METRICS => Record::KernelMetrics(Box::new(value(payload)?)),
        TYPE_MEMORY_LIMITS => Record::MemoryLimits(value(payload)?),
        TYPE_BLOCK_MAP => Record::BlockMap(Box::new(value(payload)?)),
        TYPE_UNCOUNTED => Record::Uncounted(value(payload)?),
        TYPE_INIT_FAILURES => Record::InitFailures(value(payload)?),
        _ => return Ok(None),
    };
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dry_run::{
        DryRunFigures, Expected, GpuFigures, MissingCall, ModelledSize, Peak, Phase,
    };
    use crate::model::postmortem::Scope;
    use crate::model::step::{PredictedStep, StepLimit, StepTime};
    use crate::model::{
        BlockMap, BlockRun, Copies, GpuIndex, GpuTensors, GpuTime, InitFailure, KernelMetrics, KernelTime,
        MemoryLimit, ProcessKey, ProfiledKernel, StackCode, StackRefusal, StackRefusals, TensorCategory,
        TensorHolder, TensorModule, TensorMoment, TensorStack, Tensors, TimedSpan, Timings, Uncounted,
        UncountedMemory, UncountedProcess,
    };
    use crate::units::{Bytes, Nanos};
    use std::collections::BTreeMap;

    /// Records that are written under a number are read under it for good.
    #[test]
    fn timings_keep_their_layout() {
        let timings = Timings {
            key: ProcessKey { slot: 7, generation: 1 },
            kernels: vec![KernelTime { id: 2, total: Nanos(5), half_width: Nanos(1), samples: 4 }],
            gpu_time: GpuTime { kernels: Nanos(11), active: Nanos(12), resident: Nanos(13) },
            copies: vec![Copies { way: "peer".into(), count: 2, bytes: Bytes(3) }],
            spans: vec![TimedSpan { gpu: GpuIndex(1), span: Nanos(250), timed: Nanos(249) }],
            lost: 8,
            cost: Nanos(6),
        };
        let bytes =
            [&[7, 1, 1, 2, 5, 1, 4, 11, 12, 13, 1, 4][..], b"peer", &[2, 3, 1, 1, 250, 249, 8, 6]].concat();
        assert_eq!(encode(&Record::Timings(timings)).unwrap(), (43, bytes));
    }

    /// Likewise.
    #[test]
    fn refused_requests_keep_their_layout() {
        let refusal = StackRefusal {
            gpu: GpuIndex(1),
            t: Nanos(2),
            kind: 5,
            size: Bytes(4),
            site: 6,
            is_latest: true,
            total: Bytes(7),
            kinds: std::array::from_fn(|kind| Bytes(10 + kind as u64)),
            held: vec![(8, Bytes(9))],
        };
        let key = ProcessKey { slot: 7, generation: 1 };
        let record = Record::StackRefusals(Box::new(StackRefusals { key, refusals: vec![refusal] }));
        let bytes = [7, 1, 1, 1, 2, 5, 4, 6, 1, 7, 10, 11, 12, 13, 14, 15, 16, 17, 18, 1, 8, 9].to_vec();
        assert_eq!(encode(&record).unwrap(), (74, bytes.clone()));
        assert_eq!(decode(74, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(record));
    }

    /// Likewise.
    #[test]
    fn processes_without_figures_keep_their_layout() {
        let memory = UncountedMemory { gpu: "G".into(), index: Some(2), peak: Bytes(9) };
        let process = UncountedProcess {
            kind: Uncounted::Refused,
            pid: 7,
            command: "c".into(),
            reason: "r".into(),
            explanation: "e".into(),
            remedy: "y".into(),
            first: Nanos(3),
            last: Nanos(4),
            gpus: vec![memory],
        };
        let record = Record::Uncounted(vec![process]);
        let bytes = [1, 1, 7, 1, b'c', 1, b'r', 1, b'e', 1, b'y', 3, 4, 1, 1, b'G', 1, 2, 9].to_vec();
        assert_eq!(encode(&record).unwrap(), (35, bytes.clone()));
        assert_eq!(decode(35, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(record));
        let failure = InitFailure {
            t: Nanos(1),
            pid: 2,
            code: 100,
            name: "n".into(),
            meaning: "m".into(),
            remedy: "y".into(),
        };
        let record = Record::InitFailures(vec![failure]);
        let bytes = [1, 1, 2, 100, 1, b'n', 1, b'm', 1, b'y'].to_vec();
        assert_eq!(encode(&record).unwrap(), (36, bytes.clone()));
        assert_eq!(decode(36, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(record));
    }

    /// Likewise.
    #[test]
    fn metrics_of_kernels_keep_their_layout() {
        let kernel =
            ProfiledKernel { name: "k".into(), launches: 3, metrics: [("m".to_owned(), 0.5)].into() };
        let metrics = KernelMetrics { tool: "T".into(), file: "F".into(), kernels: vec![kernel] };
        let bytes = [&[1, b'T', 1, b'F', 1, 1, b'k', 3, 1, 1, b'm'][..], &0.5f64.to_le_bytes()].concat();
        assert_eq!(encode(&Record::KernelMetrics(Box::new(metrics))).unwrap(), (90, bytes));
    }

    /// Likewise.
    #[test]
    fn an_expected_need_keeps_its_layout() {
        let expected = Record::Expected(Expected {
            bytes: 7,
            upper: Some(9),
            confidence: Some(0.9),
            runs: 2,
            gpu_model: Some("G".into()),
            source: "S".into(),
            basis: Some("B".into()),
        });
        let bytes =
            [&[7, 1, 9, 1][..], &0.9_f64.to_le_bytes(), &[2, 1, 1, b'G', 1, b'S', 1, 1, b'B']].concat();
        assert_eq!(encode(&expected).unwrap(), (55, bytes.clone()));
        assert_eq!(decode(55, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(expected));
    }

    #[test]
    fn a_predicted_step_keeps_its_layout() {
        let step = PredictedStep {
            number: 3,
            processes: 1,
            card: "C".into(),
            unknown: vec![("U".into(), 2)],
            operations: 9,
            flop: 0.5,
            host_seconds: Some(0.25),
            cards: vec![StepTime { card: "D".into(), limit: StepLimit::Host, ..StepTime::default() }],
            ..PredictedStep::default()
        };
        let head =
            [&[3, 1, 1, b'C', 0, 1, 1, b'U', 2, 9][..], &0.5_f64.to_le_bytes(), &[0; 8], &[1]].concat();
        let time =
            [&[1, 1, b'D', 0][..], &[0; 8], &[0], &[0; 8], &[1], &[0; 24], &[0; 8], &[0], &[0; 16], &[0; 24]]
                .concat();
        let order = [0];
        let bytes = [&head[..], &0.25_f64.to_le_bytes(), &[0, 0], &time, &order].concat();
        let record = Record::Step(Box::new(step));
        assert_eq!(encode(&record).unwrap(), (57, bytes.clone()));
        assert_eq!(decode(57, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(record));
    }

    #[test]
    fn figures_of_a_dry_run_keep_their_layout() {
        let gpu = GpuFigures {
            gpu: 1,
            name: "G".into(),
            capability: (8, 9),
            processes: 3,
            reporting_processes: 2,
            phases: BTreeMap::from([(Phase::Whole, Peak { allocated: 5, reserved: 6 })]),
            requested_peak: 7,
            reporting_requested_peak: 4,
            held_peak: 10,
            context: 11,
            context_constant: 12,
            context_origin: "O".into(),
        };
        let figures = DryRunFigures {
            machine: "M".into(),
            torch: Some("2".into()),
            frameworks: vec!["P".into()],
            steps: 13,
            host_memory: 14,
            gpus: vec![gpu],
            out_of_memory: 15,
            retries: 16,
            missing: vec![MissingCall { name: "N".into(), calls: 17, effect: "E".into(), matters: true }],
            modelled: vec![ModelledSize { what: "W".into(), bytes: 18 }],
            filled: vec![("F".into(), 19)],
            fill: 20,
            library_calls: vec![("L".into(), 21)],
            remarks: vec!["R".into()],
            ..DryRunFigures::default()
        };
        let head =
            [&[1, b'M', 1, 1, b'2', 1, 1, b'P', 0, 13][..], &[0; 8], &[14, 1, 1, 1, b'G', 8, 9, 3]].concat();
        let phases = [1, 3, 5, 6, 7];
        let tail = [&[10, 11, 12, 1, b'O', 15, 16, 1, 1, b'N', 17, 1, b'E', 1, 1, 1, b'W', 18][..]]
            .into_iter()
            .chain([&[1, 1, b'F', 19, 20, 1, 1, b'L', 21, 1, 1, b'R', 0][..]])
            .collect::<Vec<_>>()
            .concat();
        let record = Record::DryRun(Box::new(figures));
        let bytes = [&head[..], &[2], &phases, &[4], &tail].concat();
        assert_eq!(encode(&record).unwrap(), (54, bytes.clone()));
        assert_eq!(decode(54, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(record));
    }

    /// Likewise.
    #[test]
    fn limits_and_maps_of_blocks_keep_their_layout() {
        let limit = |scope, limit| MemoryLimit { t: Nanos(5), gpu: GpuIndex(1), scope, limit };
        let limits = vec![limit(Scope::Job, Some(Bytes(9))), limit(Scope::Group, None)];
        let bytes = vec![2, 5, 1, 0, 1, 9, 5, 1, 2, 0];
        assert_eq!(encode(&Record::MemoryLimits(limits.clone())).unwrap(), (34, bytes.clone()));
        assert_eq!(
            decode(34, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(),
            Some(Record::MemoryLimits(limits))
        );

        let run = |address, span, held, blocks| BlockRun {
            address,
            span: Bytes(span),
            held: Bytes(held),
            blocks,
            kind: 3,
        };
        let mut map = BlockMap {
            key: ProcessKey { slot: 7, generation: 1 },
            gpu: GpuIndex(1),
            t: Nanos(5),
            total: Bytes(60),
            runs: vec![run(100, 20, 20, 1), run(130, 50, 40, 3)],
            ..BlockMap::default()
        };
        map.kinds[0] = Bytes(60);
        let bytes = [&[7, 1, 1, 5, 60, 60][..], &[0; 8], &[10, 100, 20, 0, 0, 3, 10, 50, 10, 2, 3]].concat();
        assert_eq!(encode(&Record::BlockMap(Box::new(map.clone()))).unwrap(), (76, bytes.clone()));
        assert_eq!(
            decode(76, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(),
            Some(Record::BlockMap(Box::new(map)))
        );
        // More holes than span, and a word too few.
        for (at, word) in [(17, 21), (14, 9)] {
            let mut damaged = bytes.clone();
            damaged[at] = word;
            assert!(decode(76, &damaged, usize::MAX, budget::MAX_RECORD).0.is_err(), "{at}");
        }
    }

    /// Likewise.
    #[test]
    fn tensors_keep_their_layout() {
        let holder = TensorHolder {
            category: TensorCategory::OptimizerState,
            module: Some(0),
            frames: vec![(0, 67)],
            bytes: Bytes(9),
            blocks: 2,
            stack: TensorStack::EqualStep,
        };
        let gpu = GpuTensors {
            gpu: GpuIndex(1),
            moment: TensorMoment::LargestRead,
            allocated: Bytes(9),
            peak: Some(Bytes(10)),
            cached: Bytes(3),
            codes: vec![StackCode { file: "a".into(), name: "f".into() }],
            modules: vec![TensorModule { model: "M".into(), path: "b".into() }],
            holders: vec![holder],
        };
        let tensors = Tensors {
            key: ProcessKey { slot: 7, generation: 1 },
            framework: "P".into(),
            missing: None,
            remarks: Vec::new(),
            gpus: vec![gpu],
        };
        let head = &[7, 1, 1, b'P', 0, 0, 1, 1, 2, 9, 1, 10][..];
        let tail = &[3, 1, 1, b'a', 1, b'f', 1, 1, b'M', 1, b'b', 1, 2, 1, 0, 1, 0, 67, 9, 2, 1];
        let record = Record::Tensors(Box::new(tensors));
        let bytes = [head, tail].concat();
        assert_eq!(encode(&record).unwrap(), (77, bytes.clone()));
        assert_eq!(decode(77, &bytes, usize::MAX, budget::MAX_RECORD).0.unwrap(), Some(record));
    }
}
