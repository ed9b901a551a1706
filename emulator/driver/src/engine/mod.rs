//! The process's state, and what happens to it.
//!
//! The types of the state ([`context`], [`device`], [`launches`], `state` of each family) know nothing of the
//! [`driver::Driver`] that holds them. What works on several of them takes the driver.

pub mod code;
pub mod context;
pub mod core_dump;
pub mod device;
pub mod driver;
pub mod free;
pub mod graph;
pub mod green;
pub mod launch;
pub mod launches;
pub mod lifetime;
pub mod memory;
pub mod stream;
pub mod texture;
pub mod transfer;
pub mod unsupported;
