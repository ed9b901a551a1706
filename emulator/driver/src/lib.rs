//! Emulated CUDA driver (`libcuda.so.1`).
//!
//! Exports every name of the driver's interface. What has semantics here is written in the modules
//! with [`entry_points!`]; the build script finds those names and generates the rest (see
//! [`exports`]). Memory is accounted on the emulated machine, kernels are not executed.
//!
//! | module | is |
//! |---|---|
//! | [`state`] | the process's driver: machine, devices, registries; what every call begins with |
//! | [`ffi`] | pointers as C callers hand them over |
//! | [`exports`], [`resolve`], `hide` | generated exports, `cuGetProcAddress`, drivers that lack something |
//! | [`device`], [`context`], [`error`] | devices, contexts, names of errors |
//! | [`checkpoint`] | taking other processes off their GPUs and bringing them back |
//! | [`memory`] | everything that takes, copies or describes memory |
//! | [`code`], [`launch`], [`tensor_map`] | modules, libraries, kernels, functions, occupancy; launches |
//! | [`stream`], [`event`], [`capture`], [`graph`] | streams and virtual time, events, capture, graphs |
//!
//! Nothing is ever printed, except the names of missing entry points where `RADRM_EMULATOR_LOG=1`.
#![warn(missing_docs)]
#![allow(non_snake_case)]

#[macro_use]
pub mod ffi;

pub mod capture;
pub mod checkpoint;
pub mod code;
pub mod context;
pub mod device;
pub mod error;
pub mod event;
pub mod exports;
pub mod graph;
mod hide;
pub mod launch;
pub mod logs;
pub mod memory;
pub mod resolve;
pub mod state;
pub mod stream;
pub mod tensor_map;
