//! The memory holders of a GPU when a request for its memory was refused.

use super::{Block, FailedRequest, GpuIndex, KIND_COUNT, Kind, ProcessKey};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// One refusal with all that stood around it. A process has up to two for each
/// GPU: the first refusal, and the latest that was written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Postmortem {
    /// Process that made the request.
    pub process: ProcessKey,
    /// False for the first refusal on this GPU.
    pub is_latest: bool,
    /// False if the process died before it had written down all of it.
    pub is_complete: bool,
    /// The request.
    pub request: FailedRequest,
    /// Cause of the refusal.
    pub cause: Cause,
    /// The limits that it had to fit under, with the one that refused.
    pub quotas: Vec<QuotaUse>,
    /// Memory that the process itself held of the GPU, by kind.
    pub own: [Bytes; KIND_COUNT],
    /// Its largest blocks there, largest first.
    pub blocks: Vec<Block>,
    /// Blocks that were seen and are not listed.
    pub blocks_left_out: LeftOut,
    /// There were more blocks than there was time to read.
    pub blocks_cut: bool,
    /// The job's other processes on this GPU, the one with most first; `None`
    /// if they could not be read.
    pub others: Option<Vec<JobProcess>>,
    /// Processes that were seen and are not listed.
    pub others_left_out: LeftOut,
    /// There were more of them than there was time to read.
    pub others_cut: bool,
    /// Processes that held most under the limit that refused.
    pub holders: Vec<Holder>,
    /// Holders that are not listed.
    pub holders_left_out: LeftOut,
    /// NVML's figures of the GPU at about that time.
    pub nvml: Option<Neighbours>,
    /// Refusals after the first one; with the first one only.
    pub later: Later,
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A limit; its figures are of the moment.
    Quota(QuotaUse),
    /// The device had less than was asked for.
    Device,
    /// The driver refused although it said that more was free.
    Fragmentation,
    /// The request was for memory of the host.
    Host,
    /// The driver refused, and free memory is unknown.
    #[default]
    Unknown,
}

/// Whom a limit applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// All processes of the job.
    #[default]
    Job,
    /// All jobs of the user.
    User,
    /// All jobs of all members of a group.
    Group,
}

impl Scope {
    /// Stable name for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Scope::Job => "job",
            Scope::User => "user",
            Scope::Group => "group",
        }
    }
}

/// A limit and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// Whom it applies to.
    pub scope: Scope,
    /// The limit.
    pub limit: Bytes,
    /// Memory that was reserved under it.
    pub used: Bytes,
}

/// Entries that a list leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Number of entries.
    pub count: u64,
    /// Sum of their bytes.
    pub bytes: Bytes,
}

/// Another process of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProcess {
    /// Key of the process.
    pub key: ProcessKey,
    /// Its process id.
    pub pid: u32,
    /// Memory that it held of the GPU, by kind.
    pub kinds: [Bytes; KIND_COUNT],
    /// Its largest blocks there, largest first: those that were made before
    /// the refusal and were still alive when they were read.
    pub blocks: Vec<Block>,
}

/// A process with memory under a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its program and user, as far as the system reports them.
    pub who: Who,
    /// Memory that it had reserved.
    pub bytes: Bytes,
}

/// Name and owner of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Name of the program, at most 15 characters.
    pub program: Option<String>,
    /// Numeric user id.
    pub uid: Option<u32>,
    /// User name.
    pub user: Option<String>,
}

/// NVML's figures of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbours {
    /// Time of the figures; before or after the refusal.
    pub t: Nanos,
    /// Memory in use by anybody.
    pub used: Bytes,
    /// The device's memory.
    pub total: Bytes,
    /// All processes that it listed, the one with most first.
    pub processes: Vec<Neighbour>,
}

/// A process on a GPU as NVML lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its process id.
    pub pid: u32,
    /// Its program and user, as far as the system reports them.
    pub who: Who,
    /// Its memory; `None` where the driver does not report it.
    pub used: Option<Bytes>,
    /// True for a process of this job.
    pub is_own: bool,
}

/// Refusals after the first one on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Later {
    /// By a limit of the job, of the user, of a group.
    pub quota: [u64; 3],
    /// By the device.
    pub device: u64,
    /// Although more was free.
    pub fragmentation: u64,
    /// For memory of the host.
    pub host: u64,
    /// Without a known reason.
    pub unknown: u64,
    /// The smallest request.
    pub smallest: Bytes,
    /// The largest request.
    pub largest: Bytes,
    /// Time of the last one.
    pub last: Nanos,
}

impl Later {
    /// Number of refusals.
    pub fn count(&self) -> u64 {
        let rest = [self.device, self.fragmentation, self.host, self.unknown];
        self.quota.into_iter().chain(rest).fold(0, u64::saturating_add)
    }

    /// Number of refusals for this cause.
    pub fn like(&self, cause: &Cause) -> u64 {
        match cause {
            Cause::Quota(quota) => self.quota[quota.scope as usize],
            Cause::Device => self.device,
            Cause::Fragmentation => self.fragmentation,
            Cause::Host => self.host,
            Cause::Unknown => self.unknown,
        }
    }
}

impl Postmortem {
    /// The GPU.
    pub fn gpu(&self) -> GpuIndex {
        self.request.gpu
    }

    /// True if the request was for memory of the host.
    pub fn is_for_the_host(&self) -> bool {
        self.request.kind == Kind::PinnedHost as u8
    }

    /// True if two are about the same refusal, so that one replaces the other.
    pub fn is_same(&self, other: &Postmortem) -> bool {
        (self.process, self.gpu(), self.is_latest) == (other.process, other.gpu(), other.is_latest)
    }
}
