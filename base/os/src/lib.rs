//! What the system reports: processes and who they are, control groups, host memory, and the GPUs by NVML.
//!
//! `/proc` is read through the crate `procfs`. The shim has a reader of its own in `radrm-telemetry`, which
//! allocates nothing.

pub mod host;
pub mod nvml;
pub mod pidfd;
mod process;

pub use process::{Mapping, Process, ProcessIdentity, Stat, paths, variable};
