//! The entry points by family.

#[macro_use]
mod entry;

pub mod array;
pub mod capture;
pub mod checkpoint;
pub mod context;
pub mod copy;
pub mod core_dump;
pub mod device;
pub mod error;
pub mod event;
pub mod exports;
pub mod external;
pub mod function;
pub mod graph;
pub mod green;
pub mod hide;
pub mod host_memory;
pub mod ipc;
pub mod kernel;
pub mod launch;
pub mod legacy_launch;
pub mod library;
pub mod link;
pub mod logs;
pub mod managed;
pub mod memops;
pub mod memory;
pub mod memset;
pub mod module;
pub mod occupancy;
pub mod pointer;
pub mod pool;
pub mod process;
pub mod profiler;
pub mod resolve;
pub mod stream;
pub mod tensor_map;
pub mod texture;
pub mod vmm;
