//! Helpers that know nothing of CUDA.

pub mod caller;
pub mod ffi;
pub mod handles;
pub mod notes;
pub mod ranges;
pub mod sync;
pub mod thread;
pub mod time;
