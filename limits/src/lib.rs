//! Limits of GPU jobs, and the jobs that they hold for.
//!
//! Limits on GPU memory: how they are written, where they come from, and which hold for a job.
//!
//! A limit has an amount and, if it is named, a GPU. Amounts come from the command line
//! ([`requested`]) and from configuration files ([`config`], [`files`]); names are resolved through
//! NVML ([`resolve`]); [`scopes`] puts together what holds for the job, for its user and
//! for the groups of its user, [`steps`] what the steps of a job share; [`variables`] has the limits that other tools
//! state in the environment, and [`start`] brings it into force before the program starts. [`mps`] does it
//! with NVIDIA's service.
//!
//! [`jobs`] finds the jobs that are there, [`carriers`] the processes that keep one alive, and [`audit`] the processes that
//! none of them counts. [`given`] has what a job was given by another than its user.
//! [`program`] is what a program is started with.

pub mod amount;
pub mod audit;
pub mod carriers;
pub mod cgroup;
pub mod cgroup_v2;
pub mod charge;
pub mod config;
pub mod contexts;
mod error;
pub mod files;
pub mod given;
pub mod group_figures;
pub mod jobs;
pub mod ledgers;
pub mod leftovers;
pub mod machine;
pub mod members;
pub mod mps;
pub mod overrides;
pub mod program;
pub mod requested;
pub mod resolve;
pub mod scopes;
pub mod setup;
pub mod share;
pub mod start;
pub mod steps;
pub mod variables;

pub use error::LimitError;
