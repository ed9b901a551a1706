//! The CUDA runtime on the driver's public interface.
//!
//! | module | is |
//! |---|---|
//! | [`error`] | the thread's last error, names of errors |
//! | [`device`] | devices and contexts: what the runtime does before it can do anything |
//! | `entry` | what every function of the runtime does first and last |
//! | [`code`] | fat binaries, kernels and variables that a program registers |
//! | [`launch`] | launches, function attributes, occupancy |
//! | [`memory`], [`copy`] | memory, copies and memsets |
//! | [`mod@array`], [`copy_array`], [`texture`] | arrays, copies to and from them, texture and surface objects |
//! | `counts`, `known` | numbers of elements that depend on data; the little that is known of contents |
//! | [`graph`], [`stream`] | graphs; streams and events, as far as they differ from the driver's |
//! | [`forward`] | all functions that mean the same to the driver, generated from `data/forwards.tsv` |

pub mod array;
pub mod code;
pub mod copy;
pub mod copy_array;
mod counts;
pub mod device;
mod dim3;
mod entry;
pub mod error;
pub mod forward;
pub mod graph;
pub(crate) mod known;
pub mod launch;
pub mod memory;
pub mod stream;
pub mod texture;

pub(crate) use entry::{bare_call, call, runtime};
