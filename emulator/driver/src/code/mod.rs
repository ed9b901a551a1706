//! Code: modules, libraries, kernels, functions.
//!
//! | module | is |
//! |---|---|
//! | [`image`], [`ptx`], [`cubin`], [`load`] | what an image says about its kernels |
//! | [`registry`] | the objects behind the handles |
//! | [`module`], [`library`], [`function`], [`kernel`] | their entry points |
//! | [`occupancy_model`], [`occupancy`] | how many blocks fit on a multiprocessor |
//! | [`link`] | `cuLink*` |
//! | [`footprint`] | memory that loaded code takes |

pub mod cubin;
pub mod footprint;
pub mod function;
pub mod image;
pub mod kernel;
pub mod library;
pub mod link;
pub mod load;
pub mod module;
pub mod occupancy;
pub mod occupancy_model;
pub mod ptx;
pub mod registry;

pub use registry::{Launchable, launchable};

use std::sync::Arc;

use crate::context::Context;
use crate::state::Driver;

/// A context ends: its modules end with it.
pub fn context_destroyed(driver: &Driver, context: &Arc<Context>) {
    module::context_destroyed(driver, context.handle.addr());
}
