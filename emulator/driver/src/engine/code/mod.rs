//! Code: modules, libraries, kernels, functions.

pub mod footprint;
pub mod library;
pub mod module;
pub mod state;
