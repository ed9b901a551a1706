//! Post-mortems of refused requests, as plain copies.

use super::raw::Words;
use super::segment::{Liveness, Segment, SegmentError, SlotInfo};
use super::snapshot::LiveBlock;
use crate::blocks::{Block, BlockKey};
use crate::failures::{FailedRequest, QuotaRefusal};
use crate::kind::Scope;
use crate::layout::*;
use crate::postmortem::*;
use radrm_base::KIND_COUNT;
use std::mem::offset_of;

/// Memory holders of a GPU at an out-of-memory event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postmortem {
    /// False for the first refusal of the process on this GPU, true for the latest that was written down.
    pub is_latest: bool,
    /// False if the process died before it had written all of it.
    pub is_complete: bool,
    /// The request.
    pub request: FailedRequest,
    /// Reason that it was refused.
    pub cause: Cause,
    /// Duration of the writing, ns.
    pub took_ns: u64,
    /// Memory that the process held of the GPU, bytes by kind.
    pub kinds: [u64; KIND_COUNT],
    /// Its largest blocks there, largest first.
    pub blocks: Vec<LiveBlock>,
    /// Blocks that were seen and are not listed.
    pub blocks_left_out: LeftOut,
    /// There were more blocks than there was time to read.
    pub blocks_cut: bool,
    /// Other living processes of the job with memory of the GPU, the one with most first; `None` if they
    /// could not be read.
    pub others: Option<Vec<OtherProcess>>,
    /// Other processes that were seen and are not listed.
    pub others_left_out: LeftOut,
    /// There were more processes than there was time to read.
    pub others_cut: bool,
    /// The limits that the request had to fit under.
    pub quotas: Vec<QuotaRefusal>,
    /// Processes with most bytes under the limit that refused, the one with most first. Dead ones whose share
    /// were not needed yet may be among them.
    pub holders: Vec<Holder>,
    /// Holders that are not listed.
    pub holders_left_out: LeftOut,
    /// Later refusals on this GPU; with the first one only.
    pub later: Later,
}

/// Entries of a list that are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Number of entries.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Another process of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherProcess {
    /// Its slot.
    pub slot: usize,
    /// Generation of the slot.
    pub generation: u32,
    /// Its process id.
    pub pid: u32,
    /// Memory that it held of the GPU, bytes by kind.
    pub kinds: [u64; KIND_COUNT],
}

/// A process with bytes under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// Refusals after the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Later {
    /// Number of refusals by cause, where there are any.
    pub causes: Vec<(Cause, u64)>,
    /// The smallest request, bytes.
    pub smallest: u64,
    /// The largest request, bytes.
    pub largest: u64,
    /// Time of the last one, ns.
    pub last_ns: u64,
}

impl Segment {
    /// The post-mortems of a process: of each GPU the first one, then the latest.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn postmortems(&self, slot: &SlotInfo) -> Result<Vec<Postmortem>, SegmentError> {
        let mut found = Vec::new();
        if slot.slot >= SLOTS {
            return Ok(found);
        }
        for gpu in 0..GPUS {
            let account = offset_of!(SlotBase, accounts) + gpu * size_of::<AccountCell>();
            let ready = account + offset_of!(AccountCell, postmortems);
            if self.word(slot_at(slot.slot) + ready as u64) != Some(1) {
                continue;
            }
            for is_latest in [false, true] {
                let at = slot_at(slot.slot) + postmortem_at(gpu, is_latest);
                let seq = |this: &Self| this.word(at + offset_of!(PostmortemCell, seq) as u64);
                // One that was being written meanwhile is read at the next poll.
                let Some(before) = seq(self) else { continue };
                let words = self.words(at, size_of::<PostmortemCell>() as u64)?;
                let is_complete = before & 1 == 0;
                let is_over = is_complete || slot.liveness != Liveness::Running;
                if before != 0 && is_over && seq(self) == Some(before) {
                    found.extend(postmortem(&words, gpu, is_latest, is_complete));
                }
            }
        }
        let still = self.slot(slot.slot).is_some_and(|now| now.generation == slot.generation);
        Ok(if still { found } else { Vec::new() })
    }
}

