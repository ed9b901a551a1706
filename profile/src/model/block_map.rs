//! Addresses of blocks of memory in a GPU's address space.

use super::{GpuIndex, KIND_COUNT, ProcessKey};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The blocks of one process on one GPU that have an address, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockMap {
    /// Key of the process.
    pub key: ProcessKey,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Time at which it was read.
    pub t: Nanos,
    /// Device total then.
    pub total: Bytes,
    /// All kinds then. What of a kind is in no run has no address that is recorded: memory by handle, what pools hold
    /// beyond what they handed out.
    pub kinds: [Bytes; KIND_COUNT],
    /// By address, without overlaps.
    #[serde(serialize_with = "pack", deserialize_with = "unpack")]
    pub runs: Vec<BlockRun>,
}

/// A block, or blocks near each other where a map would have too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRun {
    /// Address of the first byte.
    pub address: u64,
    /// From there to the end of the last block.
    pub span: Bytes,
    /// Bytes of it that the blocks hold; the rest are holes between them.
    pub held: Bytes,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of the [`super::Kind`]; of several kinds that of the largest block.
    pub kind: u8,
}

/// Words of a packed run: distance from the end of the run before, span, holes, blocks less one, kind.
const WORDS: usize = 5;

fn pack<S: Serializer>(runs: &[BlockRun], serializer: S) -> Result<S::Ok, S::Error> {
    let mut words = Vec::with_capacity(runs.len() * WORDS);
    let mut end = 0u64;
    for run in runs {
        let holes = run.span.0.saturating_sub(run.held.0);
        let blocks = u64::from(run.blocks).saturating_sub(1);
        words.extend([run.address.wrapping_sub(end), run.span.0, holes, blocks, u64::from(run.kind)]);
        end = run.address.wrapping_add(run.span.0);
    }
    words.serialize(serializer)
}

fn unpack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BlockRun>, D::Error> {
    let words = Vec::<u64>::deserialize(deserializer)?;
    let (runs, rest) = words.as_chunks::<WORDS>();
    let mut end = 0u64;
    let run = |[distance, span, holes, blocks, kind]: &[u64; WORDS]| {
        let address = end.checked_add(*distance)?;
        end = address.checked_add(*span)?;
        Some(BlockRun {
            address,
            span: Bytes(*span),
            held: Bytes(span.checked_sub(*holes)?),
            blocks: u32::try_from(*blocks).ok()?.checked_add(1)?,
            kind: u8::try_from(*kind).ok()?,
        })
    };
    let runs: Option<Vec<BlockRun>> = runs.iter().map(run).collect();
    runs.filter(|_| rest.is_empty()).ok_or_else(|| de::Error::custom("blocks that overlap"))
}
