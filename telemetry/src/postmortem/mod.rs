//! Post-mortems: the memory holders of a GPU at the moment when a request for its memory was refused.
//!
//! The process whose request was refused writes it down itself, there and then: a moment later it may have
//! freed half of it, or be gone. A slot has two of them for each GPU, the first and the latest; a process
//! that lives on with refusals spends no more than about one hundredth of its time on the latter. All later
//! refusals are counted by their causes.
//!
//! ```text
//! slot + 48 MiB   first, latest of GPU 0 | first, latest of GPU 1 | ...   8 KiB each
//! ```

mod capture;
mod largest;

use crate::failures::FailedRequest;
use crate::kind::Scope;
#[cfg(not(loom))]
use crate::layout::{GPUS, LEVELS_AT, TIMELINE_BYTES, TIMELINES_AT};
use crate::sync::AtomicU64;
use radrm_base::{KIND_COUNT, Kind};

pub use capture::Draft;
pub use largest::Largest;

/// Offset of the post-mortems in a slot, bytes.
pub const POSTMORTEMS_AT: u64 = 48 << 20;
/// Bytes of the two of a GPU.
pub const POSTMORTEMS_BYTES: u64 = 2 * size_of::<PostmortemCell>() as u64;
/// Largest blocks that are kept.
pub const BLOCKS_KEPT: usize = 32;
/// Other processes of the job that are kept, those that hold most.
pub const OTHERS_KEPT: usize = 64;
/// Ledgers that are kept.
pub const QUOTAS_KEPT: usize = 6;
/// Members of the ledger that refused that are kept, those that hold most.
pub const HOLDERS_KEPT: usize = 32;
/// Granularity in which the driver hands out memory, bytes: a smaller request can need as much.
pub const CHUNK: u64 = 2 << 20;

/// Reason that a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// The limit of the job.
    JobQuota = 0,
    /// The limit of the user.
    UserQuota = 1,
    /// The limit of a group.
    GroupQuota = 2,
    /// The device had less than was asked for.
    Device = 3,
    /// The driver refused although it said that more was free.
    Fragmentation = 4,
    /// The request was for memory of the host.
    Host = 5,
    /// The driver refused, and what was free is unknown.
    Unknown = 6,
}

impl Cause {
    /// Every cause, in the order of the numbers.
    pub const ALL: [Self; 7] = [
        Self::JobQuota,
        Self::UserQuota,
        Self::GroupQuota,
        Self::Device,
        Self::Fragmentation,
        Self::Host,
        Self::Unknown,
    ];

    /// The cause of a refusal. The driver hands out whole chunks of 2 MiB, so a request is met by what
    /// is free only if its chunks are.
    pub fn of(request: &FailedRequest) -> Self {
        match request.quota.map(|quota| quota.scope) {
            Some(Scope::Job) => Self::JobQuota,
            Some(Scope::User) => Self::UserQuota,
            Some(Scope::Group) => Self::GroupQuota,
            None if request.kind == Kind::PinnedHost => Self::Host,
            None if request.free == u64::MAX => Self::Unknown,
            None => match request.bytes.checked_next_multiple_of(CHUNK) {
                Some(chunks) if chunks <= request.free => Self::Fragmentation,
                _ => Self::Device,
            },
        }
    }
}

/// Not all blocks were read: there may be larger ones.
pub(crate) const BLOCKS_CUT: u64 = 1;
/// Not all processes of the job were read.
pub(crate) const OTHERS_CUT: u64 = 2;
/// The segment could not be opened, so other processes are not known.
pub(crate) const OTHERS_UNKNOWN: u64 = 4;

/// Words of a block: bytes, key, packed description, time.
pub(crate) const BLOCK_WORDS: usize = 4;
/// Words of a process: bytes, slot and generation, pid, bytes by kind.
pub(crate) const OTHER_WORDS: usize = 3 + KIND_COUNT;

/// One post-mortem.
#[repr(C)]
#[derive(Debug)]
pub struct PostmortemCell {
    /// Odd: being written. 0: never was.
    pub seq: AtomicU64,
    /// The request, as in the lists of failures.
    pub request: [AtomicU64; crate::ring::WORDS],
    /// Duration of the writing, ns.
    pub took_ns: AtomicU64,
    /// Flags of the parts that are incomplete.
    pub flags: AtomicU64,
    /// Memory that the process held of the GPU, bytes by kind.
    pub kinds: [AtomicU64; KIND_COUNT],
    /// In the first one: later refusals, by [`Cause`].
    pub later: [AtomicU64; 8],
    /// The largest and the smallest of them, bytes; of the smallest the complement, so that 0 is none.
    pub later_sizes: [AtomicU64; 2],
    /// Time of the last of them, ns.
    pub later_ns: AtomicU64,
    /// Ledgers that the request had to fit into, with the refusing one: scope, limit, use.
    pub quotas: [[AtomicU64; 3]; QUOTAS_KEPT],
    /// The largest holders in the ledger that refused: bytes, pid.
    pub holders: Largest<HOLDERS_KEPT, 2>,
    /// Largest blocks of the process on the GPU.
    pub blocks: Largest<BLOCKS_KEPT, BLOCK_WORDS>,
    /// Other living processes of the job that held most of the GPU.
    pub others: Largest<OTHERS_KEPT, OTHER_WORDS>,
    /// Unused.
    pub spare:
        [AtomicU64; 1024 - 57 - 2 * HOLDERS_KEPT - BLOCK_WORDS * BLOCKS_KEPT - OTHER_WORDS * OTHERS_KEPT],
}

/// Offset of a post-mortem in its slot.
pub(crate) const fn postmortem_at(gpu: usize, is_latest: bool) -> u64 {
    POSTMORTEMS_AT + gpu as u64 * POSTMORTEMS_BYTES + is_latest as u64 * (POSTMORTEMS_BYTES / 2)
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<PostmortemCell>() == 8192);
    assert!(TIMELINES_AT + GPUS as u64 * TIMELINE_BYTES <= POSTMORTEMS_AT);
    assert!(postmortem_at(GPUS, false) <= LEVELS_AT);
    assert!(Cause::ALL.len() <= 8);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{GpuIndex, QuotaRefusal};

    #[test]
    fn each_cause_of_a_refusal_is_distinguished() {
        let mib = 1 << 20;
        let gpu = GpuIndex::from_number(0).unwrap();
        let request = |bytes, free| FailedRequest {
            ns: 1,
            gpu,
            kind: Kind::Device,
            entry: 0,
            bytes,
            free,
            total: 1 << 40,
            result: 2,
            quota: None,
        };
        assert_eq!(Cause::of(&request(10 * mib, 8 * mib)), Cause::Device);
        assert_eq!(Cause::of(&request(10 * mib, 10 * mib)), Cause::Fragmentation);
        // One byte takes a chunk.
        assert_eq!(Cause::of(&request(1, mib)), Cause::Device);
        assert_eq!(Cause::of(&request(1, 2 * mib)), Cause::Fragmentation);
        assert_eq!(Cause::of(&request(u64::MAX, 8 * mib)), Cause::Device);
        assert_eq!(Cause::of(&request(1, u64::MAX)), Cause::Unknown);
        let host = FailedRequest { kind: Kind::PinnedHost, ..request(1, 8 * mib) };
        assert_eq!(Cause::of(&host), Cause::Host);
        let quota = Some(QuotaRefusal { scope: Scope::Group, limit: 1, used: 1 });
        assert_eq!(Cause::of(&FailedRequest { quota, ..request(1, 8 * mib) }), Cause::GroupQuota);
    }
}
