//! The job, its GPUs and its end.

use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Description of the job: its user, command, host and start time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Version of radrm that wrote the profile.
    pub radrm_version: String,
    /// Program and arguments as they were typed.
    pub command: Vec<String>,
    /// The file that was executed, if it was found.
    pub program: Option<String>,
    /// SHA-256 of that file. The collector sends it after the job has started
    /// (see [`crate::Record::ProgramDigest`]); it is never computed in the
    /// way of the start.
    pub program_sha256: Option<[u8; 32]>,
    /// Working directory.
    pub cwd: String,
    /// Numeric user id.
    pub uid: u32,
    /// User name, if known.
    pub user: Option<String>,
    /// Host name.
    pub host: String,
    /// Process id of the program that was started; 0 if it never started.
    pub pid: u32,
    /// Start of the job: nanoseconds since 1970 (CLOCK_REALTIME). All other
    /// times of the profile count from here.
    pub start_unix_ns: u64,
    /// Specification of the emulated machine; `None` on real GPUs. Every
    /// report labels emulated figures.
    pub emulated: Option<String>,
    /// Environment variables that change what a GPU program does
    /// (CUDA_VISIBLE_DEVICES, PYTORCH_CUDA_ALLOC_CONF, ...).
    pub environment: Vec<(String, String)>,
}

/// Stands in [`Job::emulated`] between the machine and the faults that were injected.
pub const WITH_FAULTS: &str = " with faults ";

impl Job {
    /// Returns true if the emulated driver was made to refuse memory that it had.
    pub fn has_injected_oom(&self) -> bool {
        let faults = self.emulated.as_ref().and_then(|machine| machine.split_once(WITH_FAULTS));
        faults.is_some_and(|(_, faults)| faults.contains("oom"))
    }
}

/// Index of a GPU in this job; the same in every process of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuIndex(pub u8);

/// A GPU of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Index in this job.
    pub index: GpuIndex,
    /// `GPU-xxxxxxxx-xxxx-...` as the driver's tools print it.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Device memory as the driver states it.
    pub total: Bytes,
    /// PCI bus id (`0000:3b:00.0`), empty if unknown.
    pub pci_bus_id: String,
    /// Version of the kernel driver ("570.86.15"), if NVML reports it.
    pub driver_version: Option<String>,
    /// Newest CUDA version the driver supports (12080 = 12.8), if known.
    pub cuda_version: Option<u32>,
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Exit of the program that was started.
    pub exit: Exit,
    /// From the start of the program to its end.
    pub duration: Nanos,
    /// Reason that it ended badly, if that is known.
    pub reason: Option<Reason>,
}

/// Exit of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It called exit with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It could not be started.
    NotStarted,
    /// Its end was not seen.
    Unknown,
}

impl Exit {
    /// True if it exited with code 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

/// Reason that a job ended badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// It failed after a GPU memory request had been refused for lack of
    /// memory.
    OutOfGpuMemory,
    /// Anything else, in words.
    Other(String),
}
