//! The job's own limits on memory, copied like everything here: who looks may be root, and the file anybody's.

use std::mem::offset_of;

use super::segment::{Segment, SegmentError};
use crate::layout::{GPUS, LEDGER_AT};
use crate::ledger::layout::{LEDGER_MAGIC, LEDGER_VERSION, LedgerArea, LedgerGpu, LedgerHeader};

/// The job's limit on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaFigures {
    /// The driver's uuid of the GPU.
    pub uuid: [u8; 16],
    /// Bytes; `None` where there is no limit.
    pub limit: Option<u64>,
    /// Requests that the limit refused.
    pub refused: u64,
}

impl Segment {
    /// Returns true if the job has limits on memory; not if the file cannot be read.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.word(LEDGER_AT) == Some(LEDGER_MAGIC)
    }

    /// The job's limits on the GPUs that its processes have seen; none without a quota.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn quotas(&self) -> Result<Vec<QuotaFigures>, SegmentError> {
        let header = self.words(LEDGER_AT, 16)?;
        if header.array(0) != [LEDGER_MAGIC, LEDGER_VERSION] {
            return Ok(Vec::new());
        }
        let at = LEDGER_AT + offset_of!(LedgerArea, gpus) as u64;
        let words = self.words(at, (GPUS * size_of::<LedgerGpu>()) as u64)?;
        let gpu = |number: usize| {
            let at = number * size_of::<LedgerGpu>();
            let word = |offset: usize| words.at(at + offset);
            let mut uuid = [0; 16];
            uuid.copy_from_slice(&words.bytes(at + offset_of!(LedgerGpu, uuid), 16));
            (word(offset_of!(LedgerGpu, tag)) != 0).then(|| QuotaFigures {
                uuid,
                limit: Some(word(offset_of!(LedgerGpu, limit))).filter(|limit| *limit != u64::MAX),
                refused: word(offset_of!(LedgerGpu, refused)),
            })
        };
        Ok((0..GPUS).filter_map(gpu).collect())
    }
}

const _: () = assert!(offset_of!(LedgerHeader, magic) == 0 && offset_of!(LedgerHeader, version) == 8);
