//! Graphs.
//!
//! | module | is |
//! |---|---|
//! | [`node`] | what nodes do |
//! | [`store`] | graphs and their nodes: building, asking, cloning |
//! | [`exec`] | executable graphs: instantiation, launch, update |
//! | [`memory`], [`pool`] | memory of allocation nodes, and what the driver keeps for it |
//! | [`object`] | user objects |
//! | `api_*` | entry points |

mod api_build;
mod api_exec;
mod api_graph;
mod api_params;
pub mod exec;
pub mod memory;
pub mod node;
pub mod object;
pub mod params;
pub mod pool;
pub mod store;

pub use memory::{context_destroyed, free_outside};
pub use node::{CopyNode, Edge, EdgeData, KernelNode, NodeKind, SetNode};
pub use store::{Graph, Graphs, Node};
