//! Protocol between `radrm` and `radrmd`, and the sockets that carry it.

// A test writes a whole specification as one value.
#![cfg_attr(test, recursion_limit = "256")]

pub mod after;
pub mod array;
pub mod asked;
mod bounds;
pub mod connection;
pub mod descriptor;
mod error;
pub mod job_ref;
mod lengths;
pub mod limits;
pub mod loader;
pub mod socket;
pub mod span;
pub mod spec;
mod specification;
pub mod stats;
pub mod together;
pub mod trial;
pub mod wire;
pub mod words;

pub use error::ProtocolError;
