//! Records to bytes and back: the only module that knows the serialisation
//! library.
//!
//! bincode 2 is small, fast and was named for this project, but it has had no
//! maintainer since late 2025 (RUSTSEC-2025-0141; nothing unsound is known).
//! That is why it stands behind these two functions: to replace it, give the
//! new encoding new frame types and keep the old ones readable here. Nothing
//! reaches the decoder unless its checksum was right, and the decoder has a
//! limit on what it may allocate.

use crate::error::DecodeError;
use crate::frame::MAX_PAYLOAD;
use crate::record::Record;
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;

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
const TYPE_TIMINGS: u32 = 30;
const TYPE_THROTTLING: u32 = 32;
const TYPE_GPU_CLOCK: u32 = 33;
const TYPE_RECORDING: u32 = 40;
const TYPE_WORK: u32 = 41;
const TYPE_LAUNCHES: u32 = 42;

/// Counts what the decoder claims, in memory and not in the file: a vector of
/// small numbers claims up to eight times its encoded size.
const CLAIM_LIMIT: usize = MAX_PAYLOAD * 8;

fn config() -> Configuration<LittleEndian, Varint, Limit<CLAIM_LIMIT>> {
    bincode::config::standard().with_limit::<CLAIM_LIMIT>()
}

fn bytes<T: Serialize>(kind: u32, value: &T) -> Result<(u32, Vec<u8>), DecodeError> {
    match bincode::serde::encode_to_vec(value, config()) {
        Ok(bytes) => Ok((kind, bytes)),
        Err(error) => Err(DecodeError(error.to_string())),
    }
}

fn value<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    match bincode::serde::decode_from_slice(payload, config()) {
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
        Record::Work(spans) => bytes(TYPE_WORK, spans),
        Record::Throttling(throttling) => bytes(TYPE_THROTTLING, throttling),
        Record::GpuClock(time) => bytes(TYPE_GPU_CLOCK, time),
        Record::Launches(launches) => bytes(TYPE_LAUNCHES, launches),
        Record::Recording(recording) => bytes(TYPE_RECORDING, recording),
    }
}

/// The record in a frame; `None` if this version does not know the type.
pub(crate) fn decode(kind: u32, payload: &[u8]) -> Result<Option<Record>, DecodeError> {
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
        TYPE_WORK => Record::Work(value(payload)?),
        TYPE_THROTTLING => Record::Throttling(value(payload)?),
        TYPE_GPU_CLOCK => Record::GpuClock(value(payload)?),
        TYPE_LAUNCHES => Record::Launches(value(payload)?),
        TYPE_RECORDING => Record::Recording(value(payload)?),
        _ => return Ok(None),
    };
    Ok(Some(record))
}
