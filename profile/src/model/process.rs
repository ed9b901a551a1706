//! A process of the job.

use super::{
    Account, Block, FailedRequest, GpuIndex, KernelActivity, KernelsMode, ProcessKey, Ranges, StackMoment,
    StackRefusal, Stacks, Tensors, Throttling, Timeline, Timings,
};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Properties that do not change while a process lives (exec makes a new process).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent when it joined.
    pub ppid: u32,
    /// Numeric user id.
    pub uid: u32,
    /// The executable.
    pub exe: String,
    /// Command line; arguments separated by spaces, cut after 4 KiB.
    pub command: String,
    /// Time at which it joined the job.
    pub joined: Nanos,
}

/// A framework or runtime library seen in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Framework {
    /// Such as "PyTorch", "JAX", "CUDA runtime".
    pub name: String,
    /// Its version, as far as file names show it.
    pub version: Option<String>,
}

/// The frameworks of all processes as `NAME VERSION`, each once: a worker that
/// was read too early to show the version adds nothing to one that did.
/// Several versions of one follow each other.
pub fn frameworks(profile: &super::Profile) -> Vec<String> {
    let mut seen: Vec<(&str, Vec<&str>)> = Vec::new();
    for framework in profile.processes.iter().flat_map(|process| &process.state.frameworks) {
        let at = match seen.iter().position(|(name, _)| *name == framework.name) {
            Some(at) => at,
            None => {
                seen.push((&framework.name, Vec::new()));
                seen.len() - 1
            }
        };
        let version = framework.version.as_deref().filter(|version| !seen[at].1.contains(version));
        seen[at].1.extend(version);
    }
    seen.iter()
        .map(|(name, versions)| format!("{name} {}", versions.join(", ")).trim_end().to_owned())
        .collect()
}

/// End of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It has not been seen to end.
    #[default]
    Running,
    /// It left in order; the code is known only of the program that was
    /// started by the launcher.
    Exited(Option<i32>),
    /// A signal killed it.
    Signal(i32),
    /// It replaced itself by another program.
    Exec,
    /// It is gone and said nothing: killed, or ended by `_exit`.
    Vanished,
}

/// Bypasses of the shim for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bypass {
    /// The reason's name.
    pub reason: String,
    /// Number of bypasses.
    pub count: u64,
    /// True if figures of the profile may be incomplete for this reason.
    pub matters: bool,
}

/// NVML's figure of a process on a GPU against the accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remainder {
    /// The GPU.
    pub gpu: GpuIndex,
    /// Time at which the two figures were compared.
    pub t: Nanos,
    /// Memory that the process holds according to NVML.
    pub nvml: Bytes,
    /// Memory that was accounted at that moment.
    pub accounted: Bytes,
    /// Highest figure NVML ever gave for the process.
    pub nvml_peak: Bytes,
}

impl Remainder {
    /// NVML's figure less what was accounted: contexts, loaded code, memory of
    /// libraries. Negative if memory is accounted that NVML does not charge.
    pub fn bytes(&self) -> i128 {
        i128::from(self.nvml.0) - i128::from(self.accounted.0)
    }
}

/// The part of a process that is written whole at every state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// One account per GPU that the process touched.
    pub accounts: Vec<Account>,
    /// Frameworks seen.
    pub frameworks: Vec<Framework>,
    /// Refused memory requests: the first and the last ones.
    pub failures: Vec<FailedRequest>,
    /// Live blocks, largest first.
    pub largest_blocks: Vec<Block>,
    /// Reasons for which calls were passed through uncounted.
    pub bypasses: Vec<Bypass>,
    /// NVML's figures against the accounts, per GPU.
    pub remainders: Vec<Remainder>,
    /// Kernel launches by the program.
    pub launches: u64,
    /// Graph launches.
    pub graph_launches: u64,
    /// Events lost because the ring was overwritten or contended.
    pub events_dropped: u64,
    /// End of the process.
    pub end: End,
    /// Time at which it was seen to have ended.
    pub ended: Option<Nanos>,
}

/// A kernel of a process with its counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Number within the process.
    pub id: u32,
    /// Name as the driver reports it (mangled); may be cut.
    pub name: String,
    /// True if the name was cut.
    pub name_cut: bool,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block.
    pub static_shared: Bytes,
    /// Local memory per thread.
    pub local: Bytes,
    /// Most threads per block that the kernel allows.
    pub max_threads: u32,
    /// Launches by the program.
    pub launches: u64,
    /// Launches as a node of a graph.
    pub graph_launches: u64,
    /// Blocks over all launches.
    pub blocks: u64,
    /// Threads over all launches.
    pub threads: u64,
    /// Dynamic shared memory per block, summed over all launches.
    pub dynamic_shared: Bytes,
}

impl Kernel {
    /// Launches of both kinds.
    pub fn all_launches(&self) -> u64 {
        self.launches.saturating_add(self.graph_launches)
    }
}

/// A process of the job with everything known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its name within the job.
    pub key: ProcessKey,
    /// Identity of the process.
    pub identity: Identity,
    /// Its figures.
    pub state: ProcessState,
    /// Recording mode of its launches and copies; `None` if it reported none.
    pub kernels_mode: Option<KernelsMode>,
    /// Its kernels, by id.
    pub kernels: Vec<Kernel>,
    /// Times of its launches, and its copies.
    pub timings: Timings,
    /// Waits of its launches for the job's time slices.
    pub throttling: Throttling,
    /// Call stacks of its requests for memory, if they are recorded.
    pub stacks: Option<Stacks>,
    /// Holders of the memory of its framework's allocator, if that was asked for.
    pub tensors: Option<Tensors>,
    /// Memory that was held from each call site at moments in between, by GPU and in the order in which they were
    /// recorded.
    pub stack_moments: Vec<StackMoment>,
    /// Refused requests with what was held from each call site at that moment, by time.
    pub stack_refusals: Vec<StackRefusal>,
    /// Ranges and marks of the program, if it has any.
    pub ranges: Option<Ranges>,
    /// Launches and copies so far: all of its spans in the profile.
    pub kernel_activity: KernelActivity,
    /// Its memory over time, one per GPU.
    pub timelines: Vec<Timeline>,
    /// Until when it was certainly alive: the time of its leave, else that of
    /// the last state before its end was noticed; zero until then. Follows from
    /// the records, is not one of them.
    pub seen_alive: Nanos,
}

impl Process {
    /// The account on one GPU, if the process touched it.
    pub fn account(&self, gpu: GpuIndex) -> Option<&Account> {
        self.state.accounts.iter().find(|account| account.gpu == gpu)
    }

    /// Returns true if its launches and copies were left out of the profile: their zeros say nothing.
    pub fn has_unrecorded_kernels(&self) -> bool {
        self.kernels_mode == Some(KernelsMode::Off)
    }

    /// The timeline on one GPU, if the process touched it.
    pub fn timeline(&self, gpu: GpuIndex) -> Option<&Timeline> {
        self.timelines.iter().find(|timeline| timeline.gpu == gpu)
    }
}
