//! One data loader for many trainings.
//!
//! A producer runs the loader and writes each batch once into a ring of slots in shared memory. Consumers of the same
//! user map the slots and read the batches in place. Control goes over a Unix socket; no side runs code of the other's
//! choice, and everything that crosses the border is checked before it is used:
//!
//! - [`description`]: what a batch consists of, as bytes beside its data
//! - [`message`]: what both sides say over the socket
//! - [`ring`]: which slot holds what, who still needs it, and what happens to slow consumers; pure
//! - [`memory`]: slots, sealed so that consumers can only read them
//! - [`gpu`]: slots on a GPU
//! - [`place`]: socket, lock and record of a producer in the user's own directory
//! - [`producer`], [`consumer`]: both ends
//! - [`ffi`]: the functions that the Python package calls

mod bell;
pub mod consumer;
pub mod description;
mod error;
pub mod ffi;
pub mod gpu;
pub mod memory;
pub mod message;
mod pin;
pub mod place;
pub mod producer;
pub mod ring;
mod server;
mod sys;

pub use error::Error;
