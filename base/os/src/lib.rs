//! Facts that the system reports: processes and their identity, control groups, host memory, and the GPUs by NVML.
//!
//! Data that a user may have written or named is read through [`untrusted`], also what `/proc` shows of a user's
//! process. The rest of `/proc` is read through the crate `procfs`. The shim has a reader of its own in
//! `radrm-telemetry`, which allocates nothing.

pub mod descriptors;
pub mod host;
mod mapped;
pub mod nvml;
mod peer;
pub mod pidfd;
mod process;
pub mod time;
pub mod untrusted;

pub use mapped::{Mapped, TimeByUser, thread_time};
pub use peer::PeerCredentials;
pub use process::{Environment, Mapping, Process, ProcessIdentity, Stat, paths, word_in};
