//! Entry points of graphs.

pub mod build;
pub mod exec;
pub mod node;
pub mod object;
pub mod params;
pub mod pool;
pub mod query;
