//! Memory that the program's calls hold: every family, charged to the GPU it lies on.
//!
//! The hooks of each family stand in a file of its own ([`device`], [`pool`], [`vmm`], [`array`],
//! [`graph`], [`host`], [`shared`]) and read alike: a [`claim::Claim`] before the real call finds the
//! GPU and reserves under the quota, where there is one, and is kept or given back after it. A free takes the block
//! out of the table *before* the real call, because the driver may hand the same address to another
//! thread the moment it is free, and puts it back if the driver refuses.
//!
//! [`ledger`] is the only file that writes figures and blocks to the segment.

pub(crate) mod array;
mod claim;
pub(crate) mod context;
pub(crate) mod device;
mod failure;
pub(crate) mod gpu;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod info;
mod ledger;
mod level;
pub(crate) mod place;
pub(crate) mod pool;
mod postmortem;
mod references;
pub(crate) mod shared;
mod texels;
pub(crate) mod vmm;

pub(crate) use ledger::recover;
