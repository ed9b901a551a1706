//! Limits on GPU memory: how they are written, where they come from, and which hold for a job.
//!
//! A limit has an amount and, if it is named, a GPU. Amounts come from the command line
//! ([`wish`]) and from configuration files ([`config`], [`files`]); names are looked up through
//! NVML ([`gpus`], [`resolve`]); [`scopes`] puts together what holds for the job, for its user and
//! for the groups of its user; and [`start`] brings it into force before the program starts.

pub mod amount;
pub mod cgroup;
pub mod charge;
pub mod config;
pub mod contexts;
pub mod files;
pub mod gpus;
pub mod ledgers;
pub mod overrides;
pub mod resolve;
pub mod scopes;
pub mod share;
pub mod start;
pub mod wish;
