//! NVIDIA's Multi-Process Service: used, started and stopped around a job, with its own limits as a
//! second fence behind the quota.
//!
//! MPS gives each client *process* its limits, takes them from the environment only when the
//! process makes its first context, and says nothing when it drops them. So the quota is kept by the
//! shim, for the job as a whole, and MPS's limits are set so that they only stop what has dodged it;
//! [`warnings`] names what MPS would drop silently, and [`clients`] checks whether the job's processes
//! really are clients.

pub mod clients;
pub mod control;
pub mod fence;
pub mod namespace;
mod partition;
pub mod protocol;
pub mod service;
pub mod visible;
pub mod warnings;
