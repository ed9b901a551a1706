//! Requests that failed: the first 32 and the last 32 of a process.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use crate::gpu_index::GpuIndex;
use crate::kind::Scope;
use crate::layout::{Cell, FAILURE_CELLS};
use crate::ring::{Ring, WORDS, write_cell};
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use radrm_base::Kind;

/// A request for memory that the driver, or a quota, refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// Time of the failure, ns of segment time.
    pub ns: u64,
    /// On which GPU.
    pub gpu: GpuIndex,
    /// Kind of memory asked for.
    pub kind: Kind,
    /// Number of the entry point.
    pub entry: u16,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes that were free at that moment; `u64::MAX` = unknown.
    pub free: u64,
    /// Bytes of the GPU; `u64::MAX` = unknown.
    pub total: u64,
    /// The result code that the program got.
    pub result: u32,
    /// The limit that refused it; `None`: the driver did.
    pub quota: Option<QuotaRefusal>,
}

/// A limit that refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRefusal {
    /// Whom it applies to.
    pub scope: Scope,
    /// The limit, bytes.
    pub limit: u64,
    /// Bytes that were reserved under the limit.
    pub used: u64,
}

/// Bit offset of the scope in a word, above a number of bytes.
const SCOPE_AT: u32 = 56;
const BYTES: u64 = (1 << SCOPE_AT) - 1;

impl FailedRequest {
    pub(crate) fn pack(&self) -> [u64; WORDS] {
        let what = u64::from(self.gpu.number())
            | (self.kind as u64) << 8
            | u64::from(self.entry) << 16
            | u64::from(self.result) << 32;
        let (scope, limit, used) = self.quota.map_or((0, 0, 0), |q| (q.scope as u64, q.limit, q.used));
        [self.ns, what, self.bytes, self.free, self.total, limit, used & BYTES | scope << SCOPE_AT]
    }

    pub(crate) fn unpack(words: [u64; WORDS]) -> Option<Self> {
        let [ns, what, bytes, free, total, limit, used] = words;
        let scope = Scope::from_raw((used >> SCOPE_AT) as u8);
        Some(Self {
            ns,
            gpu: GpuIndex::from_number(what as usize & 0xff)?,
            kind: Kind::from_raw((what >> 8) as u8)?,
            entry: (what >> 16) as u16,
            bytes,
            free,
            total,
            result: (what >> 32) as u32,
            quota: scope.map(|scope| QuotaRefusal { scope, limit, used: used & BYTES }),
        })
    }
}

/// Writes a failure into the first list while there is room, then into the ring of the last ones.
pub(crate) fn record(count: &AtomicU64, first: &[Cell], last: &Ring<'_>, request: &FailedRequest) {
    let ticket = count.fetch_add(1, Relaxed);
    if ticket >= FAILURE_CELLS as u64 {
        last.push(request.pack());
    } else if let Some(cell) = first.get(ticket as usize) {
        write_cell(cell, 0, request.pack());
    }
}
