//! Properties and behaviour of GPUs: sizes, tables, times, formats. No state.

pub mod array;
pub mod attributes;
pub mod copy;
pub mod cubin;
pub mod devices;
pub mod direction;
pub mod function;
pub mod image;
pub mod launch;
pub mod load;
pub mod lto;
pub mod memop;
pub mod mps;
pub mod occupancy;
pub mod placement;
pub mod ptx;
pub mod resource;
pub mod timing;
