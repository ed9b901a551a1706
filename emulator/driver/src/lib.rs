//! Emulated CUDA driver (`libcuda.so.1`).
//!
//! Exports every name of the driver's interface. What has semantics here is written in [`api`] with `entry_points!`; the
//! build script finds those names and generates the rest (see [`api::exports`]). Memory is accounted on the emulated
//! machine, kernels are not executed.
//!
//! Four layers, each of which uses only those above it in this table:
//!
//! | layer | is |
//! |---|---|
//! | [`util`] | helpers that know nothing of CUDA: locks, handles, ranges, clocks |
//! | [`models`] | what a GPU is and how it behaves, without state: attributes, occupancy, times, code images, shapes |
//! | [`engine`] | the process's state, one [`engine::driver::Driver`], and what happens to it |
//! | [`api`] | the entry points by family, and the one place that makes and hands out the driver |
//!
//! Nothing is ever printed, except the names of missing entry points where `RADRM_EMULATOR_LOG=1`.
#![warn(missing_docs)]
#![allow(non_snake_case)]

pub mod api;
pub mod engine;
pub mod models;
pub mod util;
