//! Graphs.

pub mod build;
pub mod exec;
pub mod memory;
pub mod node;
pub mod object;
pub mod pool;
pub mod state;