fn postmortem(words: &Words, gpu: usize, is_latest: bool, is_complete: bool) -> Option<Postmortem> {
    let word = |at: usize| words.at(at);
    let request = FailedRequest::unpack(words.array(offset_of!(PostmortemCell, request)))?;
    if usize::from(request.gpu.number()) != gpu {
        return None;
    }
    let flags = word(offset_of!(PostmortemCell, flags));
    let (blocks, blocks_left_out) =
        largest::<BLOCKS_KEPT, BLOCK_WORDS>(words, offset_of!(PostmortemCell, blocks));
    let (others, others_left_out) =
        largest::<OTHERS_KEPT, OTHER_WORDS>(words, offset_of!(PostmortemCell, others));
    let (holders, holders_left_out) = largest::<HOLDERS_KEPT, 2>(words, offset_of!(PostmortemCell, holders));
    let quota = |number: usize| {
        let [scope, limit, used] = words.array(offset_of!(PostmortemCell, quotas) + number * 24);
        Some(QuotaRefusal { scope: Scope::from_raw(u8::try_from(scope).ok()?)?, limit, used })
    };
    let others = others.into_iter().map(|[_, slot, pid, kinds @ ..]| OtherProcess {
        slot: (slot >> 32) as usize,
        generation: slot as u32,
        pid: pid as u32,
        kinds,
    });
    Some(Postmortem {
        is_latest,
        is_complete,
        cause: Cause::of(&request),
        request,
        took_ns: word(offset_of!(PostmortemCell, took_ns)),
        kinds: words.array(offset_of!(PostmortemCell, kinds)),
        blocks: blocks.into_iter().filter_map(|[_, key, what, ns]| block(key, what, ns)).collect(),
        blocks_left_out,
        blocks_cut: flags & BLOCKS_CUT != 0,
        others: (flags & OTHERS_UNKNOWN == 0).then(|| others.collect()),
        others_left_out,
        others_cut: flags & OTHERS_CUT != 0,
        quotas: (0..QUOTAS_KEPT).filter_map(quota).collect(),
        holders: holders.into_iter().map(|[bytes, pid]| Holder { pid: pid as u32, bytes }).collect(),
        holders_left_out,
        later: if is_latest { Later::default() } else { later(words) },
    })
}

fn block(key: u64, what: u64, ns: u64) -> Option<LiveBlock> {
    Some(LiveBlock { key: BlockKey::from_raw(key)?, block: Block::unpack(what, ns, 0)? })
}

fn later(words: &Words) -> Later {
    let count = |cause: &Cause| {
        let count = words.at(offset_of!(PostmortemCell, later) + *cause as usize * 8);
        (count > 0).then_some((*cause, count))
    };
    let causes: Vec<(Cause, u64)> = Cause::ALL.iter().filter_map(count).collect();
    let [largest, smallest] = words.array(offset_of!(PostmortemCell, later_sizes));
    match causes.is_empty() {
        true => Later::default(),
        false => Later {
            causes,
            smallest: !smallest,
            largest,
            last_ns: words.at(offset_of!(PostmortemCell, later_ns)),
        },
    }
}

/// The entries of a list, largest first, and what is not in it.
fn largest<const N: usize, const W: usize>(words: &Words, at: usize) -> (Vec<[u64; W]>, LeftOut) {
    let listed = (words.at(at + offset_of!(Largest<N, W>, listed)) as usize).min(N);
    let entries = at + offset_of!(Largest<N, W>, entries);
    let mut list: Vec<[u64; W]> = (0..listed).map(|number| words.array(entries + number * W * 8)).collect();
    list.sort_by_key(|entry| std::cmp::Reverse(entry.first().copied()));
    let left_out = LeftOut {
        count: words.at(at + offset_of!(Largest<N, W>, more)),
        bytes: words.at(at + offset_of!(Largest<N, W>, more_bytes)),
    };
    (list, left_out)
}
